/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The set of preferred CPUs. User space chooses it (src/topology/choose.rs) and may change it at
 * any time; readers that see half of a change tolerate it, as the next wakeup looks again.
 */
#ifndef __GPUAWARE_PREFERRED_BPF_H
#define __GPUAWARE_PREFERRED_BPF_H

#include "dsq.bpf.h"
#include "irq.bpf.h"

/* What user space asks for, read by `set_preferred`. */
struct gpuaware_preferred preferred_request;

/* The set in force, best first, and the same as a mask for those that ask for one CPU. */
static struct gpuaware_preferred preferred;
static bool cpu_preferred[GPUAWARE_MAX_CPUS];

private(PREFERRED) struct bpf_cpumask __kptr *other_cpumask;
/* Preferred CPUs that background may use now: not held. */
private(PREFERRED) struct bpf_cpumask __kptr *lendable_cpumask;

static __always_inline bool is_preferred(s32 cpu)
{
	return cpu_preferred[cpu_index(cpu)];
}

/* Is @cpu kept from background, also while nobody needs it? */
static __always_inline bool is_never_lent(s32 cpu)
{
	return !tunables.lend && is_preferred(cpu);
}

static __always_inline void set_lendable(s32 cpu, bool lendable)
{
	struct bpf_cpumask *mask = lendable_cpumask;

	if (!mask)
		return;
	if (lendable && tunables.lend)
		bpf_cpumask_set_cpu(cpu, mask);
	else
		bpf_cpumask_clear_cpu(cpu, mask);
}

/* Background runs on it only while it is lent. */
static __always_inline void prefer(s32 cpu, bool on)
{
	struct bpf_cpumask *other = other_cpumask;
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	/* Who ends holds looks at preferred CPUs only. */
	if (cctx)
		cctx->hold_until_ns = 0;
	if (other && on)
		bpf_cpumask_clear_cpu(cpu, other);
	else if (other)
		bpf_cpumask_set_cpu(cpu, other);
	set_lendable(cpu, on);
	cpu_preferred[cpu_index(cpu)] = on;
}

/*
 * May @p run nowhere but on preferred CPUs? A global function: see may_run_on(). It locks RCU as
 * release_due() does.
 */
__noinline bool needs_preferred(struct task_struct *p __arg_trusted)
{
	struct bpf_cpumask *other;
	bool needs;

	bpf_rcu_read_lock();
	other = other_cpumask;
	needs = is_restricted(p) && other &&
		!bpf_cpumask_intersects((const struct cpumask *)other, p->cpus_ptr);
	bpf_rcu_read_unlock();
	return needs;
}

/* May background task @p run nowhere but on preferred CPUs, and these are never lent? */
static __always_inline bool is_confined(struct task_struct *p)
{
	return !tunables.lend && needs_preferred(p);
}

/* Does @p, as background, wait in the queue of its CPU? That is served whatever is not lent. */
static __always_inline bool queues_at_cpu(struct task_struct *p)
{
	return is_pinned(p) || is_confined(p);
}

/* Where background task @p waits for @cpu, and whom it competes with there. */
static __always_inline u64 background_queue(struct task_struct *p, s32 cpu)
{
	return queues_at_cpu(p) ? pinned_dsq(cpu) : background_dsq(llc_of(cpu));
}

static __always_inline bool is_requested(s32 cpu)
{
	u32 i;

	bpf_for (i, 0, preferred_request.nr) {
		if (preferred_request.cpus[cpu_index(i)] == cpu)
			return true;
	}
	return false;
}

/* The end of a hold decides then whether the CPU is lent. */
static __always_inline bool is_hold_pending(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	return cctx && cctx->hold_until_ns;
}

/*
 * Puts preferred_request into force, and whether preferred CPUs are lent. Callers may sleep, the
 * masks are under RCU.
 */
static void take_preferred(void)
{
	s32 cpu;
	u32 i;

	bpf_rcu_read_lock();
	bpf_for (cpu, 0, nr_cpu_ids) {
		bool on = is_requested(cpu);

		if (on != is_preferred(cpu))
			prefer(cpu, on);
		else if (on)
			set_lendable(cpu, !is_hold_pending(cpu));
	}
	bpf_rcu_read_unlock();
	bpf_for (i, 0, preferred_request.nr) {
		u32 index = cpu_index(i);

		preferred.cpus[index] = preferred_request.cpus[index];
	}
	preferred.nr = preferred_request.nr;
}

static s32 init_preferred(void)
{
	struct bpf_cpumask *other = bpf_cpumask_create();
	struct bpf_cpumask *lendable = bpf_cpumask_create();
	s32 i;

	if (!other || !lendable) {
		if (other)
			bpf_cpumask_release(other);
		if (lendable)
			bpf_cpumask_release(lendable);
		return -ENOMEM;
	}
	bpf_for (i, 0, nr_cpu_ids)
		bpf_cpumask_set_cpu(i, other);
	other = bpf_kptr_xchg(&other_cpumask, other);
	if (other)
		bpf_cpumask_release(other);
	lendable = bpf_kptr_xchg(&lendable_cpumask, lendable);
	if (lendable)
		bpf_cpumask_release(lendable);
	take_preferred();
	return 0;
}

/* Would a launcher on @cpu wait for interrupts or softirqs, for an unknown time? */
static __always_inline bool is_irq_loaded(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	return cctx->softirqd_runnable || in_storm(cpu, now);
}

/* Does the sibling of @cpu run a launcher, or is it claimed for a boosted task? */
static __always_inline bool core_is_taken(s32 cpu)
{
	struct cpu_ctx *cctx;
	s32 sibling;

	sibling = cpu_sibling[cpu_index(cpu)];
	if (sibling < 0)
		return false;
	cctx = cpu_ctx(sibling);
	return cctx && (cctx->occupant == OCCUPANT_LAUNCH || cctx->claimed_by);
}

#endif /* __GPUAWARE_PREFERRED_BPF_H */
