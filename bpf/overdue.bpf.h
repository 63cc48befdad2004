/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Starved background is served, whatever its weight. Virtual time alone puts no bound on a wait:
 * tasks of next to no weight, and those that newcomers overtake all the time, could wait for many
 * seconds. A task that has waited for OVERDUE_NS goes to the head of its queue; one that the guard
 * throttles to that of background, which else is served before it.
 */
#ifndef __GPUAWARE_OVERDUE_BPF_H
#define __GPUAWARE_OVERDUE_BPF_H

#include "clock.bpf.h"
#include "stats.bpf.h"

#define OVERDUE_NS	 400000000ULL
#define OVERDUE_SWEEP_NS 100000000ULL
/*
 * So far behind the clock that nobody else is, in vtime: a task of the least weight keeps a lag of
 * MAX_AWAKE_LAG_SLICES, which is 7 hours of it at 4 ms a slice. This is 52 days.
 */
#define OVERDUE_LEAD (1ULL << 52)
/*
 * For each CPU of a queue, a sweep looks at so many tasks, from the tail, and moves so many to the
 * head: where hundreds of tasks share a CPU, all are overdue, and weights should still count.
 * Variables, not constants, or the verifier would walk through every iteration of the loop.
 */
u32 overdue_max_seen = 128;
u32 overdue_max_taken = 4;

/*
 * Overdue @p is owed a turn by its CPU, whatever boosted tasks do there, if it may not run on every
 * CPU. See owes_cpus_turn().
 */
static __always_inline void owe_turn_to(struct task_struct *p)
{
	struct cpu_ctx *cctx;

	if (!is_restricted(p))
		return;
	cctx = cpu_ctx(scx_bpf_task_cpu(p));
	if (!cctx)
		return;
	cctx->owes_overdue = true;
	/* It may be idle, and was held or not lent when this task came. */
	scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_IDLE);
}

/* Takes who is overdue in @dsq to the head of queue @to. A global function: see below. */
__noinline int sweep_queue(u64 dsq, u64 to, u32 nr_cpus, u64 now)
{
	u64 head = queue_clock(to) - OVERDUE_LEAD;
	u32 to_see = overdue_max_seen * nr_cpus, to_take = overdue_max_taken * nr_cpus;
	struct task_struct *p;

	bpf_for_each (scx_dsq, p, dsq, SCX_DSQ_ITER_REV) {
		struct task_ctx *tctx = task_ctx(p);

		if (!to_see-- || !to_take)
			break;
		if (!tctx || !tctx->waiting_since_ns ||
		    time_before(now, tctx->waiting_since_ns + OVERDUE_NS))
			continue;
		to_take--;
		if (!tctx->is_overdue)
			tctx->swept_vtime = p->scx.dsq_vtime;
		tctx->is_overdue = true;
		/* Pinned tasks are owed turns however long they wait. */
		if (dsq < DSQ_PINNED)
			owe_turn_to(p);
		/* The longest wait goes first. */
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER,
					   head - time_delta(now, tctx->waiting_since_ns));
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, to, 0);
		stat_inc(GPUAWARE_STAT_OVERDUE);
	}
	return 0;
}

/*
 * Searches @cpu's pinned queue, and its LLC's throttled and background queues if no CPU has done so
 * lately. A global function: the verifier looks at it once, not on each of dispatch()'s paths.
 */
__noinline int search_overdue(s32 cpu, u64 now)
{
	u32 llc = llc_of(cpu);
	struct llc_ctx *llcx = llc_ctx(llc);
	bool boosted, waits;
	u64 swept;

	if (dsq_waiting(pinned_dsq(cpu)))
		sweep_queue(pinned_dsq(cpu), pinned_dsq(cpu), 1, now);
	if (!llcx)
		return 0;
	boosted = look_for_boosted(llc, llcx, now);
	waits = boosted || dsq_waiting(background_dsq(llc));
	forget_queued(llc, llcx, waits, now);
	swept = llcx->swept_ns;
	if (!waits || time_before(now, swept + OVERDUE_SWEEP_NS) ||
	    __sync_val_compare_and_swap(&llcx->swept_ns, swept, now) != swept)
		return 0;
	sweep_queue(throttled_dsq(llc), background_dsq(llc), nr_cpus_of(llc), now);
	sweep_queue(background_dsq(llc), background_dsq(llc), nr_cpus_of(llc), now);
	return 0;
}

/* Called whenever @cpu looks for work. */
static __always_inline void sweep_overdue(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	if (time_before(now, cctx->swept_ns + OVERDUE_SWEEP_NS))
		return;
	cctx->swept_ns = now;
	search_overdue(cpu, now);
}

#endif /* __GPUAWARE_OVERDUE_BPF_H */
