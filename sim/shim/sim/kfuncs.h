/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * kfuncs and BPF helpers as Linux 6.18 has them. What is not here is not modelled: a scheduler that
 * calls it does not compile.
 */
#ifndef __SIM_KFUNCS_H
#define __SIM_KFUNCS_H

#include "maps.h"

static inline u64 scx_bpf_now(void)
{
	sim_point();
	return sim_env.now_ns;
}

static inline u64 bpf_ktime_get_ns(void)
{
	return sim_env.now_ns;
}

static inline u32 bpf_get_smp_processor_id(void)
{
	return sim_env.cpu;
}

static inline struct task_struct *bpf_get_current_task_btf(void)
{
	return sim_env.current;
}

static inline s32 scx_bpf_task_cpu(const struct task_struct *p)
{
	sim_point();
	return p->sim_cpu;
}

static inline s32 scx_bpf_create_dsq(u64 dsq, s32 node)
{
	return sim_create_dsq(sim_env.kernel, dsq, node);
}

static inline s32 scx_bpf_dsq_nr_queued(u64 dsq)
{
	sim_point();
	return sim_dsq_nr_queued(sim_env.kernel, dsq);
}

static inline void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq, u64 slice, u64 enq_flags)
{
	sim_point();
	sim_dsq_insert(sim_env.kernel, p, dsq, slice, 0, enq_flags, false);
}

static inline void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime,
					    u64 enq_flags)
{
	sim_point();
	sim_dsq_insert(sim_env.kernel, p, dsq, slice, vtime, enq_flags, true);
}

static inline bool sim_move_to_local(u64 dsq)
{
	sim_point();
	return sim_dsq_move_to_local(sim_env.kernel, dsq);
}

/* Older sources pass no flags. */
#define scx_bpf_dsq_move_to_local(dsq, flags...) sim_move_to_local(dsq)

static inline int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq, u64 flags)
{
	sim_point();
	*it = (struct bpf_iter_scx_dsq){.dsq = dsq, .flags = flags};
	sim_dsq_iter_new(sim_env.kernel, it);
	return 0;
}

static inline struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	sim_point();
	return sim_dsq_iter_next(sim_env.kernel, it);
}

static inline void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it)
{
}

static inline void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime)
{
	it->vtime = vtime;
	it->state |= SIM_ITER_SET_VTIME;
}

static inline bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p,
					  u64 dsq, u64 enq_flags)
{
	sim_point();
	return sim_dsq_move(sim_env.kernel, it, p, dsq, enq_flags, true);
}

static inline bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
				    u64 enq_flags)
{
	sim_point();
	return sim_dsq_move(sim_env.kernel, it, p, dsq, enq_flags, false);
}

static inline void scx_bpf_task_set_slice(struct task_struct *p, u64 slice)
{
	sim_point();
	p->scx.slice = slice;
}

static inline void scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime)
{
	sim_point();
	p->scx.dsq_vtime = vtime;
}

static inline void scx_bpf_kick_cpu(s32 cpu, u64 flags)
{
	sim_point();
	sim_kick_cpu(sim_env.kernel, cpu, flags);
}

static inline bool scx_bpf_test_and_clear_cpu_idle(s32 cpu)
{
	sim_point();
	return sim_test_and_clear_cpu_idle(sim_env.kernel, cpu);
}

static inline s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags)
{
	sim_point();
	return sim_pick_idle_cpu(sim_env.kernel, allowed, flags);
}

static inline s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags,
					 bool *is_idle)
{
	sim_point();
	return sim_select_cpu_dfl(sim_env.kernel, p, prev_cpu, wake_flags, is_idle);
}

/* Symbols of the kernel are not looked up: the simulator says where the mask of active CPUs is. */
static inline long bpf_kallsyms_lookup_name(const char *name, int size, int flags, u64 *found)
{
	return -ENOENT;
}

#define __COMPAT_HAS_scx_bpf_select_cpu_and true
#define __COMPAT_is_enq_cpu_selected(flags) (!!((flags) & SCX_ENQ_CPU_SELECTED))

static inline s32 scx_bpf_select_cpu_and(struct task_struct *p, s32 prev_cpu, u64 wake_flags,
					 const struct cpumask *allowed, u64 flags)
{
	sim_point();
	if (flags)
		sim_error(sim_env.kernel, "scx_bpf_select_cpu_and(): flags are not in this model");
	return sim_select_cpu_and(sim_env.kernel, p, prev_cpu, wake_flags, allowed);
}

