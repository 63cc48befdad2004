/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What schedulers see of the kernel, as far as the simulator has it. A field that is missing here
 * is an error of the compiler, not a zero. src/abi.rs has the same in Rust; sim_layout[] is
 * compared.
 */
#ifndef __SIM_KERNEL_H
#define __SIM_KERNEL_H

#define __VMLINUX_H__

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;
typedef __SIZE_TYPE__ size_t;
typedef _Bool bool;
#define true  1
#define false 0
#define NULL  ((void *)0)

#define SIM_MAX_CPUS	 1024
#define SIM_MAX_STORAGES 8
#define SIM_MAX_DEPTH	 40

#define ENOENT 2
#define ENOMEM 12
#define EFAULT 14
#define EBUSY  16
#define EEXIST 17
#define EINVAL 22

#define PF_KTHREAD	0x00200000
#define CLOCK_MONOTONIC 1

struct cpumask {
	u64 bits[SIM_MAX_CPUS / 64];
};
typedef struct cpumask cpumask_t;

struct bpf_cpumask {
	struct cpumask cpumask;
};

struct cgroup;

typedef struct {
	u32 val;
} kuid_t;

struct kernfs_iattrs {
	kuid_t ia_uid;
};

struct kernfs_node {
	u64 id;
	struct kernfs_iattrs *iattr;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self; /* first: the parent css is the parent cgroup */
	s32 level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[SIM_MAX_DEPTH];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_group {
	struct cgroup_subsys_state css;
};

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
};

struct task_struct {
	u32 flags;
	s32 prio;
	s32 pid;
	s32 tgid;
	char comm[16];
	s32 nr_cpus_allowed;
	u16 migration_disabled;
	const struct cpumask *cpus_ptr;
	struct css_set *cgroups;
	struct task_group *sched_task_group;
	struct task_struct *group_leader;
	struct sched_ext_entity scx;
	s32 sim_cpu;
	u32 sim_index;
	void *sim_storage[SIM_MAX_STORAGES];
};

struct rt_rq {
	s32 rt_queued;
};

struct rq {
	struct rt_rq rt;
};

enum scx_public_consts {
	SCX_SLICE_DFL = 20 * 1000000,
	SCX_TASK_QUEUED = 1 << 0,
	SCX_PICK_IDLE_CORE = 1 << 0,
	SCX_DEQ_SLEEP = 1 << 0,
	SCX_DSQ_ITER_REV = 1 << 16,
};
#define SCX_SLICE_INF (~0ULL)

enum scx_kick_flags {
	SCX_KICK_IDLE = 1 << 0,
	SCX_KICK_PREEMPT = 1 << 1,
	SCX_KICK_WAIT = 1 << 2,
	SIM_KICK_LAZY = 1 << 16, /* of the reference: no interrupt */
};

enum scx_wake_flags {
	SCX_WAKE_FORK = 4,
	SCX_WAKE_TTWU = 8,
	SCX_WAKE_SYNC = 16,
};

#define SCX_DSQ_GLOBAL	 (1ULL << 63 | 1)
#define SCX_DSQ_LOCAL	 (1ULL << 63 | 2)
#define SCX_DSQ_LOCAL_ON (3ULL << 62)

#define SCX_ENQ_WAKEUP	     1ULL
#define SCX_ENQ_HEAD	     16ULL
#define SCX_ENQ_CPU_SELECTED (1ULL << 10)
#define SCX_ENQ_PREEMPT	     (1ULL << 32)
#define SCX_ENQ_REENQ	     (1ULL << 40)
#define SCX_ENQ_LAST	     (1ULL << 41)

enum scx_cpu_preempt_reason {
	SCX_CPU_PREEMPT_RT,
	SCX_CPU_PREEMPT_DL,
	SCX_CPU_PREEMPT_STOP,
	SCX_CPU_PREEMPT_UNKNOWN,
};

struct scx_cpu_release_args {
	enum scx_cpu_preempt_reason reason;
	struct task_struct *task;
};

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};

struct scx_cgroup_init_args {
	u32 weight;
	bool sched_idle;
	u64 bw_period_us;
	u64 bw_quota_us;
	u64 bw_burst_us;
};

struct scx_exit_info {
	s32 kind;
	const char *reason;
	const char *msg;
};

/* Those that the simulator calls come first; the others may be set and are never called. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*runnable)(struct task_struct *p, u64 enq_flags);
	void (*running)(struct task_struct *p);
	void (*tick)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*quiescent)(struct task_struct *p, u64 deq_flags);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*update_idle)(s32 cpu, bool idle);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*enable)(struct task_struct *p);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	s32 (*init)(void);
	u64 flags;
	u32 timeout_ms;
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_idle)(struct cgroup *cgrp, bool idle);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us,
				     u64 burst_us);
	/* Never called. */
	void (*exit)(struct scx_exit_info *ei);
	char name[128];
};

#endif /* __SIM_KERNEL_H */
