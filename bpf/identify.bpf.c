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

#include "pidns.bpf.h"
#include "observe.bpf.h"
#include "mapped_file.bpf.h"
#include "program.bpf.h"

char _license[] SEC("license") = "GPL";

/*
 * A thread that runs for less than 20 us a second makes a few launches a second at most, which a
 * sweep would meet by chance only. So thousands of threads that wake up now and then cause no
 * sweeps.
 */
#define STRANGER_RUNS_ONE_IN 50000

/* Read by user space, which decides when the launch probes are armed. */
u64 nr_launch_hits;    /* probed launches, new thread or not */
u64 nr_context_hits;   /* contexts entered that say nothing new of the thread, and left */
u64 nr_new_launchers;  /* threads of trusted users that were met launching for the first time */
u64 nr_cuda_inits;     /* processes that initialised CUDA, of trusted users */
u64 nr_gpu_forks;      /* threads started that may launch soon, see task_started */
u64 nr_cgroup_changes; /* cgroups made, removed or renamed */
u64 nr_lost_events;    /* events was full: user space looks at every process instead */
u64 nr_rescans;	       /* asked for by the operator */

/* Set by user space. */
u64 expire_before_ns;	/* what was observed before, and not since, is forgotten */
u64 contexts_before_ns; /* so are contexts, where no launch came of them */
u32 rules_changed;	/* what is said by number of rule means nothing any more */
u32 endpoints_changed;	/* nor does what is said by number of endpoint */

/*
 * Processes that initialised CUDA or launched: a new thread of theirs may launch soon. User space
 * adds those that may have done so before anybody looked.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u8);
} gpu_tgids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* Rules by number, libraries after them: what `marks` shows as evidence. Pinned. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GPUAWARE_MAX_TEXTS);
	__type(key, u32);
	__type(value, char[GPUAWARE_TEXT_LEN]);
} texts SEC(".maps");

/*
 * What threads say of themselves, see hints/gpuaware.h. Pinned; the key is a pidfd. The policy says
 * who may write to it. Whose word counts is checked when it is taken.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} hints SEC(".maps");

/* Written after hints. Another value than before: there is something to take. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} hint_calls SEC(".maps");

/* What a process that user space was told of runs, and how much of it can be executed. */
struct code {
	u64 mm;
	u64 nr_pages;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct code);
} codes SEC(".maps");

/* What a thread had run when user space last asked. */
struct run {
	u64 total_ns;
	u64 at_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct run);
} runs SEC(".maps");

/* Threads that @p's process starts from now on may launch soon. */
static void remember_gpu_process(struct task_struct *p)
{
	u32 tgid = tgid_of(p);
	u8 one = 1;

	if (tgid)
		bpf_map_update_elem(&gpu_tgids, &tgid, &one, BPF_ANY);
}

/* User space looks often enough: a compiler farm should not wake it for every process. */
static void tell(struct gpuaware_event *event)
{
	/* User space knows nobody whom it does not see. */
	if (event->tgid && bpf_ringbuf_output(&events, event, sizeof(*event), BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&nr_lost_events, 1);
}

/* A thread that loses its CPU so often in sched_yield() waits for somebody by spinning. */
#define SPIN_WINDOW_NS 1000000000ULL
#define MIN_SPINS      100

struct spin_ctx {
	u64 window_start_ns;
	u32 nr_yields; /* in the window */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct spin_ctx);
} spin_ctxs SEC(".maps");

/*
 * `spins_with = "launch"`: tells of who spins, once a window. Whose memory that is, user space
 * finds out. Yields that nobody else wants the CPU of are not seen, and cost nobody anything.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(thread_switched, bool preempt, struct task_struct *prev)
{
	struct gpuaware_event event = {.kind = GPUAWARE_EVENT_SPINS};
	struct spin_ctx *sctx;
	u64 now;

	if (!yields(prev))
		return 0;
	sctx = bpf_task_storage_get(&spin_ctxs, prev, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!sctx)
		return 0;
	now = bpf_ktime_get_ns();
	if (now - sctx->window_start_ns > SPIN_WINDOW_NS) {
		sctx->window_start_ns = now;
		sctx->nr_yields = 0;
	}
	if (++sctx->nr_yields != MIN_SPINS)
		return 0;
	event.tid = tid_of(prev);
	event.tgid = tgid_of(prev);
	/* No room: in the next window. */
	if (event.tgid)
		bpf_ringbuf_output(&events, &event, sizeof(event), BPF_RB_NO_WAKEUP);
	return 0;
}

