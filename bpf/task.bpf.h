/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Contexts: what the scheduler remembers of a task, a CPU and an LLC, and how a task's class is
 * looked up. No decisions here.
 */
#ifndef __GPUAWARE_TASK_BPF_H
#define __GPUAWARE_TASK_BPF_H

#include "class.bpf.h"

/* Set by user space before load. */
const volatile u32 nr_cpu_ids = 1;
const volatile u32 nr_llcs = 1;
const volatile u32 cpu_llc[GPUAWARE_MAX_CPUS];
const volatile u32 cpu_node[GPUAWARE_MAX_CPUS];
const volatile u32 llc_nr_cpus[GPUAWARE_MAX_LLCS];
const volatile s32 cpu_sibling[GPUAWARE_MAX_CPUS]; /* -1: none */
/* Tasks may be taken back from a local queue anywhere: Linux 6.19 and newer. */
const volatile bool takes_back_anywhere;

/*
 * Not read-only: a policy may change while the scheduler runs. Who sees half of a change tolerates
 * it, as the next slice looks again. One cache line, which nobody else writes to.
 */
struct gpuaware_tunables tunables __attribute__((aligned(64))) = {
	.launch_slice_ns = 20000000,
	.handoff_slice_ns = 3000000,
	.background_slice_ns = 4000000,
	.lent_slice_ns = 1000000,
	.turn_interval_ns = 80000000,
	.turn_factor = 20 * GPUAWARE_TURN_UNIT,
	.hold_cap_ns = 2000000,
	.hold_us_per_s = GPUAWARE_HOLD_UNBOUNDED,
	.lend = 1,
	.whole_core = 1,
};

