// SPDX-License-Identifier: GPL-2.0-only
/* Streams: the legacy default one, one for each thread, and those that programs create. */
#include <pthread.h>
#include <stdlib.h>
#include "fakecuda.h"

#define FK_MAX_THREAD_STREAMS 16

struct fk_thread_stream {
	uint64_t ctx;
	uint64_t stream;
};

static __thread struct fk_thread_stream fk_thread_streams[FK_MAX_THREAD_STREAMS];
static __thread unsigned int fk_next_thread_stream;
static pthread_key_t fk_thread_exit_key;
static pthread_once_t fk_thread_exit_once = PTHREAD_ONCE_INIT;
static uint64_t fk_next_stream_id = 3;

static void fk_stream_destroy(struct fk_object *obj)
{
	struct fk_stream *stream = (struct fk_stream *)obj;

	fk_capture_drop_stream(stream);
	free(stream->capture_deps);
	free(stream->ring);
	fk_object_free(obj);
}

static struct fk_stream *fk_stream_new(struct fk_context *ctx, unsigned int flags)
{
	struct fk_stream *stream = fk_object_new(FK_STREAM, sizeof(*stream), ctx->obj.handle);

	if (!stream)
		return NULL;
	stream->obj.destroy = fk_stream_destroy;
	stream->flags = flags;
	stream->id = fk_next_stream_id++;
	return stream;
}

static struct fk_stream *fk_legacy_stream(struct fk_context *ctx)
{
	struct fk_stream *stream = fk_object_get_u64(FK_STREAM, ctx->legacy_stream);

	if (stream)
		return stream;
	stream = fk_stream_new(ctx, CU_STREAM_DEFAULT);
	if (!stream)
		return NULL;
	stream->legacy = true;
	stream->id = 1;
	ctx->legacy_stream = stream->obj.handle;
	return stream;
}

/* A thread's own default streams go when the thread goes. */
static void fk_thread_exit(void *streams)
{
	struct fk_thread_stream *mine = streams;

	fk_lock();
	for (int i = 0; i < FK_MAX_THREAD_STREAMS; i++) {
		struct fk_stream *stream = fk_object_get_u64(FK_STREAM, mine[i].stream);

		if (stream)
			fk_stream_destroy(&stream->obj);
	}
	fk_unlock();
}

static void fk_thread_exit_init(void)
{
	pthread_key_create(&fk_thread_exit_key, fk_thread_exit);
}

static struct fk_stream *fk_thread_stream(struct fk_context *ctx)
{
	struct fk_thread_stream *mine;
	struct fk_stream *stream;

	for (int i = 0; i < FK_MAX_THREAD_STREAMS; i++) {
		mine = &fk_thread_streams[i];
		if (mine->ctx != ctx->obj.handle)
			continue;
		stream = fk_object_get_u64(FK_STREAM, mine->stream);
		if (stream)
			return stream;
	}
	stream = fk_stream_new(ctx, CU_STREAM_DEFAULT);
	if (!stream)
		return NULL;
	stream->per_thread = true;
	pthread_once(&fk_thread_exit_once, fk_thread_exit_init);
	pthread_setspecific(fk_thread_exit_key, fk_thread_streams);
	mine = &fk_thread_streams[fk_next_thread_stream++ % FK_MAX_THREAD_STREAMS];
	*mine = (struct fk_thread_stream){ctx->obj.handle, stream->obj.handle};
	return stream;
}

/* NULL is the legacy stream, or the thread's own for the _ptsz entry points. */
CUresult fk_stream_resolve(struct fk_context *ctx, CUstream handle, bool ptsz,
			   struct fk_stream **out)
{
	if (handle == CU_STREAM_LEGACY || (!handle && !ptsz))
		*out = fk_legacy_stream(ctx);
	else if (handle == CU_STREAM_PER_THREAD || !handle)
		*out = fk_thread_stream(ctx);
	else {
		*out = fk_object_get(FK_STREAM, handle);
		if (!*out || (*out)->obj.owner != ctx->obj.handle)
			return CUDA_ERROR_INVALID_HANDLE;
	}
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* As fk_enter, and the stream; on an error the lock is free again. */
CUresult fk_enter_stream(CUstream handle, bool ptsz, struct fk_context **ctx,
			 struct fk_stream **stream)
{
	CUresult result = fk_enter(ctx);

