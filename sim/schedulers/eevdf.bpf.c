// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reference: the fair class after Documentation/scheduler/sched-eevdf.rst and kernel/sched/
 * fair.c of Linux 6.18, as a scheduler of this model: a queue for each CPU, ordered by virtual
 * deadline; the eligible task with the earliest one runs; who runs is protected up to its own. What
 * is left out is in docs/simulator.md. Not for BPF: it has plain variables.
 */
#include <scx/common.bpf.h>

#define MAX_LLCS 128
/* sysctl_sched_base_slice of one CPU; base_slice_ns() has that of more. */
#define NORMAL_SLICE_NS	  700000LL
#define TICK_NS		  4000000LL /* at 250 Hz: lag is bound by no less */
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
	s64 deadline;
	s64 vlag;
	struct entity *next_delayed;
	s64 delayed_weight; /* with which it counts while it sleeps; 0: it does not */
	s64 rel_deadline;   /* what is left of the slice of one that moves; 0: none */
	u64 exec_start;	    /* up to when its time is counted */
	u64 stopped_ns;
	s32 cpu;     /* whose clock vruntime is of */
	bool queued; /* in that CPU's queue */
	bool placed; /* has a vruntime there */
	bool is_protected;
	bool is_new;
};

/* A CPU's queue; who runs is not in it. */
struct fair_rq {
	struct load load_avg; /* of all that were here last, of those that sleep too */
	u32 failed;	      /* balances, one after another */
	s64 zero;	      /* near the average vruntime */
	s64 sum;	      /* of weight * (vruntime - zero) */
	s64 load;
	u32 nr;
	struct task_struct *curr;
	s64 avg_idle;
	u64 idle_since;
	u64 next_balance;
	struct entity *delayed; /* who sleeps and still counts */
	s64 delayed_sum, delayed_load;
	bool balance_due; /* the tick has found that it is time */
	bool resched;	  /* and who runs may have to make way: TIF_NEED_RESCHED */
	bool nohz_kicked;
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

/* A nominal slice; it grows with the number of CPUs. */
static s64 base_slice_ns(void)
{
	s64 ns = NORMAL_SLICE_NS;

	for (u32 cpus = 2; cpus <= 8 && cpus <= nr_cpu_ids; cpus *= 2)
		ns += NORMAL_SLICE_NS;
	return ns;
}

/* Nice 0 weighs 100 here. */
static s64 scaled(s64 ns, const struct task_struct *p)
{
	return ns * 100 / (s64)p->scx.weight;
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

static void update_curr(struct fair_rq *rq, struct task_struct *p, u64 now)
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

s32 BPF_STRUCT_OPS(eevdf_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 this = bpf_get_smp_processor_id(), target;

	if (wake_flags & SCX_WAKE_FORK)
		return idlest_cpu(p, prev_cpu);
	if (entity(p)->cpu == prev_cpu && entity(p)->delayed_weight)
		return prev_cpu;
	target = affine_cpu(p, this, prev_cpu, wake_flags);
	if (!bpf_cpumask_test_cpu(target, p->cpus_ptr))
		return idlest_cpu(p, target);
	return idle_sibling(p, target, prev_cpu);
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
		update_curr(rq, rq->curr, scx_bpf_now());
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
		keep_place(&rqs[from], se, p);
		place(cpu, se, p, se->vlag);
		if (to_run)
			return scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, se->deadline);
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

void BPF_STRUCT_OPS(eevdf_dispatch, s32 cpu, struct task_struct *prev)
{
	struct fair_rq *rq = &rqs[cpu];
	u64 now = scx_bpf_now();
	struct task_struct *p, *best;
	bool on_queue = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	bool only_balances = on_queue && rq->balance_due && !rq->resched;

	if (on_queue) {
		update_curr(rq, prev, now);
		if (rq->balance_due)
			balance(cpu, false, now);
	}
	rq->balance_due = rq->resched = false;
	end_delays(rq, false);
	best = pick_waiting(cpu);
	if (only_balances || (on_queue && goes_on(rq, prev, best))) {
		scx_bpf_task_set_slice(prev, SCX_SLICE_INF);
		return;
	}
	bpf_for_each (scx_dsq, p, cpu, 0) {
		/* Rounding may leave nobody eligible: the first, then. */
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
	struct fair_rq *rq = &rqs[scx_bpf_task_cpu(p)];
	u64 now = scx_bpf_now();

	update_curr(rq, p, now);
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

void BPF_STRUCT_OPS(eevdf_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct fair_rq *rq = &rqs[cpu];
	u64 now = scx_bpf_now();

	update_curr(rq, p, now);
	/* Tasks are moved by dispatch, which is next. */
	if (time_after_eq(now, rq->next_balance)) {
		/* Domains of busy CPUs are looked at the more seldom the larger they are. */
		rq->next_balance = now + BUSY_FACTOR * 1000000ULL * llc_sizes[cpu_llc[cpu]];
		rq->balance_due = true;
		scx_bpf_task_set_slice(p, 0);
	}
	if (!rq->nr)
		return;
	kick_idle_balancer(cpu);
	/* Who is protected goes on, whatever its lag. */
	if (!entity(p)->is_protected) {
		rq->resched = true;
		scx_bpf_task_set_slice(p, 0);
	}
}

bool BPF_STRUCT_OPS(eevdf_yield, struct task_struct *from, struct task_struct *to)
{
	struct entity *se = entity(from);

	update_curr(&rqs[scx_bpf_task_cpu(from)], from, scx_bpf_now());
	se->deadline += scaled(base_slice_ns(), from);
	se->is_protected = false;
	rqs[scx_bpf_task_cpu(from)].resched = true;
	scx_bpf_task_set_slice(from, 0);
	return false;
}

void BPF_STRUCT_OPS(eevdf_update_idle, s32 cpu, bool idle)
{
	struct fair_rq *rq = &rqs[cpu];
	u64 now = scx_bpf_now();
	s64 most = 2 * MIGRATION_COST_NS;

	if (idle) {
		rq->idle_since = now;
		end_delays(rq, true);
		return;
	}
	rq->avg_idle += ((s64)time_delta(now, rq->idle_since) - rq->avg_idle) / 8;
	if (rq->avg_idle > most)
		rq->avg_idle = most;
}

s32 BPF_STRUCT_OPS(eevdf_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct entity *se =
		bpf_task_storage_get(&entities, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	se->is_new = true;
	/* As if it had always run. */
	se->load_avg.avg = p->scx.weight * LOAD_UNIT;
	se->load_avg.at_ns = scx_bpf_now();
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(eevdf_init)
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

SCX_OPS_DEFINE(eevdf_ops, .select_cpu = (void *)eevdf_select_cpu, .enqueue = (void *)eevdf_enqueue,
	       .dispatch = (void *)eevdf_dispatch, .running = (void *)eevdf_running,
	       .tick = (void *)eevdf_tick, .stopping = (void *)eevdf_stopping,
	       .quiescent = (void *)eevdf_quiescent, .yield = (void *)eevdf_yield,
	       .update_idle = (void *)eevdf_update_idle, .init_task = (void *)eevdf_init_task,
	       .init = (void *)eevdf_init, .timeout_ms = 20000, .name = "eevdf");
