/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hold: a CPU kept idle for a launcher that is about to wake up.
 *
 * Lending a CPU for a quarter of a millisecond gains little, costs two switches and cold caches,
 * and background that is inside the kernel cannot be preempted at once. So while a launcher sleeps
 * as briefly as usual its preferred CPU declines background that could run elsewhere, until the
 * launcher is back or the hold expires. The waste, idle time while background waits, has a budget:
 * a token bucket, refilled with a share of all CPUs' time. What it does not cover is lent.
 *
 * A hold has no timer of its own: a launcher that sleeps a thousand times a second would start it
 * as often. Expired holds are found by the tick of any busy CPU, and by one slow timer where no CPU
 * is busy.
 */
#ifndef __GPUAWARE_HOLD_BPF_H
#define __GPUAWARE_HOLD_BPF_H

#include "preferred.bpf.h"
#include "stats.bpf.h"

/* How late a launcher may be, beyond the variation of its sleeps. */
#define HOLD_SLACK_NS 250000
/*
 * Size of the token bucket. When it is empty, holding stops until it is refilled: so the budget
 * covers sleeps in a row and then none. Holding every second one costs more than it gains, because
 * background moves in and out each time.
 */
#define HOLD_BUCKET_NS 40000000LL
#define HOLD_WATCH_NS  20000000
/* The timer may be late, and runs on another clock. */
#define HOLD_WATCH_SLACK_NS 5000000

/*
 * The budget, and when the next hold expires (0: none). Written by all CPUs; a lost update is a
 * hold too many, or one that the watch finds.
 */
static s64 hold_tokens_ns;
static u64 hold_refilled_ns;	 /* when tokens were last added */
static u64 hold_refill_until_ns; /* nothing is held before */
static u64 next_expiry_ns;

struct hold_watch {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hold_watch);
} hold_watch SEC(".maps");

/* The watch fires then at the latest; a past time: it rests. */
static u64 hold_watch_at_ns;

static __always_inline bool is_held(struct cpu_ctx *cctx, u64 now)
{
	return cctx->hold_until_ns && time_before(now, cctx->hold_until_ns);
}

/* Is @cpu closed to background that could run elsewhere? */
static __always_inline bool is_reserved(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	return is_held(cctx, now) || is_never_lent(cpu);
}

/* Is there budget for one more hold? */
static __always_inline bool hold_is_affordable(u64 now)
{
	u64 elapsed = time_delta(now, hold_refilled_ns);
	s64 tokens;

	if (tunables.hold_us_per_s == GPUAWARE_HOLD_UNBOUNDED)
		return true;
	if (time_before(now, hold_refill_until_ns))
		return false;
	hold_refilled_ns += elapsed;
	if (elapsed > 1000000000ULL)
		elapsed = 1000000000ULL;
	tokens = hold_tokens_ns + (s64)(elapsed * tunables.hold_us_per_s / 1000000);
	hold_tokens_ns = tokens < HOLD_BUCKET_NS ? tokens : HOLD_BUCKET_NS;
	if (tokens > 0)
		return true;
	hold_refill_until_ns = now + HOLD_BUCKET_NS * 1000000ULL / tunables.hold_us_per_s;
	return false;
}

/* Takes what @cctx's hold has wasted so far from the budget. */
static __always_inline void pay_hold(struct cpu_ctx *cctx, u64 now)
{
	u64 declined = cctx->declined_since_ns, wasted = declined ? time_delta(now, declined) : 0;

	stat_add(GPUAWARE_STAT_HOLD_NS, time_delta(now, cctx->hold_start_ns));
	cctx->hold_start_ns = now;
	if (!wasted)
		return;
	cctx->declined_since_ns = now;
	stat_add(GPUAWARE_STAT_HOLD_WASTE_NS, wasted);
	__sync_fetch_and_sub(&hold_tokens_ns, wasted);
}

/* Nothing is declined after hold_until_ns: a hold that is ended late costs no more than that. */
static __always_inline void end_hold(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	u64 until = cctx->hold_until_ns;

	/* The launcher's CPU and one that finds the hold expired may get here at once. */
	if (!until || __sync_val_compare_and_swap(&cctx->hold_until_ns, until, 0) != until)
		return;
	pay_hold(cctx, time_before(now, until) ? now : until);
	if (is_preferred(cpu))
		set_lendable(cpu, true);
}

/* Does a task wait in @llc that a held CPU declines: background, or a throttled one? */
static __always_inline bool declined_wait(u32 llc)
{
	return dsq_waiting(background_dsq(llc)) || dsq_waiting(throttled_dsq(llc));
}

/*
 * Ends the hold of @cpu, and lends the CPU to background that waits, in another LLC too. A global
 * function that locks RCU itself: see release_due().
 */
__noinline int give_up_hold(s32 cpu, struct cpu_ctx *cctx __arg_nonnull, u64 now)
{
	u32 llc = llc_of(cpu);

	bpf_rcu_read_lock();
	end_hold(cpu, cctx, now);
	bpf_rcu_read_unlock();
	if (declined_wait(llc) || others_queued(llc))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 0;
}

/*
 * Ends the holds that have expired, and lends their CPUs to background that waits. A global
 * function: see search_overdue().
 */
