/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPU a task gets: pick_launch_cpu(), pick_handoff_cpu() and pick_background_cpu(), one for
 * each class, each read from top to bottom; pick_after_rt_preemption() for handoff.
 */
#ifndef __GPUAWARE_PICK_BPF_H
#define __GPUAWARE_PICK_BPF_H

#include "above.bpf.h"
#include "hold.bpf.h"
#include "waker.bpf.h"

enum pick_how {
	PICK_IDLE_PREFERRED,
	PICK_PREEMPT,
	PICK_AFTER, /* who is there, and soon done */
	PICK_IDLE_OTHER,
};

/* What a search finds, and when it began. */
struct pick {
	s32 cpu; /* -1: none */
	u32 how;
	u64 now;
};

static __always_inline bool is_idle_pick(const struct pick *pick)
{
	return pick->how == PICK_IDLE_PREFERRED || pick->how == PICK_IDLE_OTHER;
}

/* Which CPUs a search accepts. */
enum pick_terms {
	PICK_IDLE = 1,		 /* do not preempt */
	PICK_FREE_CORE = 2,	 /* no launcher on the sibling */
	PICK_NOT_IRQ_LOADED = 4, /* no ksoftirqd, no interrupt storm */
	PICK_NOT_RECENT = 8,	 /* launcher_may_return() says no */
};

/* For this long after a launcher left, it is expected back on that CPU (its cache is warm). */
#define LAUNCHER_RETURN_NS 10000000ULL

/*
 * Held for a launcher, or a launcher ran there a moment ago. What wakes it often wakes handoff as
 * well: on that CPU one would preempt the other.
 */
static __always_inline bool launcher_may_return(struct cpu_ctx *cctx, u64 now)
{
	return is_held(cctx, now) ||
	       (cctx->launched_ns && time_before(now, cctx->launched_ns + LAUNCHER_RETURN_NS));
}

/*
 * Two concurrent wakeups must not choose the same CPU. The claim is dropped when the task runs or
 * sleeps again; a stale one only makes the CPU unattractive for an instant.
 */
static __always_inline bool claim(s32 cpu, struct cpu_ctx *cctx, struct task_struct *p,
				  struct task_ctx *tctx)
{
	s32 owner = cctx->claimed_by;

	if (owner && owner != p->pid)
		return false;
	if (__sync_val_compare_and_swap(&cctx->claimed_by, owner, p->pid) != owner)
		return false;
	tctx->claimed_cpu = cpu;
	return true;
}

static __always_inline void drop_claim(struct task_struct *p, struct task_ctx *tctx)
{
	struct cpu_ctx *cctx;

	if (tctx->claimed_cpu < 0)
		return;
	cctx = cpu_ctx(tctx->claimed_cpu);
	if (cctx)
		__sync_val_compare_and_swap(&cctx->claimed_by, p->pid, 0);
	tctx->claimed_cpu = -1;
}

/* Does the CPU run a task of a lower class, and is this not the turn that background is owed? */
static __always_inline bool may_preempt(struct cpu_ctx *cctx, u32 class, u64 now)
{
	if (time_before(now, cctx->turn_until_ns) || (cctx->lent && class != GPUAWARE_CLASS_LAUNCH))
		return false;
	return cctx->occupant == OCCUPANT_BACKGROUND ||
	       (class == GPUAWARE_CLASS_LAUNCH && cctx->occupant == OCCUPANT_HANDOFF);
}

/*
 * Claims @cpu from the idle mask. A CPU with a waking RT task still looks idle until it handles its
 * wakeup IPI, which takes as long as leaving a deep idle state, or as the hypervisor takes.
 */
static __always_inline bool take_idle(s32 cpu)
{
	return scx_bpf_test_and_clear_cpu_idle(cpu) && !rt_task_is_runnable(cpu);
}

/* Claims an idle CPU of @allowed from the idle mask; -1: there is none. */
static __always_inline s32 pick_idle(const struct cpumask *allowed)
{
	s32 cpu = scx_bpf_pick_idle_cpu(allowed, 0);

	/* That one is out of the mask now; a second such CPU is unlikely. */
	if (cpu >= 0 && rt_task_is_runnable(cpu))
		cpu = scx_bpf_pick_idle_cpu(allowed, 0);
	return cpu;
}

/* The same of all that @p may run on. A global function: see may_run_on(). */
__noinline s32 pick_any_idle(struct task_struct *p __arg_trusted)
{
	return pick_idle(p->cpus_ptr);
}

