// SPDX-License-Identifier: GPL-2.0-only
/*
 * Of the variant of a scheduler whose basic blocks are counted (clang's -fsanitize-coverage): how
 * often each was entered, for each group of callers that the simulator names before it calls.
 */
#include "sim/env.h"

#define MAX_GROUPS 8
#define MAX_BLOCKS 8192
#define UNCOUNTED  __attribute__((no_sanitize("coverage")))

/* The linker's: where the object begins in memory. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

u64 sim_blocks; /* entered so far */
u32 sim_group;
u32 sim_nr_blocks;
u64 sim_hits[MAX_GROUPS][MAX_BLOCKS];
u64 sim_places[MAX_BLOCKS]; /* addresses within the object */

__attribute__((visibility("hidden"))) UNCOUNTED void __sanitizer_cov_trace_pc_guard_init(u32 *start,
											 u32 *stop)
{
	if (start == stop || *start)
		return;
	while (start < stop)
		*start++ = ++sim_nr_blocks % MAX_BLOCKS;
}

__attribute__((visibility("hidden"))) UNCOUNTED void __sanitizer_cov_trace_pc_guard(u32 *guard)
{
	sim_blocks++;
	sim_hits[sim_group % MAX_GROUPS][*guard]++;
	sim_places[*guard] = (u64)__builtin_return_address(0) - (u64)__ehdr_start;
}
