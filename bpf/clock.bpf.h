/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual time of background. Each queue has a clock, and a task's vtime is relative to the clock
 * of one queue: that of tctx->vtime_dsq. Before vtimes are compared they are rebased to one clock
 * by vtime_on(), which keeps a task's lag up to a cap. Clocks are written in this file only.
 */
#ifndef __GPUAWARE_CLOCK_BPF_H
#define __GPUAWARE_CLOCK_BPF_H

#include "dsq.bpf.h"

/* A weight of 1, in shares. In whole weights, 45.5 and 4.5 would become 11 to 1. */
#define SHARE_OF_WEIGHT_1 1024ULL
#define SHARE_OF_NICE_0	  (100 * SHARE_OF_WEIGHT_1)

/*
 * Cap of the lag of a task that wakes up, in its own slices. Tasks that never sleep lag by up to
 * one: it is before them. With a higher cap, threads that wake each other up (hackbench) would all
 * lag far behind, and take turns after each message.
 */
#define MAX_LAG_SLICES 2
/*
 * The same of a task that has not slept. A slice of a light task moves the clock by many slices of
 * a heavy one, which must keep that lag.
 */
#define MAX_AWAKE_LAG_SLICES 64
/*
 * How far a task that was overdue is ahead of the clock at most when it goes on. It may need a turn
 * in every OVERDUE_NS all the time, which is more than its weight gives: others shall not make good
 * for that for minutes once there is room.
 */
#define MAX_OVERDUE_SLICES 2
/*
 * What MAX_LAG_SLICES cuts off, a thread of a process that launches saves, so many slices at most.
 * All such threads together may draw an eighth of their LLC's CPU time, and so many slices a CPU at
 * once.
 */
#define MAX_SAVED_SLICES 16
#define MAX_DRAWN_SLICES 8
#define DRAWN_PART	 8
/* How soon it is noticed that a process launches. */
#define ASK_KIN_NS 1000000000ULL

/* What @tctx's task is charged for running for @ns, by its share as renew_share() noted it last. */
static __always_inline u64 vtime_for(const struct task_ctx *tctx, u64 ns)
{
	return ns * SHARE_OF_NICE_0 / tctx->share;
}

/*
 * The clock of a background queue: the highest vtime of the tasks that it started in their order.
 * With one clock for all queues, tasks that share one crowded CPU would fall behind those that do
 * not, be capped again and again, and lose their weights that way.
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
	u64 most = (tctx->woken ? MAX_LAG_SLICES : MAX_AWAKE_LAG_SLICES) * slice;
	u64 earliest = clock - most, vtime = p->scx.dsq_vtime;

	/*
	 * A new task starts half a slice ahead: else tasks that come and go all the time would
	 * stop the clock, and starve all tasks that are ahead of it.
	 */
	if (!tctx->vtime_dsq)
		return clock + slice / 2;
	if (tctx->vtime_dsq != dsq)
		vtime += clock - queue_clock(tctx->vtime_dsq);
	return time_before(vtime, earliest) ? earliest : vtime;
}

/* An overdue task runs so far behind the clock, and is at most so far ahead of it afterwards. */
static __always_inline u64 overdue_vtime(const struct task_ctx *tctx)
{
	return MAX_OVERDUE_SLICES * vtime_for(tctx, tunables.background_slice_ns);
}

/* Overdue @p leaves the head of its queue, with the vtime that it had before. */
static __always_inline void leave_head(struct task_struct *p, struct task_ctx *tctx)
{
	u64 latest = queue_clock(tctx->vtime_dsq) + overdue_vtime(tctx);
	u64 vtime = tctx->swept_vtime;

	scx_bpf_task_set_dsq_vtime(p, time_after(vtime, latest) ? latest : vtime);
}

/*
 * @p wakes up, and will lose what it lags behind more than the cap. A thread that answers requests
 * needs less CPU time than each of its neighbours, but has much to do when many come at once:
 * beyond the cap it would get no more than they. Where its process launches it saves what it loses
 * here. A global function: see search_overdue().
 */
