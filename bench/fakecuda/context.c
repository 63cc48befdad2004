// SPDX-License-Identifier: GPL-2.0-only
/* Contexts: primary and own, the current one of each thread, and how a thread waits in it. */
#include <unistd.h>
#include "fakecuda.h"

#define FK_STACK_DEPTH 64

struct fk_primary {
	uint64_t handle;
	unsigned int flags;
	unsigned int references;
};

static struct fk_primary fk_primaries[FK_MAX_DEVICES];
static unsigned int fk_nr_contexts;

static __thread uint64_t fk_stack[FK_STACK_DEPTH];
static __thread int fk_depth;

static bool fk_flags_valid(unsigned int flags)
{
	unsigned int sched = flags & CU_CTX_SCHED_MASK;

	return !(flags & ~(unsigned int)CU_CTX_FLAGS_MASK) &&
	       (sched == CU_CTX_SCHED_AUTO || sched == CU_CTX_SCHED_SPIN ||
		sched == CU_CTX_SCHED_YIELD || sched == CU_CTX_SCHED_BLOCKING_SYNC);
}

/* AUTO as cuda.h documents it: yield with more contexts than logical processors, else spin. */
enum fk_wait fk_wait_mode(const struct fk_context *ctx)
{
	static long nr_cpus;

	switch (ctx->flags & CU_CTX_SCHED_MASK) {
	case CU_CTX_SCHED_SPIN:
		return FK_WAIT_SPIN;
	case CU_CTX_SCHED_YIELD:
		return FK_WAIT_YIELD;
	case CU_CTX_SCHED_BLOCKING_SYNC:
		return FK_WAIT_BLOCK;
	}
	if (!nr_cpus)
		nr_cpus = sysconf(_SC_NPROCESSORS_ONLN);
	return (long)fk_nr_contexts > nr_cpus ? FK_WAIT_YIELD : FK_WAIT_SPIN;
}

/* Takes the lock and the thread's context; on an error the lock is free again. */
CUresult fk_enter(struct fk_context **ctx)
{
	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!fk_depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	fk_lock();
	*ctx = fk_object_get_u64(FK_CONTEXT, fk_stack[fk_depth - 1]);
	if (*ctx)
		return CUDA_SUCCESS;
	return fk_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static CUresult fk_push(uint64_t handle)
{
	if (fk_depth == FK_STACK_DEPTH)
		return CUDA_ERROR_INVALID_CONTEXT;
	fk_stack[fk_depth++] = handle;
	return CUDA_SUCCESS;
}

static struct fk_context *fk_context_new(CUdevice dev, unsigned int flags)
{
	struct fk_context *ctx = fk_object_new(FK_CONTEXT, sizeof(*ctx), 0);

	if (!ctx)
		return NULL;
	ctx->device = dev;
	ctx->flags = flags;
	fk_nr_contexts++;
	return ctx;
}

static void fk_context_destroy(struct fk_context *ctx)
{
	uint64_t handle = ctx->obj.handle;

	fk_objects_destroy(handle);
	fk_memory_release_owner(handle);
	fk_object_free(&ctx->obj);
	fk_nr_contexts--;
}

static CUresult fk_create(CUcontext *out, unsigned int flags, CUdevice dev)
{
	struct fk_context *ctx;

	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!out || !fk_flags_valid(flags))
		return CUDA_ERROR_INVALID_VALUE;
	if (!fk_device_valid(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (fk_depth == FK_STACK_DEPTH)
		return CUDA_ERROR_INVALID_CONTEXT;
	fk_lock();
	ctx = fk_context_new(dev, flags);
	if (!ctx)
		return fk_leave(CUDA_ERROR_OUT_OF_MEMORY);
	fk_push(ctx->obj.handle);
	*out = FK_HANDLE(CUcontext, ctx);
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	return fk_create(ctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params, int nr_params,
				unsigned int flags, CUdevice dev)
{
	if (params || nr_params)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return fk_create(ctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *params, unsigned int flags,
				CUdevice dev)
{
	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (params && params->execAffinityParams)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return fk_create(ctx, flags, dev);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext handle)
{
	struct fk_context *ctx;

	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	fk_lock();
	ctx = fk_object_get(FK_CONTEXT, handle);
	if (!ctx || ctx->primary)
		return fk_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (fk_depth && fk_stack[fk_depth - 1] == ctx->obj.handle)
		fk_depth--;
	fk_context_destroy(ctx);
	return fk_leave(CUDA_SUCCESS);
}

static CUresult fk_check_context(CUcontext handle)
{
	bool valid;

	fk_lock();
	valid = fk_object_get(FK_CONTEXT, handle);
	fk_unlock();
	return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext handle)
{
	CUresult result;

	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	result = fk_check_context(handle);
	return result ? result : fk_push((uint64_t)(uintptr_t)handle);
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *handle)
{
	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!fk_depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	fk_depth--;
	if (handle)
		*handle = (CUcontext)(uintptr_t)fk_stack[fk_depth];
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle)
{
	CUresult result;

	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!handle) {
		fk_depth -= fk_depth > 0;
		return CUDA_SUCCESS;
	}
	result = fk_check_context(handle);
	if (result)
		return result;
	if (!fk_depth)
		return fk_push((uint64_t)(uintptr_t)handle);
	fk_stack[fk_depth - 1] = (uint64_t)(uintptr_t)handle;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *handle)
{
	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = fk_depth ? (CUcontext)(uintptr_t)fk_stack[fk_depth - 1] : NULL;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!device)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	*device = ctx->device;
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetFlags(unsigned int *flags)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!flags)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = ctx->flags;
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!fk_flags_valid(flags))
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	ctx->flags = flags;
	if (ctx->primary)
		fk_primaries[ctx->device].flags = flags;
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	struct fk_context *ctx;
	CUresult result;

	if (!handle) {
		result = fk_enter(&ctx);
		if (result)
			return result;
	} else {
		if (!fk_initialized())
			return CUDA_ERROR_NOT_INITIALIZED;
		fk_lock();
		ctx = fk_object_get(FK_CONTEXT, handle);
	}
	if (!ctx)
		return fk_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	if (!id)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	*id = ctx->obj.handle;
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
	CUresult result;

	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	result = handle ? fk_check_context(handle) : CUDA_SUCCESS;
	if (!result)
		*version = 3020;
	return result;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return fk_leave(CUDA_SUCCESS);
}

