/* SPDX-License-Identifier: GPL-2.0-only */
/* Which CPU a woken launcher gets. One function that reads top to bottom: pick_launch_cpu(). */
#ifndef __GPUAWARE_PREFERRED_BPF_H
#define __GPUAWARE_PREFERRED_BPF_H

#include "hold.bpf.h"

private(PREFERRED) struct bpf_cpumask __kptr *preferred_cpumask;
private(PREFERRED) struct bpf_cpumask __kptr *other_cpumask;

enum pick_how {
	PICK_IDLE_PREFERRED,
	PICK_PREEMPT,
	PICK_AFTER_KTHREAD,
	PICK_IDLE_OTHER,
};

struct pick {
	s32 cpu; /* -1: none */
	u32 how;
};

/* The sibling runs a launcher or is about to: stacking two costs each a fifth to a quarter. */
static __always_inline bool core_is_taken(s32 cpu)
{
	struct cpu_ctx *cctx;
	s32 sibling;

	sibling = cpu_sibling[cpu_index(cpu)];
	if (sibling < 0)
		return false;
	cctx = cpu_ctx(sibling);
	return cctx && (cctx->occupant == OCCUPANT_LAUNCH || cctx->claimed_by);
}

/*
 * Two wakeups at once must not choose the same CPU. The claim is dropped when the launcher runs
 * or sleeps again; a stale one only makes the CPU unattractive for an instant.
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

/* Runs background that may be thrown out: not in the turn that it is owed. */
static __always_inline bool may_preempt(struct cpu_ctx *cctx, u64 now)
{
	return cctx->occupant == OCCUPANT_BACKGROUND && time_after_eq(now, cctx->turn_until_ns);
}

/* Tries one CPU. @idle_only: do not preempt. */
static __always_inline bool try_cpu(s32 cpu, struct task_struct *p, struct task_ctx *tctx, u64 now,
				    bool idle_only, struct pick *pick)
{
	struct cpu_ctx *cctx;

	if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return false;
	cctx = cpu_ctx(cpu);
	if (!cctx)
		return false;
	if (scx_bpf_test_and_clear_cpu_idle(cpu)) {
		claim(cpu, cctx, p, tctx);
		pick->cpu = cpu;
		pick->how = is_preferred(cpu) ? PICK_IDLE_PREFERRED : PICK_IDLE_OTHER;
		return true;
	}
	if (idle_only || !may_preempt(cctx, now) || !claim(cpu, cctx, p, tctx))
		return false;
	pick->cpu = cpu;
	pick->how = PICK_PREEMPT;
	return true;
}

/* Preferred CPUs in the order of the policy. @whole_cores: only where no launcher is next door. */
static __always_inline bool try_preferred(struct task_struct *p, struct task_ctx *tctx, u64 now,
					  bool idle_only, bool whole_cores, struct pick *pick)
{
	u32 i;

	bpf_for (i, 0, nr_preferred) {
		s32 cpu;

		if (i >= GPUAWARE_MAX_CPUS)
			break;
		cpu = preferred_cpus[i];
		if (whole_cores && core_is_taken(cpu))
			continue;
		if (try_cpu(cpu, p, tctx, now, idle_only, pick))
			return true;
	}
	return false;
}

/*
 * A preferred CPU that does the kernel's own work, which is short: waiting for it beats a move.
 * A launcher that was thrown out for that work comes back here.
 */
static __always_inline bool try_after_kthread(s32 cpu, struct task_struct *p, struct task_ctx *tctx,
					      struct pick *pick)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (!cctx || !is_preferred(cpu) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return false;
	if (cctx->occupant == OCCUPANT_LAUNCH ||
	    (cctx->occupant != OCCUPANT_KTHREAD && !cctx->kthread_waiting))
		return false;
	if (!claim(cpu, cctx, p, tctx))
		return false;
	pick->cpu = cpu;
	pick->how = PICK_AFTER_KTHREAD;
	return true;
}

/* Any CPU beyond the preferred ones: launchers in excess take turns with nobody but launchers. */
static __always_inline bool try_others(struct task_struct *p, struct task_ctx *tctx, u64 now,
				       struct pick *pick)
{
	s32 cpu;

	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0) {
		struct cpu_ctx *cctx = cpu_ctx(cpu);

		if (cctx)
			claim(cpu, cctx, p, tctx);
		pick->cpu = cpu;
		pick->how = is_preferred(cpu) ? PICK_IDLE_PREFERRED : PICK_IDLE_OTHER;
		return true;
	}
	bpf_for (cpu, 0, nr_cpu_ids) {
		if (try_cpu(cpu, p, tctx, now, false, pick))
			return true;
	}
	return false;
}

/*
 * The CPU for launcher @p that last ran on @prev_cpu. In order: its previous CPU if that is
 * preferred (warm cache), idle preferred CPUs on free cores, preferred CPUs that run background
 * on free cores, the same without regard to cores, its previous CPU after a kernel thread, any CPU
 * that is idle or runs background.
 */
static __always_inline struct pick pick_launch_cpu(struct task_struct *p, struct task_ctx *tctx,
						   s32 prev_cpu, u64 now)
{
	struct pick pick = {.cpu = -1};

	drop_claim(p, tctx);
	if (is_pinned(p)) {
		/* Migration may be disabled while the affinity mask still has every CPU. */
		if (!try_cpu(prev_cpu, p, tctx, now, false, &pick))
			try_after_kthread(prev_cpu, p, tctx, &pick);
		return pick;
	}
	if (is_preferred(prev_cpu) && !core_is_taken(prev_cpu) &&
	    try_cpu(prev_cpu, p, tctx, now, false, &pick))
		return pick;
	if (!try_preferred(p, tctx, now, true, true, &pick) &&
	    !try_preferred(p, tctx, now, false, true, &pick) &&
	    !try_preferred(p, tctx, now, false, false, &pick) &&
	    !try_after_kthread(prev_cpu, p, tctx, &pick))
		try_others(p, tctx, now, &pick);
	return pick;
}

static __always_inline void count_pick(const struct pick *pick)
{
	stat_inc(GPUAWARE_STAT_LAUNCH_WAKEUPS);
	if (pick->how == PICK_PREEMPT)
		stat_inc(GPUAWARE_STAT_LAUNCH_PREEMPTS);
	else if (pick->how == PICK_IDLE_OTHER)
		stat_inc(GPUAWARE_STAT_LAUNCH_TO_OTHER);
	else
		stat_inc(GPUAWARE_STAT_LAUNCH_TO_PREFERRED);
}

static s32 init_preferred(void)
{
	struct bpf_cpumask *preferred = bpf_cpumask_create();
	struct bpf_cpumask *other = bpf_cpumask_create();
	s32 i;

	if (!preferred || !other) {
		if (preferred)
			bpf_cpumask_release(preferred);
		if (other)
			bpf_cpumask_release(other);
		return -ENOMEM;
	}
	bpf_for (i, 0, nr_cpu_ids) {
		if (is_preferred(i))
			bpf_cpumask_set_cpu(i, preferred);
		else
			bpf_cpumask_set_cpu(i, other);
	}
	preferred = bpf_kptr_xchg(&preferred_cpumask, preferred);
	if (preferred)
		bpf_cpumask_release(preferred);
	other = bpf_kptr_xchg(&other_cpumask, other);
	if (other)
		bpf_cpumask_release(other);
	return 0;
}

#endif /* __GPUAWARE_PREFERRED_BPF_H */
