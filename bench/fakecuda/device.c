// SPDX-License-Identifier: GPL-2.0-only
/* cuInit, the driver's version and the devices. The device never claims to be NVIDIA's. */
#include <stdio.h>
#include <string.h>
#include "fakecuda.h"

bool fk_device_valid(CUdevice dev)
{
	return dev >= 0 && (uint32_t)dev < fk_config.devices;
}

FK_ENTRY(cuInit, (unsigned int flags))
{
	CUresult result;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (fk_initialized())
		return CUDA_SUCCESS;
	result = fk_config_read();
	if (result)
		return result;
	if (!fk_config.devices)
		return CUDA_ERROR_NO_DEVICE;
	fk_set_initialized();
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = FK_DRIVER_VERSION;
	return CUDA_SUCCESS;
}

static CUresult fk_check_device(const void *out, CUdevice dev)
{
	if (!fk_initialized())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	return fk_device_valid(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult result = fk_check_device(device, ordinal);

	if (!result)
		*device = ordinal;
	return result;
}

CUresult CUDAAPI cuDeviceGetCount(int *count)
{
	CUresult result = fk_check_device(count, 0);

	if (!result)
		*count = (int)fk_config.devices;
	return result;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice dev)
{
	CUresult result = fk_check_device(name, dev);

	if (result)
		return result;
	if (len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)len, "scx_gpuaware emulated GPU");
	return CUDA_SUCCESS;
}

static CUresult fk_device_uuid(CUuuid *uuid, CUdevice dev)
{
	CUresult result = fk_check_device(uuid, dev);

	if (result)
		return result;
	memcpy(uuid->bytes, "gpuaware-emul-0", 16);
	uuid->bytes[15] = (char)dev;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	return fk_device_uuid(uuid, dev);
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	return fk_device_uuid(uuid, dev);
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	CUresult result = fk_check_device(bytes, dev);

	if (!result)
		*bytes = (size_t)fk_config.mem_mib << 20;
	return result;
}

/* Domain ffff cannot be a real device's on these hosts, so nobody takes its locality for real. */
CUresult CUDAAPI cuDeviceGetPCIBusId(char *bus_id, int len, CUdevice dev)
{
	CUresult result = fk_check_device(bus_id, dev);

	if (result)
		return result;
	if (len < 13)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(bus_id, (size_t)len, "FFFF:%02X:00.0", (unsigned int)dev + 1);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *dev, const char *bus_id)
{
	CUresult result = fk_check_device(dev, 0);
	unsigned int domain, bus, slot, function = 0;

	if (result)
		return result;
	if (!bus_id || sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3)
		return CUDA_ERROR_INVALID_VALUE;
	if (domain != 0xffff || slot || function || !bus || !fk_device_valid((CUdevice)bus - 1))
		return CUDA_ERROR_INVALID_DEVICE;
	*dev = (CUdevice)bus - 1;
	return CUDA_SUCCESS;
}

static int fk_device_attribute(CUdevice_attribute attrib, CUdevice dev)
{
	switch (attrib) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
		return 1024;
	case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
		return 64;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
		return 0x7fffffff;
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
	case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
		return 65535;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
		return 48 << 10;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		return 227 << 10;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		return 32;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		return 128;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
		return 1000000;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		return 9;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		return dev + 1;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		return 0xffff;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		return 2;
	case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
	case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
		return 1;
	default:
		return 0;
	}
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attrib, CUdevice dev)
{
	CUresult result = fk_check_device(value, dev);

	if (result)
		return result;
	if ((int)attrib < 1 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = fk_device_attribute(attrib, dev);
	return CUDA_SUCCESS;
}