/* @p was met at @cookie. Is that new, and does it count? */
static __always_inline bool is_met(struct task_struct *p, struct task_mark *mark,
				   struct sighting *sighting, u64 cookie)
{
	note_gpu_node(p, mark);
	if (!observe(p, mark, sighting, GPUAWARE_OBSERVED_LAUNCH, trust_by_device)) {
		if (sighting->hits != 1)
			return false;
		/* A first launch is news, though a context gave the class: it is as old as that. */
		sighting->first_ns = mark->entered.first_ns;
	}
	mark->symbol = cookie;
	/* Whose word does not count does not keep the probes armed either. */
	if (!(mark->observed & GPUAWARE_OBSERVED_LAUNCH))
		return false;
	remember_gpu_process(p);
	return true;
}

/* A launch entry point. */
SEC("uprobe.multi")
int launch(struct pt_regs *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 cookie = bpf_get_attach_cookie(ctx);
	struct task_mark *mark;

	__sync_fetch_and_add(&nr_launch_hits, 1);
	mark = bpf_task_storage_get(&task_marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (mark && is_met(p, mark, &mark->launched, cookie))
		__sync_fetch_and_add(&nr_new_launchers, 1);
	return 0;
}

/* An entry point that makes a context current. First contexts do not count for the probes. */
SEC("uprobe.multi")
int context_entered(struct pt_regs *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 cookie = bpf_get_attach_cookie(ctx);
	struct task_mark *mark;

	/* cuCtxSetCurrent(NULL) leaves a context. */
	if (symbol_of(cookie) == GPUAWARE_FIRST_CONTEXT_SYMBOL && !PT_REGS_PARM1(ctx)) {
		__sync_fetch_and_add(&nr_context_hits, 1);
		return 0;
	}
	mark = bpf_task_storage_get(&task_marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!mark)
		return 0;
	if (is_first_context(p, mark))
		is_met(p, mark, &mark->entered, cookie);
	else
		__sync_fetch_and_add(&nr_context_hits, 1);
	return 0;
}

/*
 * cuInit, once a process, or what HIP programs call, once a file with kernels: this probe can
 * stay armed. Their threads are about to launch.
 */
SEC("uprobe.multi")
int cuda_init(struct pt_regs *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!is_trusted(p))
		return 0;
	remember_gpu_process(p);
	__sync_fetch_and_add(&nr_cuda_inits, 1);
	return 0;
}

/*
 * A thread that is started by a GPU process may be one that launches. What it does by itself is
 * not inherited; its name, executable and arguments are those of the thread that starts it.
 */
SEC("tp_btf/task_newtask")
int BPF_PROG(task_started, struct task_struct *p, u64 clone_flags)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct gpuaware_event event = {
		.tid = tid_of(p), .tgid = tgid_of(p), .kind = GPUAWARE_EVENT_EXECED};
	struct task_mark *mark, *parents;
	u32 tgid = event.tgid;

	if (bpf_map_lookup_elem(&gpu_tgids, &tgid))
		__sync_fetch_and_add(&nr_gpu_forks, 1);
	if (runs_new_program(parent, tgid, clone_flags))
		tell(&event);
	parents = bpf_task_storage_get(&task_marks, parent, NULL, 0);
	if (!parents || !parents->named_rules)
		return 0;
	mark = bpf_task_storage_get(&task_marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (mark) {
		mark->named_rules = parents->named_rules;
		mark->named_ns = bpf_ktime_get_ns();
	}
	return 0;
}

/* Another program: nothing of what is known holds on, but for what the operator said by hand. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(process_execed, struct task_struct *p, s32 old_pid, struct linux_binprm *bprm)
{
	struct task_mark *mark = bpf_task_storage_get(&task_marks, p, NULL, 0);
	struct gpuaware_event event = {
		.tid = tid_of(p), .tgid = tgid_of(p), .kind = GPUAWARE_EVENT_EXECED};
	bool had_class;

	bpf_task_storage_delete(&hints, p);
	bpf_task_storage_delete(&gpu_processes, p);
	if (mark) {
		/* A thread that was only refused had no class, so nothing has changed. */
		had_class = mark->named_rules || mark->observed || mark->hinted_class;
		mark->hinted_class = GPUAWARE_CLASS_NONE;
		mark->named_rules = 0;
		mark->observed = 0;
		mark->entered.hits = 0;
		mark->launched.hits = 0;
		mark->launched.last_ns = 0;
		mark->refused = 0;
		mark->refused_hint = GPUAWARE_CLASS_NONE;
		if (had_class)
			class_changed(mark);
	}
	bpf_map_delete_elem(&gpu_tgids, &event.tgid);
	note_program(event.tgid);
	tell(&event);
	return 0;
}

