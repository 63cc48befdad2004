/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the tracer's kernel side and user space share: events, counters, what a run asks for.
 *
 * bindgen reads this file, so it is self-contained: no kernel header, fixed-width types only.
 * What the values mean to people is in docs/tracing.md.
 */
#ifndef __GPUAWARE_TRACE_INTF_H
#define __GPUAWARE_TRACE_INTF_H

#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
#endif

enum trace_limits {
	TRACE_COMM_LEN = 16,
	TRACE_IRQ_NAME_LEN = 32,
	TRACE_NR_BUCKETS = 32, /* of a histogram: see observe() */
	TRACE_MAX_IRQS = 1024,
	TRACE_MAX_PREEMPTORS = 4096,
	TRACE_MAX_FINISHED = 4096, /* threads that ended since user space looked last */
};

/* What a burst of launches is: as trace/src/analyze/pairs.rs has it for events. */
enum trace_burst {
	TRACE_BURST_NS = 100000, /* launches of one are less apart */
	TRACE_MIN_BURST_PAIRS = 2,
};

/* In the order of Kind in trace/src/schema/. The two of windows are made by user space. */
enum trace_kind {
	TRACE_LAUNCH,
	TRACE_GRAPH_LAUNCH,
	TRACE_GRAPH_LAUNCH_EXIT,
	TRACE_SYNC_ENTER,
	TRACE_SYNC_EXIT,
	TRACE_SWITCH_OUT,
	TRACE_SWITCH_IN,
	TRACE_WAKEUP,
	TRACE_MIGRATE,
	TRACE_HARD_IRQ,
	TRACE_SOFT_IRQ,
	TRACE_VECTOR_IRQ,
	TRACE_THREAD_START,
	TRACE_THREAD_EXIT,
	TRACE_NR_KINDS,
};

/* Why an event was passed over: in the order of MISSES in src/trace/kernel.rs. */
enum trace_miss {
	TRACE_MISS_NO_MEMORY,	  /* for a thread, or for its counters when it ended */
	TRACE_MISS_TOO_DEEP,	  /* a call or an interrupt inside of too many others */
	TRACE_MISS_UNPAIRED_IRQ,  /* the end of an interrupt that is not the one that began last */
	TRACE_MISS_UNSEEN_SWITCH, /* the kernel did not show a switch: noticed at the next one */
	TRACE_NR_MISSES,
};

enum trace_reason {
	TRACE_ON_CPU = 0,
	TRACE_PREEMPTED,
	TRACE_YIELDED,
	TRACE_BLOCKED,
	TRACE_EXITED,
	TRACE_NEW,
	TRACE_UNKNOWN,
	TRACE_BY_TASK,
	TRACE_BY_IRQ,
};

enum trace_class {
	TRACE_CLASS_UNKNOWN,
	TRACE_CLASS_STOP,
	TRACE_CLASS_DEADLINE,
	TRACE_CLASS_RT,
	TRACE_CLASS_FAIR,
	TRACE_CLASS_EXT,
	TRACE_CLASS_IDLE,
};

struct trace_cuda {
	u64 duration_ns;
	u64 stream;
	u32 grid[3];
	u32 block[3];
	u32 shared_bytes;
	u32 symbol; /* the cookie of the probe */
};

struct trace_sched {
	u64 duration_ns;
	u64 wait_ns;
	u64 dsq; /* all ones: none */
	u64 slice_ns;
	s32 other_tid;
	s32 other_tgid;
	u8 other_comm[TRACE_COMM_LEN];
	u32 reason;
	u32 state; /* as in /proc: a bit of TASK_REPORT, 0 for running */
	u32 sched_class;
	u32 to_cpu;
};

struct trace_irq {
	u64 duration_ns;
	u64 self_ns;
	u32 nr;
	u32 pad;
	u8 name[TRACE_IRQ_NAME_LEN];
};

struct trace_record {
	u64 time_ns;
	u32 kind;
	u32 cpu;
	s32 tid;
	s32 tgid;
	u8 comm[TRACE_COMM_LEN];
	union {
		struct trace_cuda cuda;
		struct trace_sched sched;
		struct trace_irq irq;
	};
};

