/* SPDX-License-Identifier: GPL-2.0-only */
/* Counters, one set a CPU, put together by user space. */
#ifndef __GPUAWARE_STATS_BPF_H
#define __GPUAWARE_STATS_BPF_H

#include "intf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GPUAWARE_NR_STATS);
	__type(key, u32);
	__type(value, u64);
} stats SEC(".maps");

static __always_inline void stat_add(enum gpuaware_stat stat, u64 value)
{
	u32 key = stat;
	u64 *sum = bpf_map_lookup_elem(&stats, &key);

	if (sum)
		*sum += value;
}

static __always_inline void stat_inc(enum gpuaware_stat stat)
{
	stat_add(stat, 1);
}

static __always_inline void stat_max(enum gpuaware_stat stat, u64 value)
{
	u32 key = stat;
	u64 *max = bpf_map_lookup_elem(&stats, &key);

	if (max && value > *max)
		*max = value;
}

#endif /* __GPUAWARE_STATS_BPF_H */