/* Claims @cpu for boosted @p on these @terms. A global function: see search_overdue(). */
__noinline bool try_cpu(s32 cpu, struct task_struct *p __arg_trusted,
			struct task_ctx *tctx __arg_nonnull, u32 terms,
			struct pick *pick __arg_nonnull)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = pick->now;

	if (!cctx || !may_run_on(p, cpu) || ((terms & PICK_FREE_CORE) && core_is_taken(cpu)) ||
	    ((terms & PICK_NOT_IRQ_LOADED) && is_irq_loaded(cpu, cctx, now)) ||
	    ((terms & PICK_NOT_RECENT) && launcher_may_return(cctx, now)))
		return false;
	if (take_idle(cpu)) {
		claim(cpu, cctx, p, tctx);
		pick->cpu = cpu;
		pick->how = is_preferred(cpu) ? PICK_IDLE_PREFERRED : PICK_IDLE_OTHER;
		return true;
	}
	if ((terms & PICK_IDLE) || !may_preempt(cctx, tctx->run_as, now) ||
	    !claim(cpu, cctx, p, tctx))
		return false;
	pick->cpu = cpu;
	pick->how = PICK_PREEMPT;
	return true;
}

/* Penalties of a preferred CPU, as bits: a higher bit outweighs all lower ones. */
enum penalty {
	PENALTY_NONE = 0,
	PENALTY_PREEMPTS = 1, /* a task of a lower class */
	PENALTY_FAR = 2,      /* from the GPU of the task */
	PENALTY_IRQ_LOADED = 4,
	PENALTY_SHARED_CORE = 8, /* with a launcher */
	PENALTY_ALL = 15,
};

/* Is @cpu on another NUMA node than @gpu_node, as gpu_node() says it? */
static __always_inline bool is_far(s32 cpu, u32 gpu_node)
{
	return gpu_node && cpu_node[cpu_index(cpu)] + 1 != gpu_node;
}

/* Penalties of @cpu, except for who runs there. A global function: see search_overdue(). */
__noinline u32 place_penalty(s32 cpu, u32 gpu_node, u64 now)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 penalty = PENALTY_NONE;

	if (is_far(cpu, gpu_node))
		penalty |= PENALTY_FAR;
	if (core_is_taken(cpu))
		penalty |= PENALTY_SHARED_CORE;
	if (cctx && is_irq_loaded(cpu, cctx, now))
		penalty |= PENALTY_IRQ_LOADED;
	return penalty;
}

/* Is @cpu a preferred one near @gpu_node? A global function: see search_overdue(). */
__noinline bool is_good_for(s32 cpu, u32 gpu_node)
{
	return is_preferred(cpu) && !is_far(cpu, gpu_node);
}

/*
 * The preferred CPU with the smallest penalty for boosted @p, the first in the list of those: its
 * number | the penalty << 16; -1: none. With @not_recent, CPUs where a launcher is expected back
 * are left out. A global function: see search_overdue().
 */
__noinline s32 best_preferred(struct task_struct *p __arg_trusted,
			      const struct task_ctx *tctx __arg_nonnull, bool not_recent, u64 now)
{
	const struct cpumask *allowed = p->cpus_ptr, *idle = scx_bpf_get_idle_cpumask();
	u32 class = tctx->run_as, gpu_node = tctx->gpu_node;
	/* No CPU can have a smaller penalty. */
	u32 enough = bpf_cpumask_intersects(idle, allowed) ? PENALTY_NONE : PENALTY_PREEMPTS;
	u32 least = PENALTY_ALL + 1, i;
	s32 best = -1;

	bpf_for (i, 0, preferred.nr) {
		s32 cpu = preferred.cpus[cpu_index(i)];
		struct cpu_ctx *cctx = cpu_ctx(cpu);
		u32 penalty = PENALTY_NONE;

		if (!cctx || !bpf_cpumask_test_cpu(cpu, allowed))
			continue;
		if (!bpf_cpumask_test_cpu(cpu, idle)) {
			if (cctx->claimed_by || !may_preempt(cctx, class, now))
				continue;
			penalty = PENALTY_PREEMPTS;
		}
		if (not_recent && launcher_may_return(cctx, now))
			continue;
		penalty |= place_penalty(cpu, gpu_node, now);
		if (penalty >= least)
			continue;
		least = penalty;
		best = cpu | penalty << 16;
		if (penalty <= enough)
			break;
	}
	scx_bpf_put_idle_cpumask(idle);
	return best;
}

