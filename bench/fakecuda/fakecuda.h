/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the emulated CUDA driver share: configuration, handles, objects, the timeline.
 *
 * One mutex guards every object. It is held for well under a microsecond, except while the bytes of
 * a copy move, and never while a launch pays its CPU cost or while somebody waits for the GPU:
 * completion times are known when work is queued, so a wait needs nothing but a time.
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#define FK_DRIVER_VERSION  13000
#define FK_MAX_DEVICES	   16
#define FK_MAX_CONCURRENT  128
#define FK_NAME_LEN	   256
#define FK_MAX_PARAM_BYTES 4096
#define FK_ALIGNMENT	   512ull /* of device memory, in bytes */

/* What fk_driver_state is when the process ends. */
#define FK_SHUT_DOWN 0x46414b45

/* What those of FK_ENTRY say then: CUDA_ERROR_DEINITIALIZED, for the assembler. */
#define FK_DEINITIALIZED 4

_Static_assert(FK_DEINITIALIZED == CUDA_ERROR_DEINITIALIZED, "as in cuda.h");

extern uint32_t fk_driver_state __attribute__((visibility("hidden")));

/*
 * Defines an entry point that begins as those of the genuine library do, with a look at whether the
 * driver shuts down, so that a uprobe on it costs what it costs there. In assembly, as the compiler
 * would put what it saves and the arguments on the stack in between.
 */
/* clang-format off */
#define FK_ENTRY(name, params)                                                                   \
	CUresult fk_##name params;                                                               \
	__asm__(".pushsection .text\n"                                                           \
		".globl " #name "\n.type " #name ", @function\n.p2align 4\n"                     \
		#name ":\n"                                                                      \
		"	cmpl $" FK_STRING(FK_SHUT_DOWN) ", fk_driver_state(%rip)\n"               \
		"	je 1f\n"                                                                 \
		"	jmp fk_" #name "\n"                                                      \
		"1:	movl $" FK_STRING(FK_DEINITIALIZED) ", %eax\n"                            \
		"	ret\n"                                                                   \
		".size " #name ", . - " #name "\n"                                               \
		".popsection");                                                                  \
	CUresult fk_##name params
/* clang-format on */

#define FK_STRING(text)	   FK_STRING_OF(text)
#define FK_STRING_OF(text) #text

/* Read once by cuInit; README.md documents each with unit and default. */
struct fk_config {
	uint64_t launch_ns;
	uint64_t graph_launch_ns;
	uint64_t graph_node_ns;
	uint64_t kernel_ns;
	uint64_t start_ns;
	uint64_t copy_mib_per_s;
	uint64_t mem_mib;
	uint32_t concurrent;
	uint32_t queue;
	uint32_t devices;
};

enum fk_kind {
	FK_CONTEXT = 1,
	FK_MODULE,
	FK_FUNCTION,
	FK_STREAM,
	FK_EVENT,
	FK_GRAPH,
	FK_GRAPH_EXEC,
	FK_GRAPH_NODE,
	FK_NR_KINDS,
};

/* Every object begins with this; owner is the context it dies with. */
struct fk_object {
	enum fk_kind kind;
	uint64_t handle;
	uint64_t owner;
	void (*destroy)(
		struct fk_object *obj); /* when its owner goes; NULL: another object's part */
};

enum fk_wait {
	FK_WAIT_SPIN,
	FK_WAIT_YIELD,
	FK_WAIT_BLOCK,
};

struct fk_context {
	struct fk_object obj;
	CUdevice device;
	unsigned int flags;
	bool primary;
	uint64_t legacy_stream;
	uint64_t blocking_done_ns; /* when all that blocking streams hold will be done */
	uint64_t all_done_ns;	   /* when all that this context queued will be done */
};

struct fk_function {
	struct fk_object obj;
	uint64_t module;
	char name[FK_NAME_LEN];
	bool duration_is_param; /* the first parameter is how long it runs, in ns */
	bool params_known;
	uint32_t nr_params;
	uint32_t param_bytes;
};

struct fk_module {
	struct fk_object obj;
	uint32_t nr_functions;
	uint64_t *functions;
	bool open_names; /* a compressed image: any name is taken for a kernel */
};

struct fk_capture;

struct fk_stream {
	struct fk_object obj;
	unsigned int flags;
	int priority;
	bool legacy;
	bool per_thread;
	uint64_t id;
	uint64_t done_ns; /* when all that it holds will be done */
	uint64_t *ring;	  /* completion times of the newest launches */
	uint64_t nr_launches;
	struct fk_capture *capture;
	uint32_t *capture_deps; /* nodes that the next captured work depends on */
	uint32_t nr_capture_deps;
};

struct fk_event {
	struct fk_object obj;
	unsigned int flags;
	bool recorded;
	uint64_t done_ns;
	uint64_t capture_id; /* 0: recorded outside a capture */
	uint32_t *capture_deps;
	uint32_t nr_capture_deps;
};

enum fk_work_kind {
	FK_WORK_KERNEL,
	FK_WORK_COPY,
	FK_WORK_SET,
};

/* Something that takes time on the device. Bytes move when it is queued, time passes afterwards. */
struct fk_work {
	enum fk_work_kind kind;
	uint64_t duration_ns;
	uint64_t dst;
	uint64_t src;
	uint64_t bytes;
	uint32_t value;
	uint32_t value_bytes;
};

struct fk_node {
	struct fk_work work;
	uint32_t *deps;
	uint32_t nr_deps;
	uint64_t handle; /* of its fk_graph_node, 0 until somebody asks */
};