struct task_ctx {
	struct class_basis basis; /* of the class */
	u64 vtime_dsq;	    /* the queue whose clock its vtime is of: clock.bpf.h; 0: none yet */
	u64 group_id;	    /* of the CPU controller, when it woke up last */
	u64 cpu_cgroup;	    /* whose weight and limit count for it there; 0: the root's */
	u32 counted_weight; /* what it counts there for */
	u64 share;	    /* see renew_share() */
	u64 share_until_ns; /* until when it is good enough */
	u64 charged_ns;	    /* up to when its cgroups have been charged for this run */
	u64 swept_vtime;    /* its vtime when it was taken to the head of its queue: is_overdue */
	u64 prepaid_ns;	    /* what their limits have been charged for that it has not run yet */
	u64 guard_window;   /* start of the window that guard_used_ns is of */
	u64 guard_used_ns;
	u64 tenant;   /* see tenant_of(); of a boosted task */
	u32 gpu_node; /* see gpu_node(); likewise */
	u32 class;
	u32 demand_class; /* what it counts as in the demand while it is runnable */
	u32 run_as;	  /* the class that it was last queued as: a boosted one may be throttled */
	bool is_softirqd;
	bool is_overdue;      /* taken to the head of its queue, has not run yet */
	bool woken;	      /* runnable since a wakeup, has not run yet */
	bool waker_sleeps;    /* soon, or so it said when it woke this one up */
	bool woke_launcher;   /* of its process, in this burst: waker.bpf.h */
	bool visits_launcher; /* it was sent to that one's CPU */
	bool lends;	      /* its CPU: enqueue() puts it behind who takes that */
	u8 nr_yields;	      /* in a row: spin.bpf.h */
	u8 waker_bursts;
	bool is_kin;	  /* of a process that launches, or did: save_lag() */
	s32 launcher_cpu; /* where that one was sent */
	s32 claimed_cpu;  /* CPU claimed for this boosted task until it runs; -1: none */
	u64 run_start_ns;
	u64 yielded_ns;	      /* when it last called sched_yield() */
	u64 asked_kin_ns;     /* when it was last asked whether it is_kin */
	u64 saved_ns;	      /* of its lag, as CPU time: save_lag() */
	u64 slice_left_ns;    /* as a kthread takes its CPU; 0: none does */
	u64 burst_ns;	      /* that it ran since it woke up, until run_start_ns */
	u64 woke_after_ns;    /* of which so much before it woke a launcher first */
	u64 waiting_since_ns; /* runnable, not running; 0: asleep, running, or of another class */
	u64 slept_ns;	      /* when it went to sleep last */
	u64 sleep_start_ns;
	u64 sleep_avg_ns; /* EWMA of how long a launcher sleeps */
	u64 sleep_dev_ns; /* EWMA of how far off that was */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

/* What runs on a CPU. Written by the CPU itself, read by others that tolerate a stale answer. */
enum occupant {
	OCCUPANT_OTHER,	  /* idle, another scheduling class */
	OCCUPANT_KTHREAD, /* a per-CPU kthread that is soon done */
	OCCUPANT_BACKGROUND,
	OCCUPANT_HANDOFF,
	OCCUPANT_LAUNCH,
	OCCUPANT_WAKER, /* of the launcher that left: soon done */
};

/* A cache line belongs to one CPU or LLC, and within a CPU's to those who write it. */
#define CACHE_LINE	  64
#define cacheline_aligned __attribute__((aligned(CACHE_LINE)))

struct cpu_ctx {
	/* Written as the CPU switches, read by others as they wake somebody up. */
	u32 occupant; /* enum occupant */
	bool softirqd_runnable;
	bool giving_back;   /* who waited here is enqueued again, inside another program */
	bool lent;	    /* for a moment: who lends it waits in its local DSQ */
	u64 runs_dsq;	    /* the queue of the background that runs; 0: none */
	u64 runs_vtime;	    /* its vtime there when its slice began */
	u64 keeps_until_ns; /* until when the throttled task that runs is not preempted by
			       background */
	u64 turn_until_ns;  /* background runs its minimum share and is not preempted */
	u64 taken_ns;	 /* when a real-time task last took it, as far as we were told; 0: never */
	u64 launched_ns; /* when a launcher last left; 0: never */
	u64 hold_until_ns; /* 0: not held */
	/* Written by others, too. */
	cacheline_aligned s32 claimed_by; /* TID of the boosted task that claimed it; 0: none */
	bool kthread_waiting;		  /* a per-CPU kthread is about to run here */
	bool owes_overdue;		  /* to an overdue task that may not run everywhere */
	u64 preempted_ns;		  /* when background was last preempted for a wakeup */
	u64 hold_start_ns;
	u64 declined_since_ns; /* 0: no background has been declined in this hold */
	u64 pinned_due_ns;     /* when those who may not leave are owed a turn */
	/* The CPU's own, most of it. */
	cacheline_aligned u64 pinned_clock; /* see clock.bpf.h */
	/* CPU time of the pinned and of the shared queue here, each by its number of tasks. */
	u64 pinned_share_ns;
	u64 shared_share_ns;
	u64 idle_since_ns;	/* when it last became idle: see now.bpf.h; 0: never */
	u64 idle_since_mono_ns; /* the same by bpf_ktime_get_ns() */
	u64 handoff_ns;		/* when handoff that was shut out last got it */
	u64 swept_ns;		/* when the pinned queue was last searched for overdue tasks */
	bool looks_again;	/* see stay_idle() */
	u32 pulls_from;		/* the LLC whose clock is compared: pull_from_crowded() */
	u64 pull_start_ns;	/* since when; and what the clocks were then */
	u64 pull_own_clock;
	u64 pull_their_clock;
} cacheline_aligned;

_Static_assert(__builtin_offsetof(struct cpu_ctx, claimed_by) == CACHE_LINE,
	       "one line is read at wakeups");

/*
 * Indexed by CPU, not per-CPU: others look at it on every launcher's wakeup. Nobody maps it: the
 * values of such an array begin with a page, and so with a cache line.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, GPUAWARE_MAX_CPUS);
	__type(key, u32);
	__type(value, struct cpu_ctx);
} cpu_ctxs SEC(".maps");

struct llc_ctx {
	/* Written at each switch of background. */
	u64 clock;	       /* of the shared background queue: see clock.bpf.h */
	u64 background_due_ns; /* when shared background is owed a turn */
	u64 drawn_until_ns;    /* its time until then counts as drawn: draw_savings() */
	/* Written now and then, read by whoever goes idle, in other LLCs too. */
	cacheline_aligned u64 boosted_queued_ns; /* see boosted_wait() */
	u64 queued_ns;				 /* see note_queued() */
	/* Written at each enqueue, and what few look at. */
	cacheline_aligned u64 arriving_ns; /* see note_arriving() */
	u64 handoff_served_ns;		   /* since when handoff waits */
	u64 released_ns;		   /* when a throttled task was released last */
	u64 woke_other_ns; /* when a CPU that may run nobody here last woke another one */
	u64 swept_ns;	   /* when the background queue was last searched for overdue tasks */
} cacheline_aligned;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, GPUAWARE_MAX_LLCS);
	__type(key, u32);
	__type(value, struct llc_ctx);
} llc_ctxs SEC(".maps");

