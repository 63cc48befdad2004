// SPDX-License-Identifier: GPL-2.0-only
#include "check.h"

#define MS 1000000ull

static CUstream capturing(void)
{
	CUstream stream = NULL;

	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	return stream;
}

static void captured_work_runs_when_the_graph_is_launched(void)
{
	CUfunction f = busy_kernel();
	CUstream stream = capturing();
	CUstreamCaptureStatus status;
	uint64_t start_ns;
	CUgraphExec exec;
	CUgraph graph;
	size_t nr;

	OK(cuStreamIsCapturing(stream, &status));
	TRUE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	for (int i = 0; i < 3; i++)
		OK(launch_busy(f, stream, 10 * MS));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuStreamQuery(stream)); /* nothing ran */
	OK(cuGraphGetNodes(graph, NULL, &nr));
	TRUE(nr == 3);
	OK(cuGraphInstantiate(&exec, graph, 0));
	OK(cuGraphDestroy(graph));
	EXPECT(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
	start_ns = wall_ns();
	OK(cuGraphLaunch(exec, stream));
	OK(cuGraphLaunch(exec, stream));
	EXPECT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	OK(cuStreamSynchronize(stream));
	TRUE(wall_ns() - start_ns >= 60 * MS);
	OK(cuGraphExecDestroy(exec));
	EXPECT(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
}

static void forked_streams_run_side_by_side_in_a_graph(void)
{
	CUfunction f = busy_kernel();
	CUstream stream = capturing(), side;
	CUevent fork, join;
	uint64_t start_ns;
	CUgraphExec exec;
	CUgraph graph;

	OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	OK(cuEventRecord(fork, stream));
	OK(cuStreamWaitEvent(side, fork, 0));
	OK(launch_busy(f, stream, 200 * MS));
	OK(launch_busy(f, side, 200 * MS));
	OK(cuEventRecord(join, side));
	EXPECT(cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT);
	OK(cuStreamWaitEvent(stream, join, 0));
	OK(launch_busy(f, stream, 10 * MS));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphInstantiate(&exec, graph, 0));
	start_ns = wall_ns();
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	TRUE(wall_ns() - start_ns >= 210 * MS);
	TRUE(wall_ns() - start_ns < 400 * MS);
}

static void capture_must_be_joined(void)
{
	CUfunction f = busy_kernel();
	CUstream stream = capturing(), side;
	CUgraph graph;
	CUevent fork;

	OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	OK(cuEventRecord(fork, stream));
	OK(cuStreamWaitEvent(side, fork, 0));
	OK(launch_busy(f, side, 0));
	EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	TRUE(!graph);
	OK(cuStreamSynchronize(stream));
	OK(cuStreamSynchronize(side));
}

static void capture_forbids_what_cannot_be_captured(void)
{
	CUstream stream = capturing();
	CUstreamCaptureStatus status;
	CUgraph graph;

	EXPECT(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
	       CUDA_ERROR_ILLEGAL_STATE);
	EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamIsCapturing(stream, &status));
	TRUE(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	EXPECT(launch_busy(busy_kernel(), stream, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	EXPECT(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL),
	       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EXPECT(cuStreamBeginCapture(stream, (CUstreamCaptureMode)9), CUDA_ERROR_INVALID_VALUE);
}

static void legacy_stream_breaks_the_capture_of_a_blocking_one(void)
{
	CUfunction f = busy_kernel();
	CUstream stream;
	CUgraph graph;

	OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(launch_busy(f, NULL, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(launch_busy(f, NULL, 0));
}

static void copies_are_captured_and_replayed(void)
{
	CUstream stream;
	CUgraphNodeType type;
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr ptr;
	size_t nr = 1;
	int value = 1, back = 0;

	OK(cuMemAlloc(&ptr, sizeof(value)));
	stream = capturing();
	OK(cuMemcpyHtoDAsync(ptr, &value, sizeof(value), stream));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, &node, &nr));
	OK(cuGraphNodeGetType(node, &type));
	TRUE(type == CU_GRAPH_NODE_TYPE_MEMCPY);
	OK(cuGraphInstantiate(&exec, graph, 0));
	value = 42;
	OK(cuGraphLaunch(exec, stream));
	OK(cuStreamSynchronize(stream));
	OK(cuMemcpyDtoH(&back, ptr, sizeof(back)));
	TRUE(back == 42);
}

void checks_graph(void)
{
	RUN(captured_work_runs_when_the_graph_is_launched);
	RUN(forked_streams_run_side_by_side_in_a_graph);
	RUN(capture_must_be_joined);
	RUN(capture_forbids_what_cannot_be_captured);
	RUN(legacy_stream_breaks_the_capture_of_a_blocking_one);
	RUN(copies_are_captured_and_replayed);
}
