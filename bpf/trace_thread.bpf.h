/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A traced thread: its state and counters, and the way of an event to user space.
 *
 * Everything about a thread lies in its task storage, so that a switch of threads that nobody
 * traces costs two failed look-ups. A thread's state is written by the CPU that switches it, under
 * the lock of its run queue; by its waker; and by interrupts on top of it, which have fields of
 * their own.
 */
#ifndef __GPUAWARE_TRACE_THREAD_BPF_H
#define __GPUAWARE_TRACE_THREAD_BPF_H

#include "pidns.bpf.h"
#include "trace_hist.bpf.h"
#include "trace_intf.h"

#define TRACE_NO_DSQ	 (~0ULL)
#define MAX_NESTED_CALLS 4 /* a power of 2; one libcuda call makes another */

/* Set before loading. */
const volatile bool record_events;   /* into the ring buffer, beside the counters */
const volatile bool trace_launchers; /* every process that launches */
const volatile u64 target_cgroup;    /* and all below it; 0: none */

/* Written by user space at any time. */
u32 running;	     /* 0: everything is passed by */
u32 window;	     /* serial number of the window of launches that is open; 0: none */
u64 window_since_ns; /* since when the window is open */
u64 sampled_ns;	     /* all windows that were closed, together */
s32 spawner;	     /* TID of ours whose new child is the command to trace; 0: none */

u64 nr_missed[TRACE_NR_MISSES]; /* events that could not even be counted by kind */
u64 nr_lost_notices;		/* user space looks at every process instead */
u64 nr_lost_preemptors;		/* preemptions that found no room in the table */
u64 nr_lost_irqs;		/* interrupts that found none in theirs */

struct interval_mark {
	u64 at_ns;
	u32 window;
	u64 switches;
	u64 preempted_ns;
	u64 yielded_ns;
	u64 asleep_ns;
	u64 wakeup_wait_ns;
	u64 hard_irq_ns;
	u64 soft_irq_ns;
	u64 vector_irq_ns;
	u32 burst_pairs; /* so far */
	bool burst_disturbed;
};

/* Calls that have begun in a window and not returned, the innermost last. */
struct open_call {
	u64 begin_ns;
	u64 stream;
	u64 symbol;
};

struct open_calls {
	u32 window;
	u32 depth; /* also of those that found no room */
	struct open_call calls[MAX_NESTED_CALLS];
};

struct trace_thread {
	struct trace_thread_record record;
	/* The latest attempt to wake it: it counts if the thread turns out to be asleep. */
	u64 waking_ns;
	u32 waking_cpu;
	u32 waking_reason;
	s32 waker_tid;
	s32 waker_tgid;
	u8 waker_comm[TRACE_COMM_LEN];
	u8 preemptor[TRACE_COMM_LEN];
	u64 dsq; /* where it waits, as far as is known */
	struct open_calls open;
	struct interval_mark mark;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct trace_thread);
} threads SEC(".maps");

/* Threads that ended. User space takes them away. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRACE_MAX_FINISHED);
	__type(key, u64);
	__type(value, struct trace_thread_record);
} finished SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TRACE_NR_KINDS);
	__type(key, u32);
	__type(value, struct trace_kind_total);
} kind_totals SEC(".maps");

/* Sized by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} notices SEC(".maps");

static __always_inline void missed(u32 why)
{
	__sync_fetch_and_add(&nr_missed[why], 1);
}

static __always_inline void notify(u32 what, s32 tgid)
{
	struct trace_notice notice = {.what = what, .tgid = tgid};

	/* User space knows nobody whom it does not see. */
	if (tgid && bpf_ringbuf_output(&notices, &notice, sizeof(notice), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&nr_lost_notices, 1);
}

static __always_inline struct trace_thread *thread_of(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, NULL, 0);
}

/*
 * Counts an event of @kind and makes room for its record. NULL if records are off or the buffer is
 * full, which is counted. The CPU's totals are shared with interrupts and with whoever preempts.
 */
