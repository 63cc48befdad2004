// SPDX-License-Identifier: GPL-2.0-only
/* Time: reading it, burning it, and the three ways in which a CUDA thread waits for the device. */
#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
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

/*
 * A genuine driver is woken by the device's interrupt, which knows no timer slack; the kernel's
 * default of 50 us would be an error of the emulation.
 */
static void fk_sleep_until(uint64_t deadline_ns)
{
	const struct timespec ts = {
		.tv_sec = (time_t)(deadline_ns / 1000000000ull),
		.tv_nsec = (long)(deadline_ns % 1000000000ull),
	};
	int slack_ns = prctl(PR_GET_TIMERSLACK);

	prctl(PR_SET_TIMERSLACK, 1ul);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
	if (slack_ns > 0)
		prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns);
}

void fk_wait_until(uint64_t deadline_ns, enum fk_wait how)
{
	if (fk_now_ns() >= deadline_ns)
		return;
	switch (how) {
	case FK_WAIT_SPIN:
		fk_spin_until(deadline_ns);
		break;
	case FK_WAIT_YIELD:
		while (fk_now_ns() < deadline_ns)
			sched_yield();
		break;
	case FK_WAIT_BLOCK:
		fk_sleep_until(deadline_ns);
		break;
	}
}