/* Takes @best, as best_preferred() found it, if its penalty is @most or less. */
static __always_inline bool try_best(s32 best, u32 most, struct task_struct *p,
				     struct task_ctx *tctx, struct pick *pick)
{
	u32 penalty = (u32)best >> 16;

	return best >= 0 && penalty <= most &&
	       try_cpu(best & 0xffff, p, tctx, penalty & PENALTY_PREEMPTS ? 0 : PICK_IDLE, pick);
}

/*
 * Takes the preferred CPU with the smallest penalty, or the next one if another wakeup was faster.
 */
static __always_inline bool try_preferred(struct task_struct *p, struct task_ctx *tctx,
					  struct pick *pick)
{
	u32 i;

	bpf_for (i, 0, 3) {
		s32 best = best_preferred(p, tctx, false, pick->now);

		if (best < 0)
			return false;
		if (try_best(best, PENALTY_ALL, p, tctx, pick))
			return true;
	}
	return false;
}

/*
 * A preferred CPU busy with the launcher's waker, or with a per-CPU kthread, whose work is short:
 * waiting for it beats a move. A launcher that was preempted for that work comes back here. A
 * global function: see search_overdue().
 */
__noinline bool try_after(s32 cpu, struct task_struct *p __arg_trusted,
			  struct task_ctx *tctx __arg_nonnull, struct pick *pick __arg_nonnull)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (!cctx || !is_preferred(cpu) || !may_run_on(p, cpu))
		return false;
	if (cctx->occupant == OCCUPANT_LAUNCH ||
	    (cctx->occupant != OCCUPANT_KTHREAD && cctx->occupant != OCCUPANT_WAKER &&
	     !cctx->kthread_waiting))
		return false;
	/* Then it waits as well, and nobody knows how long. */
	if (cctx->giving_back || runs_higher_class(cpu))
		return false;
	if (!claim(cpu, cctx, p, tctx))
		return false;
	pick->cpu = cpu;
	pick->how = PICK_AFTER;
	return true;
}

/* Any CPU: idle without an interrupt penalty, then idle, then one that runs a lower class. */
static __always_inline bool try_any(struct task_struct *p, struct task_ctx *tctx, struct pick *pick)
{
	s32 cpu = pick_any_idle(p);
	struct cpu_ctx *cctx;

	if (cpu >= 0) {
		cctx = cpu_ctx(cpu);
		if (cctx && is_irq_loaded(cpu, cctx, pick->now)) {
			s32 better;

			bpf_for (better, 0, nr_cpu_ids) {
				if (try_cpu(better, p, tctx, PICK_IDLE | PICK_NOT_IRQ_LOADED,
					    pick)) {
					/* The one that was claimed before is still idle. */
					scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
					return true;
				}
			}
		}
		if (cctx)
			claim(cpu, cctx, p, tctx);
		pick->cpu = cpu;
		pick->how = is_preferred(cpu) ? PICK_IDLE_PREFERRED : PICK_IDLE_OTHER;
		return true;
	}
	bpf_for (cpu, 0, nr_cpu_ids) {
		if (try_cpu(cpu, p, tctx, 0, pick))
			return true;
	}
	return false;
}

/* The CPU of the launcher that @p is about to wake, if it is idle or runs background. */
static __always_inline struct pick pick_waker_cpu(struct task_struct *p, struct task_ctx *tctx,
						  u64 now)
{
	struct pick pick = {.cpu = -1, .how = PICK_IDLE_PREFERRED, .now = now};
	s32 cpu = tctx->launcher_cpu;
	struct cpu_ctx *cctx;

	if (is_pinned(p) || !is_preferred(cpu) || !may_run_on(p, cpu) ||
	    rt_task_ran_lately(cpu, now))
		return pick;
	cctx = cpu_ctx(cpu);
	if (!cctx || cctx->claimed_by)
		return pick;
	if (!take_idle(cpu)) {
		if (!may_preempt(cctx, GPUAWARE_CLASS_BACKGROUND, now))
			return pick;
		pick.how = PICK_PREEMPT;
	}
	pick.cpu = cpu;
	tctx->visits_launcher = true;
	return pick;
}

static __always_inline bool runs_waker(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	return cctx && cctx->occupant == OCCUPANT_WAKER;
}

/*
 * The CPU for launcher @p that last ran on @prev_cpu. In order: its previous CPU if that is
 * preferred and near its GPU (warm cache), at once or after its waker, the preferred CPU with the
 * smallest penalty, its previous CPU after a kthread, any CPU that is idle or runs a lower class.
 */
