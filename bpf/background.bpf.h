/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Everybody who is not a launcher: fair by weight on virtual time, on the other CPUs first, on
 * preferred ones while nobody needs them, and never starved by launchers.
 */
#ifndef __GPUAWARE_BACKGROUND_BPF_H
#define __GPUAWARE_BACKGROUND_BPF_H

#include "preferred.bpf.h"

/*
 * The virtual time of the background task that is furthest ahead. One for the machine, so that a
 * task keeps its place when it changes LLC; a lost update is made good by the next one.
 */
static u64 vtime_now;

/* Affinity masks are intersected here. Users run with interrupts off, so one a CPU will do. */
struct scratch {
	struct bpf_cpumask __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* An idle CPU of @p in @mask, whole idle cores first, or -1. */
static __always_inline s32 pick_idle_in(struct task_struct *p, s32 prev_cpu,
					struct bpf_cpumask *mask)
{
	const struct cpumask *allowed = (const struct cpumask *)mask;
	struct bpf_cpumask *both;
	struct scratch *scratch;
	u32 zero = 0;

	if (!mask)
		return -1;
	if (p->nr_cpus_allowed < nr_cpu_ids) {
		scratch = bpf_map_lookup_elem(&scratches, &zero);
		if (!scratch)
			return -1;
		both = scratch->mask;
		if (!both)
			return -1;
		bpf_cpumask_and(both, allowed, p->cpus_ptr);
		allowed = (const struct cpumask *)both;
	}
	/* The previous CPU is warm; with SMT, an idle core elsewhere is worth more. */
	if (prev_cpu >= 0 && prev_cpu < GPUAWARE_MAX_CPUS && cpu_sibling[prev_cpu] < 0 &&
	    bpf_cpumask_test_cpu(prev_cpu, allowed) && scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		return prev_cpu;
	return scx_bpf_pick_idle_cpu(allowed, 0);
}

/* The CPU for background task @p: an idle other CPU, else an idle preferred one that is not held. */
static __always_inline s32 pick_background_cpu(struct task_struct *p, s32 prev_cpu)
{
	s32 cpu = pick_idle_in(p, prev_cpu, other_cpumask);

	return cpu >= 0 ? cpu : pick_idle_in(p, prev_cpu, lendable_cpumask);
}

/* Wakes an idle CPU, if there is one, to fetch background that may run anywhere. */
static __always_inline void kick_idle_for_background(void)
{
	struct bpf_cpumask *other = other_cpumask, *lendable = lendable_cpumask;
	s32 cpu = -1;

	if (other)
		cpu = scx_bpf_pick_idle_cpu((const struct cpumask *)other, 0);
	if (cpu < 0 && lendable)
		cpu = scx_bpf_pick_idle_cpu((const struct cpumask *)lendable, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* A task that slept keeps at most one slice of credit. */
static __always_inline u64 background_vtime(struct task_struct *p)
{
	u64 floor = vtime_now - background_slice_ns;

	if (time_before(p->scx.dsq_vtime, floor))
		scx_bpf_task_set_dsq_vtime(p, floor);
	return p->scx.dsq_vtime;
}

/*
 * The two `…_served_ns` say since when a queue waits: when it was last served, or when it became
 * non-empty. That is what a turn is owed for.
 */
static __always_inline void enqueue_background(struct task_struct *p, u64 enq_flags, u64 now)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 llc = llc_of(cpu);
	struct llc_ctx *llcx = llc_ctx(llc);

	stat_inc(GPUAWARE_STAT_BACKGROUND_QUEUED);
	if (is_pinned(p)) {
		if (cctx && !dsq_waiting(pinned_dsq(cpu)))
			cctx->pinned_served_ns = now;
		scx_bpf_dsq_insert_vtime(p, pinned_dsq(cpu), background_slice_ns,
					 background_vtime(p), enq_flags);
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return;
	}
	if (llcx && !dsq_waiting(background_dsq(llc)))
		llcx->background_served_ns = now;
	scx_bpf_dsq_insert_vtime(p, background_dsq(llc), background_slice_ns, background_vtime(p),
				 enq_flags);
	/* A woken task just saw in select_cpu() that nobody is idle. */
	if (!(enq_flags & SCX_ENQ_WAKEUP))
		kick_idle_for_background();
}

static __always_inline void charge_background(struct task_struct *p, u64 ran_ns)
{
	u64 vtime = p->scx.dsq_vtime + ran_ns * 100 / (p->scx.weight ?: 1);

	scx_bpf_task_set_dsq_vtime(p, vtime);
}

/* What waits for this CPU, by virtual time: tasks that can only run here against everybody. */
static __always_inline bool dispatch_background(s32 cpu, u32 llc)
{
	u64 first = background_dsq(llc), second = pinned_dsq(cpu);

	if (dsq_waiting(second)) {
		u64 shared = dsq_head_vtime(first), pinned = dsq_head_vtime(second);

		if (!dsq_waiting(first) || time_before(pinned, shared)) {
			first = pinned_dsq(cpu);
			second = background_dsq(llc);
		}
		return scx_bpf_dsq_move_to_local(first, 0) || scx_bpf_dsq_move_to_local(second, 0);
	}
	return scx_bpf_dsq_move_to_local(first, 0);
}

/*
 * The minimum share. Where launchers leave nothing, background that waited for an interval gets
 * one slice that no launcher cuts short. Work for the whole LLC is owed by any of its CPUs.
 */
static __always_inline bool dispatch_turn(s32 cpu, u32 llc, struct cpu_ctx *cctx, u64 now)
{
	struct llc_ctx *llcx = llc_ctx(llc);
	u64 dsq = 0;

	if (dsq_waiting(pinned_dsq(cpu)) &&
	    time_after_eq(now, cctx->pinned_served_ns + turn_interval_ns)) {
		dsq = pinned_dsq(cpu);
		cctx->pinned_served_ns = now;
	} else if (llcx && llc < GPUAWARE_MAX_LLCS && dsq_waiting(background_dsq(llc)) &&
		   time_after_eq(now, llcx->background_served_ns +
					      turn_interval_ns / (llc_nr_cpus[llc] ?: 1))) {
		dsq = background_dsq(llc);
		llcx->background_served_ns = now;
	}
	if (!dsq || !scx_bpf_dsq_move_to_local(dsq, 0))
		return false;
	cctx->turn_until_ns = now + background_slice_ns;
	stat_inc(GPUAWARE_STAT_BACKGROUND_TURNS);
	return true;
}

/* Other LLCs have work and this one has none: capacity before locality. */
static __always_inline bool dispatch_from_others(u32 llc)
{
	u32 i;

	bpf_for(i, 0, nr_llcs) {
		if (i != llc && dsq_waiting(launch_dsq(i)) &&
		    scx_bpf_dsq_move_to_local(launch_dsq(i), 0))
			return true;
	}
	bpf_for(i, 0, nr_llcs) {
		if (i != llc && dsq_waiting(background_dsq(i)) &&
		    scx_bpf_dsq_move_to_local(background_dsq(i), 0))
			return true;
	}
	return false;
}

static s32 init_background(void)
{
	s32 i;

	bpf_for(i, 0, nr_cpu_ids) {
		struct bpf_cpumask *mask;
		struct scratch *scratch;
		u32 zero = 0;

		scratch = bpf_map_lookup_percpu_elem(&scratches, &zero, i);
		if (!scratch)
			continue; /* not a possible CPU */
		mask = bpf_cpumask_create();
		if (!mask)
			return -ENOMEM;
		mask = bpf_kptr_xchg(&scratch->mask, mask);
		if (mask)
			bpf_cpumask_release(mask);
	}
	return 0;
}

#endif /* __GPUAWARE_BACKGROUND_BPF_H */
