/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Background: fair by weight on virtual time, first on CPUs that are not preferred, on preferred
 * ones while they are lent, and never starved by launchers.
 */
#ifndef __GPUAWARE_BACKGROUND_BPF_H
#define __GPUAWARE_BACKGROUND_BPF_H

#include "cgroup.bpf.h"
#include "clock.bpf.h"
#include "guard.bpf.h"
#include "overdue.bpf.h"

/* Turns of the minimum share that a queue may be ahead, where they were longer than meant. */
#define MAX_LEAD 4

/*
 * Next deadline of the minimum share for a queue served by @nr_cpus CPUs, after it ran @ran_ns: it
 * advances by that, divided by the minimum share. So the queue gets its share however late or long
 * its turns are, and the short runs that sleeping launchers leave do not count as a turn. Lag is
 * capped at one turn and a slice, lead at @bound_ns. A global function: see search_overdue().
 */
__noinline u64 advance_deadline(u64 due, u64 ran_ns, u32 nr_cpus, u64 bound_ns, u64 now)
{
	u64 earliest = now - tunables.turn_interval_ns / nr_cpus - tunables.background_slice_ns;
	u64 latest = now + bound_ns, next;

	if (time_before(due, earliest))
		due = earliest;
	next = due + ran_ns * tunables.turn_factor / GPUAWARE_TURN_UNIT / nr_cpus;
	if (time_before(next, latest))
		return next;
	/* A turn may have been charged for more than this run's bound: that stays. */
	return time_before(due, latest) ? latest : due;
}

static __always_inline void charge_pinned(struct cpu_ctx *cctx, u64 ran_ns, u64 now)
{
	u64 bound = MAX_LEAD * tunables.turn_interval_ns;

	cctx->pinned_due_ns = advance_deadline(cctx->pinned_due_ns, ran_ns, 1, bound, now);
}

/*
 * The lead is @nr_turns turns at most, and a slice, as slices of several CPUs may end together: of
 * time that nobody boosted wanted it is one turn.
 */
static __always_inline u64 charge_shared(u64 due, u64 ran_ns, u32 llc, u64 nr_turns, u64 now)
{
	u32 nr_cpus = nr_cpus_of(llc);
	u64 bound = nr_turns * tunables.turn_interval_ns / nr_cpus + tunables.background_slice_ns;

	return advance_deadline(due, ran_ns, nr_cpus, bound, now);
}

/* The first task to wake into an empty queue waits for an interval: launchers may sleep in it. */
static __always_inline u64 start_waiting(u64 due, u32 nr_cpus, u64 enq_flags, u64 now)
{
	u64 interval = tunables.turn_interval_ns / nr_cpus;
	u64 earliest = (enq_flags & SCX_ENQ_WAKEUP) ? now + interval : now - interval;

	return time_before(due, earliest) ? earliest : due;
}

/* How many CPUs wakeup preemption within background looks at. */
#define PREEMPT_SCAN_CPUS 8
/*
 * Wakeup preemption within background happens on a CPU no more often than this. Where hundreds of
 * tasks wake each other up (hackbench), a switch costs more than what is done between two of them.
 */
#define PREEMPT_INTERVAL_NS 1000000ULL

/*
 * @cctx's CPU runs @tctx's task, which the guard throttles, while nobody else wants to: until
 * background wakes up, but for a turn that it is owed.
 */
static __always_inline void start_throttled(struct task_ctx *tctx, struct cpu_ctx *cctx, u64 now)
{
	u64 until = tctx->is_overdue ? now + tunables.background_slice_ns : now;

	tctx->is_overdue = false;
	cctx->runs_dsq = 0;
	cctx->keeps_until_ns =
		time_before(until, cctx->turn_until_ns) ? cctx->turn_until_ns : until;
	/* Last: should_preempt() goes by the others. */
	cctx->occupant = OCCUPANT_BACKGROUND;
}

