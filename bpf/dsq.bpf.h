/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Dispatch queues. Per LLC: launch (by what tenants had), handoff (FIFO), background (vtime), those
 * that the guard throttles (as launch) and those whose cgroup has used up its cpu.max (by release
 * time). Per CPU: background that may run nowhere else (vtime).
 */
#ifndef __GPUAWARE_DSQ_BPF_H
#define __GPUAWARE_DSQ_BPF_H

#include "task.bpf.h"

#define DSQ_LAUNCH     0x10000ULL
#define DSQ_HANDOFF    0x20000ULL
#define DSQ_THROTTLED  0x30000ULL
#define DSQ_CAPPED     0x40000ULL
#define DSQ_BACKGROUND 0x50000ULL
#define DSQ_PINNED     0x60000ULL

static __always_inline u64 launch_dsq(u32 llc)
{
	return DSQ_LAUNCH + llc;
}

static __always_inline u64 handoff_dsq(u32 llc)
{
	return DSQ_HANDOFF + llc;
}

static __always_inline u64 throttled_dsq(u32 llc)
{
	return DSQ_THROTTLED + llc;
}

static __always_inline u64 capped_dsq(u32 llc)
{
	return DSQ_CAPPED + llc;
}

static __always_inline u64 background_dsq(u32 llc)
{
	return DSQ_BACKGROUND + llc;
}

static __always_inline u64 pinned_dsq(s32 cpu)
{
	return DSQ_PINNED + cpu;
}

static __always_inline bool dsq_waiting(u64 dsq)
{
	return scx_bpf_dsq_nr_queued(dsq) > 0;
}

/*
 * The smallest vtime in @dsq, or all ones when it is empty. A global function: see
 * search_overdue().
 */
__noinline u64 dsq_head_vtime(u64 dsq)
{
	struct task_struct *p;
	u64 vtime = ~0ULL;

	bpf_for_each (scx_dsq, p, dsq, 0) {
		vtime = p->scx.dsq_vtime;
		break;
	}
	return vtime;
}

/* For how long the queues of boosted tasks are looked at after one was put there or seen there. */
#define BOOSTED_LOOK_NS 200000000ULL

/* A task is about to be put into the launch, handoff or throttled queue of @llc. */
static __always_inline void note_boosted_queued(u32 llc, u64 now)
{
	struct llc_ctx *llcx = llc_ctx(llc);

	if (llcx)
		llcx->boosted_queued_ns = now;
}

static __always_inline bool look_for_boosted(u32 llc, struct llc_ctx *llcx, u64 now)
{
	if (!dsq_waiting(launch_dsq(llc)) && !dsq_waiting(handoff_dsq(llc)) &&
	    !dsq_waiting(throttled_dsq(llc)))
		return false;
	llcx->boosted_queued_ns = now;
	return true;
}

/*
 * Does a launch, handoff or throttled task wait for @llc? These queues are empty nearly always, as
 * boosted tasks go straight to a CPU, and looking costs every dispatch three cold queues. So only
 * what was queued lately is looked for. Every CPU's sweep (overdue.bpf.h), which comes more often,
 * looks in any case: no stall makes a task be forgotten.
 */
static __always_inline bool boosted_wait(u32 llc, struct llc_ctx *llcx, u64 now)
{
	return llcx && time_before(now, llcx->boosted_queued_ns + BOOSTED_LOOK_NS) &&
	       look_for_boosted(llc, llcx, now);
}

/* Of the launchers that wait, how many are asked where they may run. */
#define LAUNCHERS_ASKED 8

/* Does a launcher wait that @cpu could take? Those that are pinned wait for theirs. */
static __always_inline bool launcher_waits_for(s32 cpu)
{
	u64 dsq = launch_dsq(llc_of(cpu));
	struct task_struct *p;
	u32 asked = 0;

	if (!dsq_waiting(dsq))
		return false;
	bpf_for_each (scx_dsq, p, dsq, 0) {
		if (++asked > LAUNCHERS_ASKED || bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return true;
	}
	return false;
}

static s32 create_dsqs(void)
{
	s32 ret, i;

	bpf_for (i, 0, nr_llcs) {
		ret = scx_bpf_create_dsq(launch_dsq(i), -1);
		ret = ret ?: scx_bpf_create_dsq(handoff_dsq(i), -1);
		ret = ret ?: scx_bpf_create_dsq(throttled_dsq(i), -1);
		ret = ret ?: scx_bpf_create_dsq(capped_dsq(i), -1);
		ret = ret ?: scx_bpf_create_dsq(background_dsq(i), -1);
		if (ret)
			return ret;
	}
	bpf_for (i, 0, nr_cpu_ids) {
		ret = scx_bpf_create_dsq(pinned_dsq(i), -1);
		if (ret)
			return ret;
	}
	return 0;
}

#endif /* __GPUAWARE_DSQ_BPF_H */
