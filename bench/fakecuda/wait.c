// SPDX-License-Identifier: GPL-2.0-only
/* The three ways in which a CUDA thread waits for the device. */
#include <sched.h>
#include "fakecuda.h"

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
