// SPDX-License-Identifier: GPL-2.0-only
/* Time: reading it, burning it. */
#include <time.h>
#include "fakecuda.h"

uint64_t fk_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/*
 * Returns the last time that it read, so that callers need not read the clock again. No pause
 * instruction: under software emulation each leaves the vCPU's loop and takes QEMU's global lock.
 */
uint64_t fk_spin_until(uint64_t deadline_ns)
{
	uint64_t now_ns;

	do {
		now_ns = fk_now_ns();
	} while (now_ns < deadline_ns);
	return now_ns;
}