__noinline int save_lag(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull,
			u64 now)
{
	u64 most_ns = MAX_SAVED_SLICES * tunables.background_slice_ns;
	u64 most = vtime_for(tctx, most_ns), earliest, lost;
	struct gpu_process *process;

	if (time_after(now, tctx->asked_kin_ns + ASK_KIN_NS)) {
		process = gpu_process_of(p, 0);
		tctx->asked_kin_ns = now;
		tctx->is_kin = process && process->launches;
	}
	if (!tctx->is_kin || !tctx->vtime_dsq)
		return 0;
	earliest = queue_clock(tctx->vtime_dsq) -
		   MAX_LAG_SLICES * vtime_for(tctx, tunables.background_slice_ns);
	lost = time_delta(earliest, p->scx.dsq_vtime);
	if (!lost)
		return 0;
	/* Here and now: a waker enters no queue, and would save the same again and again. */
	scx_bpf_task_set_dsq_vtime(p, earliest);
	/* What is lost in days of sleep would be too much to multiply. */
	tctx->saved_ns += (lost < most ? lost : most) * tctx->share / SHARE_OF_NICE_0;
	if (tctx->saved_ns > most_ns)
		tctx->saved_ns = most_ns;
	return 0;
}

/*
 * How much of the @ran_ns that @p has run on a CPU of @llc it pays with what it has saved: what
 * would leave it with a lag of less than a slice, as far as there is left to draw. That bounds how
 * long a crowd of such threads can shut out who sleeps and wakes beside it. Lost updates are
 * tolerated. A global function: see search_overdue().
 */
__noinline u64 draw_savings(struct task_struct *p __arg_trusted,
			    struct task_ctx *tctx __arg_nonnull, u32 llc, u64 ran_ns, u64 now)
{
	u64 slice = tunables.background_slice_ns, nr_cpus = nr_cpus_of(llc);
	u64 vtime = p->scx.dsq_vtime + vtime_for(tctx, ran_ns + slice), since, drawn;
	struct llc_ctx *llcx = llc_ctx(llc);

	/* Where nobody waits it would be for nothing. */
	if (!llcx || !tctx->vtime_dsq || !dsq_waiting(background_dsq(llc)))
		return 0;
	drawn = time_delta(vtime, queue_clock(tctx->vtime_dsq)) * tctx->share / SHARE_OF_NICE_0;
	if (drawn > ran_ns)
		drawn = ran_ns;
	if (drawn > tctx->saved_ns)
		drawn = tctx->saved_ns;
	since = time_delta(now, llcx->drawn_until_ns);
	if (since > MAX_DRAWN_SLICES * slice * DRAWN_PART)
		since = MAX_DRAWN_SLICES * slice * DRAWN_PART;
	if (drawn > since * nr_cpus / DRAWN_PART)
		drawn = since * nr_cpus / DRAWN_PART;
	if (!drawn)
		return 0;
	tctx->saved_ns -= drawn;
	llcx->drawn_until_ns = time_delta(now, since - drawn * DRAWN_PART / nr_cpus);
	return drawn;
}

/* Rebases @p, which is in no queue, to the clock of @dsq. Returns its vtime there. */
static __always_inline u64 enter_clock(struct task_struct *p, struct task_ctx *tctx, u64 dsq)
{
	u64 vtime;

	if (tctx->is_overdue)
		leave_head(p, tctx);
	vtime = vtime_on(p, tctx, dsq);
	tctx->vtime_dsq = dsq;
	tctx->is_overdue = false;
	scx_bpf_task_set_dsq_vtime(p, vtime);
	return vtime;
}

/*
 * @cctx's CPU runs @p, of @dsq, whose clock advances: when @p starts, and with each slice that it
 * gets after the first. Lost updates of the clock are tolerated: the next start makes up for them.
 * A global function: see search_overdue().
 */
__noinline int start_on_clock(struct task_struct *p __arg_trusted,
			      struct task_ctx *tctx __arg_nonnull,
			      struct cpu_ctx *cctx __arg_nonnull, u64 dsq)
{
	bool overdue = tctx->is_overdue;
	u64 *clock = clock_of(dsq), vtime = enter_clock(p, tctx, dsq);

	cctx->runs_dsq = dsq;
	cctx->runs_vtime = vtime;
	/* Nobody of its weight or more takes its turn, and the clock does not go on with it. */
	if (overdue && clock)
		cctx->runs_vtime = *clock - overdue_vtime(tctx);
	/* Last: should_preempt() goes by the others. */
	cctx->occupant = OCCUPANT_BACKGROUND;
	if (clock && !overdue && time_after(vtime, *clock))
		*clock = vtime;
	return 0;
}

static __always_inline void charge_vtime(struct task_struct *p, u64 vtime)
{
	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + vtime);
}

/* The vtime of @tctx's task, now @vtime, after a slice. */
static __always_inline u64 vtime_after(const struct task_ctx *tctx, u64 vtime)
{
	return vtime + vtime_for(tctx, tunables.background_slice_ns);
}

#endif /* __GPUAWARE_CLOCK_BPF_H */
