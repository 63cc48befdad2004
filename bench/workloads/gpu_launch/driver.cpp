// SPDX-License-Identifier: GPL-2.0-only
#include "driver.hpp"

#include "profile.hpp"

extern "C" const char busy_image[];

namespace
{
std::string describe(const char *call, CUresult result)
{
	const char *name = nullptr;

	cuGetErrorName(result, &name);
	return std::string(call) + " failed: " + (name ? name : "CUresult ") +
	       (name ? "" : std::to_string(int(result)));
}

unsigned sched_flag(const std::string &sync)
{
	return sync == "spin"	 ? CU_CTX_SCHED_SPIN
	       : sync == "yield" ? CU_CTX_SCHED_YIELD
	       : sync == "block" ? CU_CTX_SCHED_BLOCKING_SYNC
				 : CU_CTX_SCHED_AUTO;
}
} // namespace

DriverError::DriverError(const char *call, CUresult result)
    : std::runtime_error(describe(call, result))
{
}

void check(const char *call, CUresult result)
{
	if (result != CUDA_SUCCESS)
		throw DriverError(call, result);
}

Gpu::Gpu(int ordinal, const std::string &sync) : ordinal(ordinal)
{
	char text[256] = "";
	CUdevice device;
	CUmodule module;

	check("cuDeviceGet", cuDeviceGet(&device, ordinal));
	check("cuDeviceGetName", cuDeviceGetName(text, sizeof(text), device));
	name = text;
	check("cuDevicePrimaryCtxSetFlags", cuDevicePrimaryCtxSetFlags(device, sched_flag(sync)));
	const std::string retain = "cuDevicePrimaryCtxRetain of GPU " + std::to_string(ordinal);
	check(retain.c_str(), cuDevicePrimaryCtxRetain(&context, device));
	check("cuCtxSetCurrent", cuCtxSetCurrent(context));
	check("cuModuleLoadData", cuModuleLoadData(&module, busy_image));
	check("cuModuleGetFunction", cuModuleGetFunction(&busy, module, "busy_ns"));
}

Driver::Driver(uint64_t nr_gpus, const std::string &sync)
{
	int found = 0;

	check("cuInit", cuInit(0));
	check("cuDriverGetVersion", cuDriverGetVersion(&version));
	check("cuDeviceGetCount", cuDeviceGetCount(&found));
	if (found == 0 || nr_gpus > uint64_t(found))
		throw UsageError("--gpus " + (nr_gpus ? std::to_string(nr_gpus) : "all") +
				 ": the driver has " + std::to_string(found));
	if (nr_gpus == 0)
		nr_gpus = uint64_t(found);
	for (int ordinal = 0; ordinal < int(nr_gpus); ordinal++)
		gpus.emplace_back(ordinal, sync);
}
