/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the recorder of profiles shares with user space: what it counts of every thread of a host.
 *
 * bindgen reads this file, so it is self-contained: no kernel header, fixed-width types only. No
 * name of a program and no user is in it. What the values mean to people is in docs/tracing.md.
 */
#ifndef __GPUAWARE_TRACE_PROFILE_INTF_H
#define __GPUAWARE_TRACE_PROFILE_INTF_H

#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
#endif

enum profile_limits {
	PROFILE_NR_BUCKETS = 32, /* as bucket_of() numbers them */
	PROFILE_NR_WAKERS = 8,	 /* threads that wake a thread and are told apart; a power of 2 */
	PROFILE_MAX_CPUS = 1024,
	PROFILE_MAX_ENDED = 8192, /* threads that ended since user space looked last */
};

enum profile_state {
	PROFILE_UNSEEN,
	PROFILE_RUNNING,
	PROFILE_READY, /* could run, and somebody else does */
	PROFILE_ASLEEP,
	PROFILE_ENDED,
};

/* Sorts of interrupts, and who wakes a thread. */
enum profile_sort {
	PROFILE_HARD, /* of devices */
	PROFILE_SOFT,
	PROFILE_TIMER,
	PROFILE_IPI, /* from other CPUs: the scheduler's own */
	PROFILE_NR_SORTS,
	PROFILE_BY_TASK = PROFILE_NR_SORTS,
	PROFILE_NR_CAUSES,
};

struct profile_hist {
	u64 sums_ns[PROFILE_NR_BUCKETS];
	u32 counts[PROFILE_NR_BUCKETS];
};

struct profile_waker {
	s32 pid;
	u32 count;
};

/* One thread, since recording began or since it was born. */
struct profile_thread {
	s32 pid;  /* the kernel's number: tells wakers apart, and is written nowhere */
	s32 tid;  /* that of user space; 0: not seen from there */
	s32 tgid; /* of its process, likewise */
	u32 state;
	u64 born_ns;
	u64 end_ns; /* 0: not ended */
	u64 since_ns;
	u64 cpu_ns; /* without interrupts on top of it */
	u64 ready_ns;
	u64 burst_ns; /* on a CPU since it slept last */
	/*
	 * The run or sleep in the middle of which recording began, as it ended. User space puts it
	 * together with the one in the middle of which recording ends.
	 */
	u32 began;
	u32 first_cause; /* if that was a sleep: what ended it */
	u64 first_ns;
	u32 is_past_first;
	u32 waking_cause;
	u64 waking_ns; /* the latest attempt to wake it */
	s32 waking_pid;
	u32 preempted;
	u32 yielded;
	u32 by_others; /* wakeups by tasks for which there is no room below */
	u64 irq_clock_ns;
	u32 causes[PROFILE_NR_CAUSES];
	u32 is_kernel;
	struct profile_waker wakers[PROFILE_NR_WAKERS];
	s32 nice;
	u32 policy;
	struct profile_hist run;     /* from a sleep to the next, time on a CPU */
	struct profile_hist alone;   /* sleeps that a timer or an interrupt ended */
	struct profile_hist awaited; /* sleeps that another task ended */
	struct profile_hist wait;    /* from a wakeup to a CPU */
	u64 cpus[PROFILE_MAX_CPUS / 64];
};

/* Interrupts of a sort on a CPU. */
struct profile_irqs {
	u64 count;
	u64 self_ns;
};

#endif /* __GPUAWARE_TRACE_PROFILE_INTF_H */
