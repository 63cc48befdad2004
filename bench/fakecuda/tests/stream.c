// SPDX-License-Identifier: GPL-2.0-only
#include "check.h"

#define MS 1000000ull

static void streams_are_created_and_destroyed(void)
{
	int least, greatest, priority;
	unsigned int flags;
	CUstream stream;

	OK(cuCtxGetStreamPriorityRange(&least, &greatest));
	TRUE(least >= greatest);
	OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest - 10));
	OK(cuStreamGetPriority(stream, &priority));
	TRUE(priority == greatest);
	OK(cuStreamGetFlags(stream, &flags));
	TRUE(flags == CU_STREAM_NON_BLOCKING);
	OK(cuStreamDestroy(stream));
	EXPECT(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(launch_busy(busy_kernel(), stream, 0), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuStreamCreate(&stream, 8), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamDestroy(CU_STREAM_LEGACY), CUDA_ERROR_INVALID_HANDLE);
}

static void a_stream_runs_in_order(void)
{
	CUfunction f = busy_kernel();
	uint64_t start_ns;
	CUstream stream;

	OK(cuStreamCreate(&stream, 0));
	start_ns = wall_ns();
	for (int i = 0; i < 4; i++)
		OK(launch_busy(f, stream, 10 * MS));
	OK(cuStreamSynchronize(stream));
	TRUE(wall_ns() - start_ns >= 40 * MS);
	OK(cuStreamQuery(stream));
}

/* Eight streams of 100 ms fit side by side; far less than 800 ms even on a busy machine. */
static void streams_run_side_by_side_up_to_the_limit(void)
{
	CUfunction f = busy_kernel();
	CUstream streams[9];
	uint64_t start_ns;

	for (int i = 0; i < 9; i++)
		OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	start_ns = wall_ns();
	for (int i = 0; i < 8; i++)
		OK(launch_busy(f, streams[i], 100 * MS));
	OK(cuCtxSynchronize());
	TRUE(wall_ns() - start_ns >= 100 * MS);
	TRUE(wall_ns() - start_ns < 500 * MS);

	start_ns = wall_ns();
	for (int i = 0; i < 9; i++)
		OK(launch_busy(f, streams[i], 50 * MS));
	OK(cuCtxSynchronize());
	TRUE(wall_ns() - start_ns >= 100 * MS); /* the ninth waited for a lane */
}

static void legacy_stream_and_blocking_streams_wait_for_each_other(void)
{
	CUfunction f = busy_kernel();
	CUstream blocking, apart;
	uint64_t start_ns = wall_ns();

	OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	OK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
	OK(launch_busy(f, blocking, 40 * MS));
	OK(launch_busy(f, NULL, 1 * MS));
	OK(launch_busy(f, apart, 1 * MS));
	OK(cuStreamSynchronize(NULL));
	TRUE(wall_ns() - start_ns >= 41 * MS);

	start_ns = wall_ns();
	OK(launch_busy(f, NULL, 40 * MS));
	OK(launch_busy(f, blocking, 1 * MS));
	OK(cuStreamSynchronize(blocking));
	TRUE(wall_ns() - start_ns >= 41 * MS);
}

static void non_blocking_stream_does_not_wait_for_the_legacy_one(void)
{
	CUfunction f = busy_kernel();
	CUstream apart;

	OK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
	OK(launch_busy(f, NULL, 2000 * MS));
	OK(launch_busy(f, apart, 0));
	OK(cuStreamSynchronize(apart));
	EXPECT(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
}

static void waiting_for_an_event_orders_streams(void)
{
	CUfunction f = busy_kernel();
	CUstream first, second;
	uint64_t start_ns = wall_ns();
	CUevent event;

	OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamWaitEvent(second, event, 0)); /* not recorded: no wait */
	OK(launch_busy(f, first, 30 * MS));
	OK(cuEventRecord(event, first));
	OK(cuStreamWaitEvent(second, event, 0));
	OK(launch_busy(f, second, 10 * MS));
	OK(cuStreamSynchronize(second));
	TRUE(wall_ns() - start_ns >= 40 * MS);
	EXPECT(cuStreamWaitEvent(second, event, 9), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamWaitEvent(second, NULL, 0), CUDA_ERROR_INVALID_HANDLE);
}

static void events_measure_the_timeline(void)
{
	CUfunction f = busy_kernel();
	CUevent start, end, untimed;
	float ms = 0;

	OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
	OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
	OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	OK(cuEventQuery(start)); /* never recorded: done */
	EXPECT(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
	OK(cuEventRecord(start, NULL));
	OK(launch_busy(f, NULL, 50 * MS));
	OK(cuEventRecord(end, NULL));
	OK(cuEventRecord(untimed, NULL));
	EXPECT(cuEventQuery(end), CUDA_ERROR_NOT_READY);
	EXPECT(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
	OK(cuEventSynchronize(end));
	OK(cuEventElapsedTime(&ms, start, end));
	TRUE(ms >= 50 && ms < 1000);
	EXPECT(cuEventElapsedTime(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuEventElapsedTime(NULL, start, end), CUDA_ERROR_INVALID_VALUE);
	OK(cuEventDestroy(start));
	EXPECT(cuEventDestroy(start), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuEventSynchronize(start), CUDA_ERROR_INVALID_HANDLE);
}

static void event_flags_are_checked(void)
{
	CUevent event;

	EXPECT(cuEventCreate(&event, 0x100), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuEventCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
}

void checks_stream(void)
{
	RUN(streams_are_created_and_destroyed);
	RUN(a_stream_runs_in_order);
	RUN(streams_run_side_by_side_up_to_the_limit);
	RUN(legacy_stream_and_blocking_streams_wait_for_each_other);
	RUN(non_blocking_stream_does_not_wait_for_the_legacy_one);
	RUN(waiting_for_an_event_orders_streams);
}

void checks_event(void)
{
	RUN(events_measure_the_timeline);
	RUN(event_flags_are_checked);
}
