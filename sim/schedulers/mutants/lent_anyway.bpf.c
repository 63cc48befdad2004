// SPDX-License-Identifier: GPL-2.0-only
/* scx_gpuaware, but preferred CPUs are lent also where the policy says lend = false. */
#include <scx/common.bpf.h>

#include "../../../bpf/dsq.bpf.h"
#include "../../../bpf/irq.bpf.h"

static const struct {
	u32 lend;
} always = {1};

#define tunables always
#include "../../../bpf/preferred.bpf.h"
#undef tunables
#include "../gpuaware.bpf.c"
