/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interrupts nest, so each CPU has a stack of those that run, whoever they interrupt, and a clock
 * of the own time of all that ended: what that clock advances while an interrupt runs was nested in
 * it. Own times add up to the time stolen, nothing twice.
 *
 * The programs here are interrupted themselves, at any instruction, by interrupts that use the same
 * stack and leave it as they found it. Whoever includes this has a missed(), which counts why
 * something was passed over: enum trace_miss.
 */
#ifndef __GPUAWARE_TRACE_NEST_BPF_H
#define __GPUAWARE_TRACE_NEST_BPF_H

#include "trace_intf.h"

#define READ_ONCE(x)	 (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))
#define MAX_NESTED_IRQS	 4 /* a power of 2; softirq, hard interrupt on top, and then some */

/* A moment, and the clock of own times at it. */
struct irq_moment {
	u64 now_ns;
	u64 own_ns;
};

struct irq_frame {
	struct irq_moment start;
	u32 kind;
	u32 nr;
};

struct irq_nest {
	u32 depth;
	u64 own_ns;
	struct irq_frame frames[MAX_NESTED_IRQS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct irq_nest);
} irq_nests SEC(".maps");

static __always_inline struct irq_nest *this_irq_nest(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&irq_nests, &zero);
}

/* Does this CPU run an interrupt now? Those that began before tracing did are not known. */
static __always_inline bool in_irq(void)
{
	struct irq_nest *stack = this_irq_nest();

	return stack && stack->depth;
}

/* Both clocks at one moment: no interrupt ended in between. */
static __always_inline struct irq_moment moment(struct irq_nest *nest)
{
	struct irq_moment m;
	int tries;

	for (tries = 0; tries < 4; tries++) {
		m.own_ns = READ_ONCE(nest->own_ns);
		m.now_ns = bpf_ktime_get_ns();
		if (m.own_ns == READ_ONCE(nest->own_ns))
			break;
	}
	return m;
}

/* An interrupt of @kind and @nr begins on this CPU. */
static __always_inline void push_irq(struct irq_nest *nest, u32 kind, u32 nr)
{
	u32 depth = READ_ONCE(nest->depth);
	struct irq_frame *frame;

	if (depth >= MAX_NESTED_IRQS) {
		missed(TRACE_MISS_TOO_DEEP);
		return;
	}
	/* Taken before it is filled: an interrupt in between takes the next one. */
	WRITE_ONCE(nest->depth, depth + 1);
	barrier();
	frame = &nest->frames[depth & (MAX_NESTED_IRQS - 1)];
	frame->kind = kind;
	frame->nr = nr;
	frame->start = moment(nest);
}

/* Takes the frame of @kind and @nr from the stack into @frame. False: its entry was not noted. */
static __always_inline bool pop_irq(struct irq_nest *nest, u32 kind, u32 nr,
				    struct irq_frame *frame)
{
	u32 depth = READ_ONCE(nest->depth);

	if (!depth)
		return false;
	/* Read before it is given back: an interrupt after that may overwrite it. */
	*frame = nest->frames[(depth - 1) & (MAX_NESTED_IRQS - 1)];
	barrier();
	if (frame->kind != kind || frame->nr != nr) {
		/* Out of step, as after tracing began in the middle of one: start anew. */
		WRITE_ONCE(nest->depth, 0);
		missed(TRACE_MISS_UNPAIRED_IRQ);
		return false;
	}
	WRITE_ONCE(nest->depth, depth - 1);
	return true;
}

/* How long an interrupt took that has ended, and what of it was its own. */
struct irq_span {
	u64 end_ns;
	u64 duration_ns;
	u64 self_ns;
};

/* The interrupt of @kind and @nr ends on this CPU. False: its begin is not known. */
static __always_inline bool end_irq(struct irq_nest *nest, u32 kind, u32 nr, struct irq_span *span)
{
	struct irq_moment end;
	struct irq_frame frame;

	if (!nest->depth)
		return false;
	end = moment(nest);
	if (!pop_irq(nest, kind, nr, &frame))
		return false;
	span->end_ns = end.now_ns;
	span->duration_ns = end.now_ns - frame.start.now_ns;
	span->self_ns = span->duration_ns - (end.own_ns - frame.start.own_ns);
	__sync_fetch_and_add(&nest->own_ns, span->self_ns);
	return true;
}

#endif /* __GPUAWARE_TRACE_NEST_BPF_H */
