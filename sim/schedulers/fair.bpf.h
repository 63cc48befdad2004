/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What CFS and EEVDF, the references, have in common, after kernel/sched/fair.c: a queue for each
 * CPU, loads that are averaged over time, the choice of a CPU for who wakes up, and balancing. Not
 * for BPF: it has plain variables. A scheduler that includes it says who runs next, and what
 * becomes of the place of a task that moves.
 */
#ifndef __SIM_FAIR_BPF_H
#define __SIM_FAIR_BPF_H

#include <scx/common.bpf.h>

#define MAX_LLCS	  128
#define MIGRATION_COST_NS 500000LL
#define BUSY_FACTOR	  16
#define MOST_FAILED	  8
/* Loads are averages that a time of 32 ms halves (PELT): what a millisecond of it leaves. */
#define LOAD_PERIOD_NS 1000000LL
#define LOAD_KEPT      1002 /* of 1024 */
#define LOAD_MEMORY_NS 500000000LL
#define LOAD_UNIT      1024 /* of a weight of 1 */
#define NR_LEVELS      3    /* cache, node, machine */

const volatile u32 nr_cpu_ids = 1;
const volatile u32 cpu_llc[SIM_MAX_CPUS];
const volatile u32 cpu_node[SIM_MAX_CPUS];

/* How much somebody wants to run: weight * LOAD_UNIT, if always. */
struct load {
	s64 avg;
	u64 at_ns;
};

struct entity {
	struct load load_avg;
	s64 vruntime;
	u64 exec_start; /* up to when its time is counted */
	u64 stopped_ns;
	s32 cpu;     /* whose clock vruntime is of */
	bool queued; /* in that CPU's queue */
	bool is_new;
	/* CFS's. */
	s64 ran_ns; /* since it was chosen */
	/* EEVDF's. */
	s64 deadline;
	s64 vlag;
	s64 rel_deadline;   /* what is left of the slice of one that moves; 0: none */
	s64 delayed_weight; /* with which it counts while it sleeps; 0: it does not */
	struct entity *next_delayed;
	bool placed; /* has a vruntime on that CPU */
	bool is_protected;
};

/* A CPU's queue; who runs is not in it. */
struct fair_rq {
	struct load load_avg; /* of all that were here last, of those that sleep too */
	u32 failed;	      /* balances, one after another */
	s64 load;
	u32 nr;
	struct task_struct *curr;
	s64 avg_idle;
	u64 idle_since;
	u64 next_balance;
	bool balance_due; /* the tick has found that it is time */
	bool resched;	  /* and who runs may have to make way: TIF_NEED_RESCHED */
	bool nohz_kicked;
	/* CFS's. */
	s64 min_vruntime;
	bool yields; /* who runs */
	/* EEVDF's. */
	s64 zero;		/* near the average vruntime */
	s64 sum;		/* of weight * (vruntime - zero) */
	struct entity *delayed; /* who sleeps and still counts */
	s64 delayed_sum, delayed_load;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct entity);
} entities SEC(".maps");

static struct fair_rq rqs[SIM_MAX_CPUS];
static struct bpf_cpumask llc_masks[MAX_LLCS];
static struct bpf_cpumask scratch;
static u32 llc_sizes[MAX_LLCS];

static struct entity *entity(struct task_struct *p)
{
	return bpf_task_storage_get(&entities, p, NULL, 0);
}

/* Counts what @p, which runs on @cpu, has run until @now. */
static void update_curr(s32 cpu, struct task_struct *p, u64 now);
/* Of those who wait in @cpu's queue, the one that is next. */
static struct task_struct *pick_waiting(s32 cpu);
/* Does @p, which runs, go on though @other waits? */
static bool goes_on(struct fair_rq *rq, struct task_struct *p, struct task_struct *other);
/* @p, which waited on another CPU, has the same place on the clock of @cpu. */
static void move_place(s32 cpu, struct entity *se, struct task_struct *p);
/* Its place in the queue. */
static u64 order(const struct entity *se);

