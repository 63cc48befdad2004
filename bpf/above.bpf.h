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

enum above_policies {
	ABOVE_FIFO = 1,
	ABOVE_RR = 2,
	ABOVE_DEADLINE = 6,
};

/*
 * Does @next, which takes a CPU, keep those who wait for it? A kernel thread of that one CPU does
 * not: its work (moving tasks, stopping the machine) is shorter than a move.
 */
static __always_inline bool keeps_waiting(const struct task_struct *next)
{
	if (is_percpu_kthread(next))
		return false;
	return next->policy == ABOVE_FIFO || next->policy == ABOVE_RR ||
	       next->policy == ABOVE_DEADLINE;
}

#endif /* __GPUAWARE_ABOVE_BPF_H */
