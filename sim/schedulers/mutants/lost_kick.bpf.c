// SPDX-License-Identifier: GPL-2.0-only
/* scx_gpuaware, but background that queues wakes no idle CPU. */
#include <scx/common.bpf.h>

#include "../../../bpf/pick.bpf.h"

#define kick_idle_for_background() ((void)0)
#include "../gpuaware.bpf.c"
