// SPDX-License-Identifier: GPL-2.0-only
/* Device memory and pinned host memory as programs ask for it. */
#include "fakecuda.h"

static CUresult fk_mem_alloc(CUdeviceptr *out, size_t bytes)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);
	uint64_t base;

	if (result)
		return result;
	if (!out || !bytes)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	result = fk_memory_allocate(ctx, bytes, false, &base);
	if (!result)
		*out = base;
	return fk_leave(result);
}

static CUresult fk_mem_free(uint64_t base, bool host)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!base)
		return fk_leave(host ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
	return fk_leave(fk_memory_free(base, host));
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	return fk_mem_alloc(out, bytes);
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr ptr)
{
	return fk_mem_free(ptr, false);
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
				    unsigned int element)
{
	size_t rounded = (width + FK_ALIGNMENT - 1) / FK_ALIGNMENT * FK_ALIGNMENT;
	size_t bytes;
	CUresult result;

	if (!pitch || (element != 4 && element != 8 && element != 16) || rounded < width ||
	    __builtin_mul_overflow(rounded, height, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	result = fk_mem_alloc(out, bytes);
	if (!result)
		*pitch = rounded;
	return result;
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!free_bytes || !total)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	*total = (size_t)fk_config.mem_mib << 20;
	*free_bytes = *total - fk_memory_used(ctx->device);
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
	struct fk_context *ctx;
	const struct fk_allocation *a;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	a = fk_memory_find(ptr, false);
	if (!a)
		return fk_leave(CUDA_ERROR_NOT_FOUND);
	if (base)
		*base = a->base;
	if (bytes)
		*bytes = a->bytes;
	return fk_leave(CUDA_SUCCESS);
}

static CUresult fk_host_alloc(void **out, size_t bytes)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);
	uint64_t base;

	if (result)
		return result;
	if (!out || !bytes)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	result = fk_memory_allocate(ctx, bytes, true, &base);
	if (!result)
		*out = (void *)(uintptr_t)base;
	return fk_leave(result);
}

CUresult CUDAAPI cuMemAllocHost_v2(void **out, size_t bytes)
{
	return fk_host_alloc(out, bytes);
}

CUresult CUDAAPI cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	if (flags & ~7u)
		return CUDA_ERROR_INVALID_VALUE;
	return fk_host_alloc(out, bytes);
}

CUresult CUDAAPI cuMemFreeHost(void *ptr)
{
	return fk_mem_free((uint64_t)(uintptr_t)ptr, true);
}

/* Unified addressing: pinned host memory has one address. */
CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *ptr, unsigned int flags)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!out || flags || !fk_memory_find((uint64_t)(uintptr_t)ptr, true))
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	*out = (CUdeviceptr)(uintptr_t)ptr;
	return fk_leave(CUDA_SUCCESS);
}
