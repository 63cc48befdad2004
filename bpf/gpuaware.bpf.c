// SPDX-License-Identifier: GPL-2.0-only
/*
 * The scheduler: the struct_ops in the order in which the kernel calls them.
 *
 * A launcher (class LAUNCH) runs at once, on a preferred CPU, and throws background out for it.
 * Background runs wherever a launcher does not. The rules are in the headers: who is what in
 * class.bpf.h, which CPU a launcher gets in preferred.bpf.h, how a CPU is kept for it in
 * hold.bpf.h, how everybody else shares in background.bpf.h.
 */
#include <scx/common.bpf.h>

#include "background.bpf.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

s32 BPF_STRUCT_OPS(gpuaware_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *tctx = task_ctx(p);
	struct pick pick;
	s32 cpu;

	if (!tctx)
		return prev_cpu;
	if (task_class(p, tctx) == GPUAWARE_CLASS_LAUNCH) {
		pick = pick_launch_cpu(p, tctx, prev_cpu, scx_bpf_now());
		if (pick.cpu < 0)
			return prev_cpu;
		count_pick(&pick);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, launch_slice_ns,
				   pick.how == PICK_PREEMPT ? SCX_ENQ_PREEMPT : 0);
		return pick.cpu;
	}
	cpu = pick_background_cpu(p, prev_cpu);
	if (cpu >= 0) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, background_slice_ns, 0);
		stat_inc(GPUAWARE_STAT_BACKGROUND_DIRECT);
		return cpu;
	}
	return prev_cpu;
}

/*
 * A launcher that lost its CPU, or that select_cpu() found none for. Where another CPU is to take
 * it, that one is kicked and takes it from the launch queue: an insertion into its local queue
 * from here is deferred by the kernel, and was seen to throw nobody out before the next tick.
 */
static __always_inline void enqueue_launch(struct task_struct *p, struct task_ctx *tctx,
					   u64 enq_flags, u64 now)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct pick pick = pick_launch_cpu(p, tctx, cpu, now);

	if (pick.cpu >= 0)
		count_pick(&pick);
	else
		stat_inc(GPUAWARE_STAT_LAUNCH_QUEUED);
	if (pick.cpu == cpu) {
		if (pick.how == PICK_PREEMPT)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, launch_slice_ns, enq_flags);
		return;
	}
	/* Without a pick, every CPU that it may use runs a launcher: they share in turns. */
	scx_bpf_dsq_insert(p, launch_dsq(llc_of(pick.cpu >= 0 ? pick.cpu : cpu)), launch_slice_ns,
			   enq_flags);
	if (pick.cpu >= 0)
		scx_bpf_kick_cpu(pick.cpu,
				 pick.how == PICK_PREEMPT ? SCX_KICK_PREEMPT : SCX_KICK_IDLE);
}

void BPF_STRUCT_OPS(gpuaware_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *tctx = task_ctx(p);
	u64 now = scx_bpf_now();
	struct cpu_ctx *cctx;

	/*
	 * The kernel's own work on a CPU goes before background and is short: RCU, softirqs,
	 * workqueues. A launcher has until the next tick to go to sleep by itself.
	 */
	if (is_percpu_kthread(p)) {
		cctx = cpu_ctx(scx_bpf_task_cpu(p));
		if (cctx)
			cctx->kthread_waiting = true;
		if (!cctx || cctx->occupant != OCCUPANT_LAUNCH)
			enq_flags |= SCX_ENQ_PREEMPT;
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, lent_slice_ns, enq_flags);
		return;
	}
	if (!tctx || task_class(p, tctx) != GPUAWARE_CLASS_LAUNCH) {
		enqueue_background(p, tctx, enq_flags, now);
		return;
	}
	enqueue_launch(p, tctx, enq_flags, now);
}

void BPF_STRUCT_OPS(gpuaware_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct task_ctx *tctx;
	u64 now = scx_bpf_now();
	u32 llc = llc_of(cpu);

	if (!cctx)
		return;
	if (dispatch_turn(cpu, llc, cctx, now))
		return;
	if (dsq_waiting(launch_dsq(llc)) && scx_bpf_dsq_move_to_local(launch_dsq(llc), 0))
		return;
	tctx = prev && (prev->scx.flags & SCX_TASK_QUEUED) ? task_ctx(prev) : NULL;
	if (tctx && tctx->class == GPUAWARE_CLASS_LAUNCH) {
		scx_bpf_task_set_slice(prev, launch_slice_ns);
		return;
	}
	if (tctx && !is_percpu_kthread(prev) && keeps_running(prev, tctx, cpu, cctx, llc, now)) {
		scx_bpf_task_set_slice(prev,
				       is_preferred(cpu) ? lent_slice_ns : background_slice_ns);
		return;
	}
	if (is_held(cctx, now)) {
		/* Somebody woke this CPU for work that it declines: another one takes it. */
		if (dsq_waiting(background_dsq(llc)))
			kick_idle_for_background();
		return;
	}
	if (!dispatch_background(cpu, cctx, llc))
		dispatch_from_others(llc);
}

void BPF_STRUCT_OPS(gpuaware_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *tctx = task_ctx(p);
	u64 now = scx_bpf_now();

	if (!tctx)
		return;
	tctx->waiting_since_ns = now;
	if (enq_flags & SCX_ENQ_WAKEUP)
		learn_sleep(tctx, now);
}

