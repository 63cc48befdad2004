/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which class a task has, and who said so.
 *
 * Both objects include this file: identify.bpf.c owns the maps and writes marks, gpuaware.bpf.c
 * gets the same maps by file descriptor and reads them. Precedence lives here and nowhere else.
 */
#ifndef __GPUAWARE_CLASS_BPF_H
#define __GPUAWARE_CLASS_BPF_H

#include "intf.h"

/* What was said about one task. Gone with the task, so a reused TID inherits nothing. */
struct task_mark {
	u32 marked_class;   /* by `scx_gpuaware mark` */
	u32 observed_class; /* by a probe */
	u32 symbol;
	u32 pad;
	u64 first_seen_ns;
	u64 last_seen_ns;
	u64 hits;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_mark);
} task_marks SEC(".maps");

/* cgroup id -> class, for the roots of tagged subtrees. User space matches the globs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GPUAWARE_MAX_TAGGED_CGROUPS);
	__type(key, u64);
	__type(value, u32);
} cgroup_classes SEC(".maps");

/*
 * Counts every change of the two maps above. The scheduler caches a task's class together with
 * the generation that it was derived from.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} class_generation SEC(".maps");

struct class_verdict {
	u32 class;
	u32 source;
};

static __always_inline u64 *class_generation_ptr(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&class_generation, &zero);
}

static __always_inline void class_changed(void)
{
	u64 *generation = class_generation_ptr();

	if (generation)
		__sync_fetch_and_add(generation, 1);
}

/* The id of the cgroup v2 folder that @p is in. */
static __always_inline u64 task_cgroup_id(struct task_struct *p)
{
	return BPF_CORE_READ(p, cgroups, dfl_cgrp, kn, id);
}

/* The class of the nearest tagged cgroup at or above that of @p: children inherit. */
static __always_inline u32 cgroup_class(struct task_struct *p)
{
	struct cgroup *cgrp = BPF_CORE_READ(p, cgroups, dfl_cgrp);
	int level;

	bpf_for (level, 0, GPUAWARE_MAX_CGROUP_DEPTH) {
		struct cgroup_subsys_state *parent;
		u32 *class;
		u64 id;

		if (!cgrp)
			break;
		id = BPF_CORE_READ(cgrp, kn, id);
		class = bpf_map_lookup_elem(&cgroup_classes, &id);
		if (class)
			return *class;
		/* A cgroup's own css is its first member: the parent css is the parent cgroup. */
		parent = BPF_CORE_READ(cgrp, self.parent);
		cgrp = (struct cgroup *)parent;
	}
	return GPUAWARE_CLASS_NONE;
}

static __always_inline struct class_verdict judge_task(struct task_struct *p)
{
	struct task_mark *mark = bpf_task_storage_get(&task_marks, p, NULL, 0);
	struct class_verdict verdict = {};

	if (mark && mark->marked_class) {
		verdict.class = mark->marked_class;
		verdict.source = GPUAWARE_SOURCE_MARK;
		return verdict;
	}
	verdict.class = cgroup_class(p);
	if (verdict.class) {
		verdict.source = GPUAWARE_SOURCE_CGROUP;
		return verdict;
	}
	if (mark && mark->observed_class) {
		verdict.class = mark->observed_class;
		verdict.source = GPUAWARE_SOURCE_UPROBE;
	}
	return verdict;
}

#endif /* __GPUAWARE_CLASS_BPF_H */