/*
 * Should a task that woke up, waits in @dsq and will be at vtime @after when it has run for a slice
 * preempt the background of a CPU? Only if it still lags then: it needs the CPU for less time than
 * it would wait. Between two queues, what each had of the CPU is compared.
 */
static __always_inline bool should_preempt(s32 cpu, struct cpu_ctx *cctx, u64 dsq, u64 after,
					   u64 now)
{
	u64 slice = tunables.background_slice_ns;

	if (cctx->occupant != OCCUPANT_BACKGROUND || cctx->lent)
		return false;
	/* Two that wake up at once look for a CPU each. */
	if (!cctx->runs_dsq)
		return !time_before(now, cctx->keeps_until_ns) &&
		       !time_before(now, cctx->preempted_ns + ARRIVAL_NS) &&
		       (dsq >= DSQ_PINNED || !is_reserved(cpu, cctx, now));
	if (time_before(now, cctx->preempted_ns + PREEMPT_INTERVAL_NS))
		return false;
	if (cctx->runs_dsq == dsq)
		return time_before(after, cctx->runs_vtime);
	if (dsq >= DSQ_PINNED)
		return time_before(cctx->pinned_share_ns + slice, cctx->shared_share_ns);
	return cctx->runs_dsq >= DSQ_PINNED &&
	       time_before(cctx->shared_share_ns + slice, cctx->pinned_share_ns);
}

static __always_inline bool try_preempt(s32 cpu, u64 dsq, u64 after, u64 now)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (!cctx || !should_preempt(cpu, cctx, dsq, after, now))
		return false;
	cctx->preempted_ns = now;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	return true;
}

/*
 * The next CPU by number; after the last one, the first. A global function, or the verifier would
 * follow each number by itself, and fails at that on 6.18 ("backtracking call").
 */
__noinline s32 cpu_after(s32 cpu)
{
	return cpu + 1 < nr_cpu_ids ? cpu + 1 : 0;
}

/*
 * Finds a CPU for @p, which waits in the shared queue @dsq, where it will be at vtime @after when
 * it has run for a slice: one that is idle, or, if it @preempts, one whose background makes way. A
 * global function: see search_overdue().
 */
__noinline int find_cpu(struct task_struct *p __arg_trusted, u64 dsq, u64 after, bool preempts,
			u64 now)
{
	s32 cpu = scx_bpf_task_cpu(p), idle = pick_background_cpu(p, cpu);
	u32 llc = llc_of(cpu), i;

	if (idle >= 0) {
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
		return 0;
	}
	if (!preempts)
		return 0;
	bpf_for (i, 0, nr_cpu_ids < PREEMPT_SCAN_CPUS ? nr_cpu_ids : PREEMPT_SCAN_CPUS) {
		if (llc_of(cpu) == llc && may_run_on(p, cpu) && try_preempt(cpu, dsq, after, now))
			break;
		cpu = cpu_after(cpu);
	}
	return 0;
}

