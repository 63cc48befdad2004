/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Calls into libcuda, counted and recorded while a window is open: what was launched, and what the
 * time between two launches was lost to.
 */
#ifndef __GPUAWARE_TRACE_CUDA_BPF_H
#define __GPUAWARE_TRACE_CUDA_BPF_H

#include "trace_thread.bpf.h"

/* CUlaunchConfig of cuda.h as far as it is read here. */
struct launch_config {
	u32 grid[3];
	u32 block[3];
	u32 shared_bytes;
	u32 pad;
	u64 stream;
};

/* The current thread if its calls are to be counted now. */
static __always_inline struct trace_thread *caller(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct trace_thread *thread;

	if (!running || !window)
		return NULL;
	thread = thread_of(p);
	if (thread || !trace_launchers || !is_seen(p))
		return thread;
	notify(TRACE_NOTICE_PROCESS, tgid_of(p));
	thread = start_thread(p, TRACE_ON_CPU);
	if (!thread)
		missed(TRACE_MISS_NO_MEMORY);
	return thread;
}

static __always_inline u64 nr_switches(struct trace_counters *c)
{
	return c->preempted + c->yielded + c->blocked;
}

/* Launches of each window, for how much they differ. */
static __always_inline void count_in_window(struct trace_thread *thread)
{
	struct trace_thread_record *r = &thread->record;

	if (thread->mark.window != window) {
		r->squared_launches += (u64)r->window_launches * r->window_launches;
		r->window_launches = 0;
	}
	r->window_launches++;
}

/*
 * @ns after its last launch in this window a thread launches again: is that a burst? Launches of a
 * burst are less than TRACE_BURST_NS apart, and there are three at least. One that a window cuts
 * counts with what the window has of it.
 */
static __always_inline void next_in_burst(struct trace_counters *c, struct interval_mark *mark,
					  u64 ns, bool disturbed)
{
	bool was_disturbed = mark->burst_disturbed;

	if (ns >= TRACE_BURST_NS) {
		mark->burst_pairs = 0;
		mark->burst_disturbed = false;
		return;
	}
	mark->burst_disturbed |= disturbed;
	mark->burst_pairs++;
	if (mark->burst_pairs < TRACE_MIN_BURST_PAIRS)
		return;
	if (mark->burst_pairs == TRACE_MIN_BURST_PAIRS) {
		c->bursts++;
		c->burst_launches += TRACE_MIN_BURST_PAIRS;
		was_disturbed = false;
	}
	c->burst_launches++;
	c->bursts_disturbed += mark->burst_disturbed && !was_disturbed;
}

/* The thread launches at @now: accounts for the time since its last launch in this window. */
static __always_inline void next_interval(struct trace_thread *thread, u64 now)
{
	struct trace_counters *c = &thread->record.counters;
	struct interval_mark *mark = &thread->mark;

	count_in_window(thread);
	if (mark->window != window) {
		mark->burst_pairs = 0;
		mark->burst_disturbed = false;
	} else {
		u64 ns = now - mark->at_ns;

		next_in_burst(c, mark, ns, mark->switches != nr_switches(c));
		if (mark->switches == nr_switches(c)) {
			c->intervals_calm++;
			c->intervals_calm_ns += ns;
			observe(c, TRACE_HIST_INTERVAL_CALM, ns);
		} else {
			c->intervals_disturbed++;
			c->intervals_disturbed_ns += ns;
			observe(c, TRACE_HIST_INTERVAL_DISTURBED, ns);
		}
		c->interval_preempted_ns += c->preempted_ns - mark->preempted_ns;
		c->interval_yielded_ns += c->yielded_ns - mark->yielded_ns;
		c->interval_asleep_ns += c->asleep_ns - mark->asleep_ns;
		c->interval_wakeup_wait_ns += c->wakeup_wait_ns - mark->wakeup_wait_ns;
		c->interval_hard_irq_ns += c->hard_irq_ns - mark->hard_irq_ns;
		c->interval_soft_irq_ns += c->soft_irq_ns - mark->soft_irq_ns;
		c->interval_vector_irq_ns += c->vector_irq_ns - mark->vector_irq_ns;
	}
	mark->window = window;
	mark->at_ns = now;
	mark->switches = nr_switches(c);
	mark->preempted_ns = c->preempted_ns;
	mark->yielded_ns = c->yielded_ns;
	mark->asleep_ns = c->asleep_ns;
	mark->wakeup_wait_ns = c->wakeup_wait_ns;
	mark->hard_irq_ns = c->hard_irq_ns;
	mark->soft_irq_ns = c->soft_irq_ns;
	mark->vector_irq_ns = c->vector_irq_ns;
}

/* An event about a call of the current thread, without arguments. */
static __always_inline struct trace_record *call_event(u32 kind, u64 now, u32 symbol)
{
	struct trace_record *event = new_event(kind);

	if (!event)
		return NULL;
	about_task(event, now, bpf_get_current_task_btf());
	__builtin_memset(&event->cuda, 0, sizeof(event->cuda));
	event->cuda.symbol = symbol;
	return event;
}

