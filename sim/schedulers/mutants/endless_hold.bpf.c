// SPDX-License-Identifier: GPL-2.0-only
/* scx_gpuaware, but nobody looks for holds that have expired. */
#include <scx/common.bpf.h>

#include "../../../bpf/hold.bpf.h"

#define end_expired_holds(now) ((void)(now))
#define watch_holds(now)       ((void)(now))
#include "../gpuaware.bpf.c"
