/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Processes that started a program lately. User space looks at their names a moment later, when the
 * process may be gone and its child go on: a daemon.
 */
#ifndef __GPUAWARE_PROGRAM_BPF_H
#define __GPUAWARE_PROGRAM_BPF_H

#include "pidns.bpf.h"

/* From <linux/sched.h>. */
#define CLONE_THREAD 0x00010000
/* Longer than user space is behind. */
#define PROGRAM_IS_NEW_NS 10000000000ULL

/* Set by user space: does a rule ask for names? */
u32 names_asked;

/* When they started it, by TGID. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u64);
} new_programs SEC(".maps");

static __always_inline void note_program(u32 tgid)
{
	u64 now = bpf_ktime_get_ns();

	if (names_asked)
		bpf_map_update_elem(&new_programs, &tgid, &now, BPF_ANY);
}

/* May @parent, which starts process @tgid, have no name yet? What it starts counts as it does. */
static __always_inline bool runs_new_program(struct task_struct *parent, u32 tgid, u64 clone_flags)
{
	u32 from = tgid_of(parent);
	u64 *at, started;

	if (!names_asked || (clone_flags & CLONE_THREAD))
		return false;
	at = bpf_map_lookup_elem(&new_programs, &from);
	if (!at)
		return false;
	started = *at;
	if (bpf_ktime_get_ns() - started > PROGRAM_IS_NEW_NS)
		return false;
	bpf_map_update_elem(&new_programs, &tgid, &started, BPF_ANY);
	return true;
}

#endif /* __GPUAWARE_PROGRAM_BPF_H */
