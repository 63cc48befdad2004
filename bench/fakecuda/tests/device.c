// SPDX-License-Identifier: GPL-2.0-only
#include <string.h>
#include "check.h"

static void device_says_that_it_is_emulated(void)
{
	char name[64], short_name[4];
	int version;

	OK(cuDeviceGetName(name, sizeof(name), 0));
	TRUE(!strcmp(name, "scx_gpuaware emulated GPU"));
	TRUE(!strstr(name, "NVIDIA"));
	OK(cuDeviceGetName(short_name, sizeof(short_name), 0));
	TRUE(!strcmp(short_name, "scx"));
	EXPECT(cuDeviceGetName(name, 0, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuDriverGetVersion(&version));
	TRUE(version == 13000);
}

static void device_is_found_by_its_bus_id(void)
{
	char bus_id[32];
	CUdevice dev;

	OK(cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0));
	OK(cuDeviceGetByPCIBusId(&dev, bus_id));
	TRUE(dev == 0);
	EXPECT(cuDeviceGetPCIBusId(bus_id, 5, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuDeviceGetByPCIBusId(&dev, "0000:99:00.0"), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDeviceGetByPCIBusId(&dev, "nonsense"), CUDA_ERROR_INVALID_VALUE);
}

static void rejects_devices_that_are_not_there(void)
{
	CUdevice dev;
	CUcontext ctx;
	size_t bytes;
	int count, value;

	OK(cuDeviceGetCount(&count));
	TRUE(count == 1);
	EXPECT(cuDeviceGet(&dev, count), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDeviceGet(&dev, -1), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDeviceGet(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuDeviceTotalMem(&bytes, 7), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDevicePrimaryCtxRetain(&ctx, 7), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 7),
	       CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDeviceGetAttribute(&value, (CUdevice_attribute)0, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
	TRUE(value == 32);
}

static void names_errors(void)
{
	const char *name, *words;

	OK(cuGetErrorName(CUDA_ERROR_INVALID_HANDLE, &name));
	TRUE(!strcmp(name, "CUDA_ERROR_INVALID_HANDLE"));
	OK(cuGetErrorString(CUDA_ERROR_INVALID_HANDLE, &words));
	TRUE(strlen(words) > 0);
	OK(cuGetErrorName(CUDA_SUCCESS, &name));
	TRUE(!strcmp(name, "CUDA_SUCCESS"));
	EXPECT(cuGetErrorName((CUresult)12345, &name), CUDA_ERROR_INVALID_VALUE);
	TRUE(!name);
}

static void proc_address_returns_exported_functions(void)
{
	CUdriverProcAddressQueryResult status;
	CUresult (*create_v2)(CUcontext *, unsigned int, CUdevice);
	void *fn, *ptsz;

	OK(cuGetProcAddress("cuLaunchKernel", &fn, 13000, 0, &status));
	TRUE(fn == (void *)cuLaunchKernel && status == CU_GET_PROC_ADDRESS_SUCCESS);
	OK(cuGetProcAddress("cuLaunchKernel", &ptsz, 13000,
			    CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
	TRUE(ptsz && ptsz != fn);
	OK(cuGetProcAddress("cuCtxCreate", &fn, 13000, 0, NULL));
	TRUE(fn == (void *)cuCtxCreate);
	OK(cuGetProcAddress("cuCtxCreate", (void **)&create_v2, 3020, 0, NULL));
	TRUE((void *)create_v2 != fn);
	EXPECT(cuGetProcAddress("cuCtxCreate", &fn, 2000, 0, &status), CUDA_ERROR_NOT_FOUND);
	TRUE(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT && !fn);
	EXPECT(cuGetProcAddress("cuNoSuchThing", &fn, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	TRUE(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	EXPECT(cuGetProcAddress(NULL, &fn, 13000, 0, &status), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuGetProcAddress("cuInit", &fn, 13000, 64, &status), CUDA_ERROR_INVALID_VALUE);
}

void checks_device(void)
{
	RUN(device_says_that_it_is_emulated);
	RUN(device_is_found_by_its_bus_id);
	RUN(rejects_devices_that_are_not_there);
	RUN(names_errors);
	RUN(proc_address_returns_exported_functions);
}
