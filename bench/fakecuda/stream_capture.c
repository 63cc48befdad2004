// SPDX-License-Identifier: GPL-2.0-only
/* The entry points of stream capture. */
#include "fakecuda.h"

static CUresult fk_begin(CUstream handle, CUstreamCaptureMode mode, bool ptsz)
{
	struct fk_context *ctx;
	struct fk_stream *stream;
	CUresult result = fk_enter_stream(handle, ptsz, &ctx, &stream);

	return result ? result : fk_leave(fk_capture_begin(stream, mode));
}

static CUresult fk_end(CUstream handle, CUgraph *out, bool ptsz)
{
	struct fk_context *ctx;
	struct fk_stream *stream;
	CUresult result = fk_enter_stream(handle, ptsz, &ctx, &stream);

	return result ? result : fk_leave(fk_capture_end(ctx, stream, out));
}

static CUresult fk_status(CUstream handle, bool ptsz, CUstreamCaptureStatus *status, cuuint64_t *id,
			  CUgraph *graph)
{
	struct fk_context *ctx;
	struct fk_stream *stream;
	CUresult result = fk_enter_stream(handle, ptsz, &ctx, &stream);

	return result ? result : fk_leave(fk_capture_status(ctx, stream, status, id, graph));
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	return fk_begin(stream, mode, false);
}

CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
	return fk_begin(stream, mode, true);
}

CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	return fk_end(stream, graph, false);
}

CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	return fk_end(stream, graph, true);
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	return fk_status(stream, false, status, NULL, NULL);
}

CUresult CUDAAPI cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
	return fk_status(stream, true, status, NULL, NULL);
}

/* The dependency arrays are not offered: asking for them is CUDA_ERROR_NOT_SUPPORTED. */
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status,
					   cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps,
					   size_t *nr_deps)
{
	if (deps || nr_deps)
		return CUDA_ERROR_NOT_SUPPORTED;
	return fk_status(stream, false, status, id, graph);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
					   cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps,
					   const CUgraphEdgeData **edges, size_t *nr_deps)
{
	if (deps || edges || nr_deps)
		return CUDA_ERROR_NOT_SUPPORTED;
	return fk_status(stream, false, status, id, graph);
}
