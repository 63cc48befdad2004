// SPDX-License-Identifier: GPL-2.0-only
/*
 * What every natively compiled scheduler needs once: the environment, the table of the simulator's
 * functions by name, the layouts that the simulator compares with its own, and what the compiler
 * calls by itself.
 */
#include "sim/env.h"

struct sim_env sim_env;

#define SIM_DEFINE(type, name, args...) type (*sim_##name)(args);
SIM_KFUNCS(SIM_DEFINE)

struct sim_kfunc {
	const char *name;
	void *slot;
};

#define SIM_LIST(type, name, args...) {#name, (void *)&sim_##name},
struct sim_kfunc sim_kfuncs[] = {SIM_KFUNCS(SIM_LIST){NULL, NULL}};

/* In the order of src/abi.rs. */
const u64 sim_layout[] = {
	sizeof(struct task_struct),
	__builtin_offsetof(struct task_struct, cpus_ptr),
	__builtin_offsetof(struct task_struct, scx.slice),
	__builtin_offsetof(struct task_struct, sim_cpu),
	__builtin_offsetof(struct task_struct, sim_storage),
	sizeof(struct cgroup),
	__builtin_offsetof(struct cgroup, ancestors),
	sizeof(struct scx_cgroup_init_args),
	__builtin_offsetof(struct sched_ext_ops, flags),
	__builtin_offsetof(struct sched_ext_ops, cgroup_set_bandwidth),
	sizeof(struct scx_cpu_release_args),
	sizeof(struct rq),
	sizeof(struct sim_env),
	sizeof(struct sim_map),
	sizeof(struct bpf_iter_scx_dsq),
	0,
};

/* The simulator says where a real-time task is queued. */
struct rq runqueues[SIM_MAX_CPUS];

__attribute__((visibility("hidden"))) void *memcpy(void *to, const void *from, size_t size)
{
	const u8 *source = from;
	u8 *target = to;

	while (size--)
		*target++ = *source++;
	return to;
}

__attribute__((visibility("hidden"))) void *memset(void *to, int byte, size_t size)
{
	u8 *target = to;

	while (size--)
		*target++ = byte;
	return to;
}

struct text {
	char bytes[256];
	u32 length;
};

static void put(struct text *text, char byte)
{
	if (text->length < sizeof(text->bytes) - 1)
		text->bytes[text->length++] = byte;
}

static void put_number(struct text *text, u64 number, u32 base)
{
	if (number >= base)
		put_number(text, number / base, base);
	put(text, "0123456789abcdef"[number % base]);
}

/* The formats of bpf_printk() that schedulers use: %d %u %x, with l and ll, and %s. */
void sim_report(const char *fmt, ...)
{
	struct text text = {};
	__builtin_va_list args;

	__builtin_va_start(args, fmt);
	for (; *fmt; fmt++) {
		bool wide = false;
		s64 number;

		if (*fmt != '%') {
			put(&text, *fmt);
			continue;
		}
		while (*++fmt == 'l')
			wide = true;
		if (*fmt == 's') {
			const char *word = __builtin_va_arg(args, const char *);

			while (*word)
				put(&text, *word++);
			continue;
		}
		number = wide ? __builtin_va_arg(args, s64) : __builtin_va_arg(args, s32);
		if (*fmt == 'd' && number < 0) {
			put(&text, '-');
			number = -number;
		}
		put_number(&text, wide || *fmt == 'd' ? (u64)number : (u32)number,
			   *fmt == 'x' ? 16 : 10);
	}
	__builtin_va_end(args);
	sim_error(sim_env.kernel, text.bytes);
}
