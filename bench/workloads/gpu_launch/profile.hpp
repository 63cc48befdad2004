// SPDX-License-Identifier: GPL-2.0-only
// A profile: what a token costs the CPU and the GPU, read from flat TOML, changed by --set.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

// Bad input: exit code 2.
struct UsageError : std::runtime_error {
	using std::runtime_error::runtime_error;
};

struct Profile {
	std::string description;
	std::string call =
		"cuLaunchKernel";   // or cuLaunchKernelEx, cuLaunchCooperativeKernel, cuGraphLaunch
	std::string sync = "block"; // auto, spin, yield, block
	uint64_t launches_per_token = 1;
	uint64_t kernels_per_graph = 1; // cuGraphLaunch only
	uint64_t kernel_ns = 0;		// GPU time of a kernel
	uint64_t last_kernel_ns = 0;	// GPU time of a token's last kernel; 0: as the others
	uint64_t launch_gap_ns = 0;	// CPU time of the framework before each launch
	uint64_t token_cpu_us = 0;	// CPU time of the framework after each token

	// key = value; throws UsageError, which begins with where.
	void set(const std::string &where, const std::string &key, const std::string &value);
	void check(const std::string &where) const;
};

Profile read_profile(const std::string &dir, const std::string &name);
