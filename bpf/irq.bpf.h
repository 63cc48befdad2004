/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interrupt time per CPU, and whether a CPU is in an interrupt storm.
 *
 * The kernels that we run on account no IRQ time of their own (IRQ_TIME_ACCOUNTING is rarely set),
 * so the handlers are timed. A hard interrupt may come in the middle of a softirq: time counts for
 * the innermost one, once. On PREEMPT_RT softirqs can be preempted and count too much.
 *
 * Not a depth, which would be wrong for good once a section's end was missed: the program for
 * beginnings is attached some time before that for ends. A softirq never begins within a section.
 */
#ifndef __GPUAWARE_IRQ_BPF_H
#define __GPUAWARE_IRQ_BPF_H

#include "now.bpf.h"

/* A CPU is in a storm when interrupts took more than a third of a window. */
#define STORM_WINDOW_NS 4000000ULL
#define STORM_SHARE	3
/* How long it is avoided after that. */
#define STORM_DWELL_NS 20000000ULL

/* Written by its CPU in interrupts; others read, and tolerate a stale answer. */
struct irq_ctx {
	struct gpuaware_irq_time total;
	u64 since_ns; /* start of the current innermost section */
	u64 window_start_ns;
	u64 window_ns;
	bool in_hard;
	bool in_soft;
	cacheline_aligned u64 storm_until_ns; /* read at wakeups, by others */
} cacheline_aligned;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* see cpu_ctxs */
	__uint(max_entries, GPUAWARE_MAX_CPUS);
	__type(key, u32);
	__type(value, struct irq_ctx);
} irq_ctxs SEC(".maps");

static __always_inline struct irq_ctx *irq_ctx(u32 cpu)
{
	return bpf_map_lookup_elem(&irq_ctxs, &cpu);
}

static __always_inline void charge_irq(struct irq_ctx *ictx, u64 now)
{
	u64 ran = time_delta(now, ictx->since_ns);

	if (ictx->in_hard)
		ictx->total.hard_ns += ran;
	else if (ictx->in_soft)
		ictx->total.soft_ns += ran;
	if (ictx->in_hard || ictx->in_soft)
		ictx->window_ns += ran;
	ictx->since_ns = now;
}

static __always_inline void enter_irq(bool hard)
{
	struct irq_ctx *ictx = irq_ctx(bpf_get_smp_processor_id());

	if (!ictx)
		return;
	charge_irq(ictx, now_in_interrupt());
	ictx->in_hard = hard;
	ictx->in_soft |= !hard;
}

static __always_inline void leave_irq(bool hard)
{
	struct irq_ctx *ictx = irq_ctx(bpf_get_smp_processor_id());
	u64 now, window;

	if (!ictx)
		return;
	now = now_in_interrupt();
	charge_irq(ictx, now);
	ictx->in_hard = false;
	ictx->in_soft &= hard;
	window = time_delta(now, ictx->window_start_ns);
	if (window < STORM_WINDOW_NS)
		return;
	if (ictx->window_ns * STORM_SHARE > window)
		ictx->storm_until_ns = now + STORM_DWELL_NS;
	ictx->window_start_ns = now;
	ictx->window_ns = 0;
}

/* Would a task that is put on @cpu wait for interrupts rather than run? */
static __always_inline bool in_storm(s32 cpu, u64 now)
{
	struct irq_ctx *ictx = irq_ctx(cpu);

	return ictx && time_before(now, ictx->storm_until_ns);
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(time_irq_entry)
{
	enter_irq(true);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(time_irq_exit)
{
	leave_irq(true);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(time_softirq_entry)
{
	enter_irq(false);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(time_softirq_exit)
{
	leave_irq(false);
	return 0;
}

#endif /* __GPUAWARE_IRQ_BPF_H */
