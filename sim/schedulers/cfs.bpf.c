// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reference of kernels before 6.6: CFS after Documentation/scheduler/sched-design-CFS.rst and
 * kernel/sched/fair.c of Linux 6.1. Who has had least, by weight, runs next, for his part of a
 * period; who slept is ahead by half a period at most. What is left out is in docs/simulator.md.
 */
#include "fair.bpf.h"

/* Of one CPU, as sysctl_sched_latency and the two others. */
#define LATENCY_NS	      6000000LL
#define MIN_GRANULARITY_NS    750000LL
#define WAKEUP_GRANULARITY_NS 1000000LL
#define NR_LATENCY	      8

static void update_min_vruntime(s32 cpu)
{
	struct fair_rq *rq = &rqs[cpu];
	struct task_struct *first = pick_waiting(cpu);
	s64 least;

	if (!rq->curr && !first)
		return;
	least = entity(rq->curr ?: first)->vruntime;
	if (first && entity(first)->vruntime < least)
		least = entity(first)->vruntime;
	if (least > rq->min_vruntime)
		rq->min_vruntime = least;
}

static void update_curr(s32 cpu, struct task_struct *p, u64 now)
{
	struct entity *se = entity(p);
	s64 ran_ns = time_delta(now, se->exec_start);

	se->exec_start = now;
	se->ran_ns += ran_ns;
	se->vruntime += scaled(ran_ns, p);
	update_min_vruntime(cpu);
}

/* sched_slice(): the part of @p in a period, of a queue that it is on. */
static s64 slice_ns(const struct fair_rq *rq, const struct task_struct *p)
{
	s64 least = for_all_cpus(MIN_GRANULARITY_NS), load = rq_load(rq), slice;
	u32 nr = rq->nr + (rq->curr ? 1 : 0);

	slice = nr > NR_LATENCY ? nr * least : for_all_cpus(LATENCY_NS);
	slice = slice * (s64)p->scx.weight / (load ?: (s64)p->scx.weight);
	return slice > least ? slice : least;
}

static struct task_struct *pick_waiting(s32 cpu)
{
	struct task_struct *p, *first = NULL;

	bpf_for_each (scx_dsq, p, cpu, 0) {
		first = p;
		break;
	}
	return first;
}

/* Is @p behind @other by more than what a wakeup preempts for? */
static bool is_far_behind(struct task_struct *p, struct task_struct *other)
{
	return entity(other)->vruntime - entity(p)->vruntime >
	       scaled(for_all_cpus(WAKEUP_GRANULARITY_NS), p);
}

static bool goes_on(struct fair_rq *rq, struct task_struct *p, struct task_struct *other)
{
	if (!other)
		return true;
	/* Who yields is passed over, but for somebody who has had much more. */
	if (rq->yields && p == rq->curr)
		return is_far_behind(p, other);
	return entity(p)->vruntime < entity(other)->vruntime;
}

static void move_place(s32 cpu, struct entity *se, struct task_struct *p)
{
	if (se->cpu != cpu)
		se->vruntime += rqs[cpu].min_vruntime - rqs[se->cpu].min_vruntime;
	move_load(se, cpu);
	se->cpu = cpu;
}

static u64 order(const struct entity *se)
{
	return se->vruntime;
}

/* place_entity(): new tasks begin behind who is there, who slept is ahead by half a period. */
static void place(s32 cpu, struct entity *se, struct task_struct *p, bool wakes)
{
	s64 earliest = rqs[cpu].min_vruntime;

	if (se->is_new) {
		se->cpu = cpu;
		se->vruntime = earliest + scaled(slice_ns(&rqs[cpu], p), p);
		move_load(se, cpu);
		se->is_new = false;
		return;
	}
	move_place(cpu, se, p);
	earliest -= for_all_cpus(LATENCY_NS) / 2;
	if (wakes && se->vruntime < earliest)
		se->vruntime = earliest;
}

s32 BPF_STRUCT_OPS(cfs_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return pick_cpu(p, prev_cpu, wake_flags);
}

