// SPDX-License-Identifier: GPL-2.0-only
/*
 * The scheduler: the struct_ops in the order in which the kernel calls them.
 *
 * A launcher (class LAUNCH) runs at once, on a preferred CPU, and preempts others; HANDOFF comes
 * next. Background runs wherever they do not. The rules are in the headers: which class a task has
 * in class.bpf.h, which CPU it gets in pick.bpf.h, which CPUs are preferred in preferred.bpf.h, how
 * a CPU is held for a launcher in hold.bpf.h, how background shares in background.bpf.h and
 * cgroup.bpf.h, how much the boosted classes may take in guard.bpf.h.
 */
#include <scx/common.bpf.h>

#include "background.bpf.h"
#include "kthread.bpf.h"
#include "spin.bpf.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/*
 * Sets the class that @p is queued as: its own, or background where the guard throttles it. A
 * global function: see search_overdue().
 */
__noinline int set_effective_class(struct task_struct *p __arg_trusted,
				   struct task_ctx *tctx __arg_nonnull, u64 now)
{
	u32 class = task_class(p, tctx);

	if (!is_boosted(class) || guard_throttles(tctx, now))
		class = GPUAWARE_CLASS_BACKGROUND;
	tctx->run_as = class;
	return 0;
}

/* Puts boosted task @p into the queue that the CPUs of @llc look at first. */
static __always_inline void queue_boosted(struct task_struct *p, struct task_ctx *tctx, u32 llc,
					  u64 enq_flags, u64 now)
{
	u64 dsq = handoff_dsq(llc);
	struct llc_ctx *llcx;

	note_boosted_queued(llc, now);
	if (tctx->run_as == GPUAWARE_CLASS_LAUNCH) {
		leave_clock(tctx);
		scx_bpf_dsq_insert_vtime(p, launch_dsq(llc), tunables.launch_slice_ns,
					 launch_order(tctx), enq_flags);
		return;
	}
	llcx = llc_ctx(llc);
	if (llcx && !dsq_waiting(dsq))
		llcx->handoff_served_ns = now;
	scx_bpf_dsq_insert(p, dsq, tunables.handoff_slice_ns, enq_flags);
}

s32 BPF_STRUCT_OPS(gpuaware_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *tctx = task_ctx(p);
	u64 now = now_in_interrupt();
	struct pick pick = {.cpu = -1, .now = now};
	s32 cpu;

	if (!tctx)
		return prev_cpu;
	tctx->waker_sleeps = wake_flags & SCX_WAKE_SYNC;
	set_effective_class(p, tctx, now);
	/* enqueue() queues tasks whose cgroup has used up its quota. */
	if (capped_until(tctx, now))
		return prev_cpu;
	tctx->visits_launcher = false;
	if (is_waker(tctx)) {
		pick = pick_waker_cpu(p, tctx, now);
		if (pick.cpu >= 0) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, tunables.lent_slice_ns,
					   pick.how == PICK_PREEMPT ? SCX_ENQ_PREEMPT : 0);
			return pick.cpu;
		}
	}
	if (is_boosted(tctx->run_as)) {
		drop_claim(p, tctx);
		pick_boosted_cpu(p, tctx, prev_cpu, &pick);
		if (pick.cpu < 0)
			return prev_cpu;
		count_pick(tctx, &pick);
		if (tctx->run_as == GPUAWARE_CLASS_LAUNCH)
			note_waker(p, pick.cpu, now);
		/* The kernel wakes the CPU that is returned. */
		if (is_idle_pick(&pick) && rt_task_ran_lately(pick.cpu, now))
			queue_boosted(p, tctx, llc_of(pick.cpu), 0, now);
		else
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, class_slice_ns(tctx->run_as),
					   pick.how == PICK_PREEMPT ? SCX_ENQ_PREEMPT : 0);
		return pick.cpu;
	}
	cpu = pick_background_cpu(p, prev_cpu);
	if (cpu >= 0) {
		/* Else enqueue() is called. */
		if (!rt_task_ran_lately(cpu, now)) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, tunables.background_slice_ns, 0);
			stat_inc(GPUAWARE_STAT_BACKGROUND_DIRECT);
		}
		return cpu;
	}
	return prev_cpu;
}

