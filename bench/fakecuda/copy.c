// SPDX-License-Identifier: GPL-2.0-only
/* Copies and memsets: bytes move when the call is made, the time they take passes on the stream. */
#include "fakecuda.h"

enum fk_end {
	FK_HOST,
	FK_DEVICE,
	FK_ANY, /* unified addressing: the address says which */
};

struct fk_transfer {
	struct fk_work work;
	enum fk_end dst;
	enum fk_end src;
	CUstream stream;
	bool ptsz;
	bool wait; /* the call returns when the transfer is done */
};

static bool fk_end_valid(enum fk_end end, uint64_t address, uint64_t bytes)
{
	if (!address)
		return false;
	if (end == FK_DEVICE || (end == FK_ANY && address >> 47))
		return fk_memory_valid(address, bytes);
	return !(address >> 47);
}

static CUresult fk_transfer_queue(struct fk_transfer *t, struct fk_context *ctx, uint64_t now_ns,
				  uint64_t *done_ns)
{
	struct fk_stream *stream;
	CUresult result = fk_stream_resolve(ctx, t->stream, t->ptsz, &stream);

	*done_ns = 0;
	if (result || !t->work.bytes)
		return result;
	if (!fk_end_valid(t->dst, t->work.dst, t->work.bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (t->work.kind == FK_WORK_COPY && !fk_end_valid(t->src, t->work.src, t->work.bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture)
		return t->wait ? fk_capture_forbid(stream) : fk_capture_add(stream, &t->work);
	result = fk_capture_check_legacy(ctx, stream);
	if (result)
		return result;
	fk_work_apply(&t->work);
	*done_ns = fk_timeline_run(ctx->device, &t->work, fk_stream_ready_ns(ctx, stream, now_ns));
	fk_stream_advance(ctx, stream, *done_ns);
	return CUDA_SUCCESS;
}

static CUresult fk_transfer(struct fk_transfer *t)
{
	double mib = (double)t->work.bytes / (1 << 20);
	uint64_t now_ns = fk_now_ns();
	struct fk_context *ctx;
	enum fk_wait how;
	uint64_t done_ns;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	t->work.duration_ns = (uint64_t)(mib * 1e9 / (double)fk_config.copy_mib_per_s);
	result = fk_transfer_queue(t, ctx, now_ns, &done_ns);
	how = fk_wait_mode(ctx);
	fk_unlock();
	if (!result && t->wait)
		fk_wait_until(done_ns, how);
	return result;
}

static CUresult fk_copy(uint64_t dst, enum fk_end dst_end, uint64_t src, enum fk_end src_end,
			size_t bytes, CUstream stream, bool ptsz, bool wait)
{
	struct fk_transfer t = {
		.work = {.kind = FK_WORK_COPY, .dst = dst, .src = src, .bytes = bytes},
		.dst = dst_end,
		.src = src_end,
		.stream = stream,
		.ptsz = ptsz,
		.wait = wait,
	};

	return fk_transfer(&t);
}

static CUresult fk_set(uint64_t dst, uint32_t value, uint32_t value_bytes, size_t count,
		       CUstream stream, bool ptsz)
{
	struct fk_transfer t = {
		.work = {.kind = FK_WORK_SET,
			 .dst = dst,
			 .value = value,
			 .value_bytes = value_bytes},
		.dst = FK_DEVICE,
		.stream = stream,
		.ptsz = ptsz,
	};
	size_t bytes;

	if (dst % value_bytes || __builtin_mul_overflow(count, (size_t)value_bytes, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	t.work.bytes = bytes;
	return fk_transfer(&t);
}

#define FK_U64(ptr) ((uint64_t)(uintptr_t)(ptr))

/* Each pair: the legacy default stream, then the thread's own. Device to device returns at once. */
#define FK_COPY(name, suffix, dst_t, dst_end, src_t, src_end, wait)                            \
	CUresult CUDAAPI name(dst_t dst, src_t src, size_t bytes)                              \
	{                                                                                      \
		return fk_copy(FK_U64(dst), dst_end, FK_U64(src), src_end, bytes, NULL, false, \
			       wait);                                                          \
	}                                                                                      \
	CUresult CUDAAPI name##_##suffix(dst_t dst, src_t src, size_t bytes)                   \
	{                                                                                      \
		return fk_copy(FK_U64(dst), dst_end, FK_U64(src), src_end, bytes, NULL, true,  \
			       wait);                                                          \
	}

#define FK_COPY_ASYNC(name, dst_t, dst_end, src_t, src_end)                                      \
	CUresult CUDAAPI name(dst_t dst, src_t src, size_t bytes, CUstream stream)               \
	{                                                                                        \
		return fk_copy(FK_U64(dst), dst_end, FK_U64(src), src_end, bytes, stream, false, \
			       false);                                                           \
	}                                                                                        \
	CUresult CUDAAPI name##_ptsz(dst_t dst, src_t src, size_t bytes, CUstream stream)        \
	{                                                                                        \
		return fk_copy(FK_U64(dst), dst_end, FK_U64(src), src_end, bytes, stream, true,  \
			       false);                                                           \
	}

#define FK_SET(name, async, type)                                                                 \
	CUresult CUDAAPI name(CUdeviceptr dst, type value, size_t count)                          \
	{                                                                                         \
		return fk_set(dst, value, sizeof(type), count, NULL, false);                      \
	}                                                                                         \
	CUresult CUDAAPI name##_ptds(CUdeviceptr dst, type value, size_t count)                   \
	{                                                                                         \
		return fk_set(dst, value, sizeof(type), count, NULL, true);                       \
	}                                                                                         \
	CUresult CUDAAPI async(CUdeviceptr dst, type value, size_t count, CUstream stream)        \
	{                                                                                         \
		return fk_set(dst, value, sizeof(type), count, stream, false);                    \
	}                                                                                         \
	CUresult CUDAAPI async##_ptsz(CUdeviceptr dst, type value, size_t count, CUstream stream) \
	{                                                                                         \
		return fk_set(dst, value, sizeof(type), count, stream, true);                     \
	}

FK_COPY(cuMemcpyHtoD_v2, ptds, CUdeviceptr, FK_DEVICE, const void *, FK_HOST, true)
FK_COPY(cuMemcpyDtoH_v2, ptds, void *, FK_HOST, CUdeviceptr, FK_DEVICE, true)
FK_COPY(cuMemcpyDtoD_v2, ptds, CUdeviceptr, FK_DEVICE, CUdeviceptr, FK_DEVICE, false)
FK_COPY(cuMemcpy, ptds, CUdeviceptr, FK_ANY, CUdeviceptr, FK_ANY, true)
FK_COPY_ASYNC(cuMemcpyHtoDAsync_v2, CUdeviceptr, FK_DEVICE, const void *, FK_HOST)
FK_COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, FK_HOST, CUdeviceptr, FK_DEVICE)
FK_COPY_ASYNC(cuMemcpyDtoDAsync_v2, CUdeviceptr, FK_DEVICE, CUdeviceptr, FK_DEVICE)
FK_COPY_ASYNC(cuMemcpyAsync, CUdeviceptr, FK_ANY, CUdeviceptr, FK_ANY)
FK_SET(cuMemsetD8_v2, cuMemsetD8Async, unsigned char)
FK_SET(cuMemsetD16_v2, cuMemsetD16Async, unsigned short)
FK_SET(cuMemsetD32_v2, cuMemsetD32Async, unsigned int)
