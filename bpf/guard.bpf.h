/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guard: launch and handoff together take no more than guard.max_share of all CPUs from others.
 *
 * Time counts while background waits on the same CPU or LLC. When a window's budget is used up,
 * each tenant that used more than an even part of it has tasks throttled: those that used more than
 * an even part of the tenant's. Until the next window they run only on CPUs that nobody else wants.
 * An overrun is taken off the next window.
 */
#ifndef __GPUAWARE_GUARD_BPF_H
#define __GPUAWARE_GUARD_BPF_H

#include "preferred.bpf.h"
#include "stats.bpf.h"

#define GUARD_WINDOW_NS 100000000ULL

/* By a hash of the tenant's cgroup: two that collide share. A power of two. */
#define GUARD_TENANTS 256

/* Written by all CPUs a few hundred times a second each; a lost update is a lost millisecond. */
static u64 guard_start_ns;
static u64 guard_used_ns;
static u64 guard_nr_tenants; /* that have used some of it */
static u64 guard_nr_before;  /* in the window before */

struct guard_tenant {
	u64 window; /* start of the window that the following are of */
	u64 used_ns;
	u64 nr_tasks;
	u64 launched_ns; /* CPU time of its boosted tasks: their order in the launch queue */
};

static struct guard_tenant guard_tenants[GUARD_TENANTS];

static __always_inline struct guard_tenant *guard_tenant(const struct task_ctx *tctx)
{
	return &guard_tenants[(tctx->tenant * 0x9e3779b97f4a7c15ULL >> 32) & (GUARD_TENANTS - 1)];
}

/* By how much @used_ns exceeds @budget_ns for each window in @elapsed; @budget_ns at most. */
static __always_inline u64 guard_debt(u64 used_ns, u64 budget_ns, u64 elapsed)
{
	u64 allowed, debt;

	if (elapsed > 10 * GUARD_WINDOW_NS)
		elapsed = 10 * GUARD_WINDOW_NS;
	allowed = budget_ns / 1000 * (elapsed / 1000) / (GUARD_WINDOW_NS / 1000000);
	debt = used_ns > allowed ? used_ns - allowed : 0;
	return debt < budget_ns ? debt : budget_ns;
}

static __always_inline void guard_next_window(u64 now)
{
	u64 start = guard_start_ns;

	if (time_before(now, start + GUARD_WINDOW_NS) ||
	    __sync_val_compare_and_swap(&guard_start_ns, start, now) != start)
		return;
	guard_used_ns = guard_debt(guard_used_ns, tunables.guard_budget_ns, time_delta(now, start));
	guard_nr_before = guard_nr_tenants;
	guard_nr_tenants = 0;
}

/* An even part of the budget. Tenants of the last window are expected in this one. */
static __always_inline u64 guard_part(void)
{
	u64 nr = guard_nr_tenants > guard_nr_before ? guard_nr_tenants : guard_nr_before;

	return tunables.guard_budget_ns / (nr ?: 1);
}

/* @tenant uses some of this window's budget. */
static __always_inline void guard_join(struct guard_tenant *tenant)
{
	u64 start = guard_start_ns, before = tenant->window;

	if (before == start ||
	    __sync_val_compare_and_swap(&tenant->window, before, start) != before)
		return;
	__sync_fetch_and_add(&guard_nr_tenants, 1);
	tenant->used_ns = guard_debt(tenant->used_ns, guard_part(), time_delta(start, before));
	tenant->nr_tasks = 0;
}

/* Does a task that is not boosted wait where boosted ones run? What is not lent is not theirs. */
static __always_inline bool others_wait(s32 cpu, u32 llc)
{
	return (dsq_waiting(background_dsq(llc)) && !is_never_lent(cpu)) ||
	       dsq_waiting(pinned_dsq(cpu));
}

/* @tctx's boosted task has run for @ran_ns on @cpu. */
static __always_inline void guard_charge(struct task_ctx *tctx, s32 cpu, u64 ran_ns, u64 now)
{
	struct guard_tenant *tenant = guard_tenant(tctx);

	__sync_fetch_and_add(&tenant->launched_ns, ran_ns);
	if (!tunables.guard_budget_ns || !others_wait(cpu, llc_of(cpu)))
		return;
	guard_next_window(now);
	guard_join(tenant);
	if (tctx->guard_window != guard_start_ns) {
		tctx->guard_window = guard_start_ns;
		tctx->guard_used_ns = 0;
		__sync_fetch_and_add(&tenant->nr_tasks, 1);
	}
	tctx->guard_used_ns += ran_ns;
	__sync_fetch_and_add(&tenant->used_ns, ran_ns);
	__sync_fetch_and_add(&guard_used_ns, ran_ns);
}

/* Is @tctx's boosted task to wait for the next window? */
static __always_inline bool guard_throttles(struct task_ctx *tctx, u64 now)
{
	struct guard_tenant *tenant = guard_tenant(tctx);
	u64 start, part, own;

	if (!tunables.guard_budget_ns)
		return false;
	guard_next_window(now);
	start = guard_start_ns;
	part = guard_part();
	if (guard_used_ns <= tunables.guard_budget_ns || tenant->window != start ||
	    tenant->used_ns < part)
		return false;
	/* Far over, as when one keeps starting new tasks: all of its tasks are throttled. */
	if (tenant->used_ns > part + part / 4)
		return true;
	own = tctx->guard_window == start ? tctx->guard_used_ns : 0;
	return own * (tenant->nr_tasks ?: 1) >= part;
}

/* Is @tctx's boosted task, which runs on @cpu, to leave it to background that waits? */
static __always_inline bool guard_stops(struct task_ctx *tctx, s32 cpu, u64 now)
{
	return guard_throttles(tctx, now) && others_wait(cpu, llc_of(cpu));
}

/* May throttled tasks run again, because a new window has begun? */
static __always_inline bool guard_releases(u64 now)
{
	guard_next_window(now);
	return guard_used_ns <= tunables.guard_budget_ns;
}

/* The most CPU time of a tenant, when a boosted task of its was queued. */
static u64 launch_clock_ns;

/*
 * The vtime of @tctx's task in the launch and throttled queues: before tasks of tenants that have
 * had more, after those of its own tenant that wait already. A tenant that was away for long is one
 * slice ahead at most.
 */
static __always_inline u64 launch_order(const struct task_ctx *tctx)
{
	struct guard_tenant *tenant = guard_tenant(tctx);
	u64 earliest = launch_clock_ns - tunables.launch_slice_ns, had = tenant->launched_ns;

	if (time_before(had, earliest))
		tenant->launched_ns = had = earliest;
	if (time_after(had, launch_clock_ns))
		launch_clock_ns = had;
	return had;
}

/* Has the tenant of @tctx had less than that of the first launcher in the queue? */
static __always_inline bool goes_before_launchers(const struct task_ctx *tctx, u32 llc)
{
	return time_before(launch_order(tctx), dsq_head_vtime(launch_dsq(llc)));
}

/* Has the tenant of the first throttled task had less than that of the first launcher? */
static __always_inline bool throttled_go_first(u32 llc)
{
	return dsq_waiting(launch_dsq(llc)) &&
	       time_before(dsq_head_vtime(throttled_dsq(llc)), dsq_head_vtime(launch_dsq(llc)));
}

#endif /* __GPUAWARE_GUARD_BPF_H */
