// SPDX-License-Identifier: GPL-2.0-only
/*
 * Stream capture: work queued on a capturing stream becomes nodes of a graph.
 *
 * A capture begins on one stream, its origin. Other streams join by waiting for an event recorded
 * in it and must be joined back, by an event that the origin waits for, before it may end.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "fakecuda.h"

struct fk_capture {
	uint64_t id;
	uint64_t origin;
	uint64_t ctx;
	CUstreamCaptureMode mode;
	pthread_t thread;
	bool invalidated;
	bool dropped; /* its origin is gone */
	uint32_t nr_streams;
	struct fk_graph *graph;
};

static uint64_t fk_next_capture_id = 1;
static unsigned int fk_nr_captures;

/* Adds deps to the stream's; false without memory. */
static bool fk_deps_merge(struct fk_stream *stream, const uint32_t *deps, uint32_t nr)
{
	uint32_t *all =
		realloc(stream->capture_deps, (stream->nr_capture_deps + nr + 1) * sizeof(*all));

	if (!all)
		return false;
	stream->capture_deps = all;
	for (uint32_t i = 0; i < nr; i++) {
		bool known = false;

		for (uint32_t j = 0; j < stream->nr_capture_deps && !known; j++)
			known = all[j] == deps[i];
		if (!known)
			all[stream->nr_capture_deps++] = deps[i];
	}
	return true;
}

static void fk_capture_leave(struct fk_stream *stream)
{
	struct fk_capture *capture = stream->capture;

	stream->capture = NULL;
	stream->nr_capture_deps = 0;
	if (--capture->nr_streams)
		return;
	if (capture->graph)
		fk_graph_destroy(capture->graph);
	free(capture);
	fk_nr_captures--;
}

void fk_capture_drop_stream(struct fk_stream *stream)
{
	if (!stream->capture)
		return;
	stream->capture->invalidated = true;
	if (stream->capture->origin == stream->obj.handle)
		stream->capture->dropped = true;
	fk_capture_leave(stream);
}

static CUresult fk_capture_invalidate(struct fk_capture *capture, CUresult why)
{
	capture->invalidated = true;
	return why;
}

CUresult fk_capture_add(struct fk_stream *stream, const struct fk_work *work)
{
	struct fk_capture *capture = stream->capture;
	uint32_t index;
	CUresult result;

	if (capture->invalidated)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	result = fk_graph_append(capture->graph, work, stream->capture_deps,
				 stream->nr_capture_deps, &index);
	if (result)
		return fk_capture_invalidate(capture, result);
	stream->nr_capture_deps = 0;
	if (!fk_deps_merge(stream, &index, 1))
		return fk_capture_invalidate(capture, CUDA_ERROR_OUT_OF_MEMORY);
	return CUDA_SUCCESS;
}

