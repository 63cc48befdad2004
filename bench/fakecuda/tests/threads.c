// SPDX-License-Identifier: GPL-2.0-only
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "check.h"

#define NR_THREADS 8

struct job {
	CUcontext ctx;
	CUfunction f;
	unsigned long long id;
};

/* Creates, uses and destroys as fast as it can; the tables must hold. */
static void *churn(void *arg)
{
	struct job *job = arg;

	OK(cuCtxSetCurrent(job->ctx));
	for (int i = 0; i < 100; i++) {
		CUstream stream;
		CUevent event;
		CUdeviceptr ptr;

		OK(cuStreamCreate(&stream, i % 2));
		OK(cuEventCreate(&event, 0));
		OK(cuMemAlloc(&ptr, 1000));
		OK(launch_busy(job->f, stream, 1000));
		OK(launch_busy(job->f, CU_STREAM_PER_THREAD, 1000));
		OK(cuEventRecord(event, stream));
		OK(cuMemsetD8(ptr, 1, 1000));
		OK(cuStreamSynchronize(stream));
		OK(cuMemFree(ptr));
		OK(cuEventDestroy(event));
		OK(cuStreamDestroy(stream));
		EXPECT(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
	}
	return NULL;
}

static void threads_share_a_context(void)
{
	pthread_t threads[NR_THREADS];
	struct job job;

	OK(cuCtxGetCurrent(&job.ctx));
	job.f = busy_kernel();
	for (int i = 0; i < NR_THREADS; i++)
		pthread_create(&threads[i], NULL, churn, &job);
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
	OK(cuCtxSynchronize());
}

static void *own_stream(void *arg)
{
	struct job *job = arg;
	unsigned long long again;

	OK(cuCtxSetCurrent(job->ctx));
	OK(cuStreamGetId(CU_STREAM_PER_THREAD, &job->id));
	OK(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
	TRUE(again == job->id);
	return NULL;
}

static void each_thread_has_its_own_default_stream(void)
{
	struct job one, two;
	pthread_t thread;

	OK(cuCtxGetCurrent(&one.ctx));
	two = one;
	own_stream(&one);
	pthread_create(&thread, NULL, own_stream, &two);
	pthread_join(thread, NULL);
	TRUE(one.id != two.id);
}

static void *no_context(void *arg)
{
	CUcontext ctx;

	(void)arg;
	OK(cuCtxGetCurrent(&ctx));
	TRUE(!ctx);
	EXPECT(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	return NULL;
}

static void a_new_thread_has_no_context(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, no_context, NULL);
	pthread_join(thread, NULL);
}

static void a_forked_child_must_not_use_the_driver(void)
{
	int status = -1;
	pid_t child = fork();

	if (!child)
		_exit(cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	TRUE(waitpid(child, &status, 0) == child && status == 0);
}

void checks_threads(void)
{
	RUN(threads_share_a_context);
	RUN(each_thread_has_its_own_default_stream);
	RUN(a_new_thread_has_no_context);
	RUN(a_forked_child_must_not_use_the_driver);
}
