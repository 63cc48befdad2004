/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Interrupts on top of traced threads: who loses how much to them.
 */
#ifndef __GPUAWARE_TRACE_IRQ_BPF_H
#define __GPUAWARE_TRACE_IRQ_BPF_H

#include "trace_thread.bpf.h"
#include "trace_nest.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TRACE_MAX_IRQS);
	__type(key, struct trace_irq_key);
	__type(value, struct trace_irq_total);
} irq_totals SEC(".maps");

static __always_inline void irq_entry(u32 kind, u32 nr)
{
	struct irq_nest *nest = this_irq_nest();

	if (running && nest)
		push_irq(nest, kind, nr);
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

static __always_inline void irq_exit(u32 kind, u32 nr, const char *name)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct irq_nest *nest = this_irq_nest();
	struct trace_thread *thread;
	struct trace_record *event;
	struct irq_span span;

	if (!nest || !end_irq(nest, kind, nr, &span))
		return;
	thread = thread_of(p);
	if (!thread || !running)
		return;
	count_irq(&thread->record.counters, kind, span.self_ns);
	count_irq_total(kind, nr, span.self_ns, name);
	event = new_event(kind);
	if (!event)
		return;
	about_task(event, span.end_ns, p);
	event->irq.duration_ns = span.duration_ns;
	event->irq.self_ns = span.self_ns;
	event->irq.nr = nr;
	event->irq.pad = 0;
	event->irq.name[0] = 0;
	if (name)
		bpf_probe_read_kernel_str(event->irq.name, TRACE_IRQ_NAME_LEN, name);
	submit(event);
}

#endif /* __GPUAWARE_TRACE_IRQ_BPF_H */