static __always_inline struct trace_record *new_event(u32 kind)
{
	struct trace_kind_total *total = bpf_map_lookup_elem(&kind_totals, &kind);
	struct trace_record *event;

	if (!total)
		return NULL;
	__sync_fetch_and_add(&total->counted, 1);
	if (!record_events)
		return NULL;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&total->lost, 1);
		return NULL;
	}
	event->kind = kind;
	event->cpu = bpf_get_smp_processor_id();
	return event;
}

static __always_inline void about_task(struct trace_record *event, u64 now, struct task_struct *p)
{
	struct trace_thread *thread;

	event->time_ns = now;
	event->tid = tid_of(p);
	event->tgid = tgid_of(p);
	/* One that is about to end has no number any more but the kernel's. */
	if (loader_pids.level && !event->tid) {
		thread = thread_of(p);
		event->tid = thread ? thread->record.tid : 0;
		event->tgid = thread ? thread->record.tgid : 0;
	}
	__builtin_memcpy(event->comm, p->comm, TRACE_COMM_LEN);
}

static __always_inline void about_other(struct trace_sched *sched, struct task_struct *p)
{
	sched->other_tid = tid_of(p);
	sched->other_tgid = tgid_of(p);
	__builtin_memcpy(sched->other_comm, p->comm, TRACE_COMM_LEN);
}

static __always_inline void clear_sched(struct trace_sched *sched)
{
	__builtin_memset(sched, 0, sizeof(*sched));
	sched->dsq = TRACE_NO_DSQ;
}

/* User space looks often enough: to be woken for each event would be noise of our own. */
static __always_inline void submit(struct trace_record *event)
{
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

static __always_inline void observe(struct trace_counters *counters, u32 hist, u64 ns)
{
	u32 bucket = bucket_of(ns);

	if (hist < TRACE_NR_HISTS && bucket < TRACE_NR_BUCKETS)
		counters->hists[hist][bucket]++;
}

/* How long windows of launches were open, up to @now. */
static __always_inline u64 sampled_until(u64 now)
{
	return sampled_ns + (window && now > window_since_ns ? now - window_since_ns : 0);
}

/* Begins to trace @p, which is off its CPU for @reason or on it. NULL without memory. */
static __always_inline struct trace_thread *start_thread(struct task_struct *p, u32 reason)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct trace_thread *thread;
	struct trace_record *event;

	thread = bpf_task_storage_get(&threads, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return NULL;
	if (thread->record.start_ns)
		return thread;
	thread->record.tid = tid_of(p);
	thread->record.tgid = tgid_of(p);
	thread->record.reason = reason;
	thread->dsq = TRACE_NO_DSQ;
	thread->record.start_ns = bpf_ktime_get_ns();
	thread->record.since_ns = thread->record.start_ns;
	thread->record.sampled_ns = sampled_until(thread->record.start_ns);
	event = new_event(TRACE_THREAD_START);
	if (event) {
		about_task(event, thread->record.start_ns, p);
		clear_sched(&event->sched);
		event->sched.reason = reason == TRACE_NEW ? TRACE_NEW : TRACE_UNKNOWN;
		about_other(&event->sched, current);
		submit(event);
	}
	return thread;
}

/* The thread is gone for good: hands its counters to user space. */
static __always_inline void finish_thread(struct trace_thread *thread, struct task_struct *p,
					  u64 now)
{
	struct trace_record *event = new_event(TRACE_THREAD_EXIT);
	/* Unique enough: two threads cannot start at one time and end as one. */
	u64 key = thread->record.start_ns ^ (u64)thread->record.tid << 40;

	thread->record.end_ns = now;
	thread->record.sampled_ns = sampled_until(now) - thread->record.sampled_ns;
	__builtin_memcpy(thread->record.comm, p->comm, TRACE_COMM_LEN);
	if (bpf_map_update_elem(&finished, &key, &thread->record, BPF_ANY))
		missed(TRACE_MISS_NO_MEMORY);
	if (event) {
		about_task(event, now, p);
		clear_sched(&event->sched);
		submit(event);
	}
}

#endif /* __GPUAWARE_TRACE_THREAD_BPF_H */