/* For calls that a capturing stream cannot do, such as to wait for it. */
CUresult fk_capture_forbid(struct fk_stream *stream)
{
	if (!stream->capture)
		return CUDA_SUCCESS;
	return fk_capture_invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

static struct fk_context *fk_visited_ctx;
static struct fk_capture *fk_found;

static void fk_visit_capturing(void *obj)
{
	const struct fk_stream *stream = obj;

	if (stream->capture && (!fk_visited_ctx || !(stream->flags & CU_STREAM_NON_BLOCKING)))
		fk_found = stream->capture;
}

/* A capture among the context's streams, or among those that the legacy stream waits for. */
static struct fk_capture *fk_capture_find(struct fk_context *ctx, bool blocking_only)
{
	fk_found = NULL;
	fk_visited_ctx = blocking_only ? ctx : NULL;
	if (fk_nr_captures)
		fk_objects_of(FK_STREAM, ctx->obj.handle, fk_visit_capturing);
	return fk_found;
}

/* The legacy stream would wait for a capturing stream, which is not there to be waited for. */
CUresult fk_capture_check_legacy(struct fk_context *ctx, const struct fk_stream *stream)
{
	struct fk_capture *capture = stream->legacy ? fk_capture_find(ctx, true) : NULL;

	if (!capture)
		return CUDA_SUCCESS;
	return fk_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

CUresult fk_capture_forbid_all(struct fk_context *ctx)
{
	struct fk_capture *capture = fk_capture_find(ctx, false);

	if (!capture || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	return fk_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult fk_capture_record_event(struct fk_stream *stream, struct fk_event *event)
{
	uint32_t *deps;

	if (stream->capture->invalidated)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	deps = realloc(event->capture_deps, (stream->nr_capture_deps + 1) * sizeof(*deps));
	if (!deps)
		return fk_capture_invalidate(stream->capture, CUDA_ERROR_OUT_OF_MEMORY);
	if (stream->nr_capture_deps)
		memcpy(deps, stream->capture_deps, stream->nr_capture_deps * sizeof(*deps));
	event->capture_deps = deps;
	event->nr_capture_deps = stream->nr_capture_deps;
	event->capture_id = stream->capture->id;
	event->recorded = true;
	return CUDA_SUCCESS;
}

static uint64_t fk_wanted_id;

static void fk_visit_capture_id(void *obj)
{
	const struct fk_stream *stream = obj;

	if (stream->capture && stream->capture->id == fk_wanted_id)
		fk_found = stream->capture;
}

static struct fk_capture *fk_capture_by_id(uint64_t ctx, uint64_t id)
{
	fk_found = NULL;
	fk_wanted_id = id;
	fk_objects_of(FK_STREAM, ctx, fk_visit_capture_id);
	return fk_found;
}

/* Joins the stream to the capture of the event, or orders it after the event within one. */
CUresult fk_capture_wait_event(struct fk_stream *stream, const struct fk_event *event)
{
	struct fk_capture *capture = stream->capture;

	if (!event->capture_id)
		return fk_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	if (capture && capture->id != event->capture_id)
		return fk_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
	if (!capture) {
		capture = fk_capture_by_id(stream->obj.owner, event->capture_id);
		if (!capture)
			return CUDA_ERROR_CAPTURED_EVENT;
		if (stream->legacy)
			return fk_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
		stream->capture = capture;
		stream->nr_capture_deps = 0;
		capture->nr_streams++;
	}
	if (capture->invalidated)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!fk_deps_merge(stream, event->capture_deps, event->nr_capture_deps))
		return fk_capture_invalidate(capture, CUDA_ERROR_OUT_OF_MEMORY);
	return CUDA_SUCCESS;
}

CUresult fk_capture_begin(struct fk_stream *stream, CUstreamCaptureMode mode)
{
	struct fk_capture *capture;

	if ((int)mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = calloc(1, sizeof(*capture));
	if (!capture || !(capture->graph = fk_graph_new())) {
		free(capture);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	capture->id = fk_next_capture_id++;
	capture->origin = stream->obj.handle;
	capture->ctx = stream->obj.owner;
	capture->mode = mode;
	capture->thread = pthread_self();
	capture->nr_streams = 1;
	stream->capture = capture;
	stream->nr_capture_deps = 0;
	fk_nr_captures++;
	return CUDA_SUCCESS;
}

static uint32_t fk_nr_unjoined;

/* A joined stream is back when everything it captured is before the origin's next node. */
static bool fk_is_ancestor(const struct fk_graph *graph, uint32_t node, const uint32_t *deps,
			   uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		if (deps[i] == node)
			return true;
		if (deps[i] > node && fk_is_ancestor(graph, node, graph->nodes[deps[i]].deps,
						     graph->nodes[deps[i]].nr_deps))
			return true;
	}
	return false;
}

static struct fk_capture *fk_ending;
static struct fk_stream *fk_ending_origin;

static void fk_visit_unjoined(void *obj)
{
	struct fk_stream *stream = obj;

	if (stream->capture != fk_ending || stream == fk_ending_origin)
		return;
	for (uint32_t i = 0; i < stream->nr_capture_deps; i++)
		if (!fk_is_ancestor(fk_ending->graph, stream->capture_deps[i],
				    fk_ending_origin->capture_deps,
				    fk_ending_origin->nr_capture_deps))
			fk_nr_unjoined++;
}

static void fk_visit_end(void *obj)
{
	struct fk_stream *stream = obj;

	if (stream->capture == fk_ending && stream != fk_ending_origin)
		fk_capture_leave(stream);
}

CUresult fk_capture_end(struct fk_context *ctx, struct fk_stream *stream, CUgraph *out)
{
	struct fk_capture *capture = stream->capture;
	CUresult result = CUDA_SUCCESS;

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->origin != stream->obj.handle)
		return fk_capture_invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	    !pthread_equal(capture->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	fk_ending = capture;
	fk_ending_origin = stream;
	fk_nr_unjoined = 0;
	fk_objects_of(FK_STREAM, ctx->obj.handle, fk_visit_unjoined);
	fk_objects_of(FK_STREAM, ctx->obj.handle, fk_visit_end);
	if (capture->invalidated) {
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else if (fk_nr_unjoined) {
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	} else {
		*out = FK_HANDLE(CUgraph, capture->graph);
		capture->graph = NULL;
	}
	fk_capture_leave(stream);
	return result;
}

CUresult fk_capture_status(struct fk_context *ctx, const struct fk_stream *stream,
			   CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph)
{
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->legacy && fk_capture_find(ctx, true))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*status = !stream->capture		 ? CU_STREAM_CAPTURE_STATUS_NONE
		  : stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
						 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (id && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		*id = stream->capture->id;
	if (graph && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
		*graph = FK_HANDLE(CUgraph, stream->capture->graph);
	return CUDA_SUCCESS;
}