static CUresult fk_check_primary(CUdevice dev)
{
	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	return fk_device_valid(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	CUresult result = fk_check_primary(dev);
	struct fk_primary *primary;
	struct fk_context *ctx;

	if (result)
		return result;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	fk_lock();
	primary = &fk_primaries[dev];
	if (!primary->handle) {
		ctx = fk_context_new(dev, primary->flags);
		if (!ctx)
			return fk_leave(CUDA_ERROR_OUT_OF_MEMORY);
		ctx->primary = true;
		primary->handle = ctx->obj.handle;
	}
	primary->references++;
	*out = (CUcontext)(uintptr_t)primary->handle;
	return fk_leave(CUDA_SUCCESS);
}

static void fk_primary_destroy(struct fk_primary *primary)
{
	struct fk_context *ctx = fk_object_get_u64(FK_CONTEXT, primary->handle);

	if (ctx)
		fk_context_destroy(ctx);
	primary->handle = 0;
}

static CUresult fk_primary_release(CUdevice dev)
{
	CUresult result = fk_check_primary(dev);
	struct fk_primary *primary;

	if (result)
		return result;
	fk_lock();
	primary = &fk_primaries[dev];
	if (!primary->references)
		return fk_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!--primary->references)
		fk_primary_destroy(primary);
	return fk_leave(CUDA_SUCCESS);
}

static CUresult fk_primary_reset(CUdevice dev)
{
	CUresult result = fk_check_primary(dev);

	if (result)
		return result;
	fk_lock();
	fk_primary_destroy(&fk_primaries[dev]);
	fk_primaries[dev] = (struct fk_primary){};
	return fk_leave(CUDA_SUCCESS);
}

static CUresult fk_primary_set_flags(CUdevice dev, unsigned int flags)
{
	CUresult result = fk_check_primary(dev);
	struct fk_context *ctx;

	if (result)
		return result;
	if (!fk_flags_valid(flags))
		return CUDA_ERROR_INVALID_VALUE;
	fk_lock();
	fk_primaries[dev].flags = flags;
	ctx = fk_object_get_u64(FK_CONTEXT, fk_primaries[dev].handle);
	if (ctx)
		ctx->flags = flags;
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return fk_primary_release(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	return fk_primary_release(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice dev)
{
	return fk_primary_reset(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	return fk_primary_reset(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return fk_primary_set_flags(dev, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	return fk_primary_set_flags(dev, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	CUresult result = fk_check_primary(dev);

	if (result)
		return result;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	fk_lock();
	*flags = fk_primaries[dev].flags;
	*active = fk_primaries[dev].handle != 0;
	return fk_leave(CUDA_SUCCESS);
}
