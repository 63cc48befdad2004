// SPDX-License-Identifier: GPL-2.0-only
/* The FAKECUDA_* environment: read once, refused loudly when it makes no sense. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "fakecuda.h"

struct fk_config fk_config;

struct fk_variable {
	const char *name;
	uint64_t fallback;
	uint64_t min;
	uint64_t max;
};

static bool fk_read_variable(const struct fk_variable *var, uint64_t *value)
{
	const char *text = getenv(var->name);
	char *end;

	*value = var->fallback;
	if (!text || !*text)
		return true;
	errno = 0;
	*value = strtoull(text, &end, 10);
	if (!errno && !*end && text[0] != '-' && *value >= var->min && *value <= var->max)
		return true;
	fprintf(stderr,
		"fakecuda: %s=%s: expected a whole number from %llu to %llu; unset it for %llu\n",
		var->name, text, (unsigned long long)var->min, (unsigned long long)var->max,
		(unsigned long long)var->fallback);
	return false;
}

CUresult fk_config_read(void)
{
	static const uint64_t second_ns = 1000000000ull;
	const struct fk_variable vars[] = {
		{"FAKECUDA_LAUNCH_NS", 2000, 0, second_ns},
		{"FAKECUDA_GRAPH_LAUNCH_NS", 2500, 0, second_ns},
		{"FAKECUDA_GRAPH_NODE_NS", 1, 0, second_ns},
		{"FAKECUDA_KERNEL_NS", 3000, 0, 3600 * second_ns},
		{"FAKECUDA_START_NS", 3000, 0, second_ns},
		{"FAKECUDA_COPY_MIB_PER_S", 24000, 1, 100000000},
		{"FAKECUDA_MEM_MIB", 16384, 1, 1 << 24},
		{"FAKECUDA_CONCURRENT", 8, 1, FK_MAX_CONCURRENT},
		{"FAKECUDA_QUEUE", 1024, 1, 1 << 20},
		{"FAKECUDA_DEVICES", 1, 0, FK_MAX_DEVICES},
	};
	enum { NR_VARS = sizeof(vars) / sizeof(vars[0]) };
	uint64_t values[NR_VARS];

	for (int i = 0; i < NR_VARS; i++)
		if (!fk_read_variable(&vars[i], &values[i]))
			return CUDA_ERROR_INVALID_VALUE;

	fk_config = (struct fk_config){
		.launch_ns = values[0],
		.graph_launch_ns = values[1],
		.graph_node_ns = values[2],
		.kernel_ns = values[3],
		.start_ns = values[4],
		.copy_mib_per_s = values[5],
		.mem_mib = values[6],
		.concurrent = (uint32_t)values[7],
		.queue = (uint32_t)values[8],
		.devices = (uint32_t)values[9],
	};
	return CUDA_SUCCESS;
}
