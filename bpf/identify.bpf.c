// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds out which thread is what, and owns the maps that say so.
 *
 * Works under any scheduler, ours or not: it observes and marks, it schedules nothing.
 */
#include <vmlinux.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <linux/errno.h>

#include "class.bpf.h"

char _license[] SEC("license") = "GPL";

struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

/* Read by user space, which decides when the launch probes are armed. */
u64 nr_launch_hits;    /* probed launches, new thread or not */
u64 nr_new_launchers;  /* threads marked by a probe */
u64 nr_cuda_inits;     /* processes that initialised CUDA */
u64 nr_gpu_forks;      /* threads started by processes that launch or initialised CUDA */
u64 nr_cgroup_changes; /* cgroups made, removed or renamed */
u64 nr_lost_execs;     /* process_events was full: user space looks at every process instead */

/* Processes that initialised CUDA or launched: a new thread of theirs may launch soon. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u8);
} gpu_tgids SEC(".maps");

/* TGIDs of processes that started another program: they may map libcuda soon. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} process_events SEC(".maps");

static void remember_gpu_process(void)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	u8 one = 1;

	bpf_map_update_elem(&gpu_tgids, &tgid, &one, BPF_ANY);
}

/* A launch entry point. The cookie is the index of the symbol. */
SEC("uprobe.multi")
int launch(struct pt_regs *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 now = bpf_ktime_get_ns();
	struct task_mark *mark;

	__sync_fetch_and_add(&nr_launch_hits, 1);
	mark = bpf_task_storage_get(&task_marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!mark)
		return 0;
	mark->last_seen_ns = now;
	mark->hits++;
	if (mark->observed_class == GPUAWARE_CLASS_LAUNCH)
		return 0;
	mark->first_seen_ns = now;
	mark->symbol = bpf_get_attach_cookie(ctx);
	mark->observed_class = GPUAWARE_CLASS_LAUNCH;
	remember_gpu_process();
	__sync_fetch_and_add(&nr_new_launchers, 1);
	class_changed();
	return 0;
}

/* cuInit: once a process, so this probe can stay armed. Its threads are about to launch. */
SEC("uprobe.multi")
int cuda_init(struct pt_regs *ctx)
{
	remember_gpu_process();
	__sync_fetch_and_add(&nr_cuda_inits, 1);
	return 0;
}

/* A thread that is started by a GPU process may be one that launches. */
SEC("tp_btf/task_newtask")
int BPF_PROG(task_started, struct task_struct *p, u64 clone_flags)
{
	u32 tgid = p->tgid;

	if (bpf_map_lookup_elem(&gpu_tgids, &tgid))
		__sync_fetch_and_add(&nr_gpu_forks, 1);
	return 0;
}

/* User space looks often enough: a compiler farm should not wake it for every process. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_execed, struct task_struct *p, s32 old_pid, struct linux_binprm *bprm)
{
	u32 tgid = p->tgid;

	if (bpf_ringbuf_output(&process_events, &tgid, sizeof(tgid), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&nr_lost_execs, 1);
	return 0;
}

SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(cgroup_made, struct cgroup *cgrp, const char *path)
{
	__sync_fetch_and_add(&nr_cgroup_changes, 1);
	return 0;
}

SEC("tp_btf/cgroup_rmdir")
int BPF_PROG(cgroup_removed, struct cgroup *cgrp, const char *path)
{
	__sync_fetch_and_add(&nr_cgroup_changes, 1);
	return 0;
}

SEC("tp_btf/cgroup_rename")
int BPF_PROG(cgroup_renamed, struct cgroup *cgrp, const char *path)
{
	__sync_fetch_and_add(&nr_cgroup_changes, 1);
	return 0;
}

/* `scx_gpuaware mark` and `unmark` run this. Returns 0 or a negative errno. */
SEC("syscall")
int mark_task(struct gpuaware_mark_request *request)
{
	struct task_struct *p = bpf_task_from_pid(request->tid);
	struct task_mark *mark;
	int ret = -ESRCH;

	if (!p)
		return ret;
	ret = -ENOMEM;
	mark = bpf_task_storage_get(&task_marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (mark) {
		mark->marked_class = request->class;
		mark->first_seen_ns = mark->first_seen_ns ?: bpf_ktime_get_ns();
		mark->last_seen_ns = bpf_ktime_get_ns();
		/* Taken away by hand: what a probe saw before does not bring it back. */
		if (!request->class)
			mark->observed_class = GPUAWARE_CLASS_NONE;
		class_changed();
		ret = 0;
	}
	bpf_task_release(p);
	return ret;
}

/* Every task that has a class, with the reason. Pinned, so that `marks` only reads a file. */
SEC("iter/task")
int list_marks(struct bpf_iter__task *ctx)
{
	struct gpuaware_mark_record record = {};
	struct task_struct *p = ctx->task;
	struct class_verdict verdict;
	struct task_mark *mark;

	if (!p)
		return 0;
	verdict = judge_task(p);
	if (!verdict.class)
		return 0;
	record.tid = p->pid;
	record.tgid = p->tgid;
	record.class = verdict.class;
	record.source = verdict.source;
	record.cgroup_id = task_cgroup_id(p);
	BPF_CORE_READ_STR_INTO(&record.comm, p, comm);
	mark = bpf_task_storage_get(&task_marks, p, NULL, 0);
	if (mark) {
		record.symbol = mark->symbol;
		record.first_seen_ns = mark->first_seen_ns;
		record.last_seen_ns = mark->last_seen_ns;
		record.hits = mark->hits;
	}
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
