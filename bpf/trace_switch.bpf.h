/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What happens to a traced thread at a context switch and at a wakeup: why it is off its CPU, for
 * how long, and who is to blame.
 */
#ifndef __GPUAWARE_TRACE_SWITCH_BPF_H
#define __GPUAWARE_TRACE_SWITCH_BPF_H

#include "trace_thread.bpf.h"
#include "yield.bpf.h"

#define TASK_DEAD_STATE	   0x80
#define TASK_REPORT_STATES 0xffff

/* Missing where the kernel does not list variables in kallsyms. */
extern const void stop_sched_class __ksym __weak;
extern const void dl_sched_class __ksym __weak;
extern const void rt_sched_class __ksym __weak;
extern const void fair_sched_class __ksym __weak;
extern const void ext_sched_class __ksym __weak;
extern const void idle_sched_class __ksym __weak;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRACE_MAX_PREEMPTORS);
	__type(key, struct trace_preemptor_key);
	__type(value, struct trace_preemptor_total);
} preemptors SEC(".maps");

static __always_inline u32 class_of(struct task_struct *p)
{
	u64 class = (u64)p->sched_class;

	if (class == (u64)&fair_sched_class)
		return TRACE_CLASS_FAIR;
	if (class == (u64)&ext_sched_class)
		return TRACE_CLASS_EXT;
	if (class == (u64)&rt_sched_class)
		return TRACE_CLASS_RT;
	if (class == (u64)&dl_sched_class)
		return TRACE_CLASS_DEADLINE;
	if (class == (u64)&stop_sched_class)
		return TRACE_CLASS_STOP;
	if (class == (u64)&idle_sched_class)
		return TRACE_CLASS_IDLE;
	/* Without addresses the priority says it, unless fair and ext could be meant. */
	if (p->prio < 0)
		return TRACE_CLASS_DEADLINE;
	if (p->prio < 100)
		return TRACE_CLASS_RT;
	return bpf_core_field_exists(p->scx) ? TRACE_CLASS_UNKNOWN : TRACE_CLASS_FAIR;
}

/* The sched_ext queue that @p is in now. */
static __always_inline u64 dsq_of(struct task_struct *p)
{
	struct scx_dispatch_q *dsq;

	if (!bpf_core_field_exists(p->scx))
		return TRACE_NO_DSQ;
	dsq = BPF_CORE_READ(p, scx.dsq);
	return dsq ? BPF_CORE_READ(dsq, id) : TRACE_NO_DSQ;
}

static __always_inline u64 slice_of(struct task_struct *p)
{
	if (!bpf_core_field_exists(p->scx))
		return 0;
	return BPF_CORE_READ(p, scx.slice);
}

static __always_inline u32 why_off(struct task_struct *prev, bool preempt, u32 prev_state)
{
	if (prev_state & TASK_DEAD_STATE)
		return TRACE_EXITED;
	if (preempt)
		return TRACE_PREEMPTED;
	if (prev_state)
		return TRACE_BLOCKED;
	/* Without `preempt` and runnable: a yield, or a preemption on the way to user space. */
	return yields(prev) ? TRACE_YIELDED : TRACE_PREEMPTED;
}

static __always_inline void count_off(struct trace_counters *c, u32 reason)
{
	if (reason == TRACE_PREEMPTED)
		c->preempted++;
	else if (reason == TRACE_YIELDED)
		c->yielded++;
	else
		c->blocked++;
}

/*
 * The thread was on its CPU for a part of the time since its last switch, and off it for the other.
 * That is so where tracing began while it was being switched. Later than that the kernel did not
 * show a switch: see docs/tracing.md.
 */
static __always_inline void unseen_switch(struct trace_thread_record *r, u64 now)
{
	r->counters.unknown_ns += now - r->since_ns;
	if (r->since_ns != r->start_ns)
		missed(TRACE_MISS_UNSEEN_SWITCH);
}

static __always_inline void switch_out(struct trace_thread *thread, struct task_struct *prev,
				       struct task_struct *next, u32 reason, u32 prev_state,
				       u64 now)
{
	struct trace_thread_record *r = &thread->record;
	struct trace_record *event;
	u64 ran_ns = 0;

	if (r->reason == TRACE_ON_CPU) {
		ran_ns = now - r->since_ns;
		r->counters.on_cpu_ns += ran_ns;
		observe(&r->counters, TRACE_HIST_ON_CPU, ran_ns);
	} else {
		unseen_switch(r, now);
	}
	r->reason = reason;
	r->since_ns = now;
	r->woken_ns = 0;
	count_off(&r->counters, reason);
	if (window)
		r->counters.window_switches++;
	if (reason == TRACE_PREEMPTED)
		__builtin_memcpy(thread->preemptor, next->comm, TRACE_COMM_LEN);
	if (record_events)
		thread->dsq = reason == TRACE_BLOCKED ? TRACE_NO_DSQ : dsq_of(prev);
	event = new_event(TRACE_SWITCH_OUT);
	if (event) {
		about_task(event, now, prev);
		about_other(&event->sched, next);
		event->sched.duration_ns = ran_ns;
		event->sched.wait_ns = 0;
		event->sched.reason = reason;
		event->sched.state =
			reason == TRACE_PREEMPTED ? 0 : prev_state & TASK_REPORT_STATES;
		event->sched.sched_class = class_of(prev);
		event->sched.dsq = thread->dsq;
		event->sched.slice_ns = 0;
		event->sched.to_cpu = 0;
		submit(event);
	}
	if (reason == TRACE_EXITED)
		finish_thread(thread, prev, now);
}

