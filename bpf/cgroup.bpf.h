/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cgroups: hierarchical cpu.weight, and cpu.max where the kernel tells.
 *
 * Weight. A task's weight is multiplied, level by level up to the root, by its cgroup's weight over
 * all that is runnable in that cgroup. So one queue ordered by virtual time shares the CPUs as the
 * hierarchy says, and no queue per cgroup is needed. What is runnable is counted when a task wakes
 * and sleeps; a cgroup counts in its parent while it has something runnable.
 *
 * cpu.max. Run time is charged to every cgroup above that has a limit. Tasks of one that has used
 * up its quota wait in a queue ordered by release time. At the next period a timer lets as many go
 * as the quota covers, each of which pays for a slice in advance; the others wait on.
 */
#ifndef __GPUAWARE_CGROUP_BPF_H
#define __GPUAWARE_CGROUP_BPF_H

#include "clock.bpf.h"
#include "pick.bpf.h"

/* How long a task's share is used, though others come and go: so short an error does not show. */
#define SHARE_VALID_NS 2000000ULL
/*
 * The longest wait for quota, well below the kernel's watchdog: a task that has no quota even then
 * runs for an instant.
 */
#define PUT_OFF_MOST_NS 10000000000ULL
/* cpu.weight's default, also when cpu.idle ends, and the lowest one, for cpu.idle. */
#define DEFAULT_WEIGHT 100
#define IDLE_WEIGHT    1
/* At least, of a kernel thread that is not one CPU's: about nice -10. See weight_of(). */
#define KTHREAD_WEIGHT 1000
/* The timer looks once more after this, for tasks that were just being queued. */
#define RELEASE_AGAIN_NS 10000000ULL

struct cgroup_ctx {
	u64 parent; /* id of the nearest one above that has a context; 0: the root */
	struct bpf_spin_lock lock;
	u32 weight;
	s64 counted_weight;  /* what the parent counts for it; 0: nothing runnable. Under lock */
	s64 runnable_weight; /* tasks and cgroups in it */
	u64 quota_ns;	     /* 0: no limit */
	u64 period_ns;
	u64 burst_ns;
	u64 period_start_ns;
	s64 used_ns; /* of the quota; negative: saved for a burst */
};

/*
 * Without the root, cgroups that are nested too deeply, and those that find no room: tasks in them
 * count as in the nearest ancestor that is here, so no nesting and no number of cgroups escapes a
 * weight or a limit. Not cgroup local storage: its lookup fails while another program, or the end
 * of another cgroup, has it locked on the same CPU.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GPUAWARE_MAX_CGROUPS);
	__type(key, u64);
	__type(value, struct cgroup_ctx);
} cgroup_ctxs SEC(".maps");

/* Cgroups that should have a context and have none. Read by user space. */
u64 nr_cgroups_left_out;

/* Cgroups with a limit: without any, the feature costs nothing. */
static u32 nr_limited_cgroups;

struct release_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct release_timer);
} release_timer SEC(".maps");

/* When the timer fires next; 0: it is not armed. */
static u64 release_at_ns;
/* When a task last went into the queue of capped ones. */
static u64 put_off_ns;

static __always_inline struct cgroup_ctx *cgroup_ctx(u64 id)
{
	return bpf_map_lookup_elem(&cgroup_ctxs, &id);
}

/* The nearest cgroup at or above @cgrp that has a context; 0: the root. */
static __always_inline u64 nearest_counted(struct cgroup *cgrp)
{
	u32 level, i;

	cgrp = nearest_seen(cgrp);
	level = BPF_CORE_READ(cgrp, level);
	bpf_for (i, 0, GPUAWARE_MAX_CGROUP_DEPTH) {
		u64 id;

		if (i >= level)
			break;
		id = BPF_CORE_READ(cgroup_above(cgrp, level - i), kn, id);
		if (cgroup_ctx(id))
			return id;
	}
	return 0;
}

/*
 * The cgroup of @p's CPU controller, that of the nearest ancestor where it is enabled, or the
 * nearest one above that has a context. Plain loads instead of BPF_CORE_READ, as in renew_basis():
 * this runs on every wakeup.
 */
static __always_inline u64 cpu_cgroup_id(struct task_struct *p, struct task_ctx *tctx)
{
	const struct task_struct *untrusted = bpf_core_cast(p, struct task_struct);
	u64 id = untrusted->sched_task_group->css.cgroup->kn->id;

	if (tctx->group_id != id) {
		tctx->group_id = id;
		tctx->cpu_cgroup = nearest_counted(BPF_CORE_READ(p, sched_task_group, css.cgroup));
	}
	return tctx->cpu_cgroup;
}

