/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interrupts on top of traced threads. They nest, so each CPU has a stack of those that run,
 * whoever they interrupt, and a clock of the own time of all that ended: what that clock advances
 * while an interrupt runs was nested in it. Own times add up to the time stolen, nothing twice.
 *
 * The programs here are interrupted themselves, at any instruction, by interrupts that use the same
 * stack and leave it as they found it.
 */
#ifndef __GPUAWARE_TRACE_IRQ_BPF_H
#define __GPUAWARE_TRACE_IRQ_BPF_H

#include "trace_thread.bpf.h"

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

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRACE_MAX_IRQS);
	__type(key, struct trace_irq_key);
	__type(value, struct trace_irq_total);
} irq_totals SEC(".maps");

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

static __always_inline void irq_entry(u32 kind, u32 nr)
{
	struct irq_nest *nest = this_irq_nest();
	struct irq_frame *frame;
	u32 depth;

	if (!running || !nest)
		return;
	depth = READ_ONCE(nest->depth);
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

static __always_inline void count_irq_total(u32 kind, u32 nr, u64 self_ns, const char *name)
{
	struct trace_irq_key key = {.kind = kind, .nr = nr};
	struct trace_irq_total *total = bpf_map_lookup_elem(&irq_totals, &key);

	if (!total) {
		struct trace_irq_total zero = {};

		if (name)
			bpf_probe_read_kernel_str(zero.name, sizeof(zero.name), name);
		bpf_map_update_elem(&irq_totals, &key, &zero, BPF_NOEXIST);
		total = bpf_map_lookup_elem(&irq_totals, &key);
		if (!total) {
			__sync_fetch_and_add(&nr_lost_irqs, 1);
			return;
		}
	}
	__sync_fetch_and_add(&total->count, 1);
	__sync_fetch_and_add(&total->self_ns, self_ns);
	/* Two CPUs may race: the loser's maximum is lost, if it was one. */
	if (self_ns > total->worst_ns)
		total->worst_ns = self_ns;
}

static __always_inline void count_irq(struct trace_counters *c, u32 kind, u64 self_ns)
{
	if (kind == TRACE_HARD_IRQ) {
		c->hard_irqs++;
		c->hard_irq_ns += self_ns;
	} else if (kind == TRACE_SOFT_IRQ) {
		c->soft_irqs++;
		c->soft_irq_ns += self_ns;
	} else {
		c->vector_irqs++;
		c->vector_irq_ns += self_ns;
	}
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

static __always_inline void irq_exit(u32 kind, u32 nr, const char *name)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct irq_nest *nest = this_irq_nest();
	struct irq_frame frame;
	struct trace_thread *thread;
	struct trace_record *event;
	struct irq_moment end;
	u64 duration_ns, self_ns;

	if (!nest || !nest->depth)
		return;
	end = moment(nest);
	if (!pop_irq(nest, kind, nr, &frame))
		return;
	duration_ns = end.now_ns - frame.start.now_ns;
	self_ns = duration_ns - (end.own_ns - frame.start.own_ns);
	__sync_fetch_and_add(&nest->own_ns, self_ns);
	thread = thread_of(p);
	if (!thread || !running)
		return;
	count_irq(&thread->record.counters, kind, self_ns);
	count_irq_total(kind, nr, self_ns, name);
	event = new_event(kind);
	if (!event)
		return;
	about_task(event, end.now_ns, p);
	event->irq.duration_ns = duration_ns;
	event->irq.self_ns = self_ns;
	event->irq.nr = nr;
	event->irq.pad = 0;
	event->irq.name[0] = 0;
	if (name)
		bpf_probe_read_kernel_str(event->irq.name, TRACE_IRQ_NAME_LEN, name);
	submit(event);
}

#endif /* __GPUAWARE_TRACE_IRQ_BPF_H */
