// SPDX-License-Identifier: GPL-2.0-only
#include "check.h"

static void contexts_stack(void)
{
	CUcontext first, second, ctx;

	OK(cuCtxGetCurrent(&first));
	OK(cuCtxCreate(&second, NULL, 0, 0));
	OK(cuCtxGetCurrent(&ctx));
	TRUE(ctx == second);
	OK(cuCtxPopCurrent(&ctx));
	TRUE(ctx == second);
	OK(cuCtxGetCurrent(&ctx));
	TRUE(ctx == first);
	OK(cuCtxPushCurrent(second));
	OK(cuCtxDestroy(second));
	OK(cuCtxGetCurrent(&ctx));
	TRUE(ctx == first);
	OK(cuCtxSetCurrent(NULL));
	OK(cuCtxGetCurrent(&ctx));
	TRUE(!ctx);
	EXPECT(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuCtxPopCurrent(&ctx), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxSetCurrent(first));
}

static void destroyed_context_is_refused(void)
{
	CUcontext ctx, other;
	CUstream stream;
	CUevent event;

	OK(cuCtxCreate(&ctx, NULL, 0, 0));
	OK(cuStreamCreate(&stream, 0));
	OK(cuEventCreate(&event, 0));
	OK(cuCtxCreate(&other, NULL, 0, 0));
	OK(cuCtxDestroy(ctx));
	EXPECT(cuCtxDestroy(ctx), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuCtxPushCurrent(ctx), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuCtxSetCurrent(ctx), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
	OK(cuCtxDestroy(other));
	EXPECT(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuCtxPopCurrent(NULL));
	OK(cuCtxSynchronize());
}

static void invented_handles_are_refused(void)
{
	CUcontext ctx = (CUcontext)0x1234;
	int on_the_stack = 0;

	EXPECT(cuCtxSetCurrent(ctx), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuCtxDestroy((CUcontext)&on_the_stack), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuCtxDestroy(NULL), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuStreamSynchronize((CUstream)&on_the_stack), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuEventRecord((CUevent)-1l, NULL), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuModuleUnload((CUmodule)7), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuGraphDestroy((CUgraph)7), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuGraphExecDestroy(NULL), CUDA_ERROR_INVALID_VALUE);
	/* A handle of another kind. */
	OK(cuCtxGetCurrent(&ctx));
	EXPECT(cuStreamQuery((CUstream)ctx), CUDA_ERROR_INVALID_HANDLE);
}

static void scheduling_flags_are_checked_and_kept(void)
{
	unsigned int flags;
	CUcontext ctx;

	EXPECT(cuCtxCreate(&ctx, NULL, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, 0),
	       CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuCtxCreate(&ctx, NULL, 0x1000, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuCtxCreate(NULL, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuCtxCreate(&ctx, NULL, 0, 9), CUDA_ERROR_INVALID_DEVICE);
	OK(cuCtxCreate(&ctx, NULL, CU_CTX_SCHED_YIELD, 0));
	OK(cuCtxGetFlags(&flags));
	TRUE(flags == CU_CTX_SCHED_YIELD);
	OK(cuCtxSetFlags(CU_CTX_SCHED_SPIN));
	OK(cuCtxGetFlags(&flags));
	TRUE(flags == CU_CTX_SCHED_SPIN);
	OK(cuCtxDestroy(ctx));
}

static void primary_context_is_shared_and_counted(void)
{
	CUcontext one, two;
	unsigned int flags;
	int active;

	EXPECT(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD));
	EXPECT(cuDevicePrimaryCtxSetFlags(0, 7), CUDA_ERROR_INVALID_VALUE);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	TRUE(!active && flags == CU_CTX_SCHED_YIELD);
	OK(cuDevicePrimaryCtxRetain(&one, 0));
	OK(cuDevicePrimaryCtxRetain(&two, 0));
	TRUE(one == two);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	TRUE(active);
	EXPECT(cuCtxDestroy(one), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuCtxPushCurrent(one));
	OK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_SPIN));
	OK(cuCtxGetFlags(&flags));
	TRUE(flags == CU_CTX_SCHED_SPIN);
	OK(cuDevicePrimaryCtxRelease(0));
	OK(cuCtxSynchronize());
	OK(cuDevicePrimaryCtxRelease(0));
	EXPECT(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuCtxPopCurrent(NULL));
	OK(cuDevicePrimaryCtxReset(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	TRUE(!active && !flags);
}

void checks_context(void)
{
	RUN(contexts_stack);
	RUN(destroyed_context_is_refused);
	RUN(invented_handles_are_refused);
	RUN(scheduling_flags_are_checked_and_kept);
	RUN(primary_context_is_shared_and_counted);
}
