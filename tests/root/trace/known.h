/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the program of known behaviour share: known.c says what it is. */
#ifndef __GPUAWARE_KNOWN_H
#define __GPUAWARE_KNOWN_H

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct snapshot {
	uint64_t time_ns, wait_ns, steal_ns;
	long nvcsw, nivcsw;
};

/* Two times, and what the kernel counted between them: switches in a sched_yield(), interrupts. */
struct span {
	uint64_t from_ns, to_ns;
	long count;
};

struct phase {
	const char *kind;
	long a, b;
	long yields_switched;
	uint64_t asleep_ns, waited_ns;
	long late_sleeps;
	int pipe[2];
	int waker_tid;
	atomic_bool ready;
	int cpu;
	long datagrams;
	uint64_t sending_ns;
	struct span *spans;
	long nr_spans;
};

/* known.c */
uint64_t clock_ns(clockid_t clock);
void die(const char *what) __attribute__((noreturn));
void pin(int cpu);
void spin_ns(uint64_t ns);
struct snapshot switches(void);

struct phase_kind {
	const char *kind;
	void (*run)(struct phase *phase);
};

/* known_switches.c, known_irqs.c: the last one has no kind. */
extern const struct phase_kind switch_phases[], irq_phases[];

#endif /* __GPUAWARE_KNOWN_H */
