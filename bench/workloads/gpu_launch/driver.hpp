// SPDX-License-Identifier: GPL-2.0-only
// The CUDA driver: GPUs, each with its primary context and the kernel; and errors with their
// CUresult's name.
#pragma once

#include <cstdint>
#include <cuda.h>
#include <stdexcept>
#include <string>
#include <vector>

// A driver call failed: exit code 1.
struct DriverError : std::runtime_error {
	DriverError(const char *call, CUresult result);
};

void check(const char *call, CUresult result);

struct Gpu {
	int ordinal = 0;
	CUcontext context = nullptr;
	CUfunction busy = nullptr;
	std::string name;

	// sync: auto, spin, yield or block.
	Gpu(int ordinal, const std::string &sync);
};

struct Driver {
	int version = 0;
	std::vector<Gpu> gpus;

	// nr_gpus: the first so many; 0: all. Throws UsageError if there are fewer.
	Driver(uint64_t nr_gpus, const std::string &sync);
};