static __always_inline void pick_launch_cpu(struct task_struct *p, struct task_ctx *tctx,
					    s32 prev_cpu, struct pick *pick)
{
	const u32 good = PICK_FREE_CORE | PICK_NOT_IRQ_LOADED;

	if (is_pinned(p)) {
		/* Migration may be disabled while the affinity mask still has every CPU. */
		if (!try_cpu(prev_cpu, p, tctx, 0, pick))
			try_after(prev_cpu, p, tctx, pick);
		return;
	}
	if (is_good_for(prev_cpu, tctx->gpu_node) &&
	    (try_cpu(prev_cpu, p, tctx, good, pick) ||
	     (runs_waker(prev_cpu) && try_after(prev_cpu, p, tctx, pick))))
		return;
	if (!try_preferred(p, tctx, pick) && !try_after(prev_cpu, p, tctx, pick))
		try_any(p, tctx, pick);
}

/* Address of the kernel's cpu_active_mask: see find_active_mask(); 0: not known. */
u64 active_mask;

/* A CPU that goes offline is idle and online, for seconds while RCU is slow, but runs no task. */
static __always_inline bool is_leaving(s32 cpu)
{
	const u64 *active = (const u64 *)active_mask;
	u64 word;

	if (!active || bpf_probe_read_kernel(&word, sizeof(word), active + (u32)cpu / 64))
		return false;
	return !(word >> ((u32)cpu % 64) & 1);
}

/* Not so while a real-time task has it. */
static __always_inline bool is_idle(s32 cpu)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool found = bpf_cpumask_test_cpu(cpu, idle);

	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/*
 * The preferred CPU on a free core that launcher @p on @cpu would be better off with, which shares
 * its core, is not preferred itself or is far from @gpu_node; -1: none. A global function: see
 * search_overdue().
 */
__noinline s32 better_launch_cpu(struct task_struct *p __arg_trusted, s32 cpu, u32 gpu_node,
				 u64 now)
{
	bool good = is_preferred(cpu) && !core_is_taken(cpu);
	u32 i;

	if (good && !is_far(cpu, gpu_node))
		return -1;
	bpf_for (i, 0, preferred.nr) {
		s32 other = preferred.cpus[cpu_index(i)];
		struct cpu_ctx *cctx = cpu_ctx(other);

		if (!cctx || other == cpu || !may_run_on(p, other) || cctx->claimed_by ||
		    core_is_taken(other) || is_irq_loaded(other, cctx, now) ||
		    (good && is_far(other, gpu_node)))
			continue;
		if ((is_idle(other) || may_preempt(cctx, GPUAWARE_CLASS_LAUNCH, now)) &&
		    !is_leaving(other))
			return other;
	}
	return -1;
}

/* For launchers that never wake up: would pick_launch_cpu() find @p a better CPU now? */
static __always_inline bool is_misplaced(struct task_struct *p, const struct task_ctx *tctx,
					 s32 cpu, u64 now)
{
	return !is_pinned(p) && better_launch_cpu(p, cpu, tctx->gpu_node, now) >= 0;
}

/* For the intersection of affinity masks. Users run with interrupts off: one a CPU is enough. */
struct scratch_mask {
	struct bpf_cpumask __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch_mask);
} scratches SEC(".maps");

/* As pick_idle_in() on kernels before 6.16: anywhere, whole idle cores first. */
static __always_inline s32 pick_idle_anywhere(struct task_struct *p, s32 prev_cpu,
					      const struct cpumask *allowed)
{
	struct bpf_cpumask *both;
	struct scratch_mask *scratch;
	u32 zero = 0;

	if (is_restricted(p)) {
		scratch = bpf_map_lookup_elem(&scratches, &zero);
		if (!scratch)
			return -1;
		both = scratch->mask;
		if (!both)
			return -1;
		bpf_cpumask_and(both, allowed, p->cpus_ptr);
		allowed = (const struct cpumask *)both;
	}
	/* The previous CPU is warm; with SMT, an idle core elsewhere is worth more. */
	if (cpu_sibling[cpu_index(prev_cpu)] < 0 && bpf_cpumask_test_cpu(prev_cpu, allowed) &&
	    take_idle(prev_cpu))
		return prev_cpu;
	return pick_idle(allowed);
}