/* Background that waits in the queue of one CPU; a confined task in that of an idle CPU. */
static __always_inline void enqueue_at_cpu(struct task_struct *p, struct task_ctx *tctx,
					   u64 enq_flags, u64 now)
{
	s32 idle = is_pinned(p) ? -1 : pick_any_idle(p);
	s32 cpu = idle >= 0 ? idle : scx_bpf_task_cpu(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 dsq = pinned_dsq(cpu), vtime = enter_clock(p, tctx, dsq);

	if (cctx && !dsq_waiting(dsq))
		cctx->pinned_due_ns = start_waiting(cctx->pinned_due_ns, 1, enq_flags, now);
	scx_bpf_dsq_insert_vtime(p, dsq, tunables.background_slice_ns, vtime, enq_flags);
	if (!(enq_flags & SCX_ENQ_WAKEUP) || !try_preempt(cpu, dsq, vtime_after(tctx, vtime), now))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/*
 * Does the waker of @p, which waits in the shared queue of @llc, leave its CPU soon, and to that
 * queue? A launcher's is held when it sleeps.
 */
static __always_inline bool waker_makes_way(struct task_struct *p, struct task_ctx *tctx, u32 llc,
					    u64 now)
{
	s32 cpu = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = tctx->waker_sleeps ? cpu_ctx(cpu) : NULL;

	return cctx && llc_of(cpu) == llc && may_run_on(p, cpu) &&
	       cctx->occupant != OCCUPANT_LAUNCH && !is_reserved(cpu, cctx, now);
}

static __always_inline void enqueue_background(struct task_struct *p, struct task_ctx *tctx,
					       u64 enq_flags, u64 now)
{
	s32 cpu = scx_bpf_task_cpu(p);
	u32 llc = llc_of(cpu);
	struct llc_ctx *llcx = llc_ctx(llc);
	u64 dsq, vtime;

	stat_inc(GPUAWARE_STAT_BACKGROUND_QUEUED);
	if (queues_at_cpu(p)) {
		enqueue_at_cpu(p, tctx, enq_flags, now);
		return;
	}
	dsq = background_dsq(llc);
	if (llcx) {
		note_queued(llc, llcx, now);
		if (!dsq_waiting(dsq))
			llcx->background_due_ns = start_waiting(llcx->background_due_ns,
								nr_cpus_of(llc), enq_flags, now);
	}
	vtime = enter_clock(p, tctx, dsq);
	scx_bpf_dsq_insert_vtime(p, dsq, tunables.background_slice_ns, vtime, enq_flags);
	watch_holds(now);
	if (llcx)
		note_arriving(llcx, now);
	find_cpu(p, dsq, vtime_after(tctx, vtime),
		 (enq_flags & SCX_ENQ_WAKEUP) && !waker_makes_way(p, tctx, llc, now), now);
}

/* Was time @at in a turn of background on this CPU? One comparison, for the verifier's sake. */
static __always_inline bool is_in_turn(struct cpu_ctx *cctx, u64 at)
{
	return cctx->turn_until_ns - 1 - at < tunables.background_slice_ns;
}

/*
 * Charges @llc for a run that began at @start. A turn has been charged when it was given, for a
 * slice, but it may end at a later tick, or much later where a hypervisor stops the CPU.
 */
static __always_inline void charge_llc(struct cpu_ctx *cctx, u32 llc, u64 start, u64 now)
{
	struct llc_ctx *llcx = llc_ctx(llc);
	u64 nr_turns = 1;

	if (!llcx)
		return;
	if (is_in_turn(cctx, start)) {
		start = cctx->turn_until_ns;
		nr_turns = MAX_LEAD;
	}
	llcx->background_due_ns =
		charge_shared(llcx->background_due_ns, time_delta(now, start), llc, nr_turns, now);
}

/*
 * Charges background task @p for what it has run until @now. A global function: see
 * search_overdue().
 */
__noinline int charge_background(struct task_struct *p __arg_trusted,
				 struct task_ctx *tctx __arg_nonnull,
				 struct cpu_ctx *cctx __arg_nonnull, s32 cpu, u64 now)
{
	u64 start = tctx->run_start_ns, ran_ns = time_delta(now, start), drawn_ns = 0;
	bool pinned = queues_at_cpu(p);
	u32 llc = llc_of(cpu);
	u64 dsq = pinned ? pinned_dsq(cpu) : background_dsq(llc);
	u64 nr = scx_bpf_dsq_nr_queued(dsq) / (pinned ? 1 : nr_cpus_of(llc)) + 1;

	tctx->is_overdue = false; /* a sweep may have met it on its way to the CPU */
	tctx->run_start_ns = now;
	tctx->burst_ns += ran_ns;
	count_run(GPUAWARE_CLASS_BACKGROUND, is_preferred(cpu), ran_ns);
	renew_share(tctx, now);
	/* Of one CPU the LLC's part would be too much. */
	if (tctx->saved_ns && !pinned)
		drawn_ns = draw_savings(p, tctx, llc, ran_ns, now);
	charge_vtime(p, vtime_for(tctx, ran_ns - drawn_ns));
	if (pinned) {
		cctx->pinned_share_ns += ran_ns / nr;
		charge_pinned(cctx, ran_ns, now);
		return 0;
	}
	cctx->shared_share_ns += ran_ns / nr;
	/* A waker runs for its launcher. */
	if (!tctx->visits_launcher)
		charge_llc(cctx, llc, start, now);
	return 0;
}

/*
 * Both queues wait: is the pinned one next on this CPU? The lag of either is capped, so that it
 * cannot shut the other out for long to catch up.
 */
static __always_inline bool pinned_goes_first(struct cpu_ctx *cctx)
{
	u64 bound = 4 * tunables.background_slice_ns;

	if (time_before(cctx->pinned_share_ns + bound, cctx->shared_share_ns))
		cctx->pinned_share_ns = cctx->shared_share_ns - bound;
	else if (time_before(cctx->shared_share_ns + bound, cctx->pinned_share_ns))
		cctx->shared_share_ns = cctx->pinned_share_ns - bound;
	return time_before_eq(cctx->pinned_share_ns, cctx->shared_share_ns);
}

/* Background task @prev gets another slice, which the kernel does not say to running(). */
static __always_inline void run_on(struct task_struct *prev, struct task_ctx *tctx,
				   struct cpu_ctx *cctx, s32 cpu)
{
	start_on_clock(prev, tctx, cctx, background_queue(prev, cpu));
	scx_bpf_task_set_slice(prev, is_preferred(cpu) ? tunables.lent_slice_ns
						       : tunables.background_slice_ns);
}

/*
 * Does background task @prev keep its CPU, its slice used up? It is in no queue now: if the head of
 * the queue always ran next, two tasks would alternate whatever their weights. A global function:
 * see search_overdue().
 */
__noinline int keeps_running(struct task_struct *prev __arg_trusted,
			     struct task_ctx *tctx __arg_nonnull,
			     struct cpu_ctx *cctx __arg_nonnull, s32 cpu, u64 now)
{
	bool pinned = queues_at_cpu(prev);
	u32 llc = llc_of(cpu);
	u64 own = pinned ? pinned_dsq(cpu) : background_dsq(llc);
	u64 other = pinned ? background_dsq(llc) : pinned_dsq(cpu);

	charge_background(prev, tctx, cctx, cpu, now);
	if ((dsq_waiting(other) && pinned_goes_first(cctx) != pinned) ||
	    (dsq_waiting(own) && !time_before(vtime_on(prev, tctx, own), dsq_head_vtime(own))))
		return false;
	run_on(prev, tctx, cctx, cpu);
	return true;
}

/*
 * Nobody else wants the CPU of @prev, or those who do may not run there: throttled or not. Who has
 * another class now than the boosted one that it runs as gets no slice: enqueue() finds it a place.
 */
static __always_inline void go_on_alone(struct task_struct *prev, struct task_ctx *tctx,
					struct cpu_ctx *cctx, s32 cpu, u64 now)
{
	if (capped_until(tctx, now) || (is_boosted(tctx->run_as) && tctx->class != tctx->run_as))
		return;
	if (is_boosted(tctx->class))
		scx_bpf_task_set_slice(prev, tunables.handoff_slice_ns);
	else if (tctx->run_as == GPUAWARE_CLASS_BACKGROUND)
		run_on(prev, tctx, cctx, cpu);
}

/*
 * Background that waits for this CPU, in the pinned or in the shared queue. A global function: see
 * search_overdue().
 */
__noinline bool dispatch_background(s32 cpu, u32 llc, struct cpu_ctx *cctx __arg_nonnull)
{
	u64 shared = background_dsq(llc), pinned = pinned_dsq(cpu);

	if (!dsq_waiting(pinned))
		return scx_bpf_dsq_move_to_local(shared, 0);
	if (dsq_waiting(shared) && !pinned_goes_first(cctx))
		return scx_bpf_dsq_move_to_local(shared, 0) || scx_bpf_dsq_move_to_local(pinned, 0);
	return scx_bpf_dsq_move_to_local(pinned, 0) || scx_bpf_dsq_move_to_local(shared, 0);
}

/*
 * Some wait: is it time for the turn that this CPU owes to tasks that may not leave it, pinned ones
 * or others that are overdue? It is one debt, or launchers would lose the minimum share twice.
 * Where both wait, they have its turns one after the other. What a pinned task has of a CPU that
 * nobody boosted wants, it shares with who is overdue, whatever turns it was given. A global
 * function: see search_overdue().
 */
__noinline bool owes_cpus_turn(s32 cpu, struct cpu_ctx *cctx __arg_nonnull, u64 now)
{
	bool pinned_wait = dsq_waiting(pinned_dsq(cpu)), overdue = cctx->owes_overdue;
	bool pinned_runs =
		cctx->occupant == OCCUPANT_BACKGROUND && cctx->runs_dsq == pinned_dsq(cpu);

	if (time_before(now, cctx->pinned_due_ns) &&
	    (!overdue || !pinned_runs || pinned_goes_first(cctx) || launcher_waits_for(cpu)))
		return false;
	if (pinned_wait && overdue)
		overdue = !pinned_goes_first(cctx);
	/* The turn is for these first, whatever share the others had. */
	cctx->pinned_share_ns = cctx->shared_share_ns + overdue;
	if (overdue) {
		cctx->owes_overdue = false;
		charge_pinned(cctx, tunables.background_slice_ns, now);
	}
	return true;
}

/*
 * Has background had so little that boosted tasks owe it a turn? A turn of the shared queue is
 * charged in advance, so that no other CPU gives it as well.
 */
static __always_inline bool owes_turn(s32 cpu, u32 llc, struct cpu_ctx *cctx, struct llc_ctx *llcx,
				      u64 now)
{
	u64 due = llcx->background_due_ns, slice = tunables.background_slice_ns;

	if ((cctx->owes_overdue || dsq_waiting(pinned_dsq(cpu))) && owes_cpus_turn(cpu, cctx, now))
		return true;
	/* Work for the whole LLC is owed by any of its CPUs. */
	return time_after_eq(now, due) && dsq_waiting(background_dsq(llc)) &&
	       __sync_val_compare_and_swap(&llcx->background_due_ns, due,
					   charge_shared(due, slice, llc, MAX_LEAD, now)) == due;
}

/*
 * The minimum share. Background that is owed a turn gets the CPU for one slice in which no launcher
 * preempts it. Tasks that need less than the slice share it.
 */
static __always_inline bool dispatch_turn(s32 cpu, u32 llc, struct cpu_ctx *cctx,
					  struct llc_ctx *llcx, u64 now)
{
	if (time_after_eq(now, cctx->turn_until_ns)) {
		if (!owes_turn(cpu, llc, cctx, llcx, now))
			return false;
		cctx->turn_until_ns = now + tunables.background_slice_ns;
		stat_inc(GPUAWARE_STAT_BACKGROUND_TURNS);
	}
	if (dispatch_background(cpu, llc, cctx))
		return true;
	cctx->turn_until_ns = 0;
	return false;
}

/*
 * May the first task in the handoff queue of @cpu's LLC run there, and has it waited for the
 * interval of the minimum share? It may not run everywhere, and other CPUs serve who came later. A
 * global function: see search_overdue().
 */
__noinline bool first_handoff_is_overdue(s32 cpu, u64 now)
{
	struct task_struct *p;
	bool overdue = false;

	bpf_for_each (scx_dsq, p, handoff_dsq(llc_of(cpu)), 0) {
		struct task_ctx *tctx = task_ctx(p);

		overdue = tctx && tctx->waiting_since_ns &&
			  time_after_eq(now, tctx->waiting_since_ns + tunables.turn_interval_ns) &&
			  may_run_on(p, cpu);
		break;
	}
	return overdue;
}

/* Handoff that launchers have shut out for the interval of the minimum share gets a CPU. */
static __always_inline bool dispatch_overdue_handoff(s32 cpu, struct cpu_ctx *cctx,
						     struct llc_ctx *llcx, u64 now)
{
	u64 interval = tunables.turn_interval_ns, dsq = handoff_dsq(llc_of(cpu));

	if (!dsq_waiting(dsq))
		return false;
	if (time_before(now, llcx->handoff_served_ns + interval) &&
	    (time_before(now, cctx->handoff_ns + interval) || !first_handoff_is_overdue(cpu, now)))
		return false;
	if (!scx_bpf_dsq_move_to_local(dsq, 0))
		return false;
	/* Not before: all that wait may be pinned to other CPUs. */
	llcx->handoff_served_ns = now;
	cctx->handoff_ns = now;
	return true;
}

/*
 * Throttled tasks that the guard releases are boosted ones again, which launchers that never sleep
 * must not shut out: they have left their queue for their class's when they have run. A global
 * function: see search_overdue().
 */
__noinline bool dispatch_released(u32 llc, struct llc_ctx *llcx __arg_nonnull, u64 now)
{
	if (time_before(now, llcx->released_ns + tunables.turn_interval_ns) ||
	    !dsq_waiting(throttled_dsq(llc)) || !guard_releases(now) ||
	    !scx_bpf_dsq_move_to_local(throttled_dsq(llc), 0))
		return false;
	llcx->released_ns = now;
	return true;
}

/* Boosted tasks that wait for this LLC, launchers first. */
static __always_inline bool dispatch_boosted(u32 llc, struct llc_ctx *llcx, u64 now)
{
	if (dsq_waiting(launch_dsq(llc)) && scx_bpf_dsq_move_to_local(launch_dsq(llc), 0))
		return true;
	if (!dsq_waiting(handoff_dsq(llc)) || !scx_bpf_dsq_move_to_local(handoff_dsq(llc), 0))
		return false;
	llcx->handoff_served_ns = now;
	return true;
}

/* How long a CPU compares the clock of its LLC with that of another one. */
#define PULL_INTERVAL_NS 100000000ULL

/*
 * Balances LLCs: takes one task from another LLC, each in turn, whose clock advances more slowly by
 * a fifth, because more weight competes for each CPU there. LLCs whose CPUs are never idle would
 * else keep what they have. A global function: see search_overdue().
 */
__noinline bool pull_from_crowded(s32 cpu, struct cpu_ctx *cctx __arg_nonnull, u64 now)
{
	u64 own = background_dsq(llc_of(cpu)), here, there, theirs;
	bool crowded;

	if (nr_llcs == 1 || time_before(now, cctx->pull_start_ns + PULL_INTERVAL_NS) ||
	    is_reserved(cpu, cctx, now))
		return false;
	theirs = background_dsq(cctx->pulls_from);
	here = time_delta(queue_clock(own), cctx->pull_own_clock);
	there = time_delta(queue_clock(theirs), cctx->pull_their_clock);
	crowded = there + there / 4 < here && dsq_waiting(theirs) &&
		  scx_bpf_dsq_move_to_local(theirs, 0);
	cctx->pulls_from = cctx->pulls_from + 1 < nr_llcs ? cctx->pulls_from + 1 : 0;
	cctx->pull_start_ns = now;
	cctx->pull_own_clock = queue_clock(own);
	cctx->pull_their_clock = queue_clock(background_dsq(cctx->pulls_from));
	return crowded;
}

/* Does another LLC have work for an idle CPU of @own? A global function: see search_overdue(). */
__noinline bool others_have_work(u32 own, u64 now)
{
	s32 llc = -1;
	u32 i;

	bpf_for (i, 0, nr_llcs) {
		struct llc_ctx *llcx;
		bool waits;

		llc = next_queued(llc, own);
		llcx = llc < 0 ? NULL : llc_ctx(llc);
		if (!llcx)
			return false;
		waits = dsq_waiting(background_dsq(llc)) || boosted_wait(llc, llcx, now) ||
			is_arriving(llcx, now);
		forget_queued(llc, llcx, waits, now);
		if (waits)
			return true;
	}
	return false;
}

/* Does somebody wait for an idle CPU of @llc, or is about to? */
static __always_inline bool work_waits(u32 llc, struct llc_ctx *llcx, u64 now)
{
	return dsq_waiting(background_dsq(llc)) || (llcx && is_arriving(llcx, now)) ||
	       others_have_work(llc, now);
}

/* The same of boosted tasks, too. A global function: see search_overdue(). */
__noinline bool anybody_waits(u32 llc, struct llc_ctx *llcx __arg_nonnull, u64 now)
{
	return boosted_wait(llc, llcx, now) || work_waits(llc, llcx, now);
}

/*
 * Idle @cpu was woken for work that another CPU has taken, and stays idle, of which update_idle()
 * does not hear. It looks once more where somebody waits or is about to: he may have seen it busy.
 */
static __always_inline void stay_idle(s32 cpu, struct cpu_ctx *cctx, u32 llc, struct llc_ctx *llcx,
				      u64 now)
{
	cctx->looks_again = !cctx->looks_again && anybody_waits(llc, llcx, now);
	if (cctx->looks_again)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* How often a CPU that may run none of those that wait for its LLC wakes another one. */
#define WAKE_OTHER_NS 1000000ULL

/*
 * None of those that wait for @llc may run on the CPU that looks. It was woken for one of them,
 * which the CPU has taken that was woken for another one of them.
 */
static __always_inline void wake_for_first(u32 llc, u64 now)
{
	struct llc_ctx *llcx;
	struct task_struct *p;

	if (!(*queued_word(llc) & 1ULL << llc % 64) || !dsq_waiting(background_dsq(llc)))
		return;
	llcx = llc_ctx(llc);
	if (!llcx || time_before(now, llcx->woke_other_ns + WAKE_OTHER_NS))
		return;
	llcx->woke_other_ns = now;
	bpf_for_each (scx_dsq, p, background_dsq(llc), 0) {
		kick_idle_for(p);
		break;
	}
}

/*
 * Takes work of other LLCs, as @own has none: capacity before locality. Boosted tasks come first. A
 * global function: see search_overdue().
 */
__noinline bool dispatch_from_others(u32 own, u64 now)
{
	bool throttled = false;
	s32 llc = -1;
	u32 i;

	bpf_for (i, 0, nr_llcs) {
		struct llc_ctx *llcx;

		llc = next_queued(llc, own);
		llcx = llc < 0 ? NULL : llc_ctx(llc);
		if (!llcx)
			break;
		if (!boosted_wait(llc, llcx, now))
			continue;
		if (dispatch_boosted(llc, llcx, now))
			return true;
		if (dsq_waiting(throttled_dsq(llc)))
			throttled = true;
	}
	llc = -1;
	bpf_for (i, 0, nr_llcs) {
		llc = next_queued(llc, own);
		if (llc < 0)
			break;
		if (dsq_waiting(background_dsq(llc)) &&
		    scx_bpf_dsq_move_to_local(background_dsq(llc), 0))
			return true;
	}
	/* Nobody else wants the CPU, whatever the guard says. */
	llc = -1;
	bpf_for (i, 0, throttled ? nr_llcs : 0) {
		llc = next_queued(llc, own);
		if (llc < 0)
			break;
		if (dsq_waiting(throttled_dsq(llc)) &&
		    scx_bpf_dsq_move_to_local(throttled_dsq(llc), 0))
			return true;
	}
	wake_for_first(own, now);
	return false;
}

/* A CPU of @llc may have been woken for work that it has no time for: wakes another one. */
static __always_inline void pass_on(u32 llc, struct llc_ctx *llcx, u64 now)
{
	if (boosted_wait(llc, llcx, now))
		kick_idle();
	else if (dsq_waiting(background_dsq(llc)))
		kick_idle_for_background();
}

#endif /* __GPUAWARE_BACKGROUND_BPF_H */