/*
 * A boosted task that lost its CPU, or that select_cpu() found none for. If another CPU is picked,
 * that one is kicked and takes it from the queue: the kernel defers an insertion into its local DSQ
 * from here, which then preempted nobody before the next tick.
 */
static __always_inline void enqueue_boosted(struct task_struct *p, struct task_ctx *tctx,
					    u64 enq_flags, bool lends, u64 now)
{
	bool rt_preempted = enq_flags & SCX_ENQ_REENQ;
	s32 cpu = scx_bpf_task_cpu(p);
	u64 slice = slice_to_give(tctx);
	struct pick pick = {.cpu = -1, .now = now};

	if (lends && !rt_preempted && may_wait_behind(p, tctx, cpu)) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice, enq_flags);
		return;
	}
	if (rt_preempted && tctx->run_as == GPUAWARE_CLASS_HANDOFF)
		pick_after_rt_preemption(p, tctx, cpu, &pick);
	else
		pick_boosted_cpu(p, tctx, cpu, &pick);
	count_pick(tctx, &pick);
	if (pick.cpu == cpu) {
		if (pick.how == PICK_PREEMPT)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice, enq_flags);
		return;
	}
	/*
	 * Without a pick, every CPU that it may use runs its class or a higher one, and they take
	 * turns; or a real-time task preempted it, and it runs where a CPU is free first.
	 */
	queue_boosted(p, tctx, llc_of(pick.cpu >= 0 ? pick.cpu : cpu), enq_flags, now);
	if (pick.cpu >= 0)
		scx_bpf_kick_cpu(pick.cpu,
				 pick.how == PICK_PREEMPT ? SCX_KICK_PREEMPT : SCX_KICK_IDLE);
}

/* A boosted task that has used up its part of the guard's budget. */
static __always_inline void enqueue_throttled(struct task_struct *p, struct task_ctx *tctx,
					      u64 enq_flags, u64 now)
{
	u32 llc = llc_of(scx_bpf_task_cpu(p));

	stat_inc(GPUAWARE_STAT_GUARD_THROTTLES);
	note_boosted_queued(llc, now);
	leave_clock(tctx);
	scx_bpf_dsq_insert_vtime(p, throttled_dsq(llc), tunables.handoff_slice_ns,
				 launch_order(tctx), enq_flags);
	watch_holds(now);
	kick_idle_for(p);
}

void BPF_STRUCT_OPS(gpuaware_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *tctx = task_ctx(p);
	u64 now = now_in_interrupt(), until;
	bool lends;

	if (!tctx) {
		scx_bpf_error("task %d has no context", p->pid);
		return;
	}
	tctx->visits_launcher = false;
	lends = tctx->lends;
	tctx->lends = false;
	if (is_short_kthread(p, tctx, tctx->burst_ns)) {
		enqueue_percpu_kthread(p, enq_flags);
		return;
	}
	if (!__COMPAT_is_enq_cpu_selected(enq_flags))
		set_effective_class(p, tctx, now);
	drop_claim(p, tctx);
	until = capped_until(tctx, now);
	if (until) {
		enqueue_capped(p, tctx, until, enq_flags, now);
	} else if (is_boosted(tctx->run_as)) {
		enqueue_boosted(p, tctx, enq_flags, lends, now);
	} else if (is_boosted(tctx->class)) {
		enqueue_throttled(p, tctx, enq_flags, now);
	} else {
		enqueue_background(p, tctx, enq_flags, now);
	}
}

/*
 * Is @cpu reserved for others than @tctx's task, which runs as background? CPUs that are not lent
 * are for launchers, those that the guard throttles among them.
 */
static __always_inline bool is_closed_to(const struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
					 u64 now)
{
	return is_boosted(tctx->class) ? is_held(cctx, now) : is_reserved(cpu, cctx, now);
}

