/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * In place of scx's header of that name, where a scheduler is compiled for the simulator: sections,
 * programs and CO-RE become plain C; the kernel is the simulator's.
 */
#ifndef __SIM_SCX_COMMON_BPF_H
#define __SIM_SCX_COMMON_BPF_H

#include "../sim/kfuncs.h"

#define SEC(name)     __attribute__((used))
#define private(name) __attribute__((visibility("hidden")))
#define __kptr
#define __ksym
#define __arg_trusted
#define __arg_nonnull
#define __weak		      __attribute__((weak))
#define __noinline	      __attribute__((noinline))
#define __always_inline	      inline __attribute__((always_inline))
#define barrier_var(variable) asm volatile("" : "+r"(variable))

#define BPF_PROG(name, args...)			name(args)
#define BPF_STRUCT_OPS(name, args...)		name(args)
#define BPF_STRUCT_OPS_SLEEPABLE(name, args...) name(args)

/* A scheduler has one; the simulator finds it by this name. */
#define SCX_OPS_DEFINE(name_, values...)       \
	struct sched_ext_ops name_ = {values}; \
	struct sched_ext_ops *const sim_ops = &name_

#define UEI_DEFINE(name)	    struct scx_exit_info name
#define UEI_RECORD(name, info)	    ((name) = *(info))
#define scx_bpf_error(fmt, args...) sim_report(fmt, ##args)

#define bpf_core_cast(ptr, type)	   ((type *)(ptr))
#define bpf_core_field_exists(field)	   1
#define bpf_core_field_offset(type, field) __builtin_offsetof(type, field)

/* As in BPF, what is read through a null pointer is zero. */
#define SIM_READ1(from, a)		   ((from)->a)
#define SIM_READ2(from, a, b)		   ((from)->a->b)
#define SIM_READ3(from, a, b, c)	   ((from)->a->b->c)
#define SIM_READ4(from, a, b, c, d)	   ((from)->a->b->c->d)
#define SIM_READ_N(_1, _2, _3, _4, n, ...) SIM_READ##n
#define SIM_READ(from, args...)		   SIM_READ_N(args, 4, 3, 2, 1)(from, ##args)
#define BPF_CORE_READ(from, args...)                                                        \
	({                                                                                  \
		typeof(from) ___from = (from);                                              \
		___from ? SIM_READ(___from, ##args) : (typeof(SIM_READ(___from, ##args)))0; \
	})

struct sim_range {
	s64 at;
	s64 end;
};

#define bpf_for(i, start, end_)                             \
	for (struct sim_range ___range = {(start), (end_)}; \
	     ___range.at < ___range.end && ((i) = ___range.at++, true);)

#define bpf_for_each(type, cursor, args...)                                                    \
	for (struct bpf_iter_##type ___it __attribute__((cleanup(bpf_iter_##type##_destroy))), \
	     *___unused __attribute__((unused)) =                                              \
		     (bpf_iter_##type##_new(&___it, args), (struct bpf_iter_##type *)NULL);    \
	     ((cursor) = bpf_iter_##type##_next(&___it));)
#define BPF_FOR_EACH_ITER (&___it)

static inline s64 time_delta(u64 after, u64 before)
{
	s64 delta = after - before;

	return delta > 0 ? delta : 0;
}

static inline bool time_after(u64 a, u64 b)
{
	return (s64)(b - a) < 0;
}

static inline bool time_before(u64 a, u64 b)
{
	return time_after(b, a);
}

static inline bool time_after_eq(u64 a, u64 b)
{
	return (s64)(a - b) >= 0;
}

static inline bool time_before_eq(u64 a, u64 b)
{
	return time_after_eq(b, a);
}

static inline u64 scale_by_task_weight(const struct task_struct *p, u64 value)
{
	return value * p->scx.weight / 100;
}

static inline u64 scale_by_task_weight_inverse(const struct task_struct *p, u64 value)
{
	return value * 100 / p->scx.weight;
}

/* scx's counts from one. */
static inline u32 log2_u64(u64 v)
{
	return v ? 64 - __builtin_clzll(v) : 1;
}

#endif /* __SIM_SCX_COMMON_BPF_H */