/*
 * An idle CPU of @p in @mask, or -1: its previous one if all of that core is idle, the nearest
 * idle core, then the same of single CPUs.
 */
static __always_inline s32 pick_idle_in(struct task_struct *p, s32 prev_cpu,
					struct bpf_cpumask *mask)
{
	const struct cpumask *allowed = (const struct cpumask *)mask;
	s32 cpu;

	if (!mask)
		return -1;
	if (!__COMPAT_HAS_scx_bpf_select_cpu_and)
		return pick_idle_anywhere(p, prev_cpu, allowed);
	cpu = scx_bpf_select_cpu_and(p, prev_cpu, 0, allowed, 0);
	/* See pick_idle(). */
	if (cpu >= 0 && rt_task_is_runnable(cpu))
		cpu = scx_bpf_select_cpu_and(p, prev_cpu, 0, allowed, 0);
	return cpu;
}

/* Is a CPU idle that @p may run on? */
static __always_inline bool any_is_idle(struct task_struct *p)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool found = bpf_cpumask_intersects(idle, p->cpus_ptr);

	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/*
 * The CPU for background @p: an idle CPU that is not preferred, else an idle preferred one that is
 * not held. A task confined to CPUs that are not lent takes an idle one of these. Where all are
 * busy, one look saves the searches. A global function: see search_overdue().
 */
__noinline s32 pick_background_cpu(struct task_struct *p __arg_trusted, s32 prev_cpu)
{
	s32 cpu;

	if (!any_is_idle(p))
		return -1;
	cpu = pick_idle_in(p, prev_cpu, other_cpumask);
	if (cpu < 0)
		cpu = pick_idle_in(p, prev_cpu, lendable_cpumask);
	return cpu < 0 && is_confined(p) ? pick_any_idle(p) : cpu;
}

/* An idle CPU that is not preferred and has no interrupt penalty. */
static __always_inline bool try_other_idle(struct task_struct *p, struct task_ctx *tctx,
					   s32 prev_cpu, struct pick *pick)
{
	s32 cpu = pick_idle_in(p, prev_cpu, other_cpumask);
	struct cpu_ctx *cctx = cpu >= 0 ? cpu_ctx(cpu) : NULL;

	if (!cctx)
		return false;
	if (is_irq_loaded(cpu, cctx, pick->now)) {
		/* It is still idle. */
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		return false;
	}
	claim(cpu, cctx, p, tctx);
	pick->cpu = cpu;
	pick->how = PICK_IDLE_OTHER;
	return true;
}

/*
 * The CPU for handoff task @p, in an order similar to a launcher's. A CPU that a launcher left a
 * moment ago is the last choice. Except for its previous CPU, an idle CPU that is not preferred
 * comes before preempting background on a preferred one.
 */
static __always_inline void pick_handoff_cpu(struct task_struct *p, struct task_ctx *tctx,
					     s32 prev_cpu, struct pick *pick)
{
	const u32 good = PICK_FREE_CORE | PICK_NOT_IRQ_LOADED | PICK_NOT_RECENT;
	s32 cpu, best;

	if (is_pinned(p)) {
		try_cpu(prev_cpu, p, tctx, 0, pick);
		return;
	}
	if (is_good_for(prev_cpu, tctx->gpu_node) && try_cpu(prev_cpu, p, tctx, good, pick))
		return;
	best = best_preferred(p, tctx, true, pick->now);
	if (try_best(best, PENALTY_NONE, p, tctx, pick) ||
	    try_cpu(prev_cpu, p, tctx, PICK_NOT_IRQ_LOADED | PICK_NOT_RECENT | PICK_IDLE, pick) ||
	    try_other_idle(p, tctx, prev_cpu, pick) ||
	    try_best(best, PENALTY_PREEMPTS, p, tctx, pick) ||
	    try_cpu(prev_cpu, p, tctx, PICK_NOT_RECENT, pick))
		return;
	bpf_for (cpu, 0, nr_cpu_ids) {
		if (try_cpu(cpu, p, tctx, PICK_NOT_RECENT, pick))
			return;
	}
	try_any(p, tctx, pick);
}

/*
 * Picks a CPU for boosted task @p, which has no claim, and claims it. A global function: see
 * search_overdue().
 */
__noinline int pick_boosted_cpu(struct task_struct *p __arg_trusted,
				struct task_ctx *tctx __arg_nonnull, s32 prev_cpu,
				struct pick *pick __arg_nonnull)
{
	if (tctx->run_as == GPUAWARE_CLASS_LAUNCH)
		pick_launch_cpu(p, tctx, prev_cpu, pick);
	else
		pick_handoff_cpu(p, tctx, prev_cpu, pick);
	return 0;
}