/* cuLaunchKernel(f, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedMem, stream, …) */
static __always_inline void read_plain_launch(struct pt_regs *ctx, struct trace_cuda *cuda)
{
	u64 stack[3] = {};

	cuda->grid[0] = PT_REGS_PARM2(ctx);
	cuda->grid[1] = PT_REGS_PARM3(ctx);
	cuda->grid[2] = PT_REGS_PARM4(ctx);
	cuda->block[0] = PT_REGS_PARM5(ctx);
#if defined(__TARGET_ARCH_x86)
	cuda->block[1] = PT_REGS_PARM6(ctx);
	/* The rest is above the return address. */
	bpf_probe_read_user(stack, sizeof(stack), (void *)(PT_REGS_SP(ctx) + 8));
	cuda->block[2] = stack[0];
	cuda->shared_bytes = stack[1];
	cuda->stream = stack[2];
#elif defined(__TARGET_ARCH_arm64)
	cuda->block[1] = PT_REGS_PARM6(ctx);
	cuda->block[2] = PT_REGS_PARM7(ctx);
	cuda->shared_bytes = PT_REGS_PARM8(ctx);
	bpf_probe_read_user(stack, sizeof(stack[0]), (void *)PT_REGS_SP(ctx));
	cuda->stream = stack[0];
#endif
}

/* cuLaunchKernelEx(config, f, …) */
static __always_inline void read_ex_launch(struct pt_regs *ctx, struct trace_cuda *cuda)
{
	struct launch_config config = {};

	bpf_probe_read_user(&config, sizeof(config), (void *)PT_REGS_PARM1(ctx));
	__builtin_memcpy(cuda->grid, config.grid, sizeof(cuda->grid));
	__builtin_memcpy(cuda->block, config.block, sizeof(cuda->block));
	cuda->shared_bytes = config.shared_bytes;
	cuda->stream = config.stream;
}

static __always_inline void kernel_launch(struct pt_regs *ctx, bool ex)
{
	struct trace_thread *thread = caller();
	u64 now = bpf_ktime_get_ns();
	struct trace_record *event;

	if (!thread)
		return;
	next_interval(thread, now);
	thread->record.counters.launches++;
	event = call_event(TRACE_LAUNCH, now, bpf_get_attach_cookie(ctx));
	if (!event)
		return;
	if (ex)
		read_ex_launch(ctx, &event->cuda);
	else
		read_plain_launch(ctx, &event->cuda);
	submit(event);
}

/* Takes a place for a call that begins. Its end will not be known if there is none. */
static __always_inline void open_call(struct open_calls *open, u64 now, u64 stream, u64 symbol)
{
	struct open_call *call;
	u32 depth;

	if (open->window != window) {
		/* Calls that outlast their window leave no end. */
		open->window = window;
		open->depth = 0;
	}
	depth = open->depth++;
	if (depth >= MAX_NESTED_CALLS) {
		missed(TRACE_MISS_TOO_DEEP);
		return;
	}
	call = &open->calls[depth & (MAX_NESTED_CALLS - 1)];
	call->begin_ns = now;
	call->stream = stream;
	call->symbol = symbol;
}

/* The innermost call of @symbol, which returns. NULL: its begin was not seen. */
static __always_inline struct open_call *close_call(struct open_calls *open, u64 symbol)
{
	u32 depth = open->depth;
	int at;

	if (open->window != window || !depth)
		return NULL;
	if (depth > MAX_NESTED_CALLS) {
		open->depth--;
		return NULL;
	}
	for (at = MAX_NESTED_CALLS - 1; at >= 0; at--) {
		struct open_call *call = &open->calls[at];

		if (at >= depth)
			continue;
		if (call->symbol == symbol) {
			open->depth = at;
			return call;
		}
		/* It never returns, as after longjmp(), unless this one began before the window. */
	}
	return NULL;
}

/* A call that takes time begins; what it is about goes with its end as well. */
static __always_inline void enter_call(struct pt_regs *ctx, struct trace_thread *thread, u32 kind,
				       u64 stream)
{
	u64 now = bpf_ktime_get_ns(), symbol = bpf_get_attach_cookie(ctx);
	struct trace_record *event;

	open_call(&thread->open, now, stream, symbol);
	event = call_event(kind, now, symbol);
	if (!event)
		return;
	event->cuda.stream = stream;
	submit(event);
}

/* Returns how long the call took; 0 if its begin was not seen. */
static __always_inline u64 exit_call(struct pt_regs *ctx, struct trace_thread *thread, u32 kind)
{
	u64 now = bpf_ktime_get_ns(), symbol = bpf_get_attach_cookie(ctx);
	struct open_call *call = close_call(&thread->open, symbol);
	struct trace_record *event;
	u64 ns;

	if (!call)
		return 0;
	ns = now - call->begin_ns;
	event = call_event(kind, now, symbol);
	if (event) {
		event->cuda.duration_ns = ns;
		event->cuda.stream = call->stream;
		submit(event);
	}
	return ns;
}

#endif /* __GPUAWARE_TRACE_CUDA_BPF_H */