static __always_inline struct task_ctx *task_ctx(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, NULL, 0);
}

static __always_inline struct cpu_ctx *cpu_ctx(s32 cpu)
{
	u32 key = cpu;

	return bpf_map_lookup_elem(&cpu_ctxs, &key);
}

/* User space refuses machines with more CPUs; the mask is what the verifier believes. */
static __always_inline u32 cpu_index(s32 cpu)
{
	return (u32)cpu & (GPUAWARE_MAX_CPUS - 1);
}

static __always_inline u32 llc_of(s32 cpu)
{
	return cpu_llc[cpu_index(cpu)];
}

/* CPUs of @llc, at least one. */
static __always_inline u32 nr_cpus_of(u32 llc)
{
	return llc < GPUAWARE_MAX_LLCS ? llc_nr_cpus[llc] ?: 1 : 1;
}

static __always_inline struct llc_ctx *llc_ctx(u32 llc)
{
	return bpf_map_lookup_elem(&llc_ctxs, &llc);
}

/*
 * A program may disable the migration of the task that it runs on top of, which
 * is_migration_disabled() knows. enqueue() inside cpu_release() makes it two.
 */
static __always_inline bool is_disabled_by_programs_only(const struct task_struct *p)
{
	struct cpu_ctx *cctx;

	if (!bpf_core_field_exists(p->migration_disabled) || p->migration_disabled != 2 ||
	    p != bpf_get_current_task_btf())
		return false;
	cctx = cpu_ctx(bpf_get_smp_processor_id());
	return cctx && cctx->giving_back;
}

/* May run on one CPU only, for now or for good. */
static __always_inline bool is_pinned(const struct task_struct *p)
{
	return p->nr_cpus_allowed == 1 ||
	       (is_migration_disabled(p) && !is_disabled_by_programs_only(p));
}

/*
 * May @p run on @cpu? A global function: where a mask is loaded, the verifier searches all types of
 * the kernel three times, on each path.
 */
