/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What time it is, in interrupts too.
 *
 * scx_bpf_now() is what this CPU's run queue read last, as long as that is valid. The kernel ends
 * its validity when a CPU unlocks its own run queue, but not when another CPU does that has taken
 * a task away (move_remote_task_to_local_dsq(), seen on 6.18). An idle CPU does not unlock its run
 * queue before it wakes up, so in an interrupt there the time may stand still since then: timers
 * find that nothing is due, sleeps seem short and waits long.
 */
#ifndef __GPUAWARE_NOW_BPF_H
#define __GPUAWARE_NOW_BPF_H

#include "task.bpf.h"

/* The clocks of the scheduler and of bpf_ktime_get_ns() drift apart by a smaller part than this. */
#define MOST_DRIFT 64

/* Called when @cctx's CPU becomes idle at @now. */
static __always_inline void note_idle(struct cpu_ctx *cctx, u64 now)
{
	cctx->idle_since_ns = now;
	cctx->idle_since_mono_ns = bpf_ktime_get_ns();
}

/* For callbacks that may interrupt an idle CPU: timers, interrupts and wakeups. */
static __always_inline u64 now_in_interrupt(void)
{
	u64 now = scx_bpf_now(), idle;
	struct cpu_ctx *cctx;

	if (bpf_get_current_task_btf()->pid)
		return now;
	cctx = cpu_ctx(bpf_get_smp_processor_id());
	if (!cctx || !cctx->idle_since_ns)
		return now;
	idle = bpf_ktime_get_ns() - cctx->idle_since_mono_ns;
	return time_before(now, cctx->idle_since_ns + idle - idle / MOST_DRIFT)
		       ? cctx->idle_since_ns + idle
		       : now;
}

#endif /* __GPUAWARE_NOW_BPF_H */
