// SPDX-License-Identifier: GPL-2.0-only
/* scx_gpuaware, but who waits for long is not taken to the head of its queue. */
#include <scx/common.bpf.h>

#include "../../../bpf/overdue.bpf.h"

#define sweep_overdue(cpu, cctx, now) ((void)(now))
#include "../gpuaware.bpf.c"
