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

/*
 * LLCs in whose queues somebody was put lately or waits. CPUs of the others that become idle need
 * not ask each LLC: most machines have many, and most of the time nobody waits in any.
 */
static u64 queued_llcs[GPUAWARE_MAX_LLCS / 64];

/* So long after somebody was queued or seen in an LLC it is asked: an insertion is over then. */
#define QUEUED_LOOK_NS 10000000ULL

static __always_inline u64 *queued_word(u32 llc)
{
	return &queued_llcs[llc / 64 % (GPUAWARE_MAX_LLCS / 64)];
}

/*
 * A task is about to be put into a queue of @llc. Said again before it is forgotten, so that the
 * queue may be empty for the moment.
 */
static __always_inline void note_queued(u32 llc, struct llc_ctx *llcx, u64 now)
{
	if (time_before(now, llcx->queued_ns + QUEUED_LOOK_NS / 2))
		return;
	llcx->queued_ns = now;
	__sync_fetch_and_or(queued_word(llc), 1ULL << llc % 64);
}

/* Longer than enqueue() looks for a CPU. */
#define ARRIVAL_NS 50000ULL

/*
 * enqueue() looks for an idle CPU before its insertion takes effect, which is when it returns. A
 * CPU that becomes idle meanwhile sees nobody wait, and is not seen idle: it looks again. A
 * barrier, so that one of the two is seen.
 */
static __always_inline void note_arriving(struct llc_ctx *llcx, u64 now)
{
	__sync_lock_test_and_set(&llcx->arriving_ns, now);
}

static __always_inline bool is_arriving(struct llc_ctx *llcx, u64 now)
{
	return time_before(now, llcx->arriving_ns + ARRIVAL_NS);
}

/* If nobody @waits in the queues of @llc, and nobody was put there lately, it is asked no more. */
static __always_inline void forget_queued(u32 llc, struct llc_ctx *llcx, bool waits, u64 now)
{
	if (waits)
		note_queued(llc, llcx, now);
	if (time_before(now, llcx->queued_ns + QUEUED_LOOK_NS))
		return;
	__sync_fetch_and_and(queued_word(llc), ~(1ULL << llc % 64));
	/* Somebody may have come meanwhile. */
	if (time_before(now, llcx->queued_ns + QUEUED_LOOK_NS))
		__sync_fetch_and_or(queued_word(llc), 1ULL << llc % 64);
}

/* The first LLC after @after, and not @own, in which somebody may wait; -1: none. */
static __always_inline s32 next_queued(s32 after, u32 own)
{
	u32 first = after + 1, word;
	u64 found;

	for (word = 0; word < GPUAWARE_MAX_LLCS / 64; word++) {
		found = queued_llcs[word];
		if (word == own / 64)
			found &= ~(1ULL << own % 64);
		if (first >= (word + 1) * 64)
			continue;
		if (first > word * 64)
			found &= ~0ULL << first % 64;
		if (found)
			return word * 64 + __builtin_ctzll(found);
	}
	return -1;
}

/*
 * May somebody wait in an LLC other than @own? A global function, or the verifier would follow
 * every answer through its caller.
 */
__noinline bool others_queued(u32 own)
{
	return next_queued(-1, own) >= 0;
}

/* A task is about to be put into the launch, handoff or throttled queue of @llc. */
static __always_inline void note_boosted_queued(u32 llc, u64 now)
{
	struct llc_ctx *llcx = llc_ctx(llc);

	if (!llcx)
		return;
	llcx->boosted_queued_ns = now;
	note_queued(llc, llcx, now);
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

/*
 * Does a launcher wait that @cpu could take? Those that are pinned wait for theirs. One behind many
 * such ones is met when the CPU dispatches next.
 */
static __always_inline bool launcher_waits_for(s32 cpu)
{
	u64 dsq = launch_dsq(llc_of(cpu));
	struct task_struct *p;
	u32 asked = 0;

	if (!dsq_waiting(dsq))
		return false;
	bpf_for_each (scx_dsq, p, dsq, 0) {
		if (asked++ == LAUNCHERS_ASKED)
			break;
		if (may_run_on(p, cpu))
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
