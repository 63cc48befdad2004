// SPDX-License-Identifier: GPL-2.0-only
#include <string.h>
#include "check.h"

static void bytes_go_to_the_device_and_back(void)
{
	const char text[] = "there and back again";
	char back[sizeof(text)] = "";
	CUdeviceptr one, two;
	uint32_t words[4];

	OK(cuMemAlloc(&one, sizeof(text)));
	OK(cuMemAlloc(&two, 4096));
	OK(cuMemcpyHtoD(one, text, sizeof(text)));
	OK(cuMemcpyDtoD(two + 100, one, sizeof(text)));
	OK(cuMemcpyDtoH(back, two + 100, sizeof(text)));
	TRUE(!strcmp(text, back));
	OK(cuMemsetD32(two, 0xfeedbeef, 4));
	OK(cuMemcpyDtoHAsync(words, two, sizeof(words), NULL));
	OK(cuStreamSynchronize(NULL));
	TRUE(words[0] == 0xfeedbeef && words[3] == 0xfeedbeef);
	OK(cuMemcpy((CUdeviceptr)(uintptr_t)back, one, sizeof(text)));
	OK(cuMemFree(one));
	OK(cuMemFree(two));
}

static void wrong_sizes_and_addresses_are_refused(void)
{
	CUdeviceptr ptr;
	char byte = 0;

	EXPECT(cuMemAlloc(&ptr, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemAlloc(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemAlloc(&ptr, 1024));
	EXPECT(cuMemcpyHtoD(ptr + 1000, &byte, 1 << 20), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemcpyHtoD(0x10, &byte, 1), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemcpyHtoD(ptr, NULL, 1), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemsetD8(ptr, 0, 1 << 20), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemsetD32(ptr + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemFree(ptr + 8), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree(ptr));
	EXPECT(cuMemFree(ptr), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemcpyHtoD(ptr, &byte, 1), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree(0));
}

static void memory_runs_out_and_comes_back(void)
{
	size_t free_bytes, total, before;
	CUdeviceptr ptr, more;

	OK(cuMemGetInfo(&before, &total));
	TRUE(before == total);
	OK(cuMemAlloc(&ptr, total));
	OK(cuMemGetInfo(&free_bytes, &total));
	TRUE(free_bytes == 0);
	EXPECT(cuMemAlloc(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(cuMemAlloc(&more, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree(ptr));
	OK(cuMemGetInfo(&free_bytes, &total));
	TRUE(free_bytes == before);
}

static void pinned_host_memory_has_one_address(void)
{
	CUdeviceptr ptr;
	void *host;

	OK(cuMemHostAlloc(&host, 4096, 0));
	memset(host, 1, 4096);
	OK(cuMemHostGetDevicePointer(&ptr, host, 0));
	TRUE(ptr == (CUdeviceptr)(uintptr_t)host);
	OK(cuMemFreeHost(host));
	EXPECT(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
}

void checks_memory(void)
{
	RUN(bytes_go_to_the_device_and_back);
	RUN(wrong_sizes_and_addresses_are_refused);
	RUN(memory_runs_out_and_comes_back);
	RUN(pinned_host_memory_has_one_address);
}
