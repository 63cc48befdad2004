// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "check.h"

static void module_knows_its_kernels(void)
{
	unsigned int count;
	const char *name;
	CUmodule module;
	CUfunction f;

	OK(cuModuleLoadData(&module, check_ptx));
	OK(cuModuleGetFunctionCount(&count, module));
	TRUE(count == 3);
	OK(cuModuleGetFunction(&f, module, "plain"));
	OK(cuFuncGetName(&name, f));
	TRUE(!strcmp(name, "plain"));
	EXPECT(cuModuleGetFunction(&f, module, "absent"), CUDA_ERROR_NOT_FOUND);
	EXPECT(cuModuleGetFunction(&f, module, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuModuleUnload(module));
	EXPECT(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
}

static void bad_images_are_refused(void)
{
	char path[] = "/tmp/fakecuda-check-XXXXXX";
	const char nonsense[64] = "this is not a kernel";
	CUmodule module;
	int fd = mkstemp(path);

	EXPECT(cuModuleLoadData(&module, nonsense), CUDA_ERROR_INVALID_IMAGE);
	EXPECT(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuModuleLoadData(NULL, check_ptx), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuModuleLoad(&module, "/nonexistent/kernel.ptx"), CUDA_ERROR_FILE_NOT_FOUND);
	TRUE(write(fd, check_ptx, strlen(check_ptx)) == (ssize_t)strlen(check_ptx));
	close(fd);
	OK(cuModuleLoad(&module, path));
	OK(cuModuleUnload(module));
	OK(cuModuleLoadDataEx(&module, check_ptx, 0, NULL, NULL));
	OK(cuModuleUnload(module));
	unlink(path);
}

static void geometry_is_checked(void)
{
	unsigned long long ns = 0;
	void *params[] = {&ns};
	CUfunction f = busy_kernel();

	EXPECT(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
	       CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchKernel(f, 1, 65536, 1, 1, 1, 1, 0, NULL, params, NULL),
	       CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, NULL, params, NULL),
	       CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchKernel(f, 1, 1, 1, 64, 64, 1, 0, NULL, params, NULL),
	       CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 1 << 20, NULL, params, NULL),
	       CUDA_ERROR_INVALID_VALUE);
	OK(cuLaunchKernel(f, 1, 1, 1, 32, 32, 1, 0, NULL, params, NULL));
}

static void parameters_are_checked(void)
{
	unsigned long long ns = 1000;
	void *params[] = {&ns};
	size_t bytes = sizeof(ns), too_few = 4;
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &ns, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
			 CU_LAUNCH_PARAM_END};
	void *short_extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &ns, CU_LAUNCH_PARAM_BUFFER_SIZE,
			       &too_few, CU_LAUNCH_PARAM_END};
	CUfunction f = busy_kernel();

	EXPECT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra),
	       CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, short_extra),
	       CUDA_ERROR_INVALID_VALUE);
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	EXPECT(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
	       CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, (CUstream)99, params, NULL),
	       CUDA_ERROR_INVALID_HANDLE);
}

static void packed_parameters_need_all_their_bytes(void)
{
	unsigned char buffer[64] = {0};
	size_t bytes = 28; /* u32, padding, u64, 12 bytes */
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			 &bytes, CU_LAUNCH_PARAM_END};
	CUmodule module;
	CUfunction f;

	OK(cuModuleLoadData(&module, check_ptx));
	OK(cuModuleGetFunction(&f, module, "mixed"));
	OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	bytes = 20;
	EXPECT(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_INVALID_VALUE);
}

typedef CUresult (*launch_fn)(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
			      unsigned int, unsigned int, unsigned int, CUstream, void **, void **);
typedef CUresult (*launch_ex_fn)(const CUlaunchConfig *, CUfunction, void **, void **);
typedef CUresult (*cooperative_fn)(CUfunction, unsigned int, unsigned int, unsigned int,
				   unsigned int, unsigned int, unsigned int, unsigned int, CUstream,
				   void **);

static void *address(const char *name, cuuint64_t flags)
{
	void *fn = NULL;

	OK(cuGetProcAddress(name, &fn, 13000, flags, NULL));
	return fn;
}

static void every_launch_entry_queues_a_kernel(void)
{
	const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	unsigned long long ns = 20000000;
	void *params[] = {&ns};
	CUfunction f = busy_kernel();

	for (int i = 0; i < 6; i++) {
		CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
		cuuint64_t flags = i % 2 ? per_thread : 0;
		uint64_t start_ns;

		OK(cuCtxSynchronize());
		start_ns = wall_ns();
		if (i < 2)
			OK(((launch_fn)address("cuLaunchKernel", flags))(f, 1, 1, 1, 1, 1, 1, 0,
									 NULL, params, NULL));
		else if (i < 4)
			OK(((launch_ex_fn)address("cuLaunchKernelEx", flags))(&config, f, params,
									      NULL));
		else
			OK(((cooperative_fn)address("cuLaunchCooperativeKernel", flags))(
				f, 1, 1, 1, 1, 1, 1, 0, NULL, params));
		EXPECT(cuStreamQuery(i % 2 ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY),
		       CUDA_ERROR_NOT_READY);
		OK(cuStreamSynchronize(i % 2 ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY));
		TRUE(wall_ns() - start_ns >= ns);
	}
	EXPECT(cuLaunchKernelEx(NULL, f, params, NULL), CUDA_ERROR_INVALID_VALUE);
}

/* FAKECUDA_LAUNCH_NS is wall-clock time in the calling thread: not less, but for a clock read. */
static void launch_costs_cpu_time(void)
{
	CUfunction f = busy_kernel();
	uint64_t start_ns, cpu_ns;

	OK(launch_busy(f, NULL, 0));
	start_ns = wall_ns();
	cpu_ns = thread_cpu_ns();
	for (int i = 0; i < 500; i++)
		OK(launch_busy(f, NULL, 0));
	start_ns = wall_ns() - start_ns;
	cpu_ns = thread_cpu_ns() - cpu_ns;
	TRUE(start_ns >= 500 * 1800ull);
	TRUE(cpu_ns >= 500 * 500ull);
}

static void full_queue_blocks_the_launching_thread(void)
{
	CUfunction f = busy_kernel();
	uint64_t start_ns = wall_ns();
	CUstream stream;

	OK(cuStreamCreate(&stream, 0));
	OK(launch_busy(f, stream, 50000000));
	for (int i = 0; i < 1023; i++)
		OK(launch_busy(f, stream, 0));
	EXPECT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	OK(launch_busy(f, stream, 0)); /* the 1025th: it waits for the first to end */
	TRUE(wall_ns() - start_ns >= 50000000);
}

void checks_launch(void)
{
	RUN(geometry_is_checked);
	RUN(parameters_are_checked);
	RUN(packed_parameters_need_all_their_bytes);
	RUN(every_launch_entry_queues_a_kernel);
	RUN(launch_costs_cpu_time);
	RUN(full_queue_blocks_the_launching_thread);
}

void checks_module(void)
{
	RUN(module_knows_its_kernels);
	RUN(bad_images_are_refused);
}