void BPF_STRUCT_OPS(gpuaware_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *tctx = task_ctx(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = scx_bpf_now();

	if (!tctx || !cctx)
		return;
	if (time_after(now, tctx->waiting_since_ns)) {
		stat_max(GPUAWARE_STAT_WORST_WAIT_NS, now - tctx->waiting_since_ns);
		if (tctx->class == GPUAWARE_CLASS_LAUNCH)
			stat_max(GPUAWARE_STAT_WORST_LAUNCH_WAIT_NS, now - tctx->waiting_since_ns);
	}
	tctx->run_start_ns = now;
	if (is_percpu_kthread(p)) {
		cctx->occupant = OCCUPANT_KTHREAD;
		cctx->kthread_waiting = false;
		return;
	}
	if (tctx->class == GPUAWARE_CLASS_LAUNCH) {
		cctx->occupant = OCCUPANT_LAUNCH;
		drop_claim(p, tctx);
		end_hold(cpu, cctx, now);
		return;
	}
	cctx->occupant = OCCUPANT_BACKGROUND;
	advance_clock(p, tctx, cctx);
	if (time_before(now, cctx->turn_until_ns)) {
		scx_bpf_task_set_slice(p, cctx->turn_until_ns - now);
		return;
	}
	if (is_preferred(cpu))
		scx_bpf_task_set_slice(p, lent_slice_ns);
	/*
	 * A launcher that woke between this task's dispatch and now found the CPU neither idle nor
	 * running background, and waits in the queue.
	 */
	if (dsq_waiting(launch_dsq(llc_of(cpu))))
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

void BPF_STRUCT_OPS(gpuaware_tick, struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx(p);
	struct cpu_ctx *cctx = cpu_ctx(scx_bpf_task_cpu(p));

	if (tctx && cctx && tctx->class == GPUAWARE_CLASS_LAUNCH && cctx->kthread_waiting)
		scx_bpf_task_set_slice(p, 0);
}

void BPF_STRUCT_OPS(gpuaware_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *tctx = task_ctx(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = scx_bpf_now(), ran_ns;
	struct llc_ctx *llcx;

	if (!tctx || !cctx)
		return;
	ran_ns = now - tctx->run_start_ns;
	if (runnable)
		tctx->waiting_since_ns = now;
	cctx->occupant = OCCUPANT_OTHER;
	if (is_percpu_kthread(p))
		return;
	if (tctx->class == GPUAWARE_CLASS_LAUNCH) {
		stat_add(GPUAWARE_STAT_LAUNCH_RUN_NS, ran_ns);
		return;
	}
	charge_background(p, cctx, cpu, llc_of(cpu), ran_ns);
	stat_add(GPUAWARE_STAT_BACKGROUND_RUN_NS, ran_ns);
	if (is_preferred(cpu))
		stat_add(GPUAWARE_STAT_LENT_RUN_NS, ran_ns);
	if (is_pinned(p)) {
		cctx->pinned_served_ns = now;
		return;
	}
	llcx = llc_ctx(llc_of(cpu));
	if (llcx)
		llcx->background_served_ns = now;
}

void BPF_STRUCT_OPS(gpuaware_quiescent, struct task_struct *p, u64 deq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *tctx = task_ctx(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = scx_bpf_now();

	if (!tctx || !cctx || tctx->class != GPUAWARE_CLASS_LAUNCH)
		return;
	drop_claim(p, tctx);
	if (!(deq_flags & SCX_DEQ_SLEEP))
		return;
	tctx->sleep_start_ns = now;
	start_hold(cpu, cctx, tctx, now);
}

/*
 * CUDA waits for the GPU in a sched_yield() loop when told to. A launcher that yields keeps its
 * CPU unless another launcher wants one: a switch a yield helps nobody.
 */
bool BPF_STRUCT_OPS(gpuaware_yield, struct task_struct *from, struct task_struct *to)
{
	struct task_ctx *tctx = task_ctx(from);

	if (to)
		return false;
	if (tctx && tctx->class == GPUAWARE_CLASS_LAUNCH &&
	    !dsq_waiting(launch_dsq(llc_of(scx_bpf_task_cpu(from)))))
		return false;
	scx_bpf_task_set_slice(from, 0);
	return false;
}

/* Work may have been queued between this CPU's last look and its becoming visibly idle. */
void BPF_STRUCT_OPS(gpuaware_update_idle, s32 cpu, bool idle)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 llc = llc_of(cpu);

	if (!idle || !cctx)
		return;
	if (dsq_waiting(launch_dsq(llc)) ||
	    (!is_held(cctx, scx_bpf_now()) &&
	     (dsq_waiting(background_dsq(llc)) || dsq_waiting(pinned_dsq(cpu)))))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

s32 BPF_STRUCT_OPS(gpuaware_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_ctx *tctx;

	tctx = bpf_task_storage_get(&task_ctxs, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!tctx)
		return -ENOMEM;
	tctx->class_generation = ~0ULL;
	tctx->claimed_cpu = -1;
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(gpuaware_init)
{
	s32 ret;

	ret = create_dsqs();
	if (!ret)
		ret = init_preferred();
	if (!ret)
		ret = init_hold();
	if (!ret)
		ret = init_background();
	return ret;
}

void BPF_STRUCT_OPS(gpuaware_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(gpuaware_ops, .select_cpu = (void *)gpuaware_select_cpu,
	       .enqueue = (void *)gpuaware_enqueue, .dispatch = (void *)gpuaware_dispatch,
	       .runnable = (void *)gpuaware_runnable, .running = (void *)gpuaware_running,
	       .tick = (void *)gpuaware_tick, .stopping = (void *)gpuaware_stopping,
	       .quiescent = (void *)gpuaware_quiescent, .yield = (void *)gpuaware_yield,
	       .update_idle = (void *)gpuaware_update_idle, .init_task = (void *)gpuaware_init_task,
	       .init = (void *)gpuaware_init, .exit = (void *)gpuaware_exit, .timeout_ms = 20000,
	       .name = "gpuaware");
