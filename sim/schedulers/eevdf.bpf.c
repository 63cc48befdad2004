// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reference: the fair class after Documentation/scheduler/sched-eevdf.rst and kernel/sched/
 * fair.c of Linux 6.18, as a scheduler of this model: queues are ordered by virtual deadline; the
 * eligible task with the earliest one runs; who runs is protected up to its own. What is left out
 * is in docs/simulator.md.
 */
#include "fair.bpf.h"

/* sysctl_sched_base_slice of one CPU; base_slice_ns() has that of more. */
#define NORMAL_SLICE_NS 700000LL
#define TICK_NS		4000000LL /* at 250 Hz: lag is bound by no less */

static s64 base_slice_ns(void)
{
	return for_all_cpus(NORMAL_SLICE_NS);
}

/* The weighted average of vruntimes, of who runs too: where everybody would be if it were ideal. */
static s64 avg_vruntime(const struct fair_rq *rq)
{
	s64 sum = rq->sum + rq->delayed_sum, load = rq->load + rq->delayed_load;

	if (rq->curr) {
		sum += (s64)rq->curr->scx.weight * (entity(rq->curr)->vruntime - rq->zero);
		load += rq->curr->scx.weight;
	}
	/* Rounded down, for who is at the average is eligible. */
	if (sum < 0)
		sum -= load - 1;
	return rq->zero + (load ? sum / load : 0);
}

static void rebase(struct fair_rq *rq)
{
	s64 delta = avg_vruntime(rq) - rq->zero;

	rq->zero += delta;
	rq->sum -= delta * rq->load;
	rq->delayed_sum -= delta * rq->delayed_load;
}

static void update_curr(s32 cpu, struct task_struct *p, u64 now)
{
	struct entity *se = entity(p);

	se->vruntime += scaled(time_delta(now, se->exec_start), p);
	se->exec_start = now;
	if (se->vruntime >= se->deadline) {
		se->deadline = se->vruntime + scaled(base_slice_ns(), p);
		se->is_protected = false;
	}
}

static s64 lag_within(s64 lag, const struct task_struct *p)
{
	s64 two = 2 * base_slice_ns();
	s64 limit = scaled(two > TICK_NS ? two : TICK_NS, p);

	return lag > limit ? limit : lag < -limit ? -limit : lag;
}

/* @p leaves the clock of its CPU, which it was on. */
static void keep_lag(struct fair_rq *rq, struct entity *se, const struct task_struct *p)
{
	se->vlag = lag_within(avg_vruntime(rq) - se->vruntime, p);
	se->placed = false;
}

/* The same of one that moves: its slice goes with it. */
static void keep_place(struct fair_rq *rq, struct entity *se, const struct task_struct *p)
{
	keep_lag(rq, se, p);
	se->rel_deadline = se->deadline - se->vruntime;
}

/*
 * Who sleeps with negative lag stays on its queue, and counts there, until it would have been
 * chosen, at the latest until its CPU has nobody else. Who wakes before is in its old place, with
 * its old deadline.
 */
static void delay(struct fair_rq *rq, struct entity *se, s64 weight)
{
	se->delayed_weight = weight;
	se->next_delayed = rq->delayed;
	rq->delayed = se;
	rq->delayed_load += weight;
	rq->delayed_sum += weight * (se->vruntime - rq->zero);
}

static void end_delay(struct entity *se)
{
	struct fair_rq *rq = &rqs[se->cpu];
	struct entity **at = &rq->delayed;

	if (!se->delayed_weight)
		return;
	while (*at != se)
		at = &(*at)->next_delayed;
	*at = se->next_delayed;
	rq->delayed_load -= se->delayed_weight;
	rq->delayed_sum -= se->delayed_weight * (se->vruntime - rq->zero);
	se->delayed_weight = 0;
}

/* Those that would be chosen now are gone: their lag is over. With @all, nobody else is there. */
static void end_delays(struct fair_rq *rq, bool all)
{
	struct entity *se, *next;

	for (se = rq->delayed; se; se = next) {
		next = se->next_delayed;
		if (all || se->vruntime <= avg_vruntime(rq))
			end_delay(se);
	}
}

