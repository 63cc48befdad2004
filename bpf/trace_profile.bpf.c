// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records a host for the simulator: of every thread how long it runs, sleeps and waits and who
 * wakes it, of every CPU its interrupts. All of it is counted in maps, no event leaves the kernel.
 *
 * A thread's counters are in its task storage, made when it is first seen. They are written by the
 * CPU that switches it, under the lock of its run queue, and what begins with waking_ by its waker.
 */
#include <vmlinux.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <linux/errno.h>

#include "pidns.bpf.h"
#include "trace_hist.bpf.h"
#include "trace_intf.h"
#include "trace_profile_intf.h"
#include "yield.bpf.h"

char _license[] SEC("license") = "GPL";

#define TASK_DEAD_STATE	     0x80
#define NICE_0_STATIC_PRIO   120
#define TIMER_SOFTIRQ_NR     1
#define HRTIMER_SOFTIRQ_NR   8
#define PROFILE_WAKERS_MASK  (PROFILE_NR_WAKERS - 1)
#define PROFILE_BUCKETS_MASK (PROFILE_NR_BUCKETS - 1)

/* Written by user space. */
u32 running;	/* 0: everything is passed by */
u64 started_ns; /* since when */

u64 nr_missed[TRACE_NR_MISSES]; /* enum trace_miss */
u64 nr_ended;
u64 nr_quiet; /* threads of which nothing was seen, as list_threads met them */

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct profile_thread);
} threads SEC(".maps");

/* Threads that ended. User space takes them away. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROFILE_MAX_ENDED);
	__type(key, u64);
	__type(value, struct profile_thread);
} ended SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROFILE_NR_SORTS);
	__type(key, u32);
	__type(value, struct profile_irqs);
} irqs SEC(".maps");

static __always_inline void missed(u32 why)
{
	__sync_fetch_and_add(&nr_missed[why], 1);
}

#include "trace_nest.bpf.h"

static __always_inline void observe(struct profile_hist *hist, u64 ns)
{
	u32 bucket = bucket_of(ns) & PROFILE_BUCKETS_MASK;

	hist->counts[bucket]++;
	hist->sums_ns[bucket] += ns;
}

/* Of @p, made in @state if this is the first that is seen of it. NULL without memory. */
static __always_inline struct profile_thread *thread_of(struct task_struct *p, u32 state)
{
	struct profile_thread *thread;
	u64 born_ns;

	thread = bpf_task_storage_get(&threads, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread) {
		missed(TRACE_MISS_NO_MEMORY);
		return NULL;
	}
	if (thread->state == PROFILE_UNSEEN) {
		born_ns = p->start_time;
		if (born_ns < started_ns)
			born_ns = started_ns;
		thread->born_ns = born_ns;
		thread->since_ns = born_ns;
		thread->began = state;
		thread->state = state;
		thread->pid = p->pid;
	}
	return thread;
}

/* What user space is told of @p beside its counters. */
static __always_inline void describe(struct profile_thread *thread, struct task_struct *p)
{
	thread->tid = tid_of(p);
	thread->tgid = tgid_of(p);
	thread->is_kernel = !!(p->flags & PF_KTHREAD_FLAG);
	thread->nice = p->static_prio - NICE_0_STATIC_PRIO;
	thread->policy = p->policy;
	bpf_probe_read_kernel(thread->cpus, sizeof(thread->cpus), &p->cpus_mask);
}

static __always_inline void finish(struct profile_thread *thread, struct task_struct *p, u64 now)
{
	u64 key = __sync_fetch_and_add(&nr_ended, 1);

	thread->end_ns = now;
	thread->state = PROFILE_ENDED;
	describe(thread, p);
	if (bpf_map_update_elem(&ended, &key, thread, BPF_ANY))
		missed(TRACE_MISS_NO_MEMORY);
}

/* The run or sleep that recording began in is over? Later ones go to a histogram. */
static __always_inline bool is_first(struct profile_thread *thread, u64 ns)
{
	if (thread->is_past_first)
		return false;
	thread->is_past_first = 1;
	thread->first_ns = ns;
	return true;
}

