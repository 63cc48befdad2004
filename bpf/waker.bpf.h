/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A thread that wakes a launcher of its own process and sleeps again, as the CUDA driver's event
 * handler does (cuda-EvtHandlr). It runs on the CPU of that launcher as the launcher would, which
 * waits for it to sleep: elsewhere both would be woken across CPUs, and one that was preempted by
 * the launcher it wakes would keep it waiting at the next lock. Its class stays what it is.
 */
#ifndef __GPUAWARE_WAKER_BPF_H
#define __GPUAWARE_WAKER_BPF_H

#include "task.bpf.h"

/* A launcher that has been woken can wait for so long until its waker sleeps… */
#define WAKER_RUN_NS 500000ULL
/* …and one that something else wakes for a whole burst. */
#define WAKER_BURST_NS 1000000ULL
/* It is believed after so many such bursts that woke a launcher; another one costs it half. */
#define WAKER_BURSTS 4

/* Launcher @p has been woken, for @cpu: by whom? Interrupts only add an error that is seldom. */
static __always_inline void note_waker(struct task_struct *p, s32 cpu, u64 now)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct task_ctx *tctx;

	if (waker->tgid != p->tgid)
		return;
	tctx = task_ctx(waker);
	if (!tctx || tctx->run_as == GPUAWARE_CLASS_LAUNCH)
		return;
	if (!tctx->woke_launcher)
		tctx->woke_after_ns = tctx->burst_ns + time_delta(now, tctx->run_start_ns);
	tctx->woke_launcher = true;
	tctx->launcher_cpu = cpu;
}

/*
 * A burst of @tctx's task, from its wakeup to its sleep, is over. What it preempts would make way
 * for a launcher too, but a launcher's time is guarded: a waker may have a third of a CPU at most.
 */
static __always_inline void learn_waker(struct task_ctx *tctx, u64 now)
{
	u64 since_ns = time_delta(now, tctx->slept_ns), ran_ns = tctx->burst_ns;

	tctx->slept_ns = now;
	if (!tctx->woke_launcher || ran_ns > WAKER_BURST_NS ||
	    time_delta(ran_ns, tctx->woke_after_ns) > WAKER_RUN_NS || 3 * ran_ns > since_ns)
		tctx->waker_bursts /= 2;
	else if (tctx->waker_bursts < WAKER_BURSTS)
		tctx->waker_bursts++;
	tctx->woke_launcher = false;
}

static __always_inline bool is_waker(const struct task_ctx *tctx)
{
	return tctx->waker_bursts == WAKER_BURSTS && tctx->run_as != GPUAWARE_CLASS_LAUNCH;
}

#endif /* __GPUAWARE_WAKER_BPF_H */