__noinline int end_expired_holds(u64 now)
{
	u64 next = 0;
	u32 i;

	/* First, so that a hold that begins on another CPU meanwhile is not lost. */
	next_expiry_ns = 0;
	bpf_for (i, 0, preferred.nr) {
		s32 cpu = preferred.cpus[cpu_index(i)];
		struct cpu_ctx *cctx = cpu_ctx(cpu);
		u64 until = cctx ? cctx->hold_until_ns : 0;

		if (!until)
			continue;
		if (time_before(now, until)) {
			if (!next || time_before(until, next))
				next = until;
			continue;
		}
		give_up_hold(cpu, cctx, now);
		stat_inc(GPUAWARE_STAT_HOLDS_EXPIRED);
	}
	if (next && (!next_expiry_ns || time_before(next, next_expiry_ns)))
		next_expiry_ns = next;
	return 0;
}

/* Run by user space after it has written preferred_request. */
SEC("syscall")
int set_preferred(void *ctx)
{
	s32 cpu;

	take_preferred();
	/* Meanwhile a held CPU may not have been where its end was looked for. */
	end_expired_holds(scx_bpf_now());
	/* What was closed may be open now, and somebody waits for it. */
	bpf_for (cpu, 0, nr_cpu_ids)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 0;
}

static __always_inline bool holds_have_expired(u64 now)
{
	return next_expiry_ns && time_after(now, next_expiry_ns);
}

/* Background waits: if it waits for the end of a hold, somebody must notice that end. */
static __always_inline void watch_holds(u64 now)
{
	struct hold_watch *watch;
	u32 zero = 0;

	if (!next_expiry_ns || time_before(now, hold_watch_at_ns))
		return;
	watch = bpf_map_lookup_elem(&hold_watch, &zero);
	if (!watch)
		return;
	hold_watch_at_ns = now + HOLD_WATCH_NS + HOLD_WATCH_SLACK_NS;
	bpf_timer_start(&watch->timer, HOLD_WATCH_NS, 0);
}

static int hold_watch_fired(void *map, int *key, struct hold_watch *watch)
{
	u64 now = now_in_interrupt();

	hold_watch_at_ns = 0;
	end_expired_holds(now);
	watch_holds(now);
	return 0;
}

/* @cpu is closed to background until @until, if that is affordable. */
static __always_inline void hold(s32 cpu, struct cpu_ctx *cctx, u64 until, u64 now)
{
	if (!is_preferred(cpu) || !hold_is_affordable(now))
		return;
	cctx->hold_start_ns = now;
	cctx->declined_since_ns = 0;
	cctx->hold_until_ns = until;
	if (!next_expiry_ns || time_before(until, next_expiry_ns))
		next_expiry_ns = until;
	set_lendable(cpu, false);
	stat_inc(GPUAWARE_STAT_HOLDS);
}

/* A launcher that runs says so again at each tick. */
#define HOLD_CORE_NS 10000000ULL

/*
 * The launcher on @cpu has a core to itself until @until (0: no longer): its sibling is held,
 * unless another launcher has that, or lends it. Who runs there keeps it until the end of its
 * slice, or is preempted at once if @preempts, except in a turn. A global function: see
 * search_overdue().
 */
__noinline int hold_core(s32 cpu, u64 until, bool preempts, u64 now)
{
	s32 sibling = cpu_sibling[cpu_index(cpu)];
	struct cpu_ctx *cctx;

	if (sibling < 0 || !tunables.whole_core || !is_preferred(sibling))
		return 0;
	cctx = cpu_ctx(sibling);
	if (!cctx || cctx->occupant == OCCUPANT_LAUNCH || cctx->lent)
		return 0;
	if (!until) {
		if (cctx->hold_until_ns)
			give_up_hold(sibling, cctx, now);
		return 0;
	}
	if (!cctx->hold_until_ns) {
		hold(sibling, cctx, until, now);
	} else {
		pay_hold(cctx, now);
		if (!hold_is_affordable(now)) {
			give_up_hold(sibling, cctx, now);
			return 0;
		}
		cctx->hold_until_ns = until;
	}
	if (preempts && cctx->hold_until_ns && cctx->occupant == OCCUPANT_BACKGROUND &&
	    !time_before(now, cctx->turn_until_ns))
		scx_bpf_kick_cpu(sibling, SCX_KICK_PREEMPT);
	return 0;
}

/*
 * @tctx's launcher goes to sleep on @cpu. It is expected back within its average sleep plus twice
 * the average deviation.
 */
static __always_inline void start_hold(s32 cpu, struct cpu_ctx *cctx, struct task_ctx *tctx,
				       u64 now)
{
	u64 sleep = tctx->sleep_avg_ns;
	u64 length = sleep + 2 * tctx->sleep_dev_ns + HOLD_SLACK_NS;

	if (sleep && length <= tunables.hold_cap_ns)
		hold(cpu, cctx, now + length, now);
	hold_core(cpu, cctx->hold_until_ns, false, now);
}

static __always_inline void learn_sleep(struct task_ctx *tctx, u64 now)
{
	u64 slept, off;

	if (!tctx->sleep_start_ns)
		return;
	slept = time_delta(now, tctx->sleep_start_ns);
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
	struct hold_watch *watch;
	u32 zero = 0;

	watch = bpf_map_lookup_elem(&hold_watch, &zero);
	if (!watch)
		return -ENOENT;
	bpf_timer_init(&watch->timer, &hold_watch, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&watch->timer, hold_watch_fired);
	return 0;
}

#endif /* __GPUAWARE_HOLD_BPF_H */