static __always_inline void end_burst(struct profile_thread *thread)
{
	u64 ns = thread->burst_ns;

	thread->burst_ns = 0;
	if (thread->began == PROFILE_ASLEEP || !is_first(thread, ns))
		observe(&thread->run, ns);
}

static __always_inline void leave_cpu(struct profile_thread *thread, struct task_struct *p,
				      bool preempt, u32 prev_state, u64 now)
{
	struct irq_nest *nest = this_irq_nest();
	u64 ran_ns, irq_ns = 0;

	if (thread->state != PROFILE_RUNNING) {
		missed(TRACE_MISS_UNSEEN_SWITCH);
	} else {
		ran_ns = now - thread->since_ns;
		if (nest && thread->irq_clock_ns)
			irq_ns = nest->own_ns - thread->irq_clock_ns;
		ran_ns -= irq_ns < ran_ns ? irq_ns : ran_ns;
		thread->cpu_ns += ran_ns;
		thread->burst_ns += ran_ns;
	}
	thread->since_ns = now;
	if (prev_state & TASK_DEAD_STATE) {
		finish(thread, p, now);
	} else if (!preempt && prev_state) {
		end_burst(thread);
		thread->state = PROFILE_ASLEEP;
	} else {
		/* Without `preempt`: a yield, or a preemption on the way to user space. */
		if (!preempt && yields(p))
			thread->yielded++;
		else
			thread->preempted++;
		thread->state = PROFILE_READY;
	}
}

static __always_inline void count_waker(struct profile_thread *thread)
{
	s32 pid = thread->waking_pid;
	int i;

	bpf_for (i, 0, PROFILE_NR_WAKERS) {
		struct profile_waker *waker = &thread->wakers[i & PROFILE_WAKERS_MASK];

		if (waker->count && waker->pid != pid)
			continue;
		waker->pid = pid;
		waker->count++;
		return;
	}
	thread->by_others++;
}

static __always_inline void end_sleep(struct profile_thread *thread, u64 now)
{
	u64 woken_ns = thread->waking_ns;
	u32 cause = thread->waking_cause;
	u64 slept_ns;

	/* The waker may have begun before the sleep did; nobody was seen: it has just begun. */
	if (woken_ns < thread->since_ns)
		woken_ns = thread->since_ns;
	slept_ns = woken_ns - thread->since_ns;
	if (cause < PROFILE_NR_CAUSES)
		thread->causes[cause]++;
	if (cause == PROFILE_BY_TASK)
		count_waker(thread);
	thread->ready_ns += now - woken_ns;
	observe(&thread->wait, now - woken_ns);
	if (thread->began == PROFILE_ASLEEP && is_first(thread, slept_ns)) {
		thread->first_cause = cause;
		return;
	}
	observe(cause == PROFILE_BY_TASK ? &thread->awaited : &thread->alone, slept_ns);
}

static __always_inline void enter_cpu(struct profile_thread *thread, u64 now)
{
	struct irq_nest *nest = this_irq_nest();

	if (thread->state == PROFILE_ASLEEP)
		end_sleep(thread, now);
	else if (thread->state == PROFILE_READY)
		thread->ready_ns += now - thread->since_ns;
	else
		missed(TRACE_MISS_UNSEEN_SWITCH);
	thread->state = PROFILE_RUNNING;
	thread->since_ns = now;
	thread->irq_clock_ns = nest ? nest->own_ns : 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct profile_thread *thread;
	u64 now;

	if (!running)
		return 0;
	now = bpf_ktime_get_ns();
	/* The idle tasks, one a CPU, are 0. */
	if (prev->pid) {
		thread = thread_of(prev, PROFILE_RUNNING);
		if (thread)
			leave_cpu(thread, prev, preempt, prev_state, now);
	}
	if (next->pid) {
		thread = thread_of(next, PROFILE_READY);
		if (thread)
			enter_cpu(thread, now);
	}
	return 0;
}