static void place(s32 cpu, struct entity *se, struct task_struct *p, s64 lag)
{
	struct fair_rq *rq = &rqs[cpu];
	s64 load = rq_load(rq) + rq->delayed_load, slice = scaled(base_slice_ns(), p);

	rebase(rq);
	if (load)
		lag = lag * (load + (s64)p->scx.weight) / load;
	else
		lag = 0;
	se->vruntime = rq->zero - lag;
	if (!se->rel_deadline)
		se->rel_deadline = se->is_new ? slice / 2 : slice;
	se->deadline = se->vruntime + se->rel_deadline;
	se->rel_deadline = 0;
	move_load(se, cpu);
	se->is_new = false;
	se->placed = true;
	se->cpu = cpu;
}

/* Of those who wait in @cpu's queue, the eligible one with the earliest deadline. */
static struct task_struct *pick_waiting(s32 cpu)
{
	s64 avg = avg_vruntime(&rqs[cpu]);
	struct task_struct *p, *found = NULL;

	bpf_for_each (scx_dsq, p, cpu, 0) {
		if (entity(p)->vruntime <= avg) {
			found = p;
			break;
		}
	}
	return found;
}

/* Does @p, which runs, go on though @other waits? */
static bool goes_on(struct fair_rq *rq, struct task_struct *p, struct task_struct *other)
{
	struct entity *se = entity(p);

	if (!other)
		return true;
	if (se->vruntime > avg_vruntime(rq))
		return false;
	/* Who wakes up without lag when a slice is over has the same deadline, and runs. */
	return se->is_protected || se->deadline < entity(other)->deadline;
}

static void move_place(s32 cpu, struct entity *se, struct task_struct *p)
{
	keep_place(&rqs[se->cpu], se, p);
	place(cpu, se, p, se->vlag);
}

static u64 order(const struct entity *se)
{
	return se->deadline;
}

s32 BPF_STRUCT_OPS(eevdf_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	if (!(wake_flags & SCX_WAKE_FORK) && entity(p)->cpu == prev_cpu &&
	    entity(p)->delayed_weight)
		return prev_cpu;
	return pick_cpu(p, prev_cpu, wake_flags);
}

/* resched_curr_lazy(): at once where the CPU is about to return from the kernel. */
static void resched_curr(s32 cpu, bool at_once)
{
	rqs[cpu].resched = true;
	scx_bpf_kick_cpu(cpu, at_once ? SCX_KICK_PREEMPT : SIM_KICK_LAZY);
}

void BPF_STRUCT_OPS(eevdf_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct entity *se = entity(p);
	bool wakes = enq_flags & SCX_ENQ_WAKEUP, delayed;
	s32 cpu = scx_bpf_task_cpu(p), this = bpf_get_smp_processor_id();
	struct fair_rq *rq = &rqs[cpu];
	struct task_struct *first;

	account_dequeued(p, se);
	update_load(&se->load_avg, wakes ? 0 : p->scx.weight, scx_bpf_now());
	if (se->placed && se->cpu != cpu)
		keep_place(&rqs[se->cpu], se, p);
	if (rq->curr) {
		update_curr(cpu, rq->curr, scx_bpf_now());
		if (rq->nr && !entity(rq->curr)->is_protected)
			resched_curr(cpu, cpu == this);
	}
	delayed = se->cpu == cpu && se->delayed_weight;
	end_delay(se);
	if (delayed)
		se->placed = true;
	/* It did not wait for more than its due: it was taken off its queue without lag. */
	else if (!se->placed)
		place(cpu, se, p, wakes && se->vlag < 0 ? 0 : se->vlag);
	account_queued(p, se);
	first = pick_waiting(cpu);
	scx_bpf_dsq_insert_vtime(p, cpu, SCX_SLICE_INF, se->deadline, enq_flags);
	/* wakeup_preempt(): it is the one that would be chosen. */
	if (!wakes || !rq->curr || se->vruntime > avg_vruntime(rq) ||
	    (first && se->deadline >= entity(first)->deadline) || goes_on(rq, rq->curr, p))
		return;
	/* As its waker's CPU is; or by the interrupt by which a wakeup goes to another cache. */
	resched_curr(cpu, cpu == this || (!delayed && cpu_llc[this] != cpu_llc[cpu]));
}

