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

/* When a thread was seen doing something. */
struct sighting {
	u64 first_ns;
	u64 last_ns;
	u64 hits;
};

/* What was said about one task. Gone with the task, so a reused TID inherits nothing. */
struct task_mark {
	u64 epoch;	  /* counts what may give it another class; else see class_basis */
	u32 marked_class; /* by `scx_gpuaware mark` */
	u32 symbol;	  /* of the first launch, before that of the context: see symbol_of() */
	u64 marked_ns;
	u32 hinted_class; /* by the thread itself */
	u32 refused_hint; /* what would be hinted if its user were trusted */
	u32 wake_rate;
	u64 hinted_ns;
	u64 named_rules; /* a bit for each rule whose comm, exe and cmdline terms hold */
	u64 named_ns;
	u64 observed; /* enum gpuaware_observed */
	u64 refused;  /* what would be observed if its user were trusted */
	struct sighting launched;
	struct sighting entered; /* a context of a GPU, once */
	struct sighting woke;
	struct sighting spun;
	struct sighting sent;
};

/* An attach cookie, kept as a mark's symbol, is index of library << 8 | index of symbol. */
static __always_inline u32 symbol_of(u64 cookie)
{
	return cookie & 0xff;
}

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_mark);
} task_marks SEC(".maps");

/* What is known of a process once one of its threads was seen launching, or got class launch. */
struct gpu_process {
	/*
	 * The NUMA node of the GPUs that it has open, as the kernel numbers it, plus one; 0: it is
	 * not known, or they are several.
	 */
	u32 node;
	bool launches; /* one of its threads has been of class launch */
};

/* Of the leader of its threads. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gpu_process);
} gpu_processes SEC(".maps");

/* By cgroup id, for the roots of tagged subtrees. User space matches the globs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GPUAWARE_MAX_TAGGED_CGROUPS);
	__type(key, u64);
	__type(value, struct gpuaware_cgroup_tag);
} cgroup_tags SEC(".maps");

/* In the order of precedence. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GPUAWARE_MAX_RULES);
	__type(key, u32);
	__type(value, struct gpuaware_rule);
} class_rules SEC(".maps");

/* Counts every change that may give any task another class: of rules and of tags. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} class_generation SEC(".maps");

#ifndef PF_EXITING /* scx has it, identify.bpf.c is without scx */
#define PF_EXITING 0x00000004
#endif

/* @flags: BPF_LOCAL_STORAGE_GET_F_CREATE, or none. A thread that exits can outlive its leader. */
static __always_inline struct gpu_process *gpu_process_of(struct task_struct *p, u64 flags)
{
	if (p->flags & PF_EXITING)
		return NULL;
	return bpf_task_storage_get(&gpu_processes, p->group_leader, NULL, flags);
}

/* As in struct gpu_process. */
static __always_inline u32 gpu_node(struct task_struct *p)
{
	struct gpu_process *process = gpu_process_of(p, 0);

	return process ? process->node : 0;
}

/*
 * What a task's class was derived from. Marks have an epoch each: nobody is judged anew for what
 * somebody else is seen doing.
 */
struct class_basis {
	u64 generation; /* the first one is 1: nobody's class is derived from none */
	u64 epoch;
	u64 cgroup_id;
};

struct class_verdict {
	u32 class;
	u32 source;
	u32 rule;   /* that says so; index into texts */
	u64 tag_id; /* for SOURCE_CGROUP */
};

static __always_inline u64 *class_generation_ptr(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&class_generation, &zero);
}

/* The cgroup at @level above @cgrp, or @cgrp itself if that is its level. */
static __always_inline struct cgroup *cgroup_above(struct cgroup *cgrp, u32 level)
{
	u64 at = (u64)cgrp + bpf_core_field_offset(struct cgroup, ancestors);
	struct cgroup *above = NULL;

	bpf_probe_read_kernel(&above, sizeof(above), (void *)(at + level * sizeof(above)));
	return above;
}

/* The id of the cgroup v2 folder that @p is in. */
static __always_inline u64 task_cgroup_id(struct task_struct *p)
{
	return BPF_CORE_READ(p, cgroups, dfl_cgrp, kn, id);
}

/*
 * @cgrp, or its ancestor at the depth limit. Lookups start there, so that nesting escapes no class,
 * weight or limit.
 */
static __always_inline struct cgroup *nearest_seen(struct cgroup *cgrp)
{
	if (BPF_CORE_READ(cgrp, level) > GPUAWARE_MAX_CGROUP_DEPTH)
		return cgroup_above(cgrp, GPUAWARE_MAX_CGROUP_DEPTH);
	return cgrp;
}

