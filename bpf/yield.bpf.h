/* SPDX-License-Identifier: GPL-2.0-only */
/* Yields, told from preemptions without a probe of system calls. */
#ifndef __GPUAWARE_YIELD_BPF_H
#define __GPUAWARE_YIELD_BPF_H

#define PF_KTHREAD_FLAG 0x00200000

#if defined(__TARGET_ARCH_x86)
#define SCHED_YIELD_NR	 24
#define SYSCALL_NR(regs) BPF_CORE_READ(regs, orig_ax)
#elif defined(__TARGET_ARCH_arm64)
#define SCHED_YIELD_NR	 124
#define SYSCALL_NR(regs) BPF_CORE_READ(regs, syscallno)
#endif

/*
 * Is @p inside sched_yield()? The registers of its last entry into the kernel say so: an interrupt
 * leaves no system call number there. A preemption between the end of the call and the return to
 * user space counts as one more yield.
 */
static __always_inline bool yields(struct task_struct *p)
{
	struct pt_regs *regs;

	if (p->flags & PF_KTHREAD_FLAG)
		return false;
	regs = (struct pt_regs *)bpf_task_pt_regs(p);
	return (s32)SYSCALL_NR(regs) == SCHED_YIELD_NR;
}

#endif /* __GPUAWARE_YIELD_BPF_H */
