// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "check.h"

static bool check_failed;
static int nr_failed;

const char check_ptx[] =
	"// a comment first\n"
	".version 7.0\n.target sm_75\n.address_size 64\n"
	".visible .entry busy_ns(\n\t.param .u64 busy_ns_param_0\n)\n{\n\tret;\n}\n"
	".visible .entry plain()\n{\n\tret;\n}\n"
	".visible .entry mixed(.param .u32 a, .param .u64 b,\n"
	"\t.param .align 4 .b8 c[12])\n{\n\tret;\n}\n";

uint64_t wall_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

uint64_t thread_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void expect_result(const char *file, int line, const char *what, CUresult got, CUresult wanted)
{
	const char *name = "?";

	if (got == wanted)
		return;
	cuGetErrorName(got, &name);
	fprintf(stderr, "%s:%d: %s: got %s (%d), wanted %d\n", file, line, what, name, got, wanted);
	check_failed = true;
}

void expect_true(const char *file, int line, const char *what, bool holds)
{
	if (holds)
		return;
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	check_failed = true;
}

CUfunction busy_kernel(void)
{
	CUfunction f = NULL;
	CUmodule module;

	OK(cuModuleLoadData(&module, check_ptx));
	OK(cuModuleGetFunction(&f, module, "busy_ns"));
	return f;
}

CUresult launch_busy(CUfunction f, CUstream stream, unsigned long long ns)
{
	void *params[] = {&ns};

	return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

void run_check(const char *name, check_fn fn)
{
	CUcontext ctx;

	check_failed = false;
	OK(cuCtxCreate(&ctx, NULL, CU_CTX_SCHED_BLOCKING_SYNC, 0));
	fn();
	cuCtxDestroy(ctx);
	while (cuCtxPopCurrent(&ctx) == CUDA_SUCCESS)
		;
	printf("%s %s\n", check_failed ? "not ok" : "ok", name);
	fflush(stdout);
	nr_failed += check_failed;
}

static void nothing_works_before_init(void)
{
	CUdevice dev;
	CUcontext ctx;
	int count;

	EXPECT(cuDeviceGet(&dev, 0), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuCtxGetCurrent(&ctx), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(launch_busy(NULL, NULL, 0), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuGraphLaunch(NULL, NULL), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	OK(cuInit(0));
	OK(cuInit(0));
	printf("%s %s\n", check_failed ? "not ok" : "ok", __func__);
	nr_failed += check_failed;
}

int main(void)
{
	nothing_works_before_init();
	checks_device();
	checks_context();
	checks_module();
	checks_launch();
	checks_stream();
	checks_event();
	checks_memory();
	checks_graph();
	checks_wait();
	checks_threads();
	return nr_failed ? 1 : 0;
}
