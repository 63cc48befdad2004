// SPDX-License-Identifier: GPL-2.0-only
/* scx_gpuaware, but who is driven off by a real-time task stays in that CPU's local queue. */
#include <scx/common.bpf.h>

#define scx_bpf_reenqueue_local___v1() 0
#include "../gpuaware.bpf.c"