/*
 * By how much the weight that @cgc's parent counts for it changes. Called after the first wakeup in
 * it, the last sleep or a change of its weight: the last caller sees what all have done, so the
 * counts add up.
 */
static __always_inline s64 recount(struct cgroup_ctx *cgc)
{
	s64 before, weight;

	bpf_spin_lock(&cgc->lock);
	before = cgc->counted_weight;
	weight = cgc->runnable_weight > 0 ? cgc->weight : 0;
	cgc->counted_weight = weight;
	bpf_spin_unlock(&cgc->lock);
	return weight - before;
}

/*
 * Adds @weight to what is runnable in cgroup @id, and in its ancestors where that changes. A global
 * function: see search_overdue().
 */
__noinline int count_in(u64 id, s64 weight)
{
	u32 level;

	bpf_for (level, 0, GPUAWARE_MAX_CGROUP_DEPTH) {
		/* Every walk ends with the root, which has none. */
		struct cgroup_ctx *cgc = id ? cgroup_ctx(id) : NULL;
		s64 before;

		if (!cgc)
			break;
		before = __sync_fetch_and_add(&cgc->runnable_weight, weight);
		if ((before > 0) == (before + weight > 0))
			break;
		weight = recount(cgc);
		id = cgc->parent;
	}
	return 0;
}

static __always_inline void count_sleeping(struct task_ctx *tctx)
{
	count_in(tctx->cpu_cgroup, -(s64)tctx->counted_weight);
	tctx->counted_weight = 0;
}

/*
 * A kernel thread that may run on several CPUs works for everybody, and often has a lock then that
 * a launcher waits for: khugepaged, at nice 19, the mmap_lock of a process.
 */
static __always_inline u32 weight_of(const struct task_struct *p)
{
	bool works_for_all = (p->flags & PF_KTHREAD) && !is_percpu_kthread(p);

	return works_for_all && p->scx.weight < KTHREAD_WEIGHT ? KTHREAD_WEIGHT : p->scx.weight;
}

/*
 * Notes the share of @tctx's task in competition with everybody: its weight times the shares of the
 * cgroups above it. A global function: see search_overdue().
 */
__noinline int renew_share(struct task_ctx *tctx __arg_nonnull, u64 now)
{
	s64 weight = tctx->counted_weight;
	u64 id = tctx->cpu_cgroup, share = weight * SHARE_OF_WEIGHT_1;
	u32 level;

	if (time_before(now, tctx->share_until_ns))
		return 0;
	bpf_for (level, 0, GPUAWARE_MAX_CGROUP_DEPTH) {
		struct cgroup_ctx *cgc = id ? cgroup_ctx(id) : NULL;
		s64 runnable;

		if (!cgc)
			break;
		/* At least the weight that came from it, however late that is counted. */
		runnable = cgc->runnable_weight;
		share = share * cgc->weight / (u64)(runnable > weight ? runnable : weight);
		weight = cgc->weight;
		id = cgc->parent;
	}
	tctx->share = share ?: 1;
	tctx->share_until_ns = now + SHARE_VALID_NS;
	return 0;
}

static __always_inline void count_runnable(struct task_struct *p, struct task_ctx *tctx, u64 now)
{
	if (tctx->counted_weight)
		count_sleeping(tctx);
	tctx->counted_weight = weight_of(p);
	tctx->share_until_ns = 0;
	count_in(cpu_cgroup_id(p, tctx), tctx->counted_weight);
	/* Where a new task starts on a clock goes by its share. */
	if (!tctx->run_start_ns)
		renew_share(tctx, now);
}

/* Starts @cgc's next period if it is time. */
static __always_inline void refill(struct cgroup_ctx *cgc, u64 now)
{
	u64 start = cgc->period_start_ns, periods;
	s64 used, quota, floor = -(s64)cgc->burst_ns;

	if (time_before(now, start + cgc->period_ns))
		return;
	periods = time_delta(now, start) / (cgc->period_ns ?: 1);
	if (__sync_val_compare_and_swap(&cgc->period_start_ns, start,
					start + periods * cgc->period_ns) != start)
		return;
	if (periods > 1000)
		periods = 1000;
	quota = periods * cgc->quota_ns;
	used = __sync_fetch_and_sub(&cgc->used_ns, quota) - quota;
	if (used < floor)
		cgc->used_ns = floor;
}

/*
 * Charges @ns to the cgroups at and above @id that have a limit; a refund if it is negative.
 * A global function: see search_overdue().
 */
