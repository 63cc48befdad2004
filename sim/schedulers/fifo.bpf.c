// SPDX-License-Identifier: GPL-2.0-only
/*
 * The reference that does as little as a scheduler can: an idle CPU by the kernel's own choice,
 * else one first-in-first-out queue for the machine. It shows what the model does by itself.
 */
#include <scx/common.bpf.h>

#define SHARED_DSQ 0

s32 BPF_STRUCT_OPS(fifo_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, 0);
	return cpu;
}

void BPF_STRUCT_OPS(fifo_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SHARED_DSQ, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(fifo_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(fifo_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, -1);
}

SCX_OPS_DEFINE(fifo_ops, .select_cpu = (void *)fifo_select_cpu, .enqueue = (void *)fifo_enqueue,
	       .dispatch = (void *)fifo_dispatch, .init = (void *)fifo_init, .timeout_ms = 20000,
	       .name = "fifo");
