/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Holding a CPU idle for a launcher that is about to come back.
 *
 * A CPU that runs background when its launcher wakes has to be taken back first, and background
 * that is inside the kernel may not let go at once. So for the last stretch of a launcher's usual
 * sleep (hold_lead_ns) its preferred CPU declines background, until the launcher is back or the
 * hold ends, whichever is first. Sleeps shorter than that stretch are held whole; before it the CPU
 * is lent. A timer pinned to the CPU begins and ends the hold and wakes the CPU: nothing else
 * would, with work queued.
 */
#ifndef __GPUAWARE_HOLD_BPF_H
#define __GPUAWARE_HOLD_BPF_H

#include "preferred.bpf.h"
#include "stats.bpf.h"

/* How late a launcher may be beyond what its sleeps vary by. */
#define HOLD_PATIENCE_NS 250000
/* The timer runs on another clock than holds are measured by. */
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

static __always_inline bool is_held(struct cpu_ctx *cctx, u64 now)
{
	return cctx->hold_until_ns && time_before_eq(cctx->hold_start_ns, now) &&
	       time_before(now, cctx->hold_until_ns);
}

/* Is @cpu closed to background that could run elsewhere? */
static __always_inline bool is_reserved(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	return is_held(cctx, now) || (!tunables.lend && is_preferred(cpu));
}

/* Declines background from now on, and throws out what runs. */
static __always_inline void begin_hold(s32 cpu, struct cpu_ctx *cctx)
{
	set_lendable(cpu, false);
	stat_inc(GPUAWARE_STAT_HOLDS);
	if (cctx->occupant == OCCUPANT_BACKGROUND)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

static __always_inline void end_hold(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	u64 start = cctx->hold_start_ns, declined = cctx->declined_since_ns;

	if (!cctx->hold_until_ns)
		return;
	if (time_after(now, start)) {
		stat_add(GPUAWARE_STAT_HOLD_NS, now - start);
		if (declined)
			stat_add(GPUAWARE_STAT_HOLD_WASTE_NS,
				 now - (time_after(declined, start) ? declined : start));
	}
	cctx->declined_since_ns = 0;
	cctx->hold_until_ns = 0;
	if (is_preferred(cpu))
		set_lendable(cpu, true);
}

static __always_inline void advance_hold(s32 cpu, struct hold_timer *timer)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = scx_bpf_now();

	if (!cctx || !cctx->hold_until_ns)
		return;
	if (time_before(now + HOLD_MARGIN_NS, cctx->hold_until_ns)) {
		/* A later hold may have started the timer anew: this is not its beginning. */
		if (time_before(now + HOLD_MARGIN_NS, cctx->hold_start_ns))
			return;
		if (time_before(now, cctx->hold_start_ns))
			cctx->hold_start_ns = now;
		begin_hold(cpu, cctx);
		bpf_timer_start(&timer->timer, cctx->hold_until_ns - now, BPF_F_TIMER_CPU_PIN);
		return;
	}
	end_hold(cpu, cctx, now);
	stat_inc(GPUAWARE_STAT_HOLDS_EXPIRED);
	if (dsq_waiting(pinned_dsq(cpu)) || dsq_waiting(background_dsq(llc_of(cpu))))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

static int hold_timer_fired(void *map, int *key, struct hold_timer *timer)
{
	/* Newer kernels know that a timer's callback is under RCU. */
	bpf_rcu_read_lock();
	advance_hold(*key, timer);
	bpf_rcu_read_unlock();
	return 0;
}

/*
 * @tctx's launcher goes to sleep on @cpu, which is the CPU that this runs on. It is expected back
 * after its average sleep, give or take twice the average deviation.
 */
static __always_inline void start_hold(s32 cpu, struct cpu_ctx *cctx, struct task_ctx *tctx,
				       u64 now)
{
	u64 sleep = tctx->sleep_avg_ns, spread = 2 * tctx->sleep_dev_ns;
	u64 room = spread + HOLD_PATIENCE_NS, lead = spread + tunables.hold_lead_ns;
	u64 cap = tunables.hold_cap_ns, length, delay;
	struct hold_timer *timer;
	u32 key = cpu;

	/* Nobody knows when it comes back: a hold that is long enough would cost too much. */
	if (!sleep || cap < 2 * room || !is_preferred(cpu))
		return;
	if (lead > cap - room)
		lead = cap - room;
	delay = sleep > lead ? sleep - lead : 0;
	length = sleep - delay + room;
	timer = bpf_map_lookup_elem(&hold_timers, &key);
	if (!timer)
		return;
	cctx->hold_start_ns = now + delay;
	cctx->hold_until_ns = now + delay + length;
	if (!delay)
		begin_hold(cpu, cctx);
	if (bpf_timer_start(&timer->timer, delay ?: length, BPF_F_TIMER_CPU_PIN))
		end_hold(cpu, cctx, now);
}

static __always_inline void learn_sleep(struct task_ctx *tctx, u64 now)
{
	u64 slept, off;

	if (!tctx->sleep_start_ns)
		return;
	slept = now - tctx->sleep_start_ns;
	tctx->sleep_start_ns = 0;
	if (!tctx->sleep_avg_ns) {
		tctx->sleep_avg_ns = slept ?: 1;
		tctx->sleep_dev_ns = slept / 2;
		return;
	}
	off = slept > tctx->sleep_avg_ns ? slept - tctx->sleep_avg_ns : tctx->sleep_avg_ns - slept;
	tctx->sleep_avg_ns = tctx->sleep_avg_ns - tctx->sleep_avg_ns / 8 + slept / 8;
	tctx->sleep_dev_ns = tctx->sleep_dev_ns - tctx->sleep_dev_ns / 8 + off / 8;
}

static s32 init_hold(void)
{
	s32 i;

	bpf_for (i, 0, nr_cpu_ids) {
		struct hold_timer *timer;
		u32 key = i;

		timer = bpf_map_lookup_elem(&hold_timers, &key);
		if (!timer)
			return -ENOENT;
		bpf_timer_init(&timer->timer, &hold_timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&timer->timer, hold_timer_fired);
	}
	return 0;
}

#endif /* __GPUAWARE_HOLD_BPF_H */