/* Kernels take such constants for one CPU, and they grow with the number of CPUs. */
static s64 for_all_cpus(s64 ns)
{
	s64 grown = ns;

	for (u32 cpus = 2; cpus <= 8 && cpus <= nr_cpu_ids; cpus *= 2)
		grown += ns;
	return grown;
}

/* Nice 0 weighs 100 here. */
static s64 scaled(s64 ns, const struct task_struct *p)
{
	return ns * 100 / (s64)p->scx.weight;
}

static s64 rq_load(const struct fair_rq *rq)
{
	return rq->load + (rq->curr ? rq->curr->scx.weight : 0);
}

/* Up to now it was @weight that wanted to run. */
static void update_load(struct load *load, s64 weight, u64 now)
{
	s64 ns = time_delta(now, load->at_ns), weighed = weight * LOAD_UNIT;

	load->at_ns = now;
	if (ns >= LOAD_MEMORY_NS)
		load->avg = weighed;
	for (; ns >= LOAD_PERIOD_NS && ns < LOAD_MEMORY_NS; ns -= LOAD_PERIOD_NS)
		load->avg = weighed + (load->avg - weighed) * LOAD_KEPT / 1024;
	if (ns < LOAD_PERIOD_NS)
		load->avg +=
			(weighed - load->avg) * (1024 - LOAD_KEPT) / 1024 * ns / LOAD_PERIOD_NS;
}

/* cpu_load() */
static s64 cpu_load(s32 cpu)
{
	update_load(&rqs[cpu].load_avg, rq_load(&rqs[cpu]), scx_bpf_now());
	return rqs[cpu].load_avg.avg;
}

/* Its load is one of those of @cpu from now on. */
static void move_load(struct entity *se, s32 cpu)
{
	if (!se->is_new) {
		cpu_load(se->cpu);
		rqs[se->cpu].load_avg.avg -= se->load_avg.avg;
	}
	cpu_load(cpu);
	rqs[cpu].load_avg.avg += se->load_avg.avg;
}

static void account_queued(struct task_struct *p, struct entity *se)
{
	struct fair_rq *rq = &rqs[se->cpu];

	cpu_load(se->cpu);
	rq->sum += (s64)p->scx.weight * (se->vruntime - rq->zero);
	rq->load += p->scx.weight;
	rq->nr++;
	se->queued = true;
}

static void account_dequeued(struct task_struct *p, struct entity *se)
{
	struct fair_rq *rq = &rqs[se->cpu];

	if (!se->queued)
		return;
	cpu_load(se->cpu);
	rq->sum -= (s64)p->scx.weight * (se->vruntime - rq->zero);
	rq->load -= p->scx.weight;
	rq->nr--;
	se->queued = false;
}

static bool take_idle(s32 cpu, const struct task_struct *p)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && scx_bpf_test_and_clear_cpu_idle(cpu);
}

static bool is_idle(s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, scx_bpf_get_idle_cpumask());
}

/* wake_affine(): near the waker or where it ran. */
static s32 affine_cpu(struct task_struct *p, s32 this, s32 prev, u64 wake_flags)
{
	const struct fair_rq *own = &rqs[this];
	s64 load, here;

	if (this == prev || !bpf_cpumask_test_cpu(this, p->cpus_ptr))
		return prev;
	if (is_idle(this) && cpu_llc[this] == cpu_llc[prev])
		return is_idle(prev) ? prev : this;
	if ((wake_flags & SCX_WAKE_SYNC) && own->curr && !own->nr)
		return this;
	if (is_idle(prev))
		return prev;
	here = cpu_load(this);
	/* The waker sleeps next. */
	if ((wake_flags & SCX_WAKE_SYNC) && own->curr) {
		load = entity(own->curr)->load_avg.avg;
		if (load > here)
			return this;
		here -= load;
	}
	load = entity(p)->load_avg.avg;
	return (here + load) * 100 < (cpu_load(prev) - load) * 108 ? this : prev;
}

