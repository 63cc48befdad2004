/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the kernel side and user space share: sizes, enums and wire structs.
 *
 * bindgen reads this file, so it is self-contained: no kernel header, fixed-width types only.
 */
#ifndef __GPUAWARE_INTF_H
#define __GPUAWARE_INTF_H

#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
#endif

enum gpuaware_limits {
	GPUAWARE_MAX_CPUS = 1024,
	GPUAWARE_MAX_LLCS = 128,
	GPUAWARE_MAX_TAGGED_CGROUPS = 4096,
	GPUAWARE_MAX_CGROUPS = 262144, /* each costs the kernel tens of KiB */
	GPUAWARE_MAX_CGROUP_DEPTH = 32,
	GPUAWARE_COMM_LEN = 16,
	GPUAWARE_NR_CLASSES = 4,
	GPUAWARE_WAIT_BUCKETS = 24,
	GPUAWARE_MAX_RULES = 64,     /* bits of a mask */
	GPUAWARE_MAX_ENDPOINTS = 32, /* likewise */
	GPUAWARE_MAX_TRUSTED_UIDS = 4096,
	GPUAWARE_MAX_TEXTS = 1024,
	GPUAWARE_NO_RULE = 0xfffe, /* no index into texts */
	GPUAWARE_TEXT_LEN = 256,
	GPUAWARE_FIRST_CONTEXT_SYMBOL =
		64,		    /* from this index on: calls that make contexts current */
	GPUAWARE_ADDRESS_LEN = 108, /* path of a Unix-domain socket */
};

/* What a task is to the scheduler. NONE: nobody said anything, scheduled as BACKGROUND. */
enum gpuaware_class {
	GPUAWARE_CLASS_NONE = 0,
	GPUAWARE_CLASS_LAUNCH = 1,
	GPUAWARE_CLASS_HANDOFF = 2,
	GPUAWARE_CLASS_BACKGROUND = 3,
};

/* Who said so, in the order of precedence. REFUSED classifies nobody: see guard.trust_uids. */
enum gpuaware_source {
	GPUAWARE_SOURCE_NONE = 0,
	GPUAWARE_SOURCE_MARK = 1,
	GPUAWARE_SOURCE_CGROUP = 2,
	GPUAWARE_SOURCE_RULE = 3,
	GPUAWARE_SOURCE_HINT = 4,
	GPUAWARE_SOURCE_UPROBE = 5,
	GPUAWARE_SOURCE_WAKES = 6,
	GPUAWARE_SOURCE_SPINS = 7,
	GPUAWARE_SOURCE_CONNECTS = 8,
	GPUAWARE_SOURCE_REFUSED = 9,
};

/* What a thread was seen doing. Each is a bit of what a rule needs; endpoints follow, a bit each.
 */
enum gpuaware_observed {
	GPUAWARE_OBSERVED_LAUNCH = 1,
	GPUAWARE_OBSERVED_WAKES = 2,
	GPUAWARE_OBSERVED_SPINS = 4,
	GPUAWARE_OBSERVED_FIRST_ENDPOINT = 8,
};

/* A rule of the policy as it is judged: all that it asks for must hold. Class NONE ends the list.
 */
struct gpuaware_rule {
	u64 needs; /* enum gpuaware_observed */
	u32 class;
	u8 by_name;   /* user space says for whom its comm, exe and cmdline terms hold */
	u8 by_cgroup; /* it has a cgroup term beside others */
	u8 pad[2];
};

/* What the policy, or its xattr, says of a cgroup and those below it. */
struct gpuaware_cgroup_tag {
	u64 rules; /* a bit for each rule whose cgroup term holds */
	u32 class; /* NONE: only the terms above */
	u32 text;  /* that gave it the class; index into texts */
};

/* Where threads send to. TCP: IPv6, or IPv4 mapped into it; an address of zeros is any. */
struct gpuaware_endpoint {
	u32 port; /* 0: a Unix-domain socket */
	u8 address[GPUAWARE_ADDRESS_LEN];
};

enum gpuaware_event_kind {
	GPUAWARE_EVENT_EXECED = 0,  /* the process started another program */
	GPUAWARE_EVENT_RENAMED = 1, /* the thread has another name */
	GPUAWARE_EVENT_MAPPED = 2,  /* the process may map a library that it did not */
	GPUAWARE_EVENT_SPINS = 3,   /* the thread keeps yielding its CPU */
};

/* Something that user space has to look at. */
struct gpuaware_event {
	s32 tid;
	s32 tgid;
	u32 kind; /* enum gpuaware_event_kind */
	u8 comm[GPUAWARE_COMM_LEN];
};

/* Argument of the `find_mapped_file` program. */
struct gpuaware_mapped_file {
	u64 address; /* in the process */
	u64 inode;   /* 0: nothing is mapped there, or somebody changes the mappings right now */
	s32 tgid;
	u32 device; /* as the kernel has it: the major number << 20 | the minor */
};

/* Argument of the `mark_task` program. Class NONE takes the mark away. */
struct gpuaware_mark_request {
	s32 tid;
	u32 class;
};

#define GPUAWARE_HOLD_UNBOUNDED 0xffffffffU
#define GPUAWARE_TURN_UNIT	1024U