struct fk_graph {
	struct fk_object obj;
	uint32_t nr_nodes;
	uint32_t capacity;
	struct fk_node *nodes;
};

struct fk_graph_node {
	struct fk_object obj;
	uint64_t graph;
	uint32_t index;
};

struct fk_graph_exec {
	struct fk_object obj;
	uint32_t nr_nodes;
	struct fk_node *nodes;
	uint64_t *done_ns; /* scratch for one launch */
	uint64_t last_done_ns;
};

struct fk_launch {
	CUfunction function;
	unsigned int grid[3];
	unsigned int block[3];
	unsigned int shared_bytes;
	CUstream stream;
	bool ptsz;
	bool cooperative;
	void **params;
	void **extra;
};

struct fk_allocation {
	uint64_t base;
	uint64_t bytes;
	uint64_t owner;
	CUdevice device;
	bool host;
	unsigned char *backing;
};

extern struct fk_config fk_config;

/* config.c */
CUresult fk_config_read(void);

/* clock.c */
uint64_t fk_now_ns(void);
uint64_t fk_spin_until(uint64_t deadline_ns);

/* event_handler.c */
void fk_sleep_until(uint64_t until_ns);

/* wait.c */
void fk_wait_until(uint64_t deadline_ns, enum fk_wait how);

/* state.c */
void fk_lock(void);
void fk_unlock(void);
CUresult fk_leave(CUresult result);
bool fk_initialized(void);
void fk_set_initialized(void);

/* handle.c: callers hold the lock */
void *fk_object_new(enum fk_kind kind, size_t size, uint64_t owner);
void *fk_object_get(enum fk_kind kind, const void *handle);
void *fk_object_get_u64(enum fk_kind kind, uint64_t handle);
void fk_object_free(struct fk_object *obj);
void fk_objects_of(enum fk_kind kind, uint64_t owner, void (*visit)(void *obj));
void fk_objects_destroy(uint64_t owner);
#define FK_HANDLE(type, ptr) ((type)(uintptr_t)(ptr)->obj.handle)

/* context.c */
CUresult fk_enter(struct fk_context **ctx);
enum fk_wait fk_wait_mode(const struct fk_context *ctx);

/* device.c */
bool fk_device_valid(CUdevice dev);

/* function.c */
CUresult fk_function_load(struct fk_module *module, const char *name, uint32_t nr_params,
			  uint32_t param_bytes, bool params_known);
void fk_functions_free(struct fk_module *module);

/* image.c */
CUresult fk_image_scan(struct fk_module *module, const void *image);

/* stream.c */
CUresult fk_stream_resolve(struct fk_context *ctx, CUstream handle, bool ptsz,
			   struct fk_stream **out);
CUresult fk_enter_stream(CUstream handle, bool ptsz, struct fk_context **ctx,
			 struct fk_stream **stream);

/* timeline.c: callers hold the lock */
uint64_t fk_timeline_run(CUdevice dev, const struct fk_work *work, uint64_t ready_ns);
uint64_t fk_stream_ready_ns(struct fk_context *ctx, const struct fk_stream *stream,
			    uint64_t now_ns);
void fk_stream_advance(struct fk_context *ctx, struct fk_stream *stream, uint64_t done_ns);
uint64_t fk_queue_full_until(const struct fk_stream *stream, uint64_t now_ns);
void fk_queue_push(struct fk_stream *stream, uint64_t done_ns);
void fk_work_apply(const struct fk_work *work);

/* allocation.c: callers hold the lock */
CUresult fk_memory_allocate(const struct fk_context *ctx, uint64_t bytes, bool host,
			    uint64_t *base);
CUresult fk_memory_free(uint64_t base, bool host);
void fk_memory_release_owner(uint64_t owner);
const struct fk_allocation *fk_memory_find(uint64_t address, bool host);
uint64_t fk_memory_used(CUdevice dev);
bool fk_memory_valid(uint64_t address, uint64_t bytes);
void fk_memory_copy(uint64_t dst, uint64_t src, uint64_t bytes);
void fk_memory_set(uint64_t dst, uint64_t bytes, uint32_t value, uint32_t value_bytes);

/* capture.c: callers hold the lock */
CUresult fk_capture_check_legacy(struct fk_context *ctx, const struct fk_stream *stream);
CUresult fk_capture_add(struct fk_stream *stream, const struct fk_work *work);
CUresult fk_capture_forbid(struct fk_stream *stream);
CUresult fk_capture_forbid_all(struct fk_context *ctx);
CUresult fk_capture_record_event(struct fk_stream *stream, struct fk_event *event);
CUresult fk_capture_wait_event(struct fk_stream *stream, const struct fk_event *event);
void fk_capture_drop_stream(struct fk_stream *stream);
CUresult fk_capture_begin(struct fk_stream *stream, CUstreamCaptureMode mode);
CUresult fk_capture_end(struct fk_context *ctx, struct fk_stream *stream, CUgraph *out);
CUresult fk_capture_status(struct fk_context *ctx, const struct fk_stream *stream,
			   CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph);

/* graph.c */
struct fk_graph *fk_graph_new(void);
CUresult fk_graph_append(struct fk_graph *graph, const struct fk_work *work, const uint32_t *deps,
			 uint32_t nr_deps, uint32_t *index);
void fk_graph_destroy(struct fk_graph *graph);

#endif /* FAKECUDA_H */