/*
 * Does @prev, which was running here and still could, keep the CPU? Gives it its next slice. A
 * global function: see search_overdue().
 */
__noinline int prev_goes_on(struct task_struct *prev __arg_trusted,
			    struct task_ctx *tctx __arg_nonnull, struct cpu_ctx *cctx __arg_nonnull,
			    s32 cpu, u64 now)
{
	if (capped_until(tctx, now))
		return false;
	if (is_short_kthread(prev, tctx, tctx->burst_ns + time_delta(now, tctx->run_start_ns))) {
		scx_bpf_task_set_slice(prev, tunables.lent_slice_ns);
		return true;
	}
	/* Who never sleeps may have another class by now: enqueue() finds it the place of that. */
	task_class(prev, tctx);
	if (is_boosted(tctx->run_as)) {
		if (tctx->class != tctx->run_as || guard_stops(tctx, cpu, now))
			return false;
		scx_bpf_task_set_slice(prev, class_slice_ns(tctx->run_as));
		return true;
	}
	return !is_boosted(tctx->class) && (queues_at_cpu(prev) || !is_reserved(cpu, cctx, now)) &&
	       keeps_running(prev, tctx, cctx, cpu, now);
}

void BPF_STRUCT_OPS(gpuaware_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct task_ctx *tctx = NULL; /* of @prev, if it could go on */
	u64 now = scx_bpf_now();
	u32 llc = llc_of(cpu);
	struct llc_ctx *llcx = llc_ctx(llc);
	bool boosted, released;

	if (!cctx || !llcx)
		return;
	/* The local DSQ is empty: one that waited may have gone elsewhere. */
	cctx->kthread_waiting = cctx->lent = false;
	if (rt_task_is_runnable(cpu)) {
		cctx->taken_ns = now;
		pass_on(llc, llcx, now);
		return;
	}
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		tctx = task_ctx(prev);
	/* enqueue() finds it that other CPU. */
	if (tctx && tctx->run_as == GPUAWARE_CLASS_LAUNCH && is_misplaced(prev, tctx, cpu, now))
		tctx = NULL;
	/* Before a turn is given: what ran in this CPU's last one is told by that. */
	if (tctx && cctx->occupant == OCCUPANT_BACKGROUND && !is_boosted(tctx->class))
		charge_background(prev, tctx, cctx, cpu, now);
	sweep_overdue(cpu, cctx, now);
	boosted = boosted_wait(llc, llcx, now);
	if (dispatch_turn(cpu, llc, cctx, llcx, now) ||
	    (boosted &&
	     (dispatch_overdue_handoff(cpu, cctx, llcx, now) || dispatch_released(llc, llcx, now))))
		return;
	if (tctx && waits_by_yields(tctx, now)) {
		if (!boosted && lend_cpu(tctx, cctx, cpu, now))
			return;
		tctx->nr_yields = 0;
	}
	/* A launcher yields to launchers only, of tenants that have had no more. */
	if (tctx && tctx->run_as == GPUAWARE_CLASS_LAUNCH &&
	    !(boosted && launcher_waits_for(cpu) && !goes_before_launchers(tctx, llc)) &&
	    prev_goes_on(prev, tctx, cctx, cpu, now))
		return;
	released = boosted && guard_releases(now) && dsq_waiting(throttled_dsq(llc));
	if (released && throttled_go_first(llc) && scx_bpf_dsq_move_to_local(throttled_dsq(llc), 0))
		return;
	if (boosted && dispatch_boosted(llc, llcx, now))
		return;
	if (released && scx_bpf_dsq_move_to_local(throttled_dsq(llc), 0))
		return;
	if ((!tctx || tctx->run_as == GPUAWARE_CLASS_BACKGROUND) &&
	    pull_from_crowded(cpu, cctx, now))
		return;
	if (tctx && prev_goes_on(prev, tctx, cctx, cpu, now))
		return;
	if (is_reserved(cpu, cctx, now)) {
		/* This CPU may have been woken for work that it declines: wakes another one. */
		if (declined_wait(llc)) {
			if (is_held(cctx, now) && !cctx->declined_since_ns)
				cctx->declined_since_ns = now;
			watch_holds(now);
			kick_idle_for_background();
		}
		if (!scx_bpf_dsq_move_to_local(pinned_dsq(cpu), 0) && boosted &&
		    !is_held(cctx, now))
			scx_bpf_dsq_move_to_local(throttled_dsq(llc), 0);
		return;
	}
	if (dispatch_background(cpu, llc, cctx) || dispatch_from_others(llc, now))
		return;
	/* Throttled or not: nobody else wants the CPU. */
	if (boosted && scx_bpf_dsq_move_to_local(throttled_dsq(llc), 0))
		return;
	if (tctx)
		go_on_alone(prev, tctx, cctx, cpu, now);
	else if (!prev)
		stay_idle(cpu, cctx, llc, llcx, now);
}