/* What the policy says. User space may change it at any time, a value at a time. */
struct gpuaware_tunables {
	u64 launch_slice_ns;
	u64 handoff_slice_ns;
	u64 background_slice_ns;
	u64 lent_slice_ns;
	u64 turn_interval_ns; /* background slice / min share */
	u64 hold_cap_ns;      /* 0: never hold */
	u64 lend_yields_ns;   /* that who waits by sched_yield() lends at a time; 0: nothing */
	u64 guard_budget_ns;  /* of all CPUs in a window; 0: no guard */
	u32 hold_us_per_s;    /* that holds may waste on all CPUs */
	u32 lend;	      /* preferred CPUs, to background? */
	u32 whole_core;	      /* does a launcher have its core to itself? */
	u32 turn_factor;      /* 1 / min share, in units of GPUAWARE_TURN_UNIT */
};

/* Argument of the `name_task` program. */
struct gpuaware_name_request {
	s32 tid;
	u32 pad;
	u64 start_ticks; /* as in /proc/TID/stat: another thread may have the TID by now */
	u64 rules;	 /* a bit for each whose comm, exe and cmdline terms hold */
};

/* Argument of the `note_spinner` program. */
struct gpuaware_spinner {
	s32 tid;
	u32 pad;
	u64 start_ticks; /* see gpuaware_name_request */
};

/* Argument of the `find_strangers` program. */
struct gpuaware_strangers_request {
	s32 tgid;
	u32 ran;      /* answer: has a thread of it run that has no mark? */
	u64 stale_ns; /* launchers that were not seen since then are as good as unknown */
};

/* The preferred CPUs, best first, as the `set_preferred` program takes them. */
struct gpuaware_preferred {
	u32 nr;
	s32 cpus[GPUAWARE_MAX_CPUS];
};

/* Threads of the boosted classes that are runnable, and the most since user space last asked. */
struct gpuaware_demand {
	u32 launch;
	u32 handoff;
	u32 launch_peak;
	u32 handoff_peak;
};

/* Interrupt time of one CPU since load. Nested interrupts count once, for the innermost. */
struct gpuaware_irq_time {
	u64 hard_ns;
	u64 soft_ns;
};

/* One task, as the `marks` iterator prints it. Times are CLOCK_MONOTONIC. */
struct gpuaware_mark_record {
	s32 tid;
	s32 tgid;
	u32 class;
	u32 source;
	u32 rule;   /* that gave it the class, but for marks by hand; index into texts */
	u32 symbol; /* that a uprobe saw: index of the library << 8 | index of the symbol */
	u32 uid;
	u32 launches; /* a probe has met it, whatever its class */
	u32 rate;     /* wakeups of launchers a second, when it was last over the limit */
	u32 gpu_node; /* of its process; plus one, 0: not known */
	u64 tag_id;   /* the cgroup that gave it the class */
	u64 cgroup_id;
	u64 first_seen_ns;
	u64 last_seen_ns;
	u64 hits;
	u8 comm[GPUAWARE_COMM_LEN];
};

/* Counters of the scheduler, summed over CPUs by user space. *_NS are nanoseconds. */
enum gpuaware_stat {
	GPUAWARE_STAT_LAUNCH_WAKEUPS,
	GPUAWARE_STAT_LAUNCH_TO_PREFERRED, /* idle, or done with a kthread soon */
	GPUAWARE_STAT_LAUNCH_TO_OTHER,	   /* an idle CPU that is not preferred */
	GPUAWARE_STAT_LAUNCH_QUEUED,
	GPUAWARE_STAT_HANDOFF_WAKEUPS,
	GPUAWARE_STAT_HANDOFF_QUEUED,
	GPUAWARE_STAT_BACKGROUND_DIRECT,
	GPUAWARE_STAT_BACKGROUND_QUEUED,
	GPUAWARE_STAT_BACKGROUND_TURNS, /* minimum share, taken from launchers */
	GPUAWARE_STAT_OVERDUE, /* background and throttled that went to the head: waited too long */
	GPUAWARE_STAT_GUARD_THROTTLES, /* launch and handoff had used up guard.max_share */
	GPUAWARE_STAT_CAPPED,	       /* enqueues delayed by a cpu.max */
	GPUAWARE_STAT_HOLDS,
	GPUAWARE_STAT_HOLD_NS,
	GPUAWARE_STAT_HOLD_WASTE_NS, /* of these, from when the CPU first declined background */
	GPUAWARE_STAT_HOLDS_EXPIRED, /* the launcher slept longer than was foreseen */
	GPUAWARE_NR_STATS,
};

/* What one CPU has counted, by enum gpuaware_stat. */
struct gpuaware_stats {
	u64 counts[GPUAWARE_NR_STATS];
};

/* What one CPU has counted for one class since the load. */
struct gpuaware_class_stats {
	u64 run_preferred_ns;
	u64 run_other_ns;
	u64 preempts;	    /* times that it took a CPU from a lower class */
	u64 preempted;	    /* times that a higher class took its CPU */
	u64 worst_wait_ns;  /* runnable, not running; a maximum, not a sum */
	u64 wakeup_wait_ns; /* from wakeup to run, all of them together */
	/* Their number: bucket n counts those below 2^(n + 10) ns, the last one the rest. */
	u64 wakeup_waits[GPUAWARE_WAIT_BUCKETS];
	/* Who had the longest wait. */
	u8 worst_waiter[16];
	s32 worst_waiter_tid;
	u32 pad;
};

/* Tasks in dispatch queues, as the `count_waiting` program finds them. */
struct gpuaware_waiting {
	u64 launch;
	u64 handoff;
	u64 background; /* also what the guard throttles and what a cpu.max delays */
};

#endif /* __GPUAWARE_INTF_H */
