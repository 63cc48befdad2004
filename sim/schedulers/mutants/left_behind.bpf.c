// SPDX-License-Identifier: GPL-2.0-only
/* scx_gpuaware, but a task that a real-time task preempts stays in that CPU's local DSQ. */
#include <scx/common.bpf.h>

#define scx_bpf_reenqueue_local___v1() 0
#include "../gpuaware.bpf.c"
