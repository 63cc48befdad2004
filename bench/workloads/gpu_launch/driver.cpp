// SPDX-License-Identifier: GPL-2.0-only
#include "driver.hpp"

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

Driver::Driver(const std::string &sync)
{
	char name[256] = "";
	CUmodule module;

	check("cuInit", cuInit(0));
	check("cuDriverGetVersion", cuDriverGetVersion(&version));
	check("cuDeviceGet", cuDeviceGet(&device, 0));
	check("cuDeviceGetName", cuDeviceGetName(name, sizeof(name), device));
	device_name = name;
	check("cuDevicePrimaryCtxSetFlags", cuDevicePrimaryCtxSetFlags(device, sched_flag(sync)));
	check("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device));
	check("cuCtxSetCurrent", cuCtxSetCurrent(context));
	check("cuModuleLoadData", cuModuleLoadData(&module, busy_image));
	check("cuModuleGetFunction", cuModuleGetFunction(&busy, module, "busy_ns"));
}