__noinline int charge_limits(u64 id, s64 ns, u64 now)
{
	u32 level;

	if (!nr_limited_cgroups)
		return 0;
	bpf_for (level, 0, GPUAWARE_MAX_CGROUP_DEPTH) {
		struct cgroup_ctx *cgc = cgroup_ctx(id);

		if (!cgc)
			break;
		if (cgc->quota_ns) {
			refill(cgc, now);
			__sync_fetch_and_add(&cgc->used_ns, ns);
		}
		id = cgc->parent;
	}
	return 0;
}

/* @tctx's task has run for @ran_ns, some of which it has paid for. */
static __always_inline void charge_limited_run(struct task_ctx *tctx, u64 ran_ns, u64 now)
{
	u64 paid = tctx->prepaid_ns < ran_ns ? tctx->prepaid_ns : ran_ns;

	tctx->prepaid_ns -= paid;
	charge_limits(tctx->cpu_cgroup, ran_ns - paid, now);
}

/* It goes to sleep, or to another cgroup. */
static __always_inline void return_prepaid(struct task_ctx *tctx, u64 now)
{
	if (!tctx->prepaid_ns)
		return;
	charge_limits(tctx->cpu_cgroup, -(s64)tctx->prepaid_ns, now);
	tctx->prepaid_ns = 0;
}

/*
 * When all cgroups at and above @id have quota again; 0: they have some. A global function: see
 * search_overdue().
 */
__noinline u64 quota_used_until(u64 id, u64 now)
{
	u64 until = 0;
	u32 level;

	bpf_for (level, 0, GPUAWARE_MAX_CGROUP_DEPTH) {
		struct cgroup_ctx *cgc = cgroup_ctx(id);

		if (!cgc)
			break;
		if (cgc->quota_ns) {
			refill(cgc, now);
			if (cgc->used_ns >= (s64)cgc->quota_ns &&
			    time_after(cgc->period_start_ns + cgc->period_ns, until))
				until = cgc->period_start_ns + cgc->period_ns;
		}
		id = cgc->parent;
	}
	return until;
}

/* Until when the task must wait for its cgroups' quota; 0: not at all. */
static __always_inline u64 capped_until(struct task_ctx *tctx, u64 now)
{
	if (!nr_limited_cgroups || tctx->prepaid_ns)
		return 0;
	return quota_used_until(tctx->cpu_cgroup, now);
}

/* Has the timer fire at @at or earlier. */
static __always_inline void release_by(u64 at, u64 now)
{
	struct release_timer *timer;
	u32 zero = 0;

	if (release_at_ns && time_before_eq(release_at_ns, at))
		return;
	timer = bpf_map_lookup_elem(&release_timer, &zero);
	if (!timer)
		return;
	release_at_ns = at;
	bpf_timer_start(&timer->timer, time_after(at, now) ? at - now : 1, 0);
}

/* Queues @p, whose cgroup has used up its quota, ordered by when that is over: @until. */
static __always_inline void enqueue_capped(struct task_struct *p, struct task_ctx *tctx, u64 until,
					   u64 enq_flags, u64 now)
{
	u64 dsq = capped_dsq(llc_of(scx_bpf_task_cpu(p)));

	stat_inc(GPUAWARE_STAT_CAPPED);
	put_off_ns = now;
	leave_clock(tctx);
	scx_bpf_dsq_insert_vtime(p, dsq, tunables.background_slice_ns, until, enq_flags);
	release_by(until, now);
}

/*
 * Moves tasks of @llc that have quota again to their background queues, by release time. Returns
 * when to look again; 0: none is left. A global function: see search_overdue(). It locks RCU
 * itself: older kernels do not know that a timer's callback has it locked.
 */
__noinline u64 release_due(u32 llc, u64 now)
{
	struct task_struct *p;
	u64 next = 0;

	bpf_rcu_read_lock();
	bpf_for_each (scx_dsq, p, capped_dsq(llc), 0) {
		u64 until = p->scx.dsq_vtime, dsq;
		s32 cpu = scx_bpf_task_cpu(p);
		struct task_ctx *tctx = task_ctx(p);
		bool due = time_before_eq(until, now);
		struct llc_ctx *llcx;

		if (!tctx)
			continue;
		if (due)
			until = quota_used_until(tctx->cpu_cgroup, now);
		if (until && time_delta(now, tctx->waiting_since_ns) < PUT_OFF_MOST_NS) {
			if (!next || time_before(until, next))
				next = until;
			if (due)
				continue;
			break;
		}
		if (!until) {
			charge_limits(tctx->cpu_cgroup, tunables.background_slice_ns, now);
			tctx->prepaid_ns = tunables.background_slice_ns;
		}
		dsq = background_queue(p, cpu);
		llcx = llc_ctx(llc_of(cpu));
		if (llcx)
			note_queued(llc_of(cpu), llcx, now);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, vtime_on(p, tctx, dsq));
		tctx->vtime_dsq = dsq;
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, dsq, 0);
		if (dsq >= DSQ_PINNED) {
			/* No longer idle: the next task's kick is for another CPU. */
			scx_bpf_test_and_clear_cpu_idle(cpu);
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		} else {
			kick_idle_for(p);
		}
	}
	bpf_rcu_read_unlock();
	return next;
}