/* Attached where a rule asks for names. */
SEC("tp_btf/task_rename")
int BPF_PROG(task_renamed, struct task_struct *p, const char *comm)
{
	struct gpuaware_event event = {
		.tid = tid_of(p), .tgid = tgid_of(p), .kind = GPUAWARE_EVENT_RENAMED};

	bpf_probe_read_kernel_str(event.comm, sizeof(event.comm), comm);
	tell(&event);
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
	struct task_struct *p;
	struct task_mark *mark;
	int ret = -ESRCH;

	if (!can_look_up())
		return -EOPNOTSUPP;
	p = task_by_number(request->tid);
	if (!p)
		return ret;
	/* A zombie has ended: it only waits for its parent. */
	if (p->exit_state) {
		bpf_task_release(p);
		return ret;
	}
	ret = -ENOMEM;
	mark = bpf_task_storage_get(&task_marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (mark) {
		mark->marked_class = request->class;
		mark->marked_ns = bpf_ktime_get_ns();
		/* Taken away by hand: what was seen before does not bring it back. */
		if (!request->class)
			mark->observed = 0;
		/* The operator knows of one that launches: its process may have more. */
		if (request->class == GPUAWARE_CLASS_LAUNCH)
			remember_gpu_process(p);
		class_changed(mark);
		ret = 0;
	}
	bpf_task_release(p);
	return ret;
}

/* User space says for which rules the name, executable and arguments of a thread are right. */
SEC("syscall")
int name_task(struct gpuaware_name_request *request)
{
	struct task_struct *p = task_by_number(request->tid);
	struct task_mark *mark = NULL;

	if (!p)
		return -ESRCH;
	if (p->start_boottime / NS_PER_TICK == request->start_ticks)
		mark = bpf_task_storage_get(&task_marks, p, NULL,
					    request->rules ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (mark && mark->named_rules != request->rules) {
		mark->named_rules = request->rules;
		mark->named_ns = bpf_ktime_get_ns();
		class_changed(mark);
	}
	bpf_task_release(p);
	return 0;
}

/* User space has seen that a thread which spins shares memory with a launcher. */
SEC("syscall")
int note_spinner(struct gpuaware_spinner *spinner)
{
	struct task_struct *p = task_by_number(spinner->tid);
	struct task_mark *mark = NULL;

	if (!p)
		return -ESRCH;
	if (p->start_boottime / NS_PER_TICK == spinner->start_ticks)
		mark = bpf_task_storage_get(&task_marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (mark)
		observe(p, mark, &mark->spun, GPUAWARE_OBSERVED_SPINS, false);
	bpf_task_release(p);
	return 0;
}

/* `scx_gpuaware rescan` runs this. */
SEC("syscall")
int rescan(void *ctx)
{
	__sync_fetch_and_add(&nr_rescans, 1);
	return 0;
}

/*
 * True if process @p may map a library that it did not when user space was last told of it. A
 * process that starts, by fork or exec, has another mm; what opens a library has more to execute.
 * Not by trusted loads: see renew_basis().
 */
static __always_inline bool has_new_code(struct task_struct *p)
{
	struct gpuaware_event event = {
		.tid = tid_of(p), .tgid = tgid_of(p), .kind = GPUAWARE_EVENT_MAPPED};
	struct mm_struct *mm = BPF_CORE_READ(p, mm);
	struct code *code, now = {.mm = (u64)mm};

	if (mm)
		now.nr_pages = BPF_CORE_READ(mm, exec_vm);
	if (!event.tgid)
		return false;
	/* Kernel threads have none, who is about to end has none any more. */
	code = bpf_task_storage_get(&codes, p, NULL, now.mm ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	if (!code || (code->mm == now.mm && code->nr_pages == now.nr_pages))
		return false;
	/* No room: the next time. */
	if (bpf_ringbuf_output(&events, &event, sizeof(event), BPF_RB_NO_WAKEUP))
		return false;
	*code = now;
	return true;
}

/*
 * Tells of every process that may have mapped a library. User space runs this often: it costs a few
 * reads a process, and nobody pays when something is mapped. Returns how many there are.
 */
SEC("syscall")
int find_new_code(void *ctx)
{
	struct task_struct *p;
	int nr = 0;

	bpf_rcu_read_lock();
	bpf_for_each (task, p, NULL, BPF_TASK_ITER_ALL_PROCS)
		nr += has_new_code(p);
	bpf_rcu_read_unlock();
	return nr;
}

/* Has @p run so much since this was asked last, or since it started, that it may launch? */
static __always_inline bool has_run(struct task_struct *p, u64 now)
{
	struct run *run = bpf_task_storage_get(&runs, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 total = p->se.sum_exec_runtime, ran, elapsed;

	if (!run)
		return true;
	ran = total - run->total_ns;
	elapsed = now - (run->at_ns ?: p->start_time);
	run->total_ns = total;
	run->at_ns = now;
	return ran > elapsed / STRANGER_RUNS_ONE_IN;
}

/*
 * Does @p have a mark that a probe would add nothing to? A global function: the verifier looks at
 * it once, not on each of find_strangers()' paths.
 */
__noinline bool is_known(struct task_struct *p __arg_trusted, u64 stale_ns)
{
	struct class_verdict verdict = judge_task(p);
	struct task_mark *mark = bpf_task_storage_get(&task_marks, p, NULL, 0);
	u64 refused;

	if (verdict.source == GPUAWARE_SOURCE_UPROBE)
		return mark && mark->launched.hits && mark->launched.last_ns >= stale_ns;
	if (verdict.source || !mark)
		return verdict.source;
	/* That a context did not count says nothing of the launches to come. */
	refused = mark->launched.hits ? mark->refused : mark->refused & ~GPUAWARE_OBSERVED_LAUNCH;
	return mark->observed || refused || mark->refused_hint;
}

/*
 * The driver's thread that wakes threads when the GPU is done. It never launches itself, but runs
 * as long as somebody launches: without this, the probes would stay for it.
 */
static __always_inline bool is_event_handler(struct task_struct *p)
{
	char comm[TASK_COMM_LEN];

	return bpf_probe_read_kernel(comm, sizeof(comm), p->comm) == 0 &&
	       !bpf_strncmp(comm, sizeof(comm), "cuda-EvtHandlr");
}

/* Tells whether a thread of a process runs that has no mark: the launch probes look for it. */
SEC("syscall")
int find_strangers(struct gpuaware_strangers_request *request)
{
	struct task_struct *p = task_by_number(request->tgid), *thread;
	u64 now = bpf_ktime_get_ns();
	u32 ran = 0;

	request->ran = 0;
	if (!p)
		return -ESRCH;
	bpf_rcu_read_lock();
	bpf_for_each (task, thread, p, BPF_TASK_ITER_PROC_THREADS) {
		if (has_run(thread, now) && !is_known(thread, request->stale_ns) &&
		    !is_event_handler(thread))
			ran = 1;
	}
	bpf_rcu_read_unlock();
	bpf_task_release(p);
	request->ran = ran;
	return 0;
}

/* Takes what threads have said of themselves. User space reads this iterator when they did. */
SEC("iter/task")
int take_hints(struct bpf_iter__task *ctx)
{
	u32 *hint, class = GPUAWARE_CLASS_NONE, refused = GPUAWARE_CLASS_NONE;
	struct task_struct *p = ctx->task;
	struct task_mark *mark;

	if (!p)
		return 0;
	hint = bpf_task_storage_get(&hints, p, NULL, 0);
	if (!hint)
		return 0;
	/* Nobody can hint another thread away. */
	if (*hint == GPUAWARE_CLASS_LAUNCH || *hint == GPUAWARE_CLASS_HANDOFF)
		class = *hint;
	if (!is_trusted(p)) {
		refused = class;
		class = GPUAWARE_CLASS_NONE;
	}
	mark = bpf_task_storage_get(&task_marks, p, NULL,
				    class || refused ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	/* All hints are gone through whenever anybody hints: one that was refused counts once. */
	if (mark && mark->refused_hint != refused) {
		mark->refused_hint = refused;
		if (refused)
			__sync_fetch_and_add(&nr_refused, 1);
	}
	if (mark && mark->hinted_class != class) {
		mark->hinted_class = class;
		mark->hinted_ns = bpf_ktime_get_ns();
		if (class == GPUAWARE_CLASS_LAUNCH)
			remember_gpu_process(p);
		class_changed(mark);
	}
	return 0;
}

static __always_inline u64 expired(const struct sighting *sighting, u64 bits)
{
	return sighting->last_ns < expire_before_ns ? bits : 0;
}

static __always_inline u64 expired_launches(const struct task_mark *mark)
{
	if (mark->entered.last_ns >= contexts_before_ns)
		return 0;
	return expired(&mark->launched, GPUAWARE_OBSERVED_LAUNCH);
}

/* Forgets what is outdated. User space reads this iterator when it is time. */
SEC("iter/task")
int forget_outdated(struct bpf_iter__task *ctx)
{
	const u64 endpoints = ~(u64)(GPUAWARE_OBSERVED_FIRST_ENDPOINT - 1);
	struct task_struct *p = ctx->task;
	struct task_mark *mark;
	u64 outdated, seen;

	if (!p)
		return 0;
	mark = bpf_task_storage_get(&task_marks, p, NULL, 0);
	if (!mark)
		return 0;
	/* Before its times are read: what is seen meanwhile is not outdated. */
	seen = *(volatile u64 *)&mark->observed;
	outdated = expired_launches(mark) | expired(&mark->woke, GPUAWARE_OBSERVED_WAKES) |
		   expired(&mark->spun, GPUAWARE_OBSERVED_SPINS) | expired(&mark->sent, endpoints);
	if (rules_changed) {
		mark->named_rules = 0;
		mark->refused = 0;
		mark->entered.hits = 0; /* that did not count may do so now */
		mark->hinted_class = GPUAWARE_CLASS_NONE;
		if (!is_trusted(p))
			outdated = ~0ULL;
		else if (endpoints_changed)
			outdated |= endpoints;
		if (trust_by_device && !has_trusted_device(p))
			outdated |= GPUAWARE_OBSERVED_LAUNCH;
	}
	if (seen & outdated) {
		__sync_fetch_and_and(&mark->observed, ~(seen & outdated));
		class_changed(mark);
	}
	mark->refused &= ~outdated;
	return 0;
}

static __always_inline void record_times(struct gpuaware_mark_record *record,
					 const struct task_mark *mark)
{
	const struct sighting *sighting = mark->launched.hits ? &mark->launched : &mark->entered;

	record->launches = !!((mark->observed | mark->refused) & GPUAWARE_OBSERVED_LAUNCH);
	record->symbol = mark->symbol;
	record->rate = mark->wake_rate;
	if (record->source == GPUAWARE_SOURCE_MARK) {
		record->first_seen_ns = record->last_seen_ns = mark->marked_ns;
		return;
	}
	if (record->source == GPUAWARE_SOURCE_HINT) {
		record->first_seen_ns = record->last_seen_ns = mark->hinted_ns;
		return;
	}
	if (record->source == GPUAWARE_SOURCE_RULE) {
		record->first_seen_ns = record->last_seen_ns = mark->named_ns;
		return;
	}
	if (record->source == GPUAWARE_SOURCE_WAKES)
		sighting = &mark->woke;
	else if (record->source == GPUAWARE_SOURCE_SPINS)
		sighting = &mark->spun;
	else if (record->source == GPUAWARE_SOURCE_CONNECTS)
		sighting = &mark->sent;
	record->first_seen_ns = sighting->first_ns;
	record->last_seen_ns = sighting->last_ns;
	record->hits = sighting->hits;
}

/*
 * Every task that has a class, was refused one, or launches, with the reason. Pinned, so that
 * `marks` only reads a file. The numbers are those of whoever reads it, and so are the tasks.
 */
SEC("iter/task")
int list_marks(struct bpf_iter__task *ctx)
{
	struct gpuaware_mark_record record = {};
	struct task_struct *p = ctx->task;
	struct class_verdict verdict;
	struct task_mark *mark;
	struct pids_of reader;

	if (!p)
		return 0;
	verdict = judge_task(p);
	mark = bpf_task_storage_get(&task_marks, p, NULL, 0);
	if (!verdict.class && mark && (mark->refused || mark->refused_hint)) {
		judge_rules(mark, mark->observed | mark->refused, ~0ULL, &verdict);
		if (!verdict.source)
			verdict.rule = GPUAWARE_NO_RULE;
		if (verdict.source || mark->refused_hint)
			verdict.source = GPUAWARE_SOURCE_REFUSED;
		verdict.class = GPUAWARE_CLASS_NONE;
	}
	if (!verdict.source && (!mark || !mark->observed))
		return 0;
	reader = pids_of(bpf_get_current_task_btf());
	record.tid = tid_for(p, &reader);
	record.tgid = tgid_for(p, &reader);
	if (!record.tid)
		return 0;
	record.class = verdict.class;
	record.source = verdict.source;
	record.rule = verdict.rule;
	record.tag_id = verdict.tag_id;
	record.uid = BPF_CORE_READ(p, cred, uid.val);
	record.cgroup_id = task_cgroup_id(p);
	record.gpu_node = gpu_node(p);
	BPF_CORE_READ_STR_INTO(&record.comm, p, comm);
	if (mark)
		record_times(&record, mark);
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}
