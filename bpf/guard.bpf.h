/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guard: launch and handoff together take no more than guard.max_share of all CPUs from others.
 *
 * Time counts while background waits on the same CPU or LLC. When a window's budget is gone, the
 * boosted tasks that used more than an even part of it are throttled: they run when nobody else
 * wants to, until the next window. What was overdrawn is taken off the next window.
 */
#ifndef __GPUAWARE_GUARD_BPF_H
#define __GPUAWARE_GUARD_BPF_H

#include "dsq.bpf.h"
#include "stats.bpf.h"

#define GUARD_WINDOW_NS 100000000ULL

/* Written by all CPUs a few hundred times a second each; a lost update is a lost millisecond. */
static u64 guard_start_ns;
static u64 guard_used_ns;
static u64 guard_nr_tasks;

static __always_inline void guard_next_window(u64 now)
{
	u64 start = guard_start_ns, elapsed = time_delta(now, start), allowed, used, debt = 0;

	if (time_before(now, start + GUARD_WINDOW_NS) ||
	    __sync_val_compare_and_swap(&guard_start_ns, start, now) != start)
		return;
	if (elapsed > 10 * GUARD_WINDOW_NS)
		elapsed = 10 * GUARD_WINDOW_NS;
	allowed = tunables.guard_budget_ns / 1000 * (elapsed / 1000) / (GUARD_WINDOW_NS / 1000000);
	used = guard_used_ns;
	if (used > allowed)
		debt = used - allowed;
	guard_used_ns = debt < tunables.guard_budget_ns ? debt : tunables.guard_budget_ns;
	guard_nr_tasks = 0;
}

/* Does a task that is not boosted wait where boosted ones run? */
static __always_inline bool others_wait(s32 cpu, u32 llc)
{
	return dsq_waiting(background_dsq(llc)) || dsq_waiting(pinned_dsq(cpu));
}

/* @tctx's boosted task has run for @ran_ns on @cpu. */
static __always_inline void guard_charge(struct task_ctx *tctx, s32 cpu, u64 ran_ns, u64 now)
{
	if (!tunables.guard_budget_ns || !others_wait(cpu, llc_of(cpu)))
		return;
	guard_next_window(now);
	if (tctx->guard_window != guard_start_ns) {
		tctx->guard_window = guard_start_ns;
		tctx->guard_used_ns = 0;
		__sync_fetch_and_add(&guard_nr_tasks, 1);
	}
	tctx->guard_used_ns += ran_ns;
	__sync_fetch_and_add(&guard_used_ns, ran_ns);
}

/* Is @tctx's boosted task to wait for the next window? */
static __always_inline bool guard_throttles(struct task_ctx *tctx, u64 now)
{
	u64 used, own;

	if (!tunables.guard_budget_ns)
		return false;
	guard_next_window(now);
	used = guard_used_ns;
	if (used <= tunables.guard_budget_ns)
		return false;
	/* Far over, as when one program keeps starting new tasks: nobody is spared. */
	if (used > tunables.guard_budget_ns + tunables.guard_budget_ns / 4)
		return true;
	own = tctx->guard_window == guard_start_ns ? tctx->guard_used_ns : 0;
	return own * (guard_nr_tasks ?: 1) >= tunables.guard_budget_ns;
}

/* Is @tctx's boosted task, which runs on @cpu, to leave it to others that wait for it? */
static __always_inline bool guard_stops(struct task_ctx *tctx, s32 cpu, u64 now)
{
	return guard_throttles(tctx, now) && others_wait(cpu, llc_of(cpu));
}

/* May the queue of the throttled go on? A new window has begun. */
static __always_inline bool guard_releases(u64 now)
{
	guard_next_window(now);
	return guard_used_ns <= tunables.guard_budget_ns;
}

#endif /* __GPUAWARE_GUARD_BPF_H */
