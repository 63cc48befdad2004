// SPDX-License-Identifier: GPL-2.0-only
// The command line, parsed and checked.
#pragma once

#include "profile.hpp"

struct Options {
	std::string profile_name;
	Profile profile;
	uint64_t gpus = 1;    // 0: all that the driver has
	uint64_t threads = 0; // 0: one for each GPU
	uint64_t idle_threads = 0;
	bool until_eof = false; // go on launching after the measured part until stdin ends
	uint64_t warmup_tokens = 5;
	uint64_t tokens = 0; // of each thread; 0: until duration_ns has passed
	uint64_t duration_ns = 0;
	bool help = false;
};

extern const char usage_text[];

// Throws UsageError.
Options parse_options(int argc, char **argv);
