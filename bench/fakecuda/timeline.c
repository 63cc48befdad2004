// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device's timeline: when queued work starts and ends, as arithmetic on CLOCK_MONOTONIC.
 *
 * Nothing runs. A kernel starts when its stream is free, its launch has reached the device and one
 * of the device's FAKECUDA_CONCURRENT lanes is free, first come first served. Copies have engines
 * of their own and take no lane.
 */
#include <stdlib.h>
#include "fakecuda.h"

static uint64_t fk_lane_free_ns[FK_MAX_DEVICES][FK_MAX_CONCURRENT];

static uint64_t fk_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Of the lanes free at ready_ns the one freed last, so that a stream stays where it was. */
static uint64_t *fk_lane_choose(CUdevice dev, uint64_t ready_ns)
{
	uint64_t *fits = NULL;
	uint64_t *soonest = &fk_lane_free_ns[dev][0];

	for (uint32_t i = 0; i < fk_config.concurrent; i++) {
		uint64_t *lane = &fk_lane_free_ns[dev][i];

		if (*lane <= ready_ns && (!fits || *lane > *fits))
			fits = lane;
		if (*lane < *soonest)
			soonest = lane;
	}
	return fits ? fits : soonest;
}

/* Returns when the work will be done. */
uint64_t fk_timeline_run(CUdevice dev, const struct fk_work *work, uint64_t ready_ns)
{
	uint64_t *lane;

	if (work->kind != FK_WORK_KERNEL)
		return ready_ns + work->duration_ns;
	lane = fk_lane_choose(dev, ready_ns);
	*lane = fk_max(*lane, ready_ns) + work->duration_ns;
	return *lane;
}

/* The legacy default stream and blocking streams wait for each other; non-blocking ones do not. */
uint64_t fk_stream_ready_ns(struct fk_context *ctx, const struct fk_stream *stream, uint64_t now_ns)
{
	uint64_t ready_ns = fk_max(now_ns, stream->done_ns);
	const struct fk_stream *legacy;

	if (stream->legacy)
		return fk_max(ready_ns, ctx->blocking_done_ns);
	if (stream->flags & CU_STREAM_NON_BLOCKING)
		return ready_ns;
	legacy = fk_object_get_u64(FK_STREAM, ctx->legacy_stream);
	return legacy ? fk_max(ready_ns, legacy->done_ns) : ready_ns;
}

void fk_stream_advance(struct fk_context *ctx, struct fk_stream *stream, uint64_t done_ns)
{
	stream->done_ns = fk_max(stream->done_ns, done_ns);
	ctx->all_done_ns = fk_max(ctx->all_done_ns, done_ns);
	if (!stream->legacy && !(stream->flags & CU_STREAM_NON_BLOCKING))
		ctx->blocking_done_ns = fk_max(ctx->blocking_done_ns, done_ns);
}

/* 0, or until when a launch must wait because FAKECUDA_QUEUE launches are pending. */
uint64_t fk_queue_full_until(const struct fk_stream *stream, uint64_t now_ns)
{
	uint64_t oldest_ns;

	if (!stream->ring || stream->nr_launches < fk_config.queue)
		return 0;
	oldest_ns = stream->ring[stream->nr_launches % fk_config.queue];
	return oldest_ns > now_ns ? oldest_ns : 0;
}

/* Without memory for the ring the queue is unbounded, which hurts nobody. */
void fk_queue_push(struct fk_stream *stream, uint64_t done_ns)
{
	if (!stream->ring)
		stream->ring = calloc(fk_config.queue, sizeof(*stream->ring));
	if (!stream->ring)
		return;
	stream->ring[stream->nr_launches++ % fk_config.queue] = done_ns;
}

/* The bytes of a copy or memset move in program order, when it is queued. */
void fk_work_apply(const struct fk_work *work)
{
	if (work->kind == FK_WORK_COPY)
		fk_memory_copy(work->dst, work->src, work->bytes);
	else if (work->kind == FK_WORK_SET)
		fk_memory_set(work->dst, work->bytes, work->value, work->value_bytes);
}
