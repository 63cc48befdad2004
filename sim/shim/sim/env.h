/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a natively compiled scheduler reaches the simulator: what the simulator sets before each
 * callback, and pointers to its functions, found by name. A loaded copy has one of each.
 */
#ifndef __SIM_ENV_H
#define __SIM_ENV_H

#include "kernel.h"

struct sim_env {
	void *kernel; /* the simulator's */
	u64 now_ns;
	struct task_struct *current;
	s32 cpu;
	u32 nr_words; /* of a cpumask, that have bits of this machine */
	u32 points;   /* until other CPUs may go on: see sim_point(); 0: they never do */
	u32 nr_locks; /* that are held */
};
extern struct sim_env sim_env;

struct sim_map {
	u64 max_entries;
	u64 value_size; /* rounded up to 8 */
	u64 index;	/* of task storage, in sim_storage */
	u8 *values;	/* of an array; one after the other for each CPU if it is per CPU */
};

struct bpf_iter_scx_dsq {
	u64 dsq;
	u64 flags;
	u64 limit; /* what was queued later is not seen */
	s64 order; /* where the last one was */
	u64 seq;
	u64 slice;
	u64 vtime;
	u32 state; /* SIM_ITER_* */
};
#define SIM_ITER_STARTED   1
#define SIM_ITER_SET_VTIME 2

#define SIM_KFUNCS(X)                                                                              \
	X(s32, create_dsq, void *, u64, s32)                                                       \
	X(s32, dsq_nr_queued, void *, u64)                                                         \
	X(void, dsq_insert, void *, struct task_struct *, u64, u64, u64, u64, bool)                \
	X(bool, dsq_move_to_local, void *, u64)                                                    \
	X(void, dsq_iter_new, void *, struct bpf_iter_scx_dsq *)                                   \
	X(struct task_struct *, dsq_iter_next, void *, struct bpf_iter_scx_dsq *)                  \
	X(bool, dsq_move, void *, struct bpf_iter_scx_dsq *, struct task_struct *, u64, u64, bool) \
	X(void, kick_cpu, void *, s32, u64)                                                        \
	X(bool, test_and_clear_cpu_idle, void *, s32)                                              \
	X(s32, pick_idle_cpu, void *, const struct cpumask *, u64)                                 \
	X(s32, select_cpu_dfl, void *, struct task_struct *, s32, u64, bool *)                     \
	X(s32, select_cpu_and, void *, struct task_struct *, s32, u64, const struct cpumask *)     \
	X(const struct cpumask *, idle_cpumask, void *)                                            \
	X(const struct cpumask *, idle_smtmask, void *)                                            \
	X(const struct cpumask *, online_cpumask, void *)                                          \
	X(struct task_struct *, cpu_curr, void *, s32)                                             \
	X(u32, reenqueue_local, void *)                                                            \
	X(struct bpf_cpumask *, cpumask_create, void *)                                            \
	X(struct sim_map *, map_create, void *, u32, u32, u32, u32)                                \
	X(void *, hash_lookup, void *, struct sim_map *, const void *)                             \
	X(s32, hash_update, void *, struct sim_map *, const void *, const void *, u64)             \
	X(s32, hash_delete, void *, struct sim_map *, const void *)                                \
	X(void *, storage_create, void *, struct task_struct *, u32, u32)                          \
	X(u64, timer_init, void *, void *, void *)                                                 \
	X(s32, timer_set_callback, void *, u64, void *)                                            \
	X(s32, timer_start, void *, u64, u64)                                                      \
	X(void, interleave, void *)                                                                \
	X(void, error, void *, const char *)

#define SIM_DECLARE(type, name, args...) extern type (*sim_##name)(args);
SIM_KFUNCS(SIM_DECLARE)

/*
 * Other CPUs may run callbacks here, in the middle of this one: at kfuncs and helpers, and before
 * and after atomic operations. Blocks of the variant that is metered are those of the scheduler.
 */
static inline void sim_point(void)
{
#ifndef SIM_METERED
	if (__builtin_expect(sim_env.points && !sim_env.nr_locks, 0) && !--sim_env.points)
		sim_interleave(sim_env.kernel);
#endif
}

#define SIM_ATOMIC(operation)                \
	({                                   \
		typeof(operation) ___result; \
		sim_point();                 \
		___result = operation;       \
		sim_point();                 \
		___result;                   \
	})
#define __sync_fetch_and_add(at, value) SIM_ATOMIC(__sync_fetch_and_add(at, value))
#define __sync_fetch_and_sub(at, value) SIM_ATOMIC(__sync_fetch_and_sub(at, value))
#define __sync_fetch_and_or(at, value)	SIM_ATOMIC(__sync_fetch_and_or(at, value))
#define __sync_fetch_and_and(at, value) SIM_ATOMIC(__sync_fetch_and_and(at, value))
#define __sync_val_compare_and_swap(at, old, new) \
	SIM_ATOMIC(__sync_val_compare_and_swap(at, old, new))

void sim_report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);

#endif /* __SIM_ENV_H */
