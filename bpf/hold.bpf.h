/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Holding a CPU idle for a launcher that sleeps briefly.
 *
 * Giving a CPU away for half a millisecond buys background little and costs the launcher its
 * wakeup. So when a launcher goes to sleep for what is usually a short while, its preferred CPU
 * declines background until the launcher is back or the hold ends, whichever is first. A timer
 * pinned to the CPU ends the hold and wakes the CPU: nothing else would, with work queued.
 */
#ifndef __GPUAWARE_HOLD_BPF_H
#define __GPUAWARE_HOLD_BPF_H

#include "dsq.bpf.h"
#include "stats.bpf.h"

#define HOLD_MARGIN_NS 50000

struct hold_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GPUAWARE_MAX_CPUS);
	__type(key, u32);
	__type(value, struct hold_timer);
} hold_timers SEC(".maps");

/* Preferred CPUs that background may use now: not held. */
private(LENDABLE) struct bpf_cpumask __kptr *lendable_cpumask;

static __always_inline void set_lendable(s32 cpu, bool lendable)
{
	struct bpf_cpumask *mask = lendable_cpumask;

	if (!mask)
		return;
	if (lendable)
		bpf_cpumask_set_cpu(cpu, mask);
	else
		bpf_cpumask_clear_cpu(cpu, mask);
}

static __always_inline bool is_held(struct cpu_ctx *cctx, u64 now)
{
	return cctx->hold_until_ns && time_before(now, cctx->hold_until_ns);
}

static __always_inline void end_hold(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	if (!cctx->hold_until_ns)
		return;
	stat_add(GPUAWARE_STAT_HOLD_NS, now - cctx->hold_start_ns);
	cctx->hold_until_ns = 0;
	set_lendable(cpu, true);
}

static int hold_expired(void *map, int *key, struct hold_timer *timer)
{
	u64 now = scx_bpf_now();
	struct cpu_ctx *cctx;
	s32 cpu = *key;

	cctx = cpu_ctx(cpu);
	/*
	 * A later hold started its timer anew: this is not its end. The timer runs on another clock
	 * than holds are measured by, hence the margin.
	 */
	if (!cctx || !cctx->hold_until_ns || is_held(cctx, now + HOLD_MARGIN_NS))
		return 0;
	end_hold(cpu, cctx, now);
	stat_inc(GPUAWARE_STAT_HOLDS_EXPIRED);
	if (dsq_waiting(pinned_dsq(cpu)) || dsq_waiting(background_dsq(llc_of(cpu))))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 0;
}

/*
 * @tctx's launcher goes to sleep on @cpu, which is the CPU that this runs on. The EWMA says how
 * long; half as much again covers its spread.
 */
static __always_inline void start_hold(s32 cpu, struct cpu_ctx *cctx, struct task_ctx *tctx,
				       u64 now)
{
	u64 length = tctx->sleep_avg_ns + tctx->sleep_avg_ns / 2;
	struct hold_timer *timer;
	u32 key = cpu;

	if (!tctx->sleep_avg_ns || tctx->sleep_avg_ns > hold_cap_ns || !is_preferred(cpu))
		return;
	if (length > hold_cap_ns)
		length = hold_cap_ns;
	timer = bpf_map_lookup_elem(&hold_timers, &key);
	if (!timer)
		return;
	cctx->hold_start_ns = now;
	cctx->hold_until_ns = now + length;
	set_lendable(cpu, false);
	stat_inc(GPUAWARE_STAT_HOLDS);
	if (bpf_timer_start(&timer->timer, length, BPF_F_TIMER_CPU_PIN))
		end_hold(cpu, cctx, now);
}

static __always_inline void learn_sleep(struct task_ctx *tctx, u64 now)
{
	u64 slept;

	if (!tctx->sleep_start_ns)
		return;
	slept = now - tctx->sleep_start_ns;
	tctx->sleep_start_ns = 0;
	if (!tctx->sleep_avg_ns)
		tctx->sleep_avg_ns = slept ?: 1;
	else
		tctx->sleep_avg_ns = tctx->sleep_avg_ns - tctx->sleep_avg_ns / 8 + slept / 8;
}

static s32 init_hold(void)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();
	s32 i;

	if (!mask)
		return -ENOMEM;
	bpf_for (i, 0, nr_cpu_ids) {
		struct hold_timer *timer;
		u32 key = i;

		if (!is_preferred(i))
			continue;
		bpf_cpumask_set_cpu(i, mask);
		timer = bpf_map_lookup_elem(&hold_timers, &key);
		if (!timer) {
			bpf_cpumask_release(mask);
			return -ENOENT;
		}
		bpf_timer_init(&timer->timer, &hold_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&timer->timer, hold_expired);
	}
	mask = bpf_kptr_xchg(&lendable_cpumask, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return 0;
}

#endif /* __GPUAWARE_HOLD_BPF_H */