/* select_idle_sibling(): an idle CPU of the cache of @target, whole cores first. */
static s32 idle_sibling(struct task_struct *p, s32 target, s32 prev)
{
	const struct cpumask *near = &llc_masks[cpu_llc[target]].cpumask;
	s32 cpu;

	if (take_idle(target, p))
		return target;
	if (prev != target && cpu_llc[prev] == cpu_llc[target] && take_idle(prev, p))
		return prev;
	bpf_cpumask_and(&scratch, near, p->cpus_ptr);
	cpu = scx_bpf_pick_idle_cpu(&scratch.cpumask, 0);
	return cpu >= 0 ? cpu : target;
}

/* Where a new task begins: an idle CPU of the machine, or the one with the least to do. */
static s32 idlest_cpu(struct task_struct *p, s32 prev)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0), best = prev;

	if (cpu >= 0)
		return cpu;
	bpf_for (cpu, 0, nr_cpu_ids) {
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
		    (!bpf_cpumask_test_cpu(best, p->cpus_ptr) ||
		     rq_load(&rqs[cpu]) < rq_load(&rqs[best])))
			best = cpu;
	}
	return best;
}

static s32 pick_cpu(struct task_struct *p, s32 prev, u64 wake_flags)
{
	s32 target;

	if (wake_flags & SCX_WAKE_FORK)
		return idlest_cpu(p, prev);
	target = affine_cpu(p, bpf_get_smp_processor_id(), prev, wake_flags);
	if (!bpf_cpumask_test_cpu(target, p->cpus_ptr))
		return idlest_cpu(p, target);
	return idle_sibling(p, target, prev);
}

static bool is_at_level(s32 cpu, s32 other, u32 level)
{
	if (level == 0)
		return cpu_llc[cpu] == cpu_llc[other];
	return level > 1 || cpu_node[cpu] == cpu_node[other];
}

/* The CPU of that level that has most to do and somebody who waits; -1: none. */
static s32 busiest_cpu(s32 cpu, u32 level)
{
	s32 other, busiest = -1;

	bpf_for (other, 0, nr_cpu_ids) {
		if (other != cpu && rqs[other].nr && is_at_level(cpu, other, level) &&
		    (busiest < 0 || cpu_load(other) > cpu_load(busiest)))
			busiest = other;
	}
	return busiest;
}

/*
 * Loads differ by more than a sixth, and @cpu would not become the heavier one with @p. After each
 * failure a task may be twice as heavy.
 */
static bool balances(s32 cpu, s32 from, struct task_struct *p)
{
	s64 here = cpu_load(cpu), there = cpu_load(from);

	update_load(&entity(p)->load_avg, p->scx.weight, scx_bpf_now());
	if (!rq_load(&rqs[cpu]))
		return true;
	return there * 100 > here * 117 &&
	       entity(p)->load_avg.avg >> rqs[cpu].failed <= (there - here) / 2;
}

/* Moves a task that waits on @from to @cpu, where it runs next or waits. */
static bool pull_from(s32 cpu, s32 from, bool to_run, u64 now)
{
	struct task_struct *p, *next = pick_waiting(from);

	/* Balancing comes after the tick of all CPUs, which are about to switch. */
	if (to_run || (rqs[from].curr && goes_on(&rqs[from], rqs[from].curr, next)))
		next = NULL;
	bpf_for_each (scx_dsq, p, from, 0) {
		struct entity *se = entity(p);

		if (p == next || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr) ||
		    !balances(cpu, from, p) || time_before(now, se->stopped_ns + MIGRATION_COST_NS))
			continue;
		account_dequeued(p, se);
		move_place(cpu, se, p);
		if (to_run)
			return scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, order(se));
		account_queued(p, se);
		return scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, cpu, 0);
	}
	return false;
}