	if (result)
		return result;
	result = fk_stream_resolve(*ctx, handle, ptsz, stream);
	return result ? fk_leave(result) : CUDA_SUCCESS;
}

static CUresult fk_stream_create(CUstream *out, unsigned int flags, int priority)
{
	struct fk_context *ctx;
	struct fk_stream *stream;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!out || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	stream = fk_stream_new(ctx, flags);
	if (!stream)
		return fk_leave(CUDA_ERROR_OUT_OF_MEMORY);
	stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	*out = FK_HANDLE(CUstream, stream);
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return fk_stream_create(stream, flags, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	return fk_stream_create(stream, flags, priority);
}

/* Work that the stream still holds goes on, as documented: only the handle goes. */
CUresult CUDAAPI cuStreamDestroy_v2(CUstream handle)
{
	struct fk_context *ctx;
	struct fk_stream *stream;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	stream = fk_object_get(FK_STREAM, handle);
	if (!stream || stream->legacy || stream->per_thread)
		return fk_leave(CUDA_ERROR_INVALID_HANDLE);
	fk_stream_destroy(&stream->obj);
	return fk_leave(CUDA_SUCCESS);
}

static CUresult fk_stream_query(CUstream handle, bool ptsz)
{
	struct fk_context *ctx;
	struct fk_stream *stream;
	CUresult result = fk_enter_stream(handle, ptsz, &ctx, &stream);
	uint64_t done_ns;

	if (result)
		return result;
	result = fk_capture_forbid(stream);
	if (!result)
		result = fk_capture_check_legacy(ctx, stream);
	done_ns = stream->legacy ? fk_stream_ready_ns(ctx, stream, 0) : stream->done_ns;
	fk_unlock();
	if (result)
		return result;
	return fk_now_ns() < done_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult fk_stream_synchronize(CUstream handle, bool ptsz)
{
	struct fk_context *ctx;
	struct fk_stream *stream;
	CUresult result = fk_enter_stream(handle, ptsz, &ctx, &stream);
	enum fk_wait how;
	uint64_t done_ns;

	if (result)
		return result;
	result = fk_capture_forbid(stream);
	if (!result)
		result = fk_capture_check_legacy(ctx, stream);
	done_ns = stream->legacy ? fk_stream_ready_ns(ctx, stream, 0) : stream->done_ns;
	how = fk_wait_mode(ctx);
	fk_unlock();
	if (!result)
		fk_wait_until(done_ns, how);
	return result;
}

/* Waits for all work of the current context. */
FK_ENTRY(cuCtxSynchronize, (void))
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);
	enum fk_wait how;
	uint64_t done_ns;

	if (result)
		return result;
	result = fk_capture_forbid_all(ctx);
	how = fk_wait_mode(ctx);
	done_ns = ctx->all_done_ns;
	fk_unlock();
	if (!result)
		fk_wait_until(done_ns, how);
	return result;
}

static CUresult fk_stream_wait_event(CUstream handle, CUevent event_handle, unsigned int flags,
				     bool ptsz)
{
	struct fk_context *ctx;
	struct fk_stream *stream;
	struct fk_event *event;
	CUresult result = fk_enter_stream(handle, ptsz, &ctx, &stream);

	if (result)
		return result;
	if (flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	event = fk_object_get(FK_EVENT, event_handle);
	if (!event)
		return fk_leave(CUDA_ERROR_INVALID_HANDLE);
	if (event->capture_id || stream->capture)
		return fk_leave(fk_capture_wait_event(stream, event));
	if (event->recorded)
		fk_stream_advance(ctx, stream, event->done_ns);
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamQuery(CUstream stream)
{
	return fk_stream_query(stream, false);
}

CUresult CUDAAPI cuStreamQuery_ptsz(CUstream stream)
{
	return fk_stream_query(stream, true);
}

FK_ENTRY(cuStreamSynchronize, (CUstream stream))
{
	return fk_stream_synchronize(stream, false);
}

FK_ENTRY(cuStreamSynchronize_ptsz, (CUstream stream))
{
	return fk_stream_synchronize(stream, true);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
	return fk_stream_wait_event(stream, event, flags, false);
}

CUresult CUDAAPI cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
	return fk_stream_wait_event(stream, event, flags, true);
}

enum fk_stream_fact {
	FK_STREAM_FLAGS,
	FK_STREAM_PRIORITY,
	FK_STREAM_ID,
	FK_STREAM_CTX,
};

static CUresult fk_stream_fact(CUstream handle, bool ptsz, enum fk_stream_fact fact, void *out)
{
	struct fk_context *ctx;
	struct fk_stream *stream;
	CUresult result = fk_enter_stream(handle, ptsz, &ctx, &stream);

	if (result)
		return result;
	if (!out)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	switch (fact) {
	case FK_STREAM_FLAGS:
		*(unsigned int *)out = stream->flags;
		break;
	case FK_STREAM_PRIORITY:
		*(int *)out = stream->priority;
		break;
	case FK_STREAM_ID:
		*(unsigned long long *)out = stream->id;
		break;
	case FK_STREAM_CTX:
		*(CUcontext *)out = FK_HANDLE(CUcontext, ctx);
		break;
	}
	return fk_leave(CUDA_SUCCESS);
}

#define FK_STREAM_FACT(name, type, fact)                         \
	CUresult CUDAAPI name(CUstream stream, type *out)        \
	{                                                        \
		return fk_stream_fact(stream, false, fact, out); \
	}                                                        \
	CUresult CUDAAPI name##_ptsz(CUstream stream, type *out) \
	{                                                        \
		return fk_stream_fact(stream, true, fact, out);  \
	}

FK_STREAM_FACT(cuStreamGetFlags, unsigned int, FK_STREAM_FLAGS)
FK_STREAM_FACT(cuStreamGetPriority, int, FK_STREAM_PRIORITY)
FK_STREAM_FACT(cuStreamGetId, unsigned long long, FK_STREAM_ID)
FK_STREAM_FACT(cuStreamGetCtx, CUcontext, FK_STREAM_CTX)
