// SPDX-License-Identifier: GPL-2.0-only
/* Kernel launches: what they check, what they cost the calling thread, what they queue. */
#include <string.h>
#include "fakecuda.h"

#define FK_MAX_GRID_X	     0x7fffffffu
#define FK_MAX_GRID_YZ	     65535u
#define FK_MAX_BLOCK_THREADS 1024u
#define FK_MAX_BLOCK_Z	     64u
#define FK_MAX_SHARED_BYTES  (227u << 10)

/* CUDA leaves the error for a bad geometry to cuLaunchKernel's list: a value is invalid. */
static bool fk_geometry_valid(const struct fk_launch *l)
{
	uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];

	return l->grid[0] && l->grid[1] && l->grid[2] && threads && l->grid[0] <= FK_MAX_GRID_X &&
	       l->grid[1] <= FK_MAX_GRID_YZ && l->grid[2] <= FK_MAX_GRID_YZ &&
	       l->block[0] <= FK_MAX_BLOCK_THREADS && l->block[1] <= FK_MAX_BLOCK_THREADS &&
	       l->block[2] <= FK_MAX_BLOCK_Z && threads <= FK_MAX_BLOCK_THREADS &&
	       l->shared_bytes <= FK_MAX_SHARED_BYTES;
}

/* The packed parameter buffer of the extra array; false when the array makes no sense. */
static bool fk_extra_buffer(void **extra, const void **buffer, size_t *bytes)
{
	*buffer = NULL;
	*bytes = 0;
	for (int i = 0; i < 8; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_END)
			return true;
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			*buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[i + 1])
			*bytes = *(size_t *)extra[i + 1];
		else
			return false;
	}
	return false;
}

static CUresult fk_kernel_work(const struct fk_launch *l, const struct fk_function *function,
			       struct fk_work *work)
{
	const void *first = NULL;
	size_t bytes = 0;