enum trace_hist {
	TRACE_HIST_ON_CPU,
	TRACE_HIST_PREEMPTED,
	TRACE_HIST_YIELDED,
	TRACE_HIST_ASLEEP,
	TRACE_HIST_WAKEUP_WAIT,
	TRACE_HIST_SYNC,
	TRACE_HIST_INTERVAL_CALM,      /* between two launches, on the CPU all the time */
	TRACE_HIST_INTERVAL_DISTURBED, /* between two launches, with a switch in between */
	TRACE_NR_HISTS,
};

/* One thread, counted in the kernel. Times that go on still are added by user space. */
struct trace_counters {
	u64 on_cpu_ns;
	u64 preempted_ns;
	u64 yielded_ns;
	u64 asleep_ns;
	u64 wakeup_wait_ns; /* runnable after a wakeup, or after its start */
	u64 unknown_ns;	    /* off since before tracing began, or a switch was not shown */
	u64 preempted;
	u64 yielded;
	u64 blocked;
	u64 switches_in;
	u64 wakeups;
	u64 migrations;
	u64 hard_irqs;
	u64 hard_irq_ns; /* own time: what is nested counts where it belongs */
	u64 soft_irqs;
	u64 soft_irq_ns;
	u64 vector_irqs;
	u64 vector_irq_ns;
	/* The rest is counted in windows only. */
	u64 window_switches; /* away from the thread: what launches may be divided into */
	u64 launches;
	u64 graph_launches;
	u64 syncs;
	u64 sync_ns;
	u64 intervals_calm; /* between two launches or graph launches of the thread in one window */
	u64 intervals_calm_ns;
	u64 intervals_disturbed;
	u64 intervals_disturbed_ns;
	u64 interval_preempted_ns; /* what the intervals lost, by cause */
	u64 interval_yielded_ns;
	u64 interval_asleep_ns;
	u64 interval_wakeup_wait_ns;
	u64 interval_hard_irq_ns;
	u64 interval_soft_irq_ns;
	u64 interval_vector_irq_ns;
	u64 bursts; /* three launches or more, each less than 100 us after the one before */
	u64 burst_launches;
	u64 bursts_disturbed; /* with a switch inside */
	u32 hists[TRACE_NR_HISTS][TRACE_NR_BUCKETS];
};

struct trace_thread_record {
	s32 tid;
	s32 tgid;
	u8 comm[TRACE_COMM_LEN];
	u64 start_ns;	/* of being traced */
	u64 end_ns;	/* 0: not ended */
	u64 sampled_ns; /* windows of launches before it was traced; once ended, while it was */
	u64 since_ns;	/* since when it is as it is */
	u64 woken_ns;	/* 0: not woken since it went to sleep */
	u64 squared_launches; /* of each window that it launched in but the last one, summed up */
	u32 window_launches;  /* of the last one */
	u32 reason;	      /* enum trace_reason: why it is off its CPU */
	struct trace_counters counters;
};

struct trace_irq_key {
	u32 kind;
	u32 nr;
};

struct trace_irq_total {
	u64 count;
	u64 self_ns;
	u64 worst_ns;
	u8 name[TRACE_IRQ_NAME_LEN];
};

struct trace_preemptor_key {
	s32 victim_tgid;
	u8 comm[TRACE_COMM_LEN];
};

struct trace_preemptor_total {
	u64 count;
	u64 ns;
};

struct trace_kind_total {
	u64 counted;
	u64 lost;
};

/* What user space is told beside the events. */
enum trace_notice_what {
	TRACE_NOTICE_EXEC,    /* a process started a program: it may map a libcuda */
	TRACE_NOTICE_PROCESS, /* trace all threads of a process: it launched, initialised CUDA, or
				 was moved */
};

struct trace_notice {
	u32 what;
	s32 tgid;
};

/* Argument of the `trace_task` program. */
struct trace_task_request {
	s32 tid;
};

#endif /* __GPUAWARE_TRACE_INTF_H */