static __always_inline void blame(struct trace_thread *thread, u64 off_ns)
{
	struct trace_preemptor_key key = {.victim_tgid = thread->record.tgid};
	struct trace_preemptor_total *total, zero = {};

	__builtin_memcpy(key.comm, thread->preemptor, TRACE_COMM_LEN);
	total = bpf_map_lookup_elem(&preemptors, &key);
	if (!total) {
		/* Another CPU may be first, so look again whatever this returns. */
		bpf_map_update_elem(&preemptors, &key, &zero, BPF_NOEXIST);
		total = bpf_map_lookup_elem(&preemptors, &key);
	}
	if (!total) {
		__sync_fetch_and_add(&nr_lost_preemptors, 1);
		return;
	}
	__sync_fetch_and_add(&total->count, 1);
	__sync_fetch_and_add(&total->ns, off_ns);
}

/* Adds a time off the CPU to where it belongs; returns the part of it spent runnable. */
static __always_inline u64 account_off(struct trace_thread *thread, u64 off_ns, u64 now)
{
	struct trace_thread_record *r = &thread->record;
	struct trace_counters *c = &r->counters;
	u64 wait_ns = off_ns;

	switch (r->reason) {
	case TRACE_PREEMPTED:
		c->preempted_ns += off_ns;
		observe(c, TRACE_HIST_PREEMPTED, off_ns);
		blame(thread, off_ns);
		return off_ns;
	case TRACE_YIELDED:
		c->yielded_ns += off_ns;
		observe(c, TRACE_HIST_YIELDED, off_ns);
		return off_ns;
	case TRACE_BLOCKED:
		wait_ns = r->woken_ns ? now - r->woken_ns : 0;
		c->asleep_ns += off_ns - wait_ns;
		observe(c, TRACE_HIST_ASLEEP, off_ns - wait_ns);
		break;
	case TRACE_NEW:
		break;
	default:
		c->unknown_ns += off_ns;
		return 0;
	}
	c->wakeup_wait_ns += wait_ns;
	observe(c, TRACE_HIST_WAKEUP_WAIT, wait_ns);
	return wait_ns;
}

static __always_inline void switch_in(struct trace_thread *thread, struct task_struct *prev,
				      struct task_struct *next, u64 now)
{
	struct trace_thread_record *r = &thread->record;
	struct trace_record *event;
	u64 off_ns = 0, wait_ns = 0;

	r->counters.switches_in++;
	if (r->reason != TRACE_ON_CPU) {
		off_ns = now - r->since_ns;
		wait_ns = account_off(thread, off_ns, now);
	} else {
		unseen_switch(r, now);
	}
	event = new_event(TRACE_SWITCH_IN);
	if (event) {
		about_task(event, now, next);
		about_other(&event->sched, prev);
		event->sched.duration_ns = off_ns;
		event->sched.wait_ns = wait_ns;
		event->sched.reason = r->reason == TRACE_ON_CPU ? TRACE_UNKNOWN : r->reason;
		event->sched.state = 0;
		event->sched.sched_class = class_of(next);
		event->sched.dsq = thread->dsq;
		event->sched.slice_ns = slice_of(next);
		event->sched.to_cpu = 0;
		submit(event);
	}
	r->reason = TRACE_ON_CPU;
	r->since_ns = now;
	r->woken_ns = 0;
	thread->dsq = TRACE_NO_DSQ;
}

/* Somebody tries to wake it. Whether it is asleep turns out at the end of the attempt. */
static __always_inline void waking(struct trace_thread *thread, bool in_irq)
{
	struct task_struct *current = bpf_get_current_task_btf();

	thread->waking_ns = bpf_ktime_get_ns();
	thread->waking_reason = in_irq ? TRACE_BY_IRQ : TRACE_BY_TASK;
	if (!record_events)
		return;
	thread->waking_cpu = bpf_get_smp_processor_id();
	thread->waker_tid = tid_of(current);
	thread->waker_tgid = tgid_of(current);
	__builtin_memcpy(thread->waker_comm, current->comm, TRACE_COMM_LEN);
}

static __always_inline void wakeup(struct trace_thread *thread, struct task_struct *p)
{
	struct trace_thread_record *r = &thread->record;
	struct trace_record *event;
	u64 woken_ns = thread->waking_ns;

	if (record_events)
		thread->dsq = dsq_of(p);
	/* A thread that is about to sleep is woken too, and notices by not sleeping. */
	if (r->reason != TRACE_BLOCKED || r->woken_ns)
		return;
	/* The waker may have begun before the sleep did. */
	if (woken_ns < r->since_ns)
		woken_ns = r->since_ns;
	r->woken_ns = woken_ns;
	r->counters.wakeups++;
	event = new_event(TRACE_WAKEUP);
	if (!event)
		return;
	about_task(event, woken_ns, p);
	clear_sched(&event->sched);
	event->cpu = thread->waking_cpu;
	event->sched.duration_ns = woken_ns - r->since_ns;
	event->sched.reason = thread->waking_reason;
	event->sched.other_tid = thread->waker_tid;
	event->sched.other_tgid = thread->waker_tgid;
	__builtin_memcpy(event->sched.other_comm, thread->waker_comm, TRACE_COMM_LEN);
	submit(event);
}

#endif /* __GPUAWARE_TRACE_SWITCH_BPF_H */
