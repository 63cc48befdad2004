/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Boosted threads that wait by sched_yield(), for memory that the GPU or another thread writes: no
 * wakeup tells when. Such a thread lends its CPU to background, a moment at a time, and waits
 * behind it in the CPU's local DSQ, where nobody else can take it. A timer ends the moment: slices
 * end at ticks.
 */
#ifndef __GPUAWARE_SPIN_BPF_H
#define __GPUAWARE_SPIN_BPF_H

#include "background.bpf.h"
#include "pick.bpf.h"

/* Who yields so many times in a row, with less than SPIN_NS in between, waits. */
#define SPIN_YIELDS 8
#define SPIN_NS	    50000ULL

struct look_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GPUAWARE_MAX_CPUS);
	__type(key, u32);
	__type(value, struct look_timer);
} look_timers SEC(".maps");

/* Boosted @tctx's task yields. */
static __always_inline void count_yield(struct task_ctx *tctx)
{
	u64 last = tctx->yielded_ns, now;

	if (!tunables.lend_yields_ns) {
		tctx->nr_yields = 0;
		return;
	}
	now = scx_bpf_now();
	if (time_before(last, tctx->run_start_ns))
		last = tctx->run_start_ns;
	tctx->yielded_ns = now;
	if (time_delta(now, last) >= SPIN_NS)
		tctx->nr_yields = 0;
	else if (tctx->nr_yields < SPIN_YIELDS)
		tctx->nr_yields++;
}

/* Does @tctx's task do nothing else, just now? */
static __always_inline bool waits_by_yields(const struct task_ctx *tctx, u64 now)
{
	return tctx->nr_yields == SPIN_YIELDS && is_boosted(tctx->run_as) &&
	       time_delta(now, tctx->yielded_ns) < SPIN_NS;
}

static __always_inline bool background_waits_for(s32 cpu)
{
	return dsq_waiting(background_dsq(llc_of(cpu))) || dsq_waiting(pinned_dsq(cpu));
}

/* Does a launcher that computes have the core of @cpu to itself? */
static __always_inline bool core_is_whole(s32 cpu)
{
	s32 sibling = cpu_sibling[cpu_index(cpu)];
	struct cpu_ctx *cctx = sibling >= 0 && tunables.whole_core ? cpu_ctx(sibling) : NULL;

	return cctx && cctx->occupant == OCCUPANT_LAUNCH;
}

/* Gives @cpu, on which boosted @tctx's task waits by yields, to background for a moment. */
static __always_inline bool lend_cpu(struct task_ctx *tctx, struct cpu_ctx *cctx, s32 cpu, u64 now)
{
	u32 key = cpu;
	struct look_timer *look = bpf_map_lookup_elem(&look_timers, &key);

	if (!look || cctx->claimed_by || is_reserved(cpu, cctx, now) || core_is_whole(cpu) ||
	    !background_waits_for(cpu) ||
	    bpf_timer_start(&look->timer, tunables.lend_yields_ns, BPF_F_TIMER_CPU_PIN) ||
	    !dispatch_background(cpu, llc_of(cpu), cctx))
		return false;
	tctx->lends = true;
	return true;
}

/*
 * May boosted @p wait on @cpu behind who got it? Who wakes up meanwhile would come before @p, for
 * as long as it likes: it goes elsewhere (may_preempt()), except for a launcher where @p is
 * handoff.
 */
static __always_inline bool may_wait_behind(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (!cctx || cctx->claimed_by ||
	    (tctx->run_as == GPUAWARE_CLASS_LAUNCH && !claim(cpu, cctx, p, tctx)))
		return false;
	cctx->lent = true;
	return true;
}

/*
 * The moment is over, unless the CPU has come back before. Behind a kthread it comes back by
 * itself.
 */
static int look_timer_fired(void *map, int *key, struct look_timer *look)
{
	struct cpu_ctx *cctx = cpu_ctx(*key);

	if (cctx && cctx->lent && cctx->occupant == OCCUPANT_BACKGROUND)
		scx_bpf_kick_cpu(*key, SCX_KICK_PREEMPT);
	return 0;
}

static s32 init_look_timers(void)
{
	u32 i;

	bpf_for (i, 0, nr_cpu_ids) {
		struct look_timer *look = bpf_map_lookup_elem(&look_timers, &i);

		if (!look)
			return -ENOENT;
		bpf_timer_init(&look->timer, &look_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&look->timer, look_timer_fired);
	}
	return 0;
}

#endif /* __GPUAWARE_SPIN_BPF_H */
