// SPDX-License-Identifier: GPL-2.0-only
/*
 * The tracer: what the scheduler and interrupts do to chosen threads, and what these launch.
 *
 * Observes any scheduler, ours or not, and changes nothing. Counters are always kept; events go to
 * a ring buffer where user space asks for them. Programs are in this order: who is traced,
 * switches, interrupts, calls into libcuda, questions of user space.
 */
#include <vmlinux.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <linux/errno.h>

#include "trace_thread.bpf.h"
#include "trace_switch.bpf.h"
#include "trace_irq.bpf.h"
#include "trace_cuda.bpf.h"
#include "mapped_file.bpf.h"

#define MAX_CGROUP_DEPTH 32

char _license[] SEC("license") = "GPL";

/* Is a thread that is not traced yet on its CPU now? The field's size differs between kernels. */
static __always_inline u32 state_of(struct task_struct *p)
{
	return BPF_CORE_READ_BITFIELD_PROBED(p, on_cpu) ? TRACE_ON_CPU : TRACE_UNKNOWN;
}

static __always_inline bool below_target_cgroup(struct cgroup *cgrp)
{
	int level;

	bpf_for (level, 0, MAX_CGROUP_DEPTH) {
		struct cgroup_subsys_state *parent;

		if (!cgrp)
			break;
		if (BPF_CORE_READ(cgrp, kn, id) == target_cgroup)
			return true;
		/* A cgroup's own css is its first member: the parent css is the parent cgroup. */
		parent = BPF_CORE_READ(cgrp, self.parent);
		cgrp = (struct cgroup *)parent;
	}
	return false;
}

/* Children and new threads of traced threads are traced, and so is the command of ours. */
static __always_inline bool inherits(struct task_struct *p)
{
	struct task_struct *parent = bpf_get_current_task_btf();

	return thread_of(parent) || (spawner && tid_of(parent) == spawner) ||
	       (target_cgroup && below_target_cgroup(BPF_CORE_READ(p, cgroups, dfl_cgrp)));
}

SEC("tp_btf/task_newtask")
int BPF_PROG(task_made, struct task_struct *p, u64 clone_flags)
{
	if (running && inherits(p))
		start_thread(p, TRACE_NEW);
	return 0;
}

/*
 * Many threads started at once use up what memory BPF keeps ready. It is filled up again by the
 * time that the thread may first run: this is the second try, before it has done anything.
 */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(task_first_woken, struct task_struct *p)
{
	if (running && !thread_of(p) && inherits(p) && !start_thread(p, TRACE_NEW))
		missed(TRACE_MISS_NO_MEMORY);
	return 0;
}

SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(task_moved, struct cgroup *cgrp, const char *path, struct task_struct *p,
	     bool threadgroup)
{
	if (!running || !target_cgroup || !below_target_cgroup(cgrp) || !is_seen(p))
		return 0;
	/* Told of the first thread only: user space traces the others. */
	if (threadgroup)
		notify(TRACE_NOTICE_PROCESS, tgid_of(p));
	if (!start_thread(p, state_of(p)))
		missed(TRACE_MISS_NO_MEMORY);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(program_started, struct task_struct *p, s32 old_pid, struct linux_binprm *bprm)
{
	if (running && (trace_launchers || thread_of(p)))
		notify(TRACE_NOTICE_EXEC, tgid_of(p));
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct trace_thread *thread;
	u64 now = 0;

	if (!running)
		return 0;
	thread = thread_of(prev);
	if (thread) {
		u32 reason = why_off(prev, preempt, prev_state);

		now = bpf_ktime_get_ns();
		switch_out(thread, prev, next, reason, prev_state, now);
		/*
		 * Woken while this CPU looked for somebody else to run, before the dequeue: that
		 * was shown as a wakeup of a running thread. It waits for a CPU from now on.
		 */
		if (reason == TRACE_BLOCKED && !prev->__state)
			wakeup(thread, prev);
	}
	thread = thread_of(next);
	if (thread)
		switch_in(thread, prev, next, now ?: bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(task_waking, struct task_struct *p)
{
	struct trace_thread *thread = running ? thread_of(p) : NULL;

	if (thread)
		waking(thread, in_irq());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(task_woken, struct task_struct *p)
{
	struct trace_thread *thread = running ? thread_of(p) : NULL;

	if (thread)
		wakeup(thread, p);
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(task_migrates, struct task_struct *p, int dest_cpu)
{
	struct trace_thread *thread = running ? thread_of(p) : NULL;
	struct trace_record *event;

	if (!thread)
		return 0;
	thread->record.counters.migrations++;
	event = new_event(TRACE_MIGRATE);
	if (!event)
		return 0;
	about_task(event, bpf_ktime_get_ns(), p);
	clear_sched(&event->sched);
	/* Told before the move. */
	event->cpu = BPF_CORE_READ(p, thread_info.cpu);
	event->sched.to_cpu = dest_cpu;
	submit(event);
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(hard_irq_entry, int irq, struct irqaction *action)
{
	irq_entry(TRACE_HARD_IRQ, irq);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(hard_irq_exit, int irq, struct irqaction *action, int ret)
{
	irq_exit(TRACE_HARD_IRQ, irq, action->name);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(soft_irq_entry, unsigned int nr)
{
	irq_entry(TRACE_SOFT_IRQ, nr);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(soft_irq_exit, unsigned int nr)
{
	irq_exit(TRACE_SOFT_IRQ, nr, NULL);
	return 0;
}

/* Interrupts that have a vector but no handler: x86 only, loaded where the kernel has them. */
#define VECTOR_IRQ(vector)                            \
	SEC("?tp_btf/" #vector "_entry")              \
	int BPF_PROG(vector##_entry, int nr)          \
	{                                             \
		irq_entry(TRACE_VECTOR_IRQ, nr);      \
		return 0;                             \
	}                                             \
	SEC("?tp_btf/" #vector "_exit")               \
	int BPF_PROG(vector##_exit, int nr)           \
	{                                             \
		static const char name[] = #vector;   \
		irq_exit(TRACE_VECTOR_IRQ, nr, name); \
		return 0;                             \
	}

VECTOR_IRQ(local_timer)
VECTOR_IRQ(reschedule)
VECTOR_IRQ(call_function)
VECTOR_IRQ(call_function_single)
VECTOR_IRQ(irq_work)

/* cuInit: once a process, so this probe can stay armed. */
SEC("uprobe.multi")
int cuda_init(struct pt_regs *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!running || !trace_launchers || thread_of(p) || !is_seen(p))
		return 0;
	/* User space traces all its threads, this one too if there is no memory now. */
	notify(TRACE_NOTICE_PROCESS, tgid_of(p));
	start_thread(p, TRACE_ON_CPU);
	return 0;
}

SEC("uprobe.multi")
int launch(struct pt_regs *ctx)
{
	kernel_launch(ctx, false);
	return 0;
}

SEC("uprobe.multi")
int launch_ex(struct pt_regs *ctx)
{
	kernel_launch(ctx, true);
	return 0;
}

SEC("uprobe.multi")
int graph_launch(struct pt_regs *ctx)
{
	struct trace_thread *thread = caller();

	if (!thread)
		return 0;
	next_interval(thread, bpf_ktime_get_ns());
	thread->record.counters.graph_launches++;
	enter_call(ctx, thread, TRACE_GRAPH_LAUNCH, PT_REGS_PARM2(ctx));
	return 0;
}

SEC("uretprobe.multi")
int graph_launch_return(struct pt_regs *ctx)
{
	struct trace_thread *thread = caller();

	if (thread)
		exit_call(ctx, thread, TRACE_GRAPH_LAUNCH_EXIT);
	return 0;
}

SEC("uprobe.multi")
int sync(struct pt_regs *ctx)
{
	struct trace_thread *thread = caller();

	if (!thread)
		return 0;
	thread->record.counters.syncs++;
	enter_call(ctx, thread, TRACE_SYNC_ENTER, PT_REGS_PARM1(ctx));
	return 0;
}

SEC("uretprobe.multi")
int sync_return(struct pt_regs *ctx)
{
	struct trace_thread *thread = caller();
	u64 ns;

	if (!thread)
		return 0;
	ns = exit_call(ctx, thread, TRACE_SYNC_EXIT);
	if (ns) {
		thread->record.counters.sync_ns += ns;
		observe(&thread->record.counters, TRACE_HIST_SYNC, ns);
	}
	return 0;
}

/* Traces one more thread. Returns 0 or a negative errno. */
SEC("syscall")
int trace_task(struct trace_task_request *request)
{
	struct task_struct *p = task_by_number(request->tid);
	int ret = -ENOMEM;

	if (!p)
		return -ESRCH;
	if (start_thread(p, state_of(p)))
		ret = 0;
	bpf_task_release(p);
	return ret;
}

/* Every traced thread that has not ended, with its counters. */
SEC("iter/task")
int list_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct trace_thread *thread;

	if (!p)
		return 0;
	thread = thread_of(p);
	/* One that ended is handed over as it does. */
	if (!thread || thread->record.end_ns)
		return 0;
	__builtin_memcpy(thread->record.comm, p->comm, TRACE_COMM_LEN);
	bpf_seq_write(ctx->meta->seq, &thread->record, sizeof(thread->record));
	return 0;
}
