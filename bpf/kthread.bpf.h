/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Per-CPU kthreads: RCU, softirqs, workqueues. They are next on their CPU, and their work is short.
 * They do not preempt before the next tick: senders would else be interrupted by each softirq that
 * they cause. A launcher has the rest of its slice after one: else each would give it a new slice,
 * without a look at who is owed a turn.
 */
#ifndef __GPUAWARE_KTHREAD_BPF_H
#define __GPUAWARE_KTHREAD_BPF_H

#include "task.bpf.h"

/*
 * A per-CPU kthread that has run for less than a slice since it woke up: most are done by then. One
 * that is not (encryption, checksums) competes with background. Softirqs are everybody's.
 */
static __always_inline bool is_short_kthread(const struct task_struct *p,
					     const struct task_ctx *tctx, u64 burst_ns)
{
	return is_percpu_kthread(p) &&
	       (tctx->is_softirqd || burst_ns < tunables.background_slice_ns);
}

static __always_inline void enqueue_percpu_kthread(struct task_struct *p, u64 enq_flags)
{
	struct cpu_ctx *cctx = cpu_ctx(scx_bpf_task_cpu(p));

	if (cctx) {
		cctx->kthread_waiting = true;
		/* Before who lends the CPU. */
		if (cctx->lent)
			enq_flags |= SCX_ENQ_HEAD;
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, tunables.lent_slice_ns, enq_flags);
}

/* What is left of a slice that is over: 0 would be the kernel's default. See running(). */
#define SLICE_OVER_NS 1

/* A kthread takes the CPU of @p, which gets the rest of its slice afterwards. */
static __always_inline void keep_slice(const struct task_struct *p, struct task_ctx *tctx)
{
	if (!tctx->slice_left_ns)
		tctx->slice_left_ns = p->scx.slice ?: SLICE_OVER_NS;
}

/* What is left of the slice of boosted @tctx's task where a kthread takes its CPU; else a slice. */
static __always_inline u64 slice_to_give(const struct task_ctx *tctx)
{
	return tctx->slice_left_ns ?: class_slice_ns(tctx->run_as);
}

#endif /* __GPUAWARE_KTHREAD_BPF_H */
