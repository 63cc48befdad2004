/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preemption by real-time and deadline tasks. A task that they preempt, or that was about to run,
 * stays in that CPU's local DSQ, which no other CPU looks at: beside an idle CPU a launcher would
 * wait until the real-time task sleeps. So all tasks of that local DSQ are enqueued again, and find
 * another CPU.
 */
#ifndef __GPUAWARE_ABOVE_BPF_H
#define __GPUAWARE_ABOVE_BPF_H

#include "task.bpf.h"

/* Lower values are real-time or deadline priorities, inherited ones too. */
#define ABOVE_PRIO 100

/*
 * Is @next, which has a CPU, of a higher scheduling class, and no per-CPU kthread? The work of
 * those (moving tasks, stopping the machine) is shorter than a move to another CPU.
 */
static __always_inline bool keeps_waiting(const struct task_struct *next)
{
	return next->prio < ABOVE_PRIO && !is_percpu_kthread(next);
}

/* Does @cpu run a task for which others would wait long, as keeps_waiting() says it? */
static __always_inline bool runs_higher_class(s32 cpu)
{
	struct task_struct *curr = __COMPAT_scx_bpf_cpu_curr(cpu);

	return curr && keeps_waiting(curr);
}

/*
 * Before 6.19: is a real-time task runnable on @cpu? When it follows idle, tasks in the local DSQ
 * wait there and no callback comes: so no task is sent there, and ops.dispatch() fetches none.
 * From 6.19 on sched_switch tells us; ops.dispatch() is called only where one of our tasks runs
 * next, which may be by the deadline server, beside a real-time task.
 */
static __always_inline bool rt_task_is_runnable(s32 cpu)
{
	const struct rq *rq = takes_back_anywhere ? NULL : bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->rt.rt_queued;
}

/* For this long after a real-time task took a CPU, another one may come at any moment. */
#define RT_LATELY_NS 1000000000ULL

/*
 * Before 6.19: did a real-time task take idle @cpu lately? Another may wake up there before the CPU
 * looks at its local DSQ, and a task in there would wait until it sleeps. A task in a DSQ of ours
 * is fetched by @cpu, or passed on to another CPU.
 */
static __always_inline bool rt_task_ran_lately(s32 cpu, u64 now)
{
	struct cpu_ctx *cctx = takes_back_anywhere ? NULL : cpu_ctx(cpu);

	return cctx && cctx->taken_ns && time_before(now, cctx->taken_ns + RT_LATELY_NS);
}

#endif /* __GPUAWARE_ABOVE_BPF_H */
