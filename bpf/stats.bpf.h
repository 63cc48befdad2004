/* SPDX-License-Identifier: GPL-2.0-only */
/* Counters, one set a CPU, put together by user space. No CPU writes where another one counts. */
#ifndef __GPUAWARE_STATS_BPF_H
#define __GPUAWARE_STATS_BPF_H

#include "intf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct gpuaware_stats);
} stats SEC(".maps");

static __always_inline void stat_add(enum gpuaware_stat stat, u64 value)
{
	u32 zero = 0;
	struct gpuaware_stats *own = bpf_map_lookup_elem(&stats, &zero);

	if (own)
		own->counts[stat] += value;
}

static __always_inline void stat_inc(enum gpuaware_stat stat)
{
	stat_add(stat, 1);
}

/* By enum gpuaware_class. Who has none is background, a per-CPU kthread too. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GPUAWARE_NR_CLASSES);
	__type(key, u32);
	__type(value, struct gpuaware_class_stats);
} class_stats SEC(".maps");

static __always_inline struct gpuaware_class_stats *stats_of(u32 class)
{
	return bpf_map_lookup_elem(&class_stats, &class);
}

/* @p, of @class, runs after @wait_ns; @woken: it was asleep before. */
static __always_inline void count_wait(struct task_struct *p, u32 class, u64 wait_ns, bool woken)
{
	struct gpuaware_class_stats *cstats = stats_of(class);
	u64 length = wait_ns >> 10;
	u32 bucket;

	if (!cstats)
		return;
	if (wait_ns > cstats->worst_wait_ns) {
		cstats->worst_wait_ns = wait_ns;
		cstats->worst_waiter_tid = p->pid;
		bpf_probe_read_kernel_str(cstats->worst_waiter, sizeof(cstats->worst_waiter),
					  p->comm);
	}
	if (!woken)
		return;
	bucket = length ? log2_u64(length) : 0;
	if (bucket >= GPUAWARE_WAIT_BUCKETS)
		bucket = GPUAWARE_WAIT_BUCKETS - 1;
	cstats->wakeup_waits[bucket]++;
	cstats->wakeup_wait_ns += wait_ns;
}

static __always_inline void count_run(u32 class, bool on_preferred, u64 ran_ns)
{
	struct gpuaware_class_stats *cstats = stats_of(class);

	if (cstats && on_preferred)
		cstats->run_preferred_ns += ran_ns;
	else if (cstats)
		cstats->run_other_ns += ran_ns;
}

static __always_inline void count_preemption(u32 class, u32 victim)
{
	struct gpuaware_class_stats *cstats = stats_of(class);

	if (cstats)
		cstats->preempts++;
	cstats = stats_of(victim);
	if (cstats)
		cstats->preempted++;
}

#endif /* __GPUAWARE_STATS_BPF_H */
