/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual time of background. Each queue has a clock, and a task's vtime means something on the
 * clock of one queue only: that of tctx->vtime_dsq. Whoever compares vtimes first moves them onto
 * one clock, with enter_clock(), which keeps what a task is behind or ahead. Nobody else writes
 * vtimes or clocks.
 */
#ifndef __GPUAWARE_CLOCK_BPF_H
#define __GPUAWARE_CLOCK_BPF_H

#include "dsq.bpf.h"

/* A weight of 1, in shares. In whole weights, 45.5 and 4.5 would become 11 to 1. */
#define SHARE_OF_WEIGHT_1 1024ULL
#define SHARE_OF_NICE_0	  (100 * SHARE_OF_WEIGHT_1)

/*
 * How far behind the clock one may be, in slices that it runs. Those that never sleep are up to one
 * behind: who wakes up is before these. With more, threads that wake each other up (hackbench)
 * would all be far behind, and take turns after each message.
 */
#define MAX_LAG_SLICES 2
/* How far behind the clock one that was overdue goes on from: it gets so much more than others. */
#define OVERDUE_LAG_SLICES 2

/* What @tctx's task is charged for running for @ns, by its share as renew_share() noted it last. */
static __always_inline u64 vtime_for(const struct task_ctx *tctx, u64 ns)
{
	return ns * SHARE_OF_NICE_0 / (tctx->share ?: SHARE_OF_NICE_0);
}

/*
 * The clock of a background queue: the vtime of the last task that it started. Each queue has its
 * own. With one for all, tasks that share one crowded CPU would fall behind those that do not, be
 * pulled up to the clock again and again, and lose their weights on the way.
 */
static __always_inline u64 *clock_of(u64 dsq)
{
	struct llc_ctx *llcx;
	struct cpu_ctx *cctx;

	if (dsq >= DSQ_PINNED) {
		cctx = cpu_ctx(dsq - DSQ_PINNED);
		if (!cctx)
			return NULL;
		barrier_var(cctx); /* the verifier wants the check before the address */
		return &cctx->pinned_clock;
	}
	llcx = llc_ctx(dsq - DSQ_BACKGROUND);
	if (!llcx)
		return NULL;
	barrier_var(llcx);
	return &llcx->clock;
}

static __always_inline u64 queue_clock(u64 dsq)
{
	u64 *clock = clock_of(dsq);

	return clock ? *clock : 0;
}

/* @p's vtime on the clock of @dsq. */
static __always_inline u64 vtime_on(const struct task_struct *p, const struct task_ctx *tctx,
				    u64 dsq)
{
	u64 clock = queue_clock(dsq), slice = vtime_for(tctx, tunables.background_slice_ns);
	u64 earliest = clock - MAX_LAG_SLICES * slice, vtime = p->scx.dsq_vtime;

	/*
	 * A new task pays half a slice in advance: tasks that come and go all the time would else
	 * stop the clock, and with it everybody who is ahead of it.
	 */
	if (!tctx->vtime_dsq)
		return clock + slice / 2;
	/* At the head of its queue it was before those that are behind by many slices, too. */
	if (tctx->is_overdue)
		return clock - OVERDUE_LAG_SLICES * slice;
	if (tctx->vtime_dsq != dsq)
		vtime += clock - queue_clock(tctx->vtime_dsq);
	return time_before(vtime, earliest) ? earliest : vtime;
}

/* @p, which waits in no queue, competes with those of @dsq from now on. Returns its vtime there. */
static __always_inline u64 enter_clock(struct task_struct *p, struct task_ctx *tctx, u64 dsq)
{
	u64 vtime = vtime_on(p, tctx, dsq);

	tctx->vtime_dsq = dsq;
	tctx->is_overdue = false;
	scx_bpf_task_set_dsq_vtime(p, vtime);
	return vtime;
}

/* @p's vtime is about to be used for something else: it comes back as a new task. */
static __always_inline void leave_clock(struct task_ctx *tctx)
{
	tctx->vtime_dsq = 0;
	tctx->is_overdue = false;
}

/*
 * @cctx's CPU runs @p, of @dsq, whose clock goes on with it: when it starts, and with each slice
 * that it gets after the first. Lost updates of the clock are tolerated: the next start makes them
 * good.
 */
static __always_inline void start_on_clock(struct task_struct *p, struct task_ctx *tctx,
					   struct cpu_ctx *cctx, u64 dsq)
{
	u64 *clock = clock_of(dsq), vtime = enter_clock(p, tctx, dsq);

	cctx->occupant = OCCUPANT_BACKGROUND;
	cctx->runs_dsq = dsq;
	cctx->runs_vtime = vtime;
	if (clock && time_after(vtime, *clock))
		*clock = vtime;
}

static __always_inline void charge_vtime(struct task_struct *p, u64 vtime)
{
	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + vtime);
}

/* Where @tctx's task, which is at @vtime, would be after a slice. */
static __always_inline u64 vtime_after(const struct task_ctx *tctx, u64 vtime)
{
	return vtime + vtime_for(tctx, tunables.background_slice_ns);
}

#endif /* __GPUAWARE_CLOCK_BPF_H */
