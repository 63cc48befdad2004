// SPDX-License-Identifier: GPL-2.0-only
/*
 * scx_gpuaware as it is, and what its user space does to it by way of maps: marks.
 */
/* In brackets: of the folder that the compiler is told, not this file. */
#include <gpuaware.bpf.c>

/*
 * As `scx_gpuaware mark` does through identify.bpf.c, and as user space says where the GPU of @p
 * is. Class NONE takes the mark away.
 */
s32 sim_mark(struct task_struct *p, u32 class, u32 node)
{
	struct gpu_process *process = gpu_process_of(p, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct task_mark *mark =
		bpf_task_storage_get(&task_marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 *generation = class_generation_ptr();

	if (!mark || !process || !generation)
		return -ENOMEM;
	process->node = node;
	mark->marked_class = class;
	mark->marked_ns = bpf_ktime_get_ns();
	++*generation;
	return 0;
}

/* What a cgroup counts for, as src/weights.rs has it. */
struct sim_counted {
	u64 parent;
	s64 weight;
	s64 counted_weight;
	s64 runnable_weight;
};

/* False: cgroup @id has no context. */
bool sim_counted_of(u64 id, struct sim_counted *counted)
{
	struct cgroup_ctx *cgc = cgroup_ctx(id);

	if (!cgc)
		return false;
	*counted = (struct sim_counted){
		.parent = cgc->parent,
		.weight = cgc->weight,
		.counted_weight = cgc->counted_weight,
		.runnable_weight = cgc->runnable_weight,
	};
	return true;
}

/* The weight that @p counts for in cgroup @id; 0: it is not runnable. */
u32 sim_counts_in(struct task_struct *p, u64 *id)
{
	struct task_ctx *tctx = task_ctx(p);

	*id = tctx ? tctx->cpu_cgroup : 0;
	return tctx ? tctx->counted_weight : 0;
}

/* In the order of src/setup.rs. */
const u64 sim_gpuaware_layout[] = {
	sizeof(struct gpuaware_tunables),  __builtin_offsetof(struct gpuaware_tunables, whole_core),
	sizeof(struct gpuaware_preferred), sizeof(struct gpuaware_stats),
	sizeof(struct sim_counted),	   0,
};

/* What the counters come to over all CPUs. */
void sim_sum_stats(struct gpuaware_stats *sum)
{
	u32 zero = 0, cpu, i;

	bpf_for (cpu, 0, nr_cpu_ids) {
		struct gpuaware_stats *own = bpf_map_lookup_percpu_elem(&stats, &zero, cpu);

		for (i = 0; i < GPUAWARE_NR_STATS; i++)
			sum->counts[i] += own->counts[i];
	}
}
