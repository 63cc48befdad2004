// SPDX-License-Identifier: GPL-2.0-only
/* Events: a point on a stream's timeline. */
#include <stdlib.h>
#include "fakecuda.h"

static void fk_event_destroy(struct fk_object *obj)
{
	free(((struct fk_event *)obj)->capture_deps);
	fk_object_free(obj);
}

CUresult CUDAAPI cuEventCreate(CUevent *out, unsigned int flags)
{
	const unsigned int known =
		CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
	struct fk_context *ctx;
	struct fk_event *event;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!out || flags & ~known)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	if (flags & CU_EVENT_INTERPROCESS)
		return fk_leave(flags & CU_EVENT_DISABLE_TIMING ? CUDA_ERROR_NOT_SUPPORTED
								: CUDA_ERROR_INVALID_VALUE);
	event = fk_object_new(FK_EVENT, sizeof(*event), ctx->obj.handle);
	if (!event)
		return fk_leave(CUDA_ERROR_OUT_OF_MEMORY);
	event->obj.destroy = fk_event_destroy;
	event->flags = flags;
	*out = FK_HANDLE(CUevent, event);
	return fk_leave(CUDA_SUCCESS);
}

/* As fk_enter, and the event; on an error the lock is free again. */
static CUresult fk_enter_event(CUevent handle, struct fk_context **ctx, struct fk_event **event)
{
	CUresult result = fk_enter(ctx);

	if (result)
		return result;
	*event = fk_object_get(FK_EVENT, handle);
	return *event ? CUDA_SUCCESS : fk_leave(CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent handle)
{
	struct fk_context *ctx;
	struct fk_event *event;
	CUresult result = fk_enter_event(handle, &ctx, &event);

	if (result)
		return result;
	fk_event_destroy(&event->obj);
	return fk_leave(CUDA_SUCCESS);
}

static CUresult fk_event_record(CUevent handle, CUstream stream_handle, unsigned int flags,
				bool ptsz)
{
	struct fk_context *ctx;
	struct fk_event *event;
	struct fk_stream *stream;
	CUresult result = fk_enter_event(handle, &ctx, &event);

	if (result)
		return result;
	if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	result = fk_stream_resolve(ctx, stream_handle, ptsz, &stream);
	if (result)
		return fk_leave(result);
	if (event->obj.owner != ctx->obj.handle)
		return fk_leave(CUDA_ERROR_INVALID_HANDLE);
	if (stream->capture)
		return fk_leave(fk_capture_record_event(stream, event));
	result = fk_capture_check_legacy(ctx, stream);
	if (result)
		return fk_leave(result);
	event->capture_id = 0;
	event->recorded = true;
	event->done_ns = fk_stream_ready_ns(ctx, stream, fk_now_ns());
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
	return fk_event_record(event, stream, 0, false);
}

CUresult CUDAAPI cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	return fk_event_record(event, stream, 0, true);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	return fk_event_record(event, stream, flags, false);
}

CUresult CUDAAPI cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
	return fk_event_record(event, stream, flags, true);
}

CUresult CUDAAPI cuEventQuery(CUevent handle)
{
	struct fk_context *ctx;
	struct fk_event *event;
	CUresult result = fk_enter_event(handle, &ctx, &event);
	uint64_t done_ns;

	if (result)
		return result;
	if (event->capture_id)
		return fk_leave(CUDA_ERROR_CAPTURED_EVENT);
	done_ns = event->done_ns;
	fk_unlock();
	return fk_now_ns() < done_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

/* cuda.h: without CU_EVENT_BLOCKING_SYNC the thread busy-waits, whatever the context's flags. */
FK_ENTRY(cuEventSynchronize, (CUevent handle))
{
	struct fk_context *ctx;
	struct fk_event *event;
	CUresult result = fk_enter_event(handle, &ctx, &event);
	enum fk_wait how;
	uint64_t done_ns;

	if (result)
		return result;
	if (event->capture_id)
		return fk_leave(CUDA_ERROR_CAPTURED_EVENT);
	done_ns = event->done_ns;
	how = fk_wait_mode(ctx);
	if (event->flags & CU_EVENT_BLOCKING_SYNC)
		how = FK_WAIT_BLOCK;
	else if (how == FK_WAIT_BLOCK)
		how = FK_WAIT_SPIN;
	fk_unlock();
	fk_wait_until(done_ns, how);
	return CUDA_SUCCESS;
}

static CUresult fk_event_elapsed(float *ms, CUevent start_handle, CUevent end_handle)
{
	struct fk_context *ctx;
	struct fk_event *start, *end;
	CUresult result = fk_enter_event(start_handle, &ctx, &start);
	uint64_t start_ns, end_ns, now_ns;

	if (result)
		return result;
	end = fk_object_get(FK_EVENT, end_handle);
	if (!ms)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	if (!end || !start->recorded || !end->recorded ||
	    (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
		return fk_leave(CUDA_ERROR_INVALID_HANDLE);
	if (start->capture_id || end->capture_id)
		return fk_leave(CUDA_ERROR_CAPTURED_EVENT);
	start_ns = start->done_ns;
	end_ns = end->done_ns;
	fk_unlock();
	now_ns = fk_now_ns();
	if (now_ns < start_ns || now_ns < end_ns)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(end_ns - start_ns) / 1e6);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return fk_event_elapsed(ms, start, end);
}

CUresult CUDAAPI cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	return fk_event_elapsed(ms, start, end);
}
