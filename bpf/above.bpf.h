/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduling classes above ours. When a real-time or deadline task takes a CPU, whoever ran
 * there or was about to stays in that CPU's local queue, which no other CPU looks at: an idle one
 * beside it would let a launcher wait for as long as the real-time task likes. So all of them are
 * enqueued anew and find another CPU.
 */
#ifndef __GPUAWARE_ABOVE_BPF_H
#define __GPUAWARE_ABOVE_BPF_H

#include "task.bpf.h"

/* Also who inherits a real-time priority: below it are nice values. */
#define ABOVE_PRIO 100

/*
 * Does @next, which takes a CPU or has it, keep those who wait for it? A kernel thread of that one
 * CPU does not: its work (moving tasks, stopping the machine) is shorter than a move.
 */
static __always_inline bool keeps_waiting(const struct task_struct *next)
{
	return next->prio < ABOVE_PRIO && !is_percpu_kthread(next);
}

/* Does somebody have @cpu who keeps others waiting? */
static __always_inline bool is_taken_from_above(s32 cpu)
{
	struct task_struct *curr = __COMPAT_scx_bpf_cpu_curr(cpu);

	return curr && keeps_waiting(curr);
}

/*
 * Does a real-time task run next on @cpu? Where it comes after idling, whoever is in the CPU's
 * local queue waits there, and no program is told: nobody is sent there, and nobody fetched when it
 * asks ops.dispatch() for work all the same. From 6.19 on we are told; a CPU asks only if one of
 * ours runs next, and the deadline server may want that beside a real-time task.
 */
static __always_inline bool is_about_to_be_taken(s32 cpu)
{
	const struct rq *rq = takes_back_anywhere ? NULL : bpf_per_cpu_ptr(&runqueues, cpu);

	return rq && rq->rt.rt_queued;
}

/* A CPU that a real-time task took within so much may be taken again at any moment. */
#define TAKEN_LATELY_NS 1000000000ULL

/*
 * Is @cpu, which is idle, too uncertain to put a task into its local queue, before 6.19? A
 * real-time task may wake up there before the CPU has seen what it has, and keep that task for as
 * long as it likes. One that waits in a queue of ours is fetched, or passed on to another CPU.
 */
static __always_inline bool is_taken_lately(s32 cpu, u64 now)
{
	struct cpu_ctx *cctx = takes_back_anywhere ? NULL : cpu_ctx(cpu);

	return cctx && cctx->taken_ns && time_before(now, cctx->taken_ns + TAKEN_LATELY_NS);
}

#endif /* __GPUAWARE_ABOVE_BPF_H */
