// SPDX-License-Identifier: GPL-2.0-only
/* Launches of executable graphs: what they cost the calling thread, what they queue. */
#include "fakecuda.h"

/* Nodes are in topological order: capture only ever depends on what came before. */
static uint64_t fk_exec_run(struct fk_graph_exec *exec, CUdevice dev, uint64_t ready_ns)
{
	uint64_t all_done_ns = ready_ns;

	for (uint32_t i = 0; i < exec->nr_nodes; i++) {
		const struct fk_node *node = &exec->nodes[i];
		uint64_t start_ns = ready_ns;

		for (uint32_t d = 0; d < node->nr_deps; d++)
			if (exec->done_ns[node->deps[d]] > start_ns)
				start_ns = exec->done_ns[node->deps[d]];
		fk_work_apply(&node->work);
		exec->done_ns[i] = fk_timeline_run(dev, &node->work, start_ns);
		if (exec->done_ns[i] > all_done_ns)
			all_done_ns = exec->done_ns[i];
	}
	return all_done_ns;
}

static CUresult fk_graph_queue(CUgraphExec handle, struct fk_context *ctx, CUstream stream_handle,
			       bool ptsz, uint64_t now_ns, uint64_t *full_until_ns)
{
	struct fk_graph_exec *exec = fk_object_get(FK_GRAPH_EXEC, handle);
	struct fk_stream *stream;
	uint64_t ready_ns, done_ns;
	CUresult result;

	*full_until_ns = 0;
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	result = fk_stream_resolve(ctx, stream_handle, ptsz, &stream);
	if (!result)
		result = fk_capture_forbid(stream);
	if (!result)
		result = fk_capture_check_legacy(ctx, stream);
	if (result)
		return result;
	*full_until_ns = fk_queue_full_until(stream, now_ns);
	if (*full_until_ns)
		return CUDA_SUCCESS;
	ready_ns = fk_stream_ready_ns(ctx, stream, now_ns + fk_config.start_ns);
	if (exec->last_done_ns > ready_ns)
		ready_ns = exec->last_done_ns; /* one executable graph never overlaps itself */
	done_ns = fk_exec_run(exec, ctx->device, ready_ns);
	exec->last_done_ns = done_ns;
	fk_queue_push(stream, done_ns);
	fk_stream_advance(ctx, stream, done_ns);
	return CUDA_SUCCESS;
}

static uint64_t fk_graph_cost_ns(CUgraphExec handle)
{
	struct fk_graph_exec *exec;
	uint64_t nr_nodes;

	fk_lock();
	exec = fk_object_get(FK_GRAPH_EXEC, handle);
	nr_nodes = exec ? exec->nr_nodes : 0;
	fk_unlock();
	return fk_config.graph_launch_ns + nr_nodes * fk_config.graph_node_ns;
}

static CUresult fk_graph_launch(CUgraphExec handle, CUstream stream, bool ptsz)
{
	uint64_t now_ns = fk_now_ns();
	uint64_t full_until_ns;
	struct fk_context *ctx;
	enum fk_wait how;
	CUresult result;

	now_ns = fk_spin_until(now_ns + fk_graph_cost_ns(handle));
	for (;;) {
		result = fk_enter(&ctx);
		if (result)
			return result;
		result = fk_graph_queue(handle, ctx, stream, ptsz, now_ns, &full_until_ns);
		how = fk_wait_mode(ctx);
		fk_unlock();
		if (result || !full_until_ns)
			return result;
		fk_wait_until(full_until_ns, how);
		now_ns = fk_now_ns();
	}
}

FK_ENTRY(cuGraphLaunch, (CUgraphExec exec, CUstream stream))
{
	return fk_graph_launch(exec, stream, false);
}

FK_ENTRY(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream))
{
	return fk_graph_launch(exec, stream, true);
}