static __always_inline void release_all(u64 now)
{
	u64 next = 0;
	u32 llc;

	release_at_ns = 0;
	bpf_for (llc, 0, nr_llcs) {
		u64 at = release_due(llc, now);

		if (at && (!next || time_before(at, next)))
			next = at;
	}
	/* A task gets into the queue only after enqueue() has returned. */
	if (!next && time_before(now, put_off_ns + RELEASE_AGAIN_NS))
		next = now + RELEASE_AGAIN_NS;
	if (next)
		release_by(next, now);
}

static int release_timer_fired(void *map, int *key, struct release_timer *timer)
{
	release_all(now_in_interrupt());
	return 0;
}

static s32 init_cgroups(void)
{
	struct release_timer *timer;
	u32 zero = 0;

	timer = bpf_map_lookup_elem(&release_timer, &zero);
	if (!timer)
		return -ENOENT;
	bpf_timer_init(&timer->timer, &release_timer, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&timer->timer, release_timer_fired);
	return 0;
}

static __always_inline void set_cgroup_limit(struct cgroup_ctx *cgc, u64 period_us, u64 quota_us,
					     u64 burst_us, u64 now)
{
	/* No limit is all ones in the kernel's units. */
	u64 quota_ns = quota_us < (1ULL << 44) ? quota_us * 1000 : 0;

	if (!cgc->quota_ns && quota_ns)
		__sync_fetch_and_add(&nr_limited_cgroups, 1);
	else if (cgc->quota_ns && !quota_ns)
		__sync_fetch_and_sub(&nr_limited_cgroups, 1);
	cgc->quota_ns = quota_ns;
	cgc->period_ns = period_us ? period_us * 1000 : 100000000;
	cgc->burst_ns = burst_us * 1000;
	cgc->period_start_ns = now;
	cgc->used_ns = 0;
}

static __always_inline s32 add_cgroup(struct cgroup *cgrp, struct scx_cgroup_init_args *args,
				      u64 now)
{
	struct cgroup_ctx fresh = {.weight = args->weight ?: DEFAULT_WEIGHT}, *cgc;
	u64 id = cgrp->kn->id;

	if (!cgrp->level)
		return 0;
	if (bpf_core_field_exists(args->sched_idle) && args->sched_idle)
		fresh.weight = IDLE_WEIGHT;
	fresh.parent = nearest_counted(cgrp); /* not itself: it has none yet */
	if (cgrp->level > GPUAWARE_MAX_CGROUP_DEPTH ||
	    bpf_map_update_elem(&cgroup_ctxs, &id, &fresh, BPF_ANY)) {
		__sync_fetch_and_add(&nr_cgroups_left_out, 1);
		return 0;
	}
	cgc = cgroup_ctx(id);
	if (cgc && bpf_core_field_exists(args->bw_quota_us))
		set_cgroup_limit(cgc, args->bw_period_us, args->bw_quota_us, args->bw_burst_us,
				 now);
	return 0;
}

static __always_inline void remove_cgroup(u64 id)
{
	struct cgroup_ctx *cgc = cgroup_ctx(id);

	if (!cgc)
		return;
	if (cgc->quota_ns)
		__sync_fetch_and_sub(&nr_limited_cgroups, 1);
	/* A task that died in it may still be running. */
	cgc->weight = 0;
	count_in(cgc->parent, recount(cgc));
	bpf_map_delete_elem(&cgroup_ctxs, &id);
}

static __always_inline void set_cgroup_weight(u64 id, u32 weight)
{
	struct cgroup_ctx *cgc = cgroup_ctx(id);

	if (!cgc || !weight)
		return;
	cgc->weight = weight;
	count_in(cgc->parent, recount(cgc));
}

#endif /* __GPUAWARE_CGROUP_BPF_H */
