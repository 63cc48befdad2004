// SPDX-License-Identifier: GPL-2.0-only
/* Graphs: nodes with dependencies, instantiated into copies that launch in one call. */
#include <stdlib.h>
#include <string.h>
#include "fakecuda.h"

struct fk_graph *fk_graph_new(void)
{
	return fk_object_new(FK_GRAPH, sizeof(struct fk_graph), 0);
}

CUresult fk_graph_append(struct fk_graph *graph, const struct fk_work *work, const uint32_t *deps,
			 uint32_t nr_deps, uint32_t *index)
{
	uint32_t capacity = graph->capacity ? graph->capacity * 2 : 64;
	struct fk_node *nodes = graph->nodes;
	uint32_t *own = malloc((nr_deps + 1) * sizeof(*own));

	if (own && graph->nr_nodes == graph->capacity) {
		nodes = realloc(graph->nodes, capacity * sizeof(*nodes));
		if (nodes) {
			graph->nodes = nodes;
			graph->capacity = capacity;
		}
	}
	if (!own || !nodes) {
		free(own);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (nr_deps)
		memcpy(own, deps, nr_deps * sizeof(*own));
	*index = graph->nr_nodes++;
	nodes[*index] = (struct fk_node){.work = *work, .deps = own, .nr_deps = nr_deps};
	return CUDA_SUCCESS;
}

static void fk_nodes_free(struct fk_node *nodes, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		struct fk_object *obj = fk_object_get_u64(FK_GRAPH_NODE, nodes[i].handle);

		if (obj)
			fk_object_free(obj);
		free(nodes[i].deps);
	}
	free(nodes);
}

void fk_graph_destroy(struct fk_graph *graph)
{
	fk_nodes_free(graph->nodes, graph->nr_nodes);
	fk_object_free(&graph->obj);
}

static bool fk_nodes_copy(struct fk_graph_exec *exec, const struct fk_graph *graph)
{
	exec->nodes = calloc(graph->nr_nodes + 1, sizeof(*exec->nodes));
	exec->done_ns = calloc(graph->nr_nodes + 1, sizeof(*exec->done_ns));
	if (!exec->nodes || !exec->done_ns)
		return false;
	for (uint32_t i = 0; i < graph->nr_nodes; i++) {
		const struct fk_node *from = &graph->nodes[i];
		struct fk_node *to = &exec->nodes[i];

		to->work = from->work;
		to->nr_deps = from->nr_deps;
		to->deps = malloc((from->nr_deps + 1) * sizeof(*to->deps));
		if (!to->deps)
			return false;
		memcpy(to->deps, from->deps, from->nr_deps * sizeof(*to->deps));
		exec->nr_nodes++;
	}
	return true;
}

static void fk_exec_destroy(struct fk_graph_exec *exec)
{
	if (exec->nodes)
		fk_nodes_free(exec->nodes, exec->nr_nodes);
	free(exec->done_ns);
	fk_object_free(&exec->obj);
}

/* As in the genuine driver graphs need no current context, only an initialised driver. */
static CUresult fk_enter_graph(CUgraph handle, struct fk_graph **graph)
{
	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	fk_lock();
	*graph = fk_object_get(FK_GRAPH, handle);
	return *graph ? CUDA_SUCCESS : fk_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult fk_instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
	const unsigned long long known = 15;
	struct fk_graph_exec *exec;
	struct fk_graph *graph;
	CUresult result = fk_enter_graph(handle, &graph);

	if (result)
		return result;
	if (!out || flags & ~known)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return fk_leave(CUDA_ERROR_NOT_SUPPORTED);
	exec = fk_object_new(FK_GRAPH_EXEC, sizeof(*exec), 0);
	if (!exec)
		return fk_leave(CUDA_ERROR_OUT_OF_MEMORY);
	if (!fk_nodes_copy(exec, graph)) {
		fk_exec_destroy(exec);
		return fk_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*out = FK_HANDLE(CUgraphExec, exec);
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphCreate(CUgraph *out, unsigned int flags)
{
	struct fk_graph *graph;

	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	fk_lock();
	graph = fk_graph_new();
	if (graph)
		*out = FK_HANDLE(CUgraph, graph);
	return fk_leave(graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle)
{
	struct fk_graph *graph;
	CUresult result = fk_enter_graph(handle, &graph);

	if (result)
		return result;
	fk_graph_destroy(graph);
	return fk_leave(CUDA_SUCCESS);
}

/* With nodes NULL it says how many there are. */
CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, size_t *nr)
{
	struct fk_graph *graph;
	CUresult result = fk_enter_graph(handle, &graph);

	if (result)
		return result;
	if (!nr)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; nodes && i < *nr; i++) {
		struct fk_graph_node *node = NULL;

		if (i >= graph->nr_nodes) {
			nodes[i] = NULL;
			continue;
		}
		if (!graph->nodes[i].handle) {
			node = fk_object_new(FK_GRAPH_NODE, sizeof(*node), 0);
			if (!node)
				return fk_leave(CUDA_ERROR_OUT_OF_MEMORY);
			node->graph = graph->obj.handle;
			node->index = (uint32_t)i;
			graph->nodes[i].handle = node->obj.handle;
		}
		nodes[i] = (CUgraphNode)(uintptr_t)graph->nodes[i].handle;
	}
	if (!nodes || *nr > graph->nr_nodes)
		*nr = graph->nr_nodes;
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
	static const CUgraphNodeType types[] = {
		[FK_WORK_KERNEL] = CU_GRAPH_NODE_TYPE_KERNEL,
		[FK_WORK_COPY] = CU_GRAPH_NODE_TYPE_MEMCPY,
		[FK_WORK_SET] = CU_GRAPH_NODE_TYPE_MEMSET,
	};
	struct fk_graph_node *node;
	struct fk_graph *graph;

	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	fk_lock();
	node = fk_object_get(FK_GRAPH_NODE, handle);
	graph = node ? fk_object_get_u64(FK_GRAPH, node->graph) : NULL;
	if (!graph || !type)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	*type = types[graph->nodes[node->index].work.kind];
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
					     unsigned long long flags)
{
	return fk_instantiate(exec, graph, flags);
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
				       char *log, size_t log_bytes)
{
	if (error_node)
		*error_node = NULL;
	if (log && log_bytes)
		*log = '\0';
	return fk_instantiate(exec, graph, 0);
}

static CUresult fk_instantiate_params(CUgraphExec *exec, CUgraph graph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	CUresult result;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	params->hErrNode_out = NULL;
	result = fk_instantiate(exec, graph, params->flags);
	params->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return result;
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
					      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return fk_instantiate_params(exec, graph, params);
}

CUresult CUDAAPI cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
						   CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return fk_instantiate_params(exec, graph, params);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle)
{
	struct fk_graph_exec *exec;

	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	fk_lock();
	exec = fk_object_get(FK_GRAPH_EXEC, handle);
	if (!exec)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	fk_exec_destroy(exec);
	return fk_leave(CUDA_SUCCESS);
}

static CUresult fk_graph_upload(CUgraphExec handle)
{
	bool valid;

	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	fk_lock();
	valid = fk_object_get(FK_GRAPH_EXEC, handle);
	return fk_leave(valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	(void)stream;
	return fk_graph_upload(exec);
}

CUresult CUDAAPI cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	(void)stream;
	return fk_graph_upload(exec);
}