void BPF_STRUCT_OPS(gpuaware_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *tctx = task_ctx(p);
	struct cpu_ctx *cctx;
	u64 now = now_in_interrupt();

	if (!tctx)
		return;
	count_runnable(p, tctx, now);
	/* select_cpu() has looked it up. */
	if (!__COMPAT_is_enq_cpu_selected(enq_flags))
		task_class(p, tctx);
	count_demand(tctx);
	/* Another affinity or cgroup takes it off its queue and puts it back: its wait goes on. */
	if (!tctx->waiting_since_ns)
		tctx->waiting_since_ns = now;
	tctx->slice_left_ns = 0;
	tctx->woken = enq_flags & SCX_ENQ_WAKEUP;
	if (tctx->woken) {
		tctx->burst_ns = 0;
		tctx->nr_yields = 0;
		learn_sleep(tctx, now);
	}
	cctx = tctx->is_softirqd ? cpu_ctx(scx_bpf_task_cpu(p)) : NULL;
	if (cctx)
		cctx->softirqd_runnable = true;
	if (tctx->woken && (tctx->is_kin || time_after(now, tctx->asked_kin_ns + ASK_KIN_NS)))
		save_lag(p, tctx, now);
}

void BPF_STRUCT_OPS(gpuaware_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *tctx = task_ctx(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = scx_bpf_now();

	if (!tctx || !cctx)
		return;
	if (tctx->waiting_since_ns)
		count_wait(p, tctx->run_as ?: GPUAWARE_CLASS_BACKGROUND,
			   time_delta(now, tctx->waiting_since_ns), tctx->woken);
	tctx->waiting_since_ns = 0;
	tctx->run_start_ns = tctx->charged_ns = now;
	tctx->slice_left_ns = 0;
	cctx->looks_again = false;
	if (is_percpu_kthread(p))
		cctx->kthread_waiting = false;
	if (is_short_kthread(p, tctx, tctx->burst_ns)) {
		tctx->woken = false;
		cctx->occupant = OCCUPANT_KTHREAD;
		return;
	}
	/* Others of its cgroup have used the quota up since it was queued. */
	if (capped_until(tctx, now))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	if (tctx->visits_launcher) {
		tctx->woken = false;
		cctx->occupant = OCCUPANT_WAKER;
		cctx->runs_dsq = 0;
		return;
	}
	if (is_boosted(tctx->run_as)) {
		tctx->woken = false;
		drop_claim(p, tctx);
		/* Its slice was over, and a kthread came first: dispatch() is next. */
		if (p->scx.slice == SLICE_OVER_NS)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
		cctx->occupant = OCCUPANT_HANDOFF;
		if (tctx->run_as == GPUAWARE_CLASS_LAUNCH) {
			cctx->occupant = OCCUPANT_LAUNCH;
			end_hold(cpu, cctx, now);
			/* It may only look what became of what it waits for. */
			hold_core(cpu, now + HOLD_CORE_NS,
				  !(cctx->lent && tctx->nr_yields == SPIN_YIELDS), now);
		}
		tctx->lends = cctx->lent = false;
		return;
	}
	/* It has waited for a slice. */
	if (tctx->is_overdue)
		cctx->lent = false;
	if (is_boosted(tctx->class))
		start_throttled(tctx, cctx, now);
	else
		start_on_clock(p, tctx, cctx, background_queue(p, cpu));
	tctx->woken = false;
	/* A change of its affinity comes here too, which must give nobody a new slice. */
	if (time_before(now, cctx->turn_until_ns)) {
		if (p->scx.slice)
			scx_bpf_task_set_slice(p, cctx->turn_until_ns - now);
		return;
	}
	if (is_preferred(cpu) && p->scx.slice > tunables.lent_slice_ns)
		scx_bpf_task_set_slice(p, tunables.lent_slice_ns);
	/*
	 * A launcher that woke between this task's dispatch and now found the CPU neither idle nor
	 * running background, and waits in the queue. Or its hold began then.
	 */
	if (launcher_waits_for(cpu) || (!queues_at_cpu(p) && is_closed_to(tctx, cpu, cctx, now)))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/*
 * What @tctx's task ran since the last time counts for the guard and for the limits of its cgroups.
 * A global function: see search_overdue().
 */
__noinline int charge_run(struct task_ctx *tctx __arg_nonnull, s32 cpu, u64 now)
{
	u64 ran_ns = time_delta(now, tctx->charged_ns);

	tctx->charged_ns = now;
	charge_limited_run(tctx, ran_ns, now);
	if (is_boosted(tctx->class))
		guard_charge(tctx, cpu, ran_ns, now);
	return 0;
}

void BPF_STRUCT_OPS(gpuaware_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *tctx = task_ctx(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = scx_bpf_now();

	if (holds_have_expired(now))
		end_expired_holds(now);
	if (!tctx || !cctx || is_percpu_kthread(p))
		return;
	if (tctx->run_as == GPUAWARE_CLASS_LAUNCH)
		hold_core(cpu, now + HOLD_CORE_NS, true, now);
	/* One that was marked while it runs and never sleeps. */
	count_demand(tctx);
	charge_run(tctx, cpu, now);
	if (cctx->kthread_waiting) {
		keep_slice(p, tctx);
		scx_bpf_task_set_slice(p, 0);
	} else if (capped_until(tctx, now) ||
		   (is_boosted(tctx->run_as) && guard_stops(tctx, cpu, now))) {
		scx_bpf_task_set_slice(p, 0);
	}
}

void BPF_STRUCT_OPS(gpuaware_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *tctx = task_ctx(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = scx_bpf_now(), ran_ns;
	bool short_kthread;
	u32 class;

	if (!tctx || !cctx)
		return;
	ran_ns = time_delta(now, tctx->run_start_ns);
	if (runnable)
		tctx->waiting_since_ns = now;
	short_kthread = cctx->occupant == OCCUPANT_KTHREAD;
	cctx->occupant = OCCUPANT_OTHER;
	if (short_kthread) {
		tctx->burst_ns += ran_ns;
		return;
	}
	charge_run(tctx, cpu, now);
	if (tctx->run_as == GPUAWARE_CLASS_LAUNCH)
		cctx->launched_ns = now;
	/* Who never sleeps may have lost its class just now: see prev_goes_on(). */
	class = is_boosted(tctx->run_as) ? tctx->run_as : tctx->class;
	if (is_boosted(class)) {
		tctx->burst_ns += ran_ns;
		count_run(class, is_preferred(cpu), ran_ns);
		return;
	}
	charge_background(p, tctx, cctx, cpu, now);
}

void BPF_STRUCT_OPS(gpuaware_quiescent, struct task_struct *p, u64 deq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *tctx = task_ctx(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = scx_bpf_now();

	if (!tctx || !cctx)
		return;
	if (deq_flags & SCX_DEQ_SLEEP)
		tctx->waiting_since_ns = 0;
	return_prepaid(tctx, now);
	count_sleeping(tctx);
	uncount_demand(tctx);
	if (tctx->is_softirqd)
		cctx->softirqd_runnable = false;
	learn_waker(tctx, now);
	if (!is_boosted(tctx->class))
		return;
	drop_claim(p, tctx);
	if (tctx->run_as != GPUAWARE_CLASS_LAUNCH || !(deq_flags & SCX_DEQ_SLEEP))
		return;
	tctx->sleep_start_ns = now;
	start_hold(cpu, cctx, tctx, now);
}

/*
 * CUDA can wait for the GPU in a sched_yield() loop. A launcher that yields keeps its CPU unless
 * another launcher queues: a switch for each yield helps nobody.
 */
bool BPF_STRUCT_OPS(gpuaware_yield, struct task_struct *from, struct task_struct *to)
{
	struct task_ctx *tctx = task_ctx(from);
	s32 cpu = scx_bpf_task_cpu(from);

	if (to)
		return false;
	if (tctx && is_boosted(tctx->run_as)) {
		count_yield(tctx);
		if (tctx->run_as == GPUAWARE_CLASS_LAUNCH && !launcher_waits_for(cpu) &&
		    !(tctx->nr_yields == SPIN_YIELDS && background_waits_for(cpu)))
			return false;
	}
	scx_bpf_task_set_slice(from, 0);
	return false;
}

/*
 * Work may have been queued, in any LLC, between this CPU's last look and its becoming visibly
 * idle: who queues it sees that, or it is seen here.
 */
void BPF_STRUCT_OPS(gpuaware_update_idle, s32 cpu, bool idle)
{
	struct cpu_ctx *cctx = idle ? cpu_ctx(cpu) : NULL;
	u64 now = scx_bpf_now();
	u32 llc = llc_of(cpu);
	struct llc_ctx *llcx = llc_ctx(llc);
	bool boosted;

	if (!cctx)
		return;
	note_idle(cctx, now);
	boosted = boosted_wait(llc, llcx, now);
	if ((boosted &&
	     (!is_held(cctx, now) || launcher_waits_for(cpu) || dsq_waiting(handoff_dsq(llc)))) ||
	    dsq_waiting(pinned_dsq(cpu)) ||
	    (!is_reserved(cpu, cctx, now) && work_waits(llc, llcx, now)))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/*
 * A higher scheduling class takes @cpu. Kernels before 6.19 say so here, and take tasks back from
 * here only; not again until a task of ours has run there, though others of that class may follow.
 */
void BPF_STRUCT_OPS(gpuaware_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (!cctx || args->reason == SCX_CPU_PREEMPT_STOP)
		return;
	cctx->taken_ns = scx_bpf_now();
	cctx->giving_back = true;
	scx_bpf_reenqueue_local___v1();
	cctx->giving_back = false;
}

/* The same from 6.19 on. The task that was preempted is in the local DSQ already. */
SEC("tp_btf/sched_switch")
int BPF_PROG(gpuaware_switched, bool preempted, struct task_struct *prev, struct task_struct *next)
{
	if (keeps_waiting(next) && dsq_waiting(SCX_DSQ_LOCAL))
		scx_bpf_reenqueue_local_from_anywhere();
	return 0;
}

s32 BPF_STRUCT_OPS(gpuaware_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	static const char softirqd[] = "ksoftirqd/";
	struct task_ctx *tctx;

	tctx = bpf_task_storage_get(&task_ctxs, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!tctx)
		return -ENOMEM;
	tctx->claimed_cpu = -1;
	tctx->share = SHARE_OF_NICE_0;
	tctx->is_softirqd =
		(p->flags & PF_KTHREAD) && !bpf_strncmp(p->comm, sizeof(softirqd) - 1, softirqd);
	return 0;
}

/* It comes, or comes back from another scheduling class. */
void BPF_STRUCT_OPS(gpuaware_enable, struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx(p);

	if (!tctx)
		return;
	tctx->waiting_since_ns = 0;
	leave_clock(tctx);
}

s32 BPF_STRUCT_OPS(gpuaware_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	return add_cgroup(cgrp, args, scx_bpf_now());
}

void BPF_STRUCT_OPS(gpuaware_cgroup_exit, struct cgroup *cgrp)
{
	remove_cgroup(cgrp->kn->id);
}

void BPF_STRUCT_OPS(gpuaware_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	set_cgroup_weight(cgrp->kn->id, weight);
}

/* cpu.idle: the cgroup gets the lowest weight. */
void BPF_STRUCT_OPS(gpuaware_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	set_cgroup_weight(cgrp->kn->id, idle ? IDLE_WEIGHT : DEFAULT_WEIGHT);
}

void BPF_STRUCT_OPS(gpuaware_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
		    u64 burst_us)
{
	struct cgroup_ctx *cgc = cgroup_ctx(cgrp->kn->id);

	if (cgc)
		set_cgroup_limit(cgc, period_us, quota_us, burst_us, scx_bpf_now());
}

s32 BPF_STRUCT_OPS_SLEEPABLE(gpuaware_init)
{
	s32 ret;

	ret = create_dsqs();
	ret = ret ?: init_preferred();
	ret = ret ?: init_hold();
	ret = ret ?: init_look_timers();
	ret = ret ?: init_cgroups();
	return ret ?: init_scratches();
}

void BPF_STRUCT_OPS(gpuaware_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* Filled in by `count_waiting` for user space. */
struct gpuaware_waiting waiting;

/* Run by user space for its statistics. */
SEC("syscall")
int count_waiting(void *ctx)
{
	struct gpuaware_waiting found = {};
	s32 i;

	bpf_for (i, 0, nr_llcs) {
		found.launch += scx_bpf_dsq_nr_queued(launch_dsq(i));
		found.handoff += scx_bpf_dsq_nr_queued(handoff_dsq(i));
		found.background += scx_bpf_dsq_nr_queued(background_dsq(i)) +
				    scx_bpf_dsq_nr_queued(throttled_dsq(i)) +
				    scx_bpf_dsq_nr_queued(capped_dsq(i));
	}
	bpf_for (i, 0, nr_cpu_ids)
		found.background += scx_bpf_dsq_nr_queued(pinned_dsq(i));
	waiting = found;
	return 0;
}

/* Run by user space before it attaches. For an extern, libbpf would read all of /proc/kallsyms. */
SEC("syscall")
int find_active_mask(void *ctx)
{
	static const char name[] = "__cpu_active_mask";
	u64 found = 0;

	if (bpf_kallsyms_lookup_name(name, sizeof(name), 0, &found))
		return 1;
	active_mask = found;
	return 0;
}

SCX_OPS_DEFINE(gpuaware_ops, .select_cpu = (void *)gpuaware_select_cpu,
	       .enqueue = (void *)gpuaware_enqueue, .dispatch = (void *)gpuaware_dispatch,
	       .runnable = (void *)gpuaware_runnable, .running = (void *)gpuaware_running,
	       .tick = (void *)gpuaware_tick, .stopping = (void *)gpuaware_stopping,
	       .quiescent = (void *)gpuaware_quiescent, .yield = (void *)gpuaware_yield,
	       .update_idle = (void *)gpuaware_update_idle,
	       .cpu_release = (void *)gpuaware_cpu_release, .init_task = (void *)gpuaware_init_task,
	       .enable = (void *)gpuaware_enable, .cgroup_init = (void *)gpuaware_cgroup_init,
	       .cgroup_exit = (void *)gpuaware_cgroup_exit,
	       .cgroup_set_weight = (void *)gpuaware_cgroup_set_weight,
	       .cgroup_set_idle = (void *)gpuaware_cgroup_set_idle,
	       .cgroup_set_bandwidth = (void *)gpuaware_cgroup_set_bandwidth,
	       .init = (void *)gpuaware_init, .exit = (void *)gpuaware_exit, .timeout_ms = 20000,
	       .name = "gpuaware");
