// SPDX-License-Identifier: GPL-2.0-only
/* scx_gpuaware, but nobody looks for holds whose launchers do not come back. */
#include <scx/common.bpf.h>

#include "../../../bpf/hold.bpf.h"

#define end_overdue_holds(now) ((void)(now))
#define watch_holds(now)       ((void)(now))
#include "../gpuaware.bpf.c"