static bool balance(s32 cpu, bool to_run, u64 now)
{
	struct fair_rq *rq = &rqs[cpu];
	bool fails = false;
	u32 level;

	bpf_for (level, 0, NR_LEVELS) {
		s32 from = busiest_cpu(cpu, level);

		if (from < 0)
			continue;
		if (pull_from(cpu, from, to_run, now)) {
			rq->failed = 0;
			return true;
		}
		fails |= cpu_load(from) * 100 > cpu_load(cpu) * 117;
	}
	if (fails && !to_run && rq->failed < MOST_FAILED)
		rq->failed++;
	return false;
}

/*
 * ops.dispatch() begins: tasks are moved if it is time. Is that all that @prev, which could go on,
 * was stopped for?
 */
static bool only_balances(s32 cpu, struct task_struct *prev, u64 now)
{
	struct fair_rq *rq = &rqs[cpu];
	bool due = rq->balance_due, resched = rq->resched;

	if (prev) {
		update_curr(cpu, prev, now);
		if (due)
			balance(cpu, false, now);
	}
	rq->balance_due = rq->resched = false;
	return prev && due && !resched;
}

/*
 * ops.dispatch() where @prev does not go on: @best runs, or, if that is NULL, the first in the
 * queue; or somebody from another CPU.
 */
static void run_next(s32 cpu, struct task_struct *best, u64 now)
{
	struct fair_rq *rq = &rqs[cpu];
	struct task_struct *p;

	bpf_for_each (scx_dsq, p, cpu, 0) {
		if (best && p != best)
			continue;
		account_dequeued(p, entity(p));
		scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		return;
	}
	if (rq->nohz_kicked || rq->avg_idle >= MIGRATION_COST_NS)
		balance(cpu, true, now);
	rq->nohz_kicked = false;
}

/* Somebody waits here and a CPU is idle: that one looks whom it can take (nohz balancing). */
static void kick_idle_balancer(s32 cpu)
{
	struct task_struct *p;
	s32 idle = -1;

	bpf_for_each (scx_dsq, p, cpu, 0) {
		idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		break;
	}
	if (idle < 0)
		return;
	rqs[idle].nohz_kicked = true;
	scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
}

/* @p's CPU has its tick. Tasks are moved by dispatch, which is next. */
static void balance_at_tick(s32 cpu, struct task_struct *p, u64 now)
{
	struct fair_rq *rq = &rqs[cpu];

	if (time_after_eq(now, rq->next_balance)) {
		/* Domains of busy CPUs are looked at the more seldom the larger they are. */
		rq->next_balance = now + BUSY_FACTOR * 1000000ULL * llc_sizes[cpu_llc[cpu]];
		rq->balance_due = true;
		scx_bpf_task_set_slice(p, 0);
	}
	if (rq->nr)
		kick_idle_balancer(cpu);
}

static void note_idle(struct fair_rq *rq, bool idle)
{
	u64 now = scx_bpf_now();
	s64 most = 2 * MIGRATION_COST_NS;

	if (idle) {
		rq->idle_since = now;
		return;
	}
	rq->avg_idle += ((s64)time_delta(now, rq->idle_since) - rq->avg_idle) / 8;
	if (rq->avg_idle > most)
		rq->avg_idle = most;
}

static s32 add_task(struct task_struct *p)
{
	struct entity *se =
		bpf_task_storage_get(&entities, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	se->is_new = true;
	/* As if it had always run. */
	se->load_avg.avg = p->scx.weight * LOAD_UNIT;
	se->load_avg.at_ns = scx_bpf_now();
	return 0;
}

static s32 add_cpus(void)
{
	s32 cpu;

	bpf_for (cpu, 0, nr_cpu_ids) {
		bpf_cpumask_set_cpu(cpu, &llc_masks[cpu_llc[cpu]]);
		llc_sizes[cpu_llc[cpu]]++;
		rqs[cpu].avg_idle = 2 * MIGRATION_COST_NS;
		if (scx_bpf_create_dsq(cpu, -1))
			return -ENOMEM;
	}
	return 0;
}

#endif /* __SIM_FAIR_BPF_H */