	*work = (struct fk_work){.kind = FK_WORK_KERNEL, .duration_ns = fk_config.kernel_ns};
	if (l->params && l->extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (l->extra) {
		if (!fk_extra_buffer(l->extra, &first, &bytes) || (bytes && !first) ||
		    bytes > FK_MAX_PARAM_BYTES)
			return CUDA_ERROR_INVALID_VALUE;
		if (bytes < function->param_bytes || (function->duration_is_param && bytes < 8))
			return CUDA_ERROR_INVALID_VALUE;
	} else if (l->params) {
		if (function->nr_params || function->duration_is_param)
			first = l->params[0];
		if (function->duration_is_param && !first)
			return CUDA_ERROR_INVALID_VALUE;
	} else if (function->nr_params || function->duration_is_param) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (function->duration_is_param)
		memcpy(&work->duration_ns, first, sizeof(work->duration_ns));
	return CUDA_SUCCESS;
}

/* Queues the launch; a full queue is CUDA_SUCCESS with the time to wait for in full_until_ns. */
static CUresult fk_launch_queue(const struct fk_launch *l, struct fk_context *ctx, uint64_t now_ns,
				uint64_t *full_until_ns)
{
	struct fk_function *function = fk_object_get(FK_FUNCTION, l->function);
	struct fk_stream *stream;
	struct fk_work work;
	uint64_t done_ns;
	CUresult result;

	*full_until_ns = 0;
	if (!function || function->obj.owner != ctx->obj.handle)
		return CUDA_ERROR_INVALID_HANDLE;
	result = fk_stream_resolve(ctx, l->stream, l->ptsz, &stream);
	if (result)
		return result;
	if (!fk_geometry_valid(l))
		return CUDA_ERROR_INVALID_VALUE;
	result = fk_kernel_work(l, function, &work);
	if (result)
		return result;
	if (stream->capture)
		return fk_capture_add(stream, &work);
	result = fk_capture_check_legacy(ctx, stream);
	if (result)
		return result;
	*full_until_ns = fk_queue_full_until(stream, now_ns);
	if (*full_until_ns)
		return CUDA_SUCCESS;
	done_ns = fk_timeline_run(ctx->device, &work,
				  fk_stream_ready_ns(ctx, stream, now_ns + fk_config.start_ns));
	fk_queue_push(stream, done_ns);
	fk_stream_advance(ctx, stream, done_ns);
	return CUDA_SUCCESS;
}

/*
 * The least that queueing has cost, in ns, and of how many samples. Races only lose a sample. It is
 * not believed before it is the least of several: the first launch of a process finds cold caches,
 * any may be preempted, and a launch that expects too much of its queueing costs too little.
 */
#define FK_QUEUEING_SAMPLES 8
static uint64_t fk_queueing_ns;
static uint32_t fk_nr_samples;
static __thread uint32_t fk_nr_launches;

/* Reads the clock for a few launches, then for one in 64: it costs much where time is emulated. */
static void fk_queueing_sample(uint64_t begun_ns)
{
	uint64_t least_ns = __atomic_load_n(&fk_queueing_ns, __ATOMIC_RELAXED);
	uint32_t nr_samples = __atomic_load_n(&fk_nr_samples, __ATOMIC_RELAXED);
	uint64_t cost_ns;

	if (fk_nr_launches++ % 64 && nr_samples >= FK_QUEUEING_SAMPLES)
		return;
	cost_ns = fk_now_ns() - begun_ns;
	if (!nr_samples || cost_ns < least_ns)
		__atomic_store_n(&fk_queueing_ns, cost_ns, __ATOMIC_RELAXED);
	if (nr_samples < FK_QUEUEING_SAMPLES)
		__atomic_store_n(&fk_nr_samples, nr_samples + 1, __ATOMIC_RELAXED);
}

/* Spins for what a launch costs less what queueing it will cost; returns the time then. */
static uint64_t fk_launch_pay(void)
{
	bool known = __atomic_load_n(&fk_nr_samples, __ATOMIC_RELAXED) >= FK_QUEUEING_SAMPLES;
	uint64_t queueing_ns = known ? __atomic_load_n(&fk_queueing_ns, __ATOMIC_RELAXED) : 0;
	uint64_t now_ns = fk_now_ns();

	if (fk_config.launch_ns <= queueing_ns)
		return now_ns;
	return fk_spin_until(now_ns + fk_config.launch_ns - queueing_ns);
}

/*
 * The CPU cost comes first and outside the lock, as wall-clock time: the time that this thread
 * spent preempted inside the call counts too, which is at most one launch's cost in the thread's
 * favour.
 */
static CUresult fk_launch(const struct fk_launch *l)
{
	uint64_t now_ns = fk_launch_pay();
	uint64_t full_until_ns;
	struct fk_context *ctx;
	enum fk_wait how;
	CUresult result;

	for (;;) {
		result = fk_enter(&ctx);
		if (result)
			return result;
		result = fk_launch_queue(l, ctx, now_ns, &full_until_ns);
		how = fk_wait_mode(ctx);
		fk_unlock();
		if (result)
			return result;
		if (!full_until_ns)
			break;
		fk_wait_until(full_until_ns, how);
		now_ns = fk_now_ns();
	}
	fk_queueing_sample(now_ns);
	return CUDA_SUCCESS;
}

#define FK_GEOMETRY_PARAMS                                                                   \
	unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, \
		unsigned int block_y, unsigned int block_z, unsigned int shared_bytes

#define FK_LAUNCH_KERNEL(name, is_ptsz)                                                            \
	FK_ENTRY(name,                                                                             \
		 (CUfunction f, FK_GEOMETRY_PARAMS, CUstream stream, void **params, void **extra)) \
	{                                                                                          \
		const struct fk_launch l = {                                                       \
			.function = f,                                                             \
			.grid = {grid_x, grid_y, grid_z},                                          \
			.block = {block_x, block_y, block_z},                                      \
			.shared_bytes = shared_bytes,                                              \
			.stream = stream,                                                          \
			.ptsz = is_ptsz,                                                           \
			.params = params,                                                          \
			.extra = extra,                                                            \
		};                                                                                 \
		return fk_launch(&l);                                                              \
	}

#define FK_LAUNCH_KERNEL_EX(name, is_ptsz)                                                        \
	FK_ENTRY(name, (const CUlaunchConfig *config, CUfunction f, void **params, void **extra)) \
	{                                                                                         \
		struct fk_launch l = {                                                            \
			.function = f, .ptsz = is_ptsz, .params = params, .extra = extra};        \
		CUresult result = fk_launch_from_config(config, &l);                              \
		return result ? result : fk_launch(&l);                                           \
	}

#define FK_LAUNCH_COOPERATIVE(name, is_ptsz)                                               \
	FK_ENTRY(name, (CUfunction f, FK_GEOMETRY_PARAMS, CUstream stream, void **params)) \
	{                                                                                  \
		const struct fk_launch l = {                                               \
			.function = f,                                                     \
			.grid = {grid_x, grid_y, grid_z},                                  \
			.block = {block_x, block_y, block_z},                              \
			.shared_bytes = shared_bytes,                                      \
			.stream = stream,                                                  \
			.ptsz = is_ptsz,                                                   \
			.cooperative = true,                                               \
			.params = params,                                                  \
		};                                                                         \
		return fk_launch(&l);                                                      \
	}

static CUresult fk_launch_from_config(const CUlaunchConfig *config, struct fk_launch *l)
{
	if (!config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
			l->cooperative = config->attrs[i].value.cooperative;
	l->grid[0] = config->gridDimX;
	l->grid[1] = config->gridDimY;
	l->grid[2] = config->gridDimZ;
	l->block[0] = config->blockDimX;
	l->block[1] = config->blockDimY;
	l->block[2] = config->blockDimZ;
	l->shared_bytes = config->sharedMemBytes;
	l->stream = config->hStream;
	return CUDA_SUCCESS;
}

FK_LAUNCH_KERNEL(cuLaunchKernel, false)
FK_LAUNCH_KERNEL(cuLaunchKernel_ptsz, true)
FK_LAUNCH_KERNEL_EX(cuLaunchKernelEx, false)
FK_LAUNCH_KERNEL_EX(cuLaunchKernelEx_ptsz, true)
FK_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, false)
FK_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)