/*
 * The CPU for handoff task @p that a real-time task preempted, most often for a moment: not a
 * launcher's unless it is idle, or the two would preempt each other for nothing.
 */
static __always_inline void pick_after_rt_preemption(struct task_struct *p, struct task_ctx *tctx,
						     s32 prev_cpu, struct pick *pick)
{
	s32 cpu;

	if (is_pinned(p))
		return;
	pick->how = PICK_IDLE_OTHER;
	pick->cpu = pick_background_cpu(p, prev_cpu);
	if (pick->cpu >= 0)
		return;
	bpf_for (cpu, 0, nr_cpu_ids) {
		if (!is_preferred(cpu) && try_cpu(cpu, p, tctx, 0, pick))
			return;
	}
	/* It is idle, though held or not lent. */
	pick->cpu = pick_any_idle(p);
}

static __always_inline void count_pick(const struct task_ctx *tctx, const struct pick *pick)
{
	struct cpu_ctx *cctx = pick->how == PICK_PREEMPT ? cpu_ctx(pick->cpu) : NULL;

	if (cctx)
		count_preemption(tctx->run_as, cctx->occupant == OCCUPANT_HANDOFF
						       ? GPUAWARE_CLASS_HANDOFF
						       : GPUAWARE_CLASS_BACKGROUND);
	if (tctx->run_as == GPUAWARE_CLASS_HANDOFF) {
		stat_inc(pick->cpu < 0 ? GPUAWARE_STAT_HANDOFF_QUEUED
				       : GPUAWARE_STAT_HANDOFF_WAKEUPS);
		return;
	}
	if (pick->cpu < 0) {
		stat_inc(GPUAWARE_STAT_LAUNCH_QUEUED);
		return;
	}
	stat_inc(GPUAWARE_STAT_LAUNCH_WAKEUPS);
	if (pick->how == PICK_IDLE_OTHER)
		stat_inc(GPUAWARE_STAT_LAUNCH_TO_OTHER);
	else if (pick->how != PICK_PREEMPT)
		stat_inc(GPUAWARE_STAT_LAUNCH_TO_PREFERRED);
}

/* Wakes any idle CPU. */
static __always_inline void kick_idle(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	s32 cpu = scx_bpf_pick_idle_cpu(online, 0);

	scx_bpf_put_cpumask(online);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/* An idle CPU that may fetch background, whoever waits: where it may run is not known. */
static __always_inline s32 pick_idle_for_background(void)
{
	struct bpf_cpumask *other = other_cpumask, *lendable = lendable_cpumask;
	s32 cpu = -1;

	if (other)
		cpu = scx_bpf_pick_idle_cpu((const struct cpumask *)other, 0);
	if (cpu < 0 && lendable)
		cpu = scx_bpf_pick_idle_cpu((const struct cpumask *)lendable, 0);
	return cpu;
}

static __always_inline void kick_idle_for_background(void)
{
	s32 cpu = pick_idle_for_background();

	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/*
 * The same for @p, which is queued: its own CPU if that is idle, or else one where it may run.
 * Another one would find nothing, or has work of its own, and nobody would look for @p. A global
 * function: see search_overdue().
 */
__noinline int kick_idle_for(struct task_struct *p __arg_trusted)
{
	s32 cpu = scx_bpf_task_cpu(p);

	bpf_rcu_read_lock();
	if (!scx_bpf_test_and_clear_cpu_idle(cpu))
		cpu = is_restricted(p) ? scx_bpf_pick_idle_cpu(p->cpus_ptr, 0)
				       : pick_idle_for_background();
	bpf_rcu_read_unlock();
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 0;
}

static s32 init_scratches(void)
{
	s32 i;

	bpf_for (i, 0, nr_cpu_ids) {
		struct bpf_cpumask *mask;
		struct scratch_mask *scratch;
		u32 zero = 0;

		scratch = bpf_map_lookup_percpu_elem(&scratches, &zero, i);
		if (!scratch)
			continue; /* not a possible CPU */
		mask = bpf_cpumask_create();
		if (!mask)
			return -ENOMEM;
		mask = bpf_kptr_xchg(&scratch->mask, mask);
		if (mask)
			bpf_cpumask_release(mask);
	}
	return 0;
}

#endif /* __GPUAWARE_PICK_BPF_H */
