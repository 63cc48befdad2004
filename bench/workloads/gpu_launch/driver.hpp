// SPDX-License-Identifier: GPL-2.0-only
// The CUDA driver: device, primary context, the kernel; and errors with their CUresult's name.
#pragma once

#include <cuda.h>
#include <stdexcept>
#include <string>

// A driver call failed: exit code 1.
struct DriverError : std::runtime_error {
	DriverError(const char *call, CUresult result);
};

void check(const char *call, CUresult result);

struct Driver {
	CUdevice device = 0;
	CUcontext context = nullptr;
	CUfunction busy = nullptr;
	std::string device_name;
	int version = 0;

	// sync: auto, spin, yield or block.
	explicit Driver(const std::string &sync);
};
