/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Numbers of threads and processes as the user space of these programs knows them. In a container
 * (a PID namespace) they are not the kernel's: there a number of the kernel's is another thread's.
 * Everything that takes a number or tells one to user space goes through here.
 */
#ifndef __GPUAWARE_PIDNS_BPF_H
#define __GPUAWARE_PIDNS_BPF_H

#include <linux/errno.h>

struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
/* Linux 6.15: by the numbers of whoever runs the program. */
struct task_struct *bpf_task_from_vpid(s32 vpid) __ksym __weak;
void bpf_task_release(struct task_struct *p) __ksym;

/* Whose numbers. */
struct pids_of {
	u64 ns;	   /* the namespace */
	u32 level; /* how many are above it; 0: the kernel's own numbers */
};

/* Of the process that loaded these programs: what runs when nobody asks tells it so. */
struct pids_of loader_pids;
/* The kernel's number of the thread of user space that loaded them. */
s32 loader_tid;

static __always_inline u64 pid_numbers(struct pid *pid, u32 level)
{
	return (u64)pid + bpf_core_field_offset(struct pid, numbers) +
	       (u64)level * bpf_core_type_size(struct upid);
}

/* The namespace that @p lives in, which is not always that of its children. */
static __always_inline struct pids_of pids_of(struct task_struct *p)
{
	struct pid *pid = BPF_CORE_READ(p, thread_pid);
	struct pids_of of = {.level = pid ? BPF_CORE_READ(pid, level) : 0};
	struct upid upid = {};

	if (of.level) {
		bpf_probe_read_kernel(&upid, sizeof(upid), (void *)pid_numbers(pid, of.level));
		of.ns = (u64)upid.ns;
	}
	return of;
}

/* The number of thread @p for @who; 0: it is not seen from there. */
static __always_inline s32 tid_for(struct task_struct *p, const struct pids_of *who)
{
	u32 level = who->level;
	struct upid upid = {};
	struct pid *pid;

	if (!level)
		return BPF_CORE_READ(p, pid);
	pid = BPF_CORE_READ(p, thread_pid);
	if (!pid || BPF_CORE_READ(pid, level) < level)
		return 0;
	bpf_probe_read_kernel(&upid, sizeof(upid), (void *)pid_numbers(pid, level));
	return (u64)upid.ns == who->ns ? upid.nr : 0;
}

/* The number of @p's process for @who; 0: it is not seen from there. */
static __always_inline s32 tgid_for(struct task_struct *p, const struct pids_of *who)
{
	if (!who->level)
		return BPF_CORE_READ(p, tgid);
	return tid_for(BPF_CORE_READ(p, group_leader), who);
}

/*
 * The number in @thread_pid, a struct pid, for the process that loaded these programs. Global, so
 * that it is verified once and not wherever a number is told.
 */
__noinline s32 number_in_container(u64 thread_pid)
{
	struct pid *pid = (struct pid *)thread_pid;
	u32 level = loader_pids.level;
	struct upid upid = {};

	if (!pid || BPF_CORE_READ(pid, level) < level)
		return 0;
	bpf_probe_read_kernel(&upid, sizeof(upid), (void *)pid_numbers(pid, level));
	return (u64)upid.ns == loader_pids.ns ? upid.nr : 0;
}

static __always_inline s32 number_of(struct task_struct *p)
{
	return number_in_container((u64)BPF_CORE_READ(p, thread_pid));
}

/* For the process that loaded these programs. */
static __always_inline s32 tid_of(struct task_struct *p)
{
	return loader_pids.level ? number_of(p) : p->pid;
}

static __always_inline s32 tgid_of(struct task_struct *p)
{
	return loader_pids.level ? number_of(p->group_leader) : p->tgid;
}

/* Does that process see thread @p at all? */
static __always_inline bool is_seen(struct task_struct *p)
{
	return !loader_pids.level || number_of(p);
}

/*
 * The thread with this number for the process that runs the program, to be released; NULL: there is
 * none. The kernel is not asked by a number that is somebody else's: see @can_look_up.
 */
static __always_inline struct task_struct *task_by_number(s32 number)
{
	if (bpf_ksym_exists(bpf_task_from_vpid))
		return bpf_task_from_vpid(number);
	return bpf_task_from_pid(number);
}

/* Does task_by_number() use the PID namespace of the process that runs the program? */
static __always_inline bool can_look_up(void)
{
	struct pids_of who;

	if (bpf_ksym_exists(bpf_task_from_vpid))
		return true;
	who = pids_of(bpf_get_current_task_btf());
	return !who.level;
}

/*
 * User space runs this before the others, in the thread that will: its numbers are meant from then
 * on. Returns 0, or -EOPNOTSUPP where its numbers cannot be looked up.
 */
SEC("syscall")
int know_loader(void *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();

	loader_tid = p->pid;
	loader_pids = pids_of(p);
	return can_look_up() ? 0 : -EOPNOTSUPP;
}

#endif /* __GPUAWARE_PIDNS_BPF_H */