/*
 * Puts the class of the nearest tagged cgroup at or above that of @p into @verdict: children
 * inherit. Without one, returns the rules whose cgroup term holds for @p.
 */
static __always_inline u64 judge_cgroup(struct task_struct *p, struct class_verdict *verdict)
{
	struct cgroup *cgrp = nearest_seen(BPF_CORE_READ(p, cgroups, dfl_cgrp));
	u64 rules = 0;
	int level;

	bpf_for (level, 0, GPUAWARE_MAX_CGROUP_DEPTH) {
		struct cgroup_subsys_state *parent;
		struct gpuaware_cgroup_tag *tag;
		u64 id;

		if (!cgrp)
			break;
		id = BPF_CORE_READ(cgrp, kn, id);
		tag = bpf_map_lookup_elem(&cgroup_tags, &id);
		if (tag && tag->class) {
			verdict->class = tag->class;
			verdict->source = GPUAWARE_SOURCE_CGROUP;
			verdict->tag_id = id;
			verdict->rule = tag->text;
			return 0;
		}
		if (tag)
			rules |= tag->rules;
		/* A cgroup's own css is its first member: the parent css is the parent cgroup. */
		parent = BPF_CORE_READ(cgrp, self.parent);
		cgrp = (struct cgroup *)parent;
	}
	return rules;
}

static __always_inline u32 source_of(const struct gpuaware_rule *rule)
{
	if (!rule->needs)
		return GPUAWARE_SOURCE_RULE;
	if (rule->needs & GPUAWARE_OBSERVED_LAUNCH)
		return GPUAWARE_SOURCE_UPROBE;
	if (rule->needs & GPUAWARE_OBSERVED_WAKES)
		return GPUAWARE_SOURCE_WAKES;
	if (rule->needs & GPUAWARE_OBSERVED_SPINS)
		return GPUAWARE_SOURCE_SPINS;
	return GPUAWARE_SOURCE_CONNECTS;
}

/* The first rule whose terms all hold; @by_cgroup are the rules whose cgroup term does. */
static __always_inline void judge_rules(const struct task_mark *mark, u64 observed, u64 by_cgroup,
					struct class_verdict *verdict)
{
	u32 i;

	bpf_for (i, 0, GPUAWARE_MAX_RULES) {
		struct gpuaware_rule *rule = bpf_map_lookup_elem(&class_rules, &i);
		u64 bit = 1ULL << i;

		if (!rule || !rule->class)
			break;
		if ((rule->needs & ~observed) || (rule->by_name && !(mark->named_rules & bit)) ||
		    (rule->by_cgroup && !(by_cgroup & bit)))
			continue;
		verdict->class = rule->class;
		verdict->source = source_of(rule);
		verdict->rule = i;
		break;
	}
}

static __always_inline struct class_verdict judge_task(struct task_struct *p)
{
	struct task_mark *mark = bpf_task_storage_get(&task_marks, p, NULL, 0);
	struct class_verdict verdict = {};
	u64 by_cgroup;

	if (mark && mark->marked_class) {
		verdict.class = mark->marked_class;
		verdict.source = GPUAWARE_SOURCE_MARK;
		return verdict;
	}
	by_cgroup = judge_cgroup(p, &verdict);
	if (!mark || verdict.class)
		return verdict;
	judge_rules(mark, mark->observed, by_cgroup, &verdict);
	/* What it says of itself counts more than what it is seen doing, less than the policy. */
	if (mark->hinted_class && verdict.source != GPUAWARE_SOURCE_RULE) {
		verdict.class = mark->hinted_class;
		verdict.source = GPUAWARE_SOURCE_HINT;
	}
	return verdict;
}

/*
 * Is @p to be judged anew, as something changed that its class was derived from? Notes what is so
 * now. Plain loads instead of BPF_CORE_READ: the scheduler asks on every enqueue. They are not
 * trusted ones, for each of which the verifier searches all types of the kernel three times.
 */
static __always_inline bool renew_basis(struct task_struct *p, struct class_basis *basis)
{
	const struct task_struct *untrusted = bpf_core_cast(p, struct task_struct);
	struct task_mark *mark = bpf_task_storage_get(&task_marks, p, NULL, 0);
	u64 *generation = class_generation_ptr();
	struct class_basis now = {
		.generation = generation ? *generation : 0,
		.epoch = mark ? mark->epoch : 0,
		.cgroup_id = untrusted->cgroups->dfl_cgrp->kn->id,
	};

	if (basis->generation == now.generation && basis->epoch == now.epoch &&
	    basis->cgroup_id == now.cgroup_id)
		return false;
	*basis = now;
	return true;
}

#endif /* __GPUAWARE_CLASS_BPF_H */