void BPF_STRUCT_OPS(eevdf_dispatch, s32 cpu, struct task_struct *prev)
{
	struct fair_rq *rq = &rqs[cpu];
	u64 now = scx_bpf_now();
	struct task_struct *best;
	bool balances_only;

	if (prev && !(prev->scx.flags & SCX_TASK_QUEUED))
		prev = NULL;
	balances_only = only_balances(cpu, prev, now);
	end_delays(rq, false);
	best = pick_waiting(cpu);
	if (balances_only || (prev && goes_on(rq, prev, best))) {
		scx_bpf_task_set_slice(prev, SCX_SLICE_INF);
		return;
	}
	/* Rounding may leave nobody eligible: the first, then. */
	run_next(cpu, best, now);
}

void BPF_STRUCT_OPS(eevdf_running, struct task_struct *p)
{
	struct entity *se = entity(p);
	s32 cpu = scx_bpf_task_cpu(p);

	account_dequeued(p, se);
	if (!se->placed || se->cpu != cpu)
		place(cpu, se, p, 0);
	se->exec_start = scx_bpf_now();
	se->is_protected = true;
	cpu_load(cpu);
	rqs[cpu].curr = p;
}

void BPF_STRUCT_OPS(eevdf_stopping, struct task_struct *p, bool runnable)
{
	struct entity *se = entity(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct fair_rq *rq = &rqs[cpu];
	u64 now = scx_bpf_now();

	update_curr(cpu, p, now);
	se->stopped_ns = now;
	if (!runnable) {
		keep_lag(rq, se, p);
		update_load(&se->load_avg, p->scx.weight, now);
	}
	rebase(rq);
	cpu_load(se->cpu);
	rq->curr = NULL;
	if (!runnable && se->vlag < 0)
		delay(rq, se, p->scx.weight);
}

/* A task that waits is taken out: its affinity changes. */
void BPF_STRUCT_OPS(eevdf_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct entity *se = entity(p);

	if (!se->queued)
		return;
	account_dequeued(p, se);
	keep_place(&rqs[se->cpu], se, p);
}

void BPF_STRUCT_OPS(eevdf_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct fair_rq *rq = &rqs[cpu];
	u64 now = scx_bpf_now();

	update_curr(cpu, p, now);
	balance_at_tick(cpu, p, now);
	/* Who is protected goes on, whatever its lag. */
	if (rq->nr && !entity(p)->is_protected) {
		rq->resched = true;
		scx_bpf_task_set_slice(p, 0);
	}
}

bool BPF_STRUCT_OPS(eevdf_yield, struct task_struct *from, struct task_struct *to)
{
	struct entity *se = entity(from);
	s32 cpu = scx_bpf_task_cpu(from);

	update_curr(cpu, from, scx_bpf_now());
	se->deadline += scaled(base_slice_ns(), from);
	se->is_protected = false;
	rqs[cpu].resched = true;
	scx_bpf_task_set_slice(from, 0);
	return false;
}

void BPF_STRUCT_OPS(eevdf_update_idle, s32 cpu, bool idle)
{
	note_idle(&rqs[cpu], idle);
	if (idle)
		end_delays(&rqs[cpu], true);
}

s32 BPF_STRUCT_OPS(eevdf_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return add_task(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(eevdf_init)
{
	return add_cpus();
}

SCX_OPS_DEFINE(eevdf_ops, .select_cpu = (void *)eevdf_select_cpu, .enqueue = (void *)eevdf_enqueue,
	       .dispatch = (void *)eevdf_dispatch, .running = (void *)eevdf_running,
	       .tick = (void *)eevdf_tick, .stopping = (void *)eevdf_stopping,
	       .quiescent = (void *)eevdf_quiescent, .yield = (void *)eevdf_yield,
	       .update_idle = (void *)eevdf_update_idle, .init_task = (void *)eevdf_init_task,
	       .init = (void *)eevdf_init, .timeout_ms = 20000, .name = "eevdf");