static inline const struct cpumask *scx_bpf_get_idle_cpumask(void)
{
	sim_point();
	return sim_idle_cpumask(sim_env.kernel);
}

static inline const struct cpumask *scx_bpf_get_idle_smtmask(void)
{
	sim_point();
	return sim_idle_smtmask(sim_env.kernel);
}

static inline void scx_bpf_put_idle_cpumask(const struct cpumask *mask)
{
	sim_point();
}

static inline const struct cpumask *scx_bpf_get_online_cpumask(void)
{
	sim_point();
	return sim_online_cpumask(sim_env.kernel);
}

static inline void scx_bpf_put_cpumask(const struct cpumask *mask)
{
	sim_point();
}

static inline struct task_struct *__COMPAT_scx_bpf_cpu_curr(s32 cpu)
{
	sim_point();
	return sim_cpu_curr(sim_env.kernel, cpu);
}

/* Before 6.19, only from ops.cpu_release(). */
static inline u32 scx_bpf_reenqueue_local___v1(void)
{
	sim_point();
	return sim_reenqueue_local(sim_env.kernel);
}

static inline int scx_bpf_reenqueue_local_from_anywhere(void)
{
	return -EINVAL;
}

extern struct rq runqueues;
#define bpf_per_cpu_ptr(variable, cpu) ((typeof(variable))(variable) + (cpu))

/* No program disables the migration of the task that it runs on: PREEMPT_RCU is off. */
static inline bool is_migration_disabled(const struct task_struct *p)
{
	return p->migration_disabled;
}

static inline struct bpf_cpumask *bpf_cpumask_create(void)
{
	return sim_cpumask_create(sim_env.kernel);
}

/* The simulation owns it. */
static inline void bpf_cpumask_release(struct bpf_cpumask *mask)
{
}

#define bpf_kptr_xchg(pointer, value)                   \
	({                                              \
		typeof(*(pointer)) ___old = *(pointer); \
		*(pointer) = (value);                   \
		___old;                                 \
	})

static inline void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	sim_point();
	mask->cpumask.bits[cpu / 64] |= 1ULL << (cpu % 64);
}

static inline void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	sim_point();
	mask->cpumask.bits[cpu / 64] &= ~(1ULL << (cpu % 64));
}

static inline bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask)
{
	sim_point();
	return cpu < SIM_MAX_CPUS && (mask->bits[cpu / 64] >> (cpu % 64) & 1);
}

static inline bool bpf_cpumask_and(struct bpf_cpumask *to, const struct cpumask *a,
				   const struct cpumask *b)
{
	u64 any = 0;
	u32 i;

	sim_point();
	for (i = 0; i < sim_env.nr_words; i++)
		any |= to->cpumask.bits[i] = a->bits[i] & b->bits[i];
	return any;
}

static inline bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b)
{
	u32 i;

	sim_point();
	for (i = 0; i < sim_env.nr_words; i++) {
		if (a->bits[i] & b->bits[i])
			return true;
	}
	return false;
}

static inline bool bpf_cpumask_subset(const struct cpumask *a, const struct cpumask *b)
{
	u32 i;

	sim_point();
	for (i = 0; i < sim_env.nr_words; i++) {
		if (a->bits[i] & ~b->bits[i])
			return false;
	}
	return true;
}

static inline void bpf_rcu_read_lock(void)
{
}

static inline void bpf_rcu_read_unlock(void)
{
}

static inline int bpf_probe_read_kernel(void *to, u32 size, const void *from)
{
	if (!from)
		return -EFAULT;
	memcpy(to, from, size);
	return 0;
}

static inline int bpf_probe_read_kernel_str(void *to, u32 size, const void *from)
{
	const char *text = from;
	char *copy = to;
	u32 i;

	for (i = 0; i + 1 < size && text[i]; i++)
		copy[i] = text[i];
	copy[i] = 0;
	return i + 1;
}

static inline int bpf_strncmp(const char *a, u32 size, const char *b)
{
	u32 i;

	for (i = 0; i < size; i++) {
		if (a[i] != b[i])
			return (u8)a[i] < (u8)b[i] ? -1 : 1;
		if (!a[i])
			break;
	}
	return 0;
}

#endif /* __SIM_KFUNCS_H */
