// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records the scheduler's callbacks: a program for each, of the same name, that recorder.rs
 * attaches to the entry of the scheduler's own. Includes nothing: compiled in the lab, where a
 * compiler is slow.
 */
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))

static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static long (*const bpf_ringbuf_output)(void *map, void *data, u64 size, u64 flags) = (void *)130;

enum { NO_WAKEUP = 1 };

char _license[] SEC("license") = "GPL";

struct task_struct {
	int pid;
} __attribute__((preserve_access_index));

struct {
	int (*type)[27]; /* BPF_MAP_TYPE_RINGBUF */
	int (*max_entries)[1 << 24];
} calls SEC(".maps");

/* As in recorder.rs. */
struct call {
	u32 callback;
	u32 cpu;
	int pid;
	u32 pad;
	u64 flags;
};

u64 lost;

/* Whatever is no argument is not looked at. */
static void record(u64 *ctx, u32 callback, int task_at, int flags_at)
{
	struct call call = {.callback = callback, .cpu = bpf_get_smp_processor_id(), .pid = -1};
	struct task_struct *task;
	u64 arguments[3];

	/* The one argument of a struct_ops program is where its own arguments are. */
	if (bpf_probe_read_kernel(arguments, sizeof(arguments), (void *)ctx[0]))
		return;
	if (task_at >= 0 && arguments[task_at]) {
		task = (void *)arguments[task_at];
		bpf_probe_read_kernel(&call.pid, sizeof(call.pid), &task->pid);
	}
	if (flags_at >= 0)
		call.flags = arguments[flags_at];
	if (bpf_ringbuf_output(&calls, &call, sizeof(call), NO_WAKEUP))
		__sync_fetch_and_add(&lost, 1);
}

#define RECORD(number, name, task_at, flags_at)         \
	SEC("fentry")                                   \
	int name(u64 *ctx)                              \
	{                                               \
		record(ctx, number, task_at, flags_at); \
		return 0;                               \
	}

/* Numbers as in recorder.rs. */
RECORD(0, select_cpu, 0, 2)
RECORD(1, enqueue, 0, 1)
RECORD(2, dispatch, 1, -1)
RECORD(3, runnable, 0, 1)
RECORD(4, running, 0, -1)
RECORD(5, stopping, 0, 1)
RECORD(6, quiescent, 0, 1)
RECORD(7, yield, 0, -1)
RECORD(8, update_idle, -1, 1)
RECORD(9, cpu_release, -1, -1)