__noinline bool may_run_on(struct task_struct *p __arg_trusted, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/*
 * Are there CPUs that @p may not run on? An affinity counts those that may be plugged in one day: a
 * cpuset of all that are there is no restriction.
 */
static __always_inline bool is_restricted(struct task_struct *p)
{
	const struct cpumask *online;
	bool restricted;

	if (p->nr_cpus_allowed >= nr_cpu_ids)
		return false;
	online = scx_bpf_get_online_cpumask();
	restricted = !bpf_cpumask_subset(online, p->cpus_ptr);
	scx_bpf_put_cpumask(online);
	return restricted;
}

static __always_inline bool is_percpu_kthread(const struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

static __always_inline bool is_boosted(u32 class)
{
	return class == GPUAWARE_CLASS_LAUNCH || class == GPUAWARE_CLASS_HANDOFF;
}

/*
 * The tenant that @p is of: the nearest cgroup at or above its own that root owns. Cgroups that a
 * tenant makes in his own are his.
 */
static __always_inline u64 tenant_of(struct task_struct *p)
{
	struct cgroup *cgrp = nearest_seen(BPF_CORE_READ(p, cgroups, dfl_cgrp));
	u32 level = BPF_CORE_READ(cgrp, level), i;

	bpf_for (i, 0, GPUAWARE_MAX_CGROUP_DEPTH) {
		struct cgroup *above;

		if (i >= level)
			break;
		above = cgroup_above(cgrp, level - i);
		/* Without attributes of its own it is root's, and nothing reads as 0. */
		if (!BPF_CORE_READ(above, kn, iattr, ia_uid.val))
			return BPF_CORE_READ(above, kn, id);
	}
	return 0;
}

/* @tctx's task gives up its lag: its vtime gets another use, or none. It comes back as a new task.
 */
static __always_inline void leave_clock(struct task_ctx *tctx)
{
	tctx->vtime_dsq = 0;
	tctx->is_overdue = false;
	tctx->saved_ns = 0;
}

/* What goes with the class of boosted @p. A global function: see search_overdue(). */
__noinline int look_process_up(struct task_struct *p __arg_trusted,
			       struct task_ctx *tctx __arg_nonnull)
{
	bool launches = tctx->class == GPUAWARE_CLASS_LAUNCH;
	struct gpu_process *process;

	/* What it runs from now on is not charged for: it would seem to lag behind by all of it. */
	leave_clock(tctx);
	tctx->tenant = tenant_of(p);
	tctx->gpu_node = 0;
	process = gpu_process_of(p, launches ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (!process)
		return 0;
	tctx->gpu_node = process->node;
	if (launches)
		process->launches = true;
	return 0;
}

/* Looks @p's class up. A global function: see search_overdue(). */
__noinline int look_class_up(struct task_struct *p __arg_trusted,
			     struct task_ctx *tctx __arg_nonnull)
{
	tctx->class = judge_task(p).class;
	if (is_boosted(tctx->class))
		look_process_up(p, tctx);
	return 0;
}

static __always_inline u32 task_class(struct task_struct *p, struct task_ctx *tctx)
{
	if (renew_basis(p, &tctx->basis))
		look_class_up(p, tctx);
	return tctx->class;
}

/* Read by user space, which sets the peaks back to what is runnable at that moment. */
struct gpuaware_demand demand;

static __always_inline void count_demand(struct task_ctx *tctx)
{
	u32 nr;

	if (tctx->demand_class || !is_boosted(tctx->class))
		return;
	tctx->demand_class = tctx->class;
	if (tctx->class == GPUAWARE_CLASS_LAUNCH) {
		nr = __sync_fetch_and_add(&demand.launch, 1) + 1;
		if (nr > demand.launch_peak)
			demand.launch_peak = nr;
	} else {
		nr = __sync_fetch_and_add(&demand.handoff, 1) + 1;
		if (nr > demand.handoff_peak)
			demand.handoff_peak = nr;
	}
}

static __always_inline void uncount_demand(struct task_ctx *tctx)
{
	if (tctx->demand_class == GPUAWARE_CLASS_LAUNCH)
		__sync_fetch_and_sub(&demand.launch, 1);
	else if (tctx->demand_class)
		__sync_fetch_and_sub(&demand.handoff, 1);
	tctx->demand_class = GPUAWARE_CLASS_NONE;
}

static __always_inline u64 class_slice_ns(u32 class)
{
	if (class == GPUAWARE_CLASS_LAUNCH)
		return tunables.launch_slice_ns;
	return class == GPUAWARE_CLASS_HANDOFF ? tunables.handoff_slice_ns
					       : tunables.background_slice_ns;
}

#endif /* __GPUAWARE_TASK_BPF_H */