/* What runs on this CPU now and wakes somebody. */
static __always_inline u32 cause_of_wakeup(struct task_struct *current)
{
	struct irq_nest *nest = this_irq_nest();
	u32 depth = nest ? READ_ONCE(nest->depth) : 0;
	struct irq_frame *frame;

	if (!nest || !depth)
		return current->pid ? PROFILE_BY_TASK : PROFILE_HARD;
	frame = &nest->frames[(depth - 1) & (MAX_NESTED_IRQS - 1)];
	if (frame->kind == PROFILE_SOFT &&
	    (frame->nr == TIMER_SOFTIRQ_NR || frame->nr == HRTIMER_SOFTIRQ_NR))
		return PROFILE_TIMER;
	return frame->kind;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(task_waking, struct task_struct *p)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct profile_thread *thread;

	if (!running || !p->pid)
		return 0;
	thread = thread_of(p, PROFILE_ASLEEP);
	if (!thread)
		return 0;
	thread->waking_ns = bpf_ktime_get_ns();
	thread->waking_cause = cause_of_wakeup(current);
	thread->waking_pid = current->pid;
	return 0;
}

static __always_inline void irq_begins(u32 sort, u32 nr)
{
	struct irq_nest *nest = this_irq_nest();

	if (running && nest)
		push_irq(nest, sort, nr);
}

static __always_inline void irq_ends(u32 sort, u32 nr)
{
	struct irq_nest *nest = this_irq_nest();
	struct profile_irqs *counted;
	struct irq_span span;

	if (!nest || !end_irq(nest, sort, nr, &span) || !running)
		return;
	counted = bpf_map_lookup_elem(&irqs, &sort);
	if (!counted)
		return;
	__sync_fetch_and_add(&counted->count, 1);
	__sync_fetch_and_add(&counted->self_ns, span.self_ns);
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(hard_irq_entry, int irq, struct irqaction *action)
{
	irq_begins(PROFILE_HARD, irq);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(hard_irq_exit, int irq, struct irqaction *action, int ret)
{
	irq_ends(PROFILE_HARD, irq);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(soft_irq_entry, unsigned int nr)
{
	irq_begins(PROFILE_SOFT, nr);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(soft_irq_exit, unsigned int nr)
{
	irq_ends(PROFILE_SOFT, nr);
	return 0;
}

/* Interrupts that have a vector but no handler: x86 only, loaded where the kernel has them. */
#define VECTOR_IRQ(vector, sort)             \
	SEC("?tp_btf/" #vector "_entry")     \
	int BPF_PROG(vector##_entry, int nr) \
	{                                    \
		irq_begins(sort, nr);        \
		return 0;                    \
	}                                    \
	SEC("?tp_btf/" #vector "_exit")      \
	int BPF_PROG(vector##_exit, int nr)  \
	{                                    \
		irq_ends(sort, nr);          \
		return 0;                    \
	}

VECTOR_IRQ(local_timer, PROFILE_TIMER)
VECTOR_IRQ(reschedule, PROFILE_IPI)
VECTOR_IRQ(call_function, PROFILE_IPI)
VECTOR_IRQ(call_function_single, PROFILE_IPI)
VECTOR_IRQ(irq_work, PROFILE_IPI)

/* The kernel does not show every switch: one that left its CPU unseen does not run on. */
static __always_inline void settle(struct profile_thread *thread, struct task_struct *p)
{
	/* The field's size differs between kernels. */
	if (thread->state != PROFILE_RUNNING || BPF_CORE_READ_BITFIELD_PROBED(p, on_cpu))
		return;
	thread->state = p->__state ? PROFILE_ASLEEP : PROFILE_READY;
}

/* Every thread that was seen and has not ended, with its counters. Counts the others. */
SEC("iter/task")
int list_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct profile_thread *thread;

	if (!p)
		return 0;
	thread = bpf_task_storage_get(&threads, p, NULL, 0);
	if (!thread || thread->state == PROFILE_UNSEEN) {
		nr_quiet++;
		return 0;
	}
	if (thread->end_ns)
		return 0;
	settle(thread, p);
	describe(thread, p);
	bpf_seq_write(ctx->meta->seq, thread, sizeof(*thread));
	return 0;
}