static void resched_curr(s32 cpu)
{
	rqs[cpu].resched = true;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

void BPF_STRUCT_OPS(cfs_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct entity *se = entity(p);
	bool wakes = enq_flags & SCX_ENQ_WAKEUP;
	s32 cpu = scx_bpf_task_cpu(p);
	struct fair_rq *rq = &rqs[cpu];

	account_dequeued(p, se);
	update_load(&se->load_avg, wakes ? 0 : p->scx.weight, scx_bpf_now());
	if (rq->curr)
		update_curr(cpu, rq->curr, scx_bpf_now());
	place(cpu, se, p, wakes);
	account_queued(p, se);
	scx_bpf_dsq_insert_vtime(p, cpu, SCX_SLICE_INF, order(se), enq_flags);
	if (wakes && rq->curr && is_far_behind(p, rq->curr))
		resched_curr(cpu);
}

void BPF_STRUCT_OPS(cfs_dispatch, s32 cpu, struct task_struct *prev)
{
	struct fair_rq *rq = &rqs[cpu];
	u64 now = scx_bpf_now();

	if (prev && !(prev->scx.flags & SCX_TASK_QUEUED))
		prev = NULL;
	if (only_balances(cpu, prev, now) || (prev && goes_on(rq, prev, pick_waiting(cpu))))
		scx_bpf_task_set_slice(prev, SCX_SLICE_INF);
	else
		run_next(cpu, NULL, now);
	rq->yields = false;
}

void BPF_STRUCT_OPS(cfs_running, struct task_struct *p)
{
	struct entity *se = entity(p);
	s32 cpu = scx_bpf_task_cpu(p);

	account_dequeued(p, se);
	/* Of another CPU, or new: it was never queued here. */
	if (se->is_new || se->cpu != cpu)
		place(cpu, se, p, false);
	se->exec_start = scx_bpf_now();
	se->ran_ns = 0;
	cpu_load(cpu);
	rqs[cpu].curr = p;
	update_min_vruntime(cpu);
}

void BPF_STRUCT_OPS(cfs_stopping, struct task_struct *p, bool runnable)
{
	struct entity *se = entity(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now = scx_bpf_now();

	update_curr(cpu, p, now);
	se->stopped_ns = now;
	if (!runnable)
		update_load(&se->load_avg, p->scx.weight, now);
	cpu_load(se->cpu);
	rqs[cpu].curr = NULL;
}

/* A task that waits is taken out: its affinity changes. */
void BPF_STRUCT_OPS(cfs_quiescent, struct task_struct *p, u64 deq_flags)
{
	account_dequeued(p, entity(p));
}

/* check_preempt_tick(): the part of the period is over, or somebody is behind by as much. */
void BPF_STRUCT_OPS(cfs_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct fair_rq *rq = &rqs[cpu];
	struct entity *se = entity(p);
	u64 now = scx_bpf_now();
	struct task_struct *first;
	s64 slice;

	update_curr(cpu, p, now);
	balance_at_tick(cpu, p, now);
	first = pick_waiting(cpu);
	if (!first)
		return;
	slice = slice_ns(rq, p);
	if (se->ran_ns > slice || (se->ran_ns >= for_all_cpus(MIN_GRANULARITY_NS) &&
				   se->vruntime - entity(first)->vruntime > slice)) {
		rq->resched = true;
		scx_bpf_task_set_slice(p, 0);
	}
}

bool BPF_STRUCT_OPS(cfs_yield, struct task_struct *from, struct task_struct *to)
{
	struct fair_rq *rq = &rqs[scx_bpf_task_cpu(from)];

	rq->yields = rq->resched = true;
	scx_bpf_task_set_slice(from, 0);
	return false;
}

void BPF_STRUCT_OPS(cfs_update_idle, s32 cpu, bool idle)
{
	note_idle(&rqs[cpu], idle);
}

s32 BPF_STRUCT_OPS(cfs_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return add_task(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(cfs_init)
{
	return add_cpus();
}

SCX_OPS_DEFINE(cfs_ops, .select_cpu = (void *)cfs_select_cpu, .enqueue = (void *)cfs_enqueue,
	       .dispatch = (void *)cfs_dispatch, .running = (void *)cfs_running,
	       .tick = (void *)cfs_tick, .stopping = (void *)cfs_stopping,
	       .quiescent = (void *)cfs_quiescent, .yield = (void *)cfs_yield,
	       .update_idle = (void *)cfs_update_idle, .init_task = (void *)cfs_init_task,
	       .init = (void *)cfs_init, .timeout_ms = 20000, .name = "cfs");
