// SPDX-License-Identifier: GPL-2.0-only
/* Phases that make threads switch, sleep and move. */
#include "known.h"

#include <sys/resource.h>

static atomic_int stop;

static void *busy(void *arg)
{
	(void)arg;
	pin(1);
	while (!stop)
		;
	return NULL;
}

static void *yielder(void *arg)
{
	struct phase *phase = arg;

	pin(phase->cpu);
	while (!stop) {
		spin_ns(phase->b);
		sched_yield();
	}
	return NULL;
}

/* Wakes the other thread of its CPU, and does not let it run for as long as it let it sleep. */
static void *late_waker(void *arg)
{
	struct sched_param param = {.sched_priority = 1};
	struct phase *phase = arg;

	pin(1);
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("SCHED_FIFO");
	for (long i = 0; i < phase->a; i++) {
		uint64_t now;

		usleep(phase->b);
		now = clock_ns(CLOCK_MONOTONIC);
		if (write(phase->pipe[1], &now, sizeof(now)) != sizeof(now))
			die("write");
		spin_ns(phase->b * 1000);
	}
	return NULL;
}

static void wait_late(struct phase *phase)
{
	pthread_t other;

	if (pipe(phase->pipe))
		die("pipe");
	pthread_create(&other, NULL, late_waker, phase);
	for (long i = 0; i < phase->a; i++) {
		uint64_t start = clock_ns(CLOCK_MONOTONIC), woken_ns;

		if (read(phase->pipe[0], &woken_ns, sizeof(woken_ns)) != sizeof(woken_ns))
			die("read");
		/* Or it did not sleep: the next one was written before this one was read. */
		if (woken_ns > start) {
			phase->asleep_ns += woken_ns - start;
			phase->waited_ns += clock_ns(CLOCK_MONOTONIC) - woken_ns;
		}
	}
	pthread_join(other, NULL);
}

static void with_busy(struct phase *phase)
{
	pthread_t hog;

	stop = 0;
	pthread_create(&hog, NULL, busy, NULL);
	spin_ns(phase->a * 1000000);
	stop = 1;
}

static void yield(struct phase *phase)
{
	uint64_t end = clock_ns(CLOCK_MONOTONIC) + phase->a * 1000000;
	pthread_t other;

	stop = 0;
	pthread_create(&other, NULL, yielder, phase);
	while (clock_ns(CLOCK_MONOTONIC) < end) {
		struct rusage before, after;

		spin_ns(phase->b);
		getrusage(RUSAGE_THREAD, &before);
		sched_yield();
		getrusage(RUSAGE_THREAD, &after);
		phase->yields_switched += after.ru_nivcsw != before.ru_nivcsw;
	}
	stop = 1;
}

static void yield_each(struct phase *phase)
{
	pthread_t other;

	stop = 0;
	phase->spans = calloc(phase->a, sizeof(*phase->spans));
	pthread_create(&other, NULL, yielder, phase);
	for (; phase->nr_spans < phase->a; phase->nr_spans++) {
		struct span *span = &phase->spans[phase->nr_spans];
		struct snapshot before, after;

		spin_ns(phase->b);
		before = switches();
		sched_yield();
		after = switches();
		span->from_ns = before.time_ns;
		span->to_ns = after.time_ns;
		span->count = after.nivcsw - before.nivcsw + after.nvcsw - before.nvcsw;
	}
	stop = 1;
	pthread_join(other, NULL);
}

/* Of two SCHED_FIFO threads nothing but a yield gives the CPU of one to the other. */
static void *partner(void *arg)
{
	struct sched_param param = {.sched_priority = 1};
	struct phase *phase = arg;

	pin(phase->cpu);
	phase->waker_tid = gettid();
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("SCHED_FIFO");
	phase->ready = true;
	while (!stop)
		sched_yield();
	return NULL;
}

static void alternate(struct phase *phase)
{
	struct sched_param param = {.sched_priority = 1};
	pthread_t other;

	stop = 0;
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("SCHED_FIFO");
	pthread_create(&other, NULL, partner, phase);
	while (!phase->ready)
		usleep(1000);
	for (long i = 0; i < phase->a; i++)
		sched_yield();
	stop = 1;
	pthread_join(other, NULL);
}

static void storm(struct phase *phase)
{
	struct phase far = {.b = phase->b, .cpu = 0};
	pthread_t threads[3];

	stop = 0;
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, yielder, i ? &far : phase);
	for (uint64_t end = clock_ns(CLOCK_MONOTONIC) + phase->a * 1000000;
	     clock_ns(CLOCK_MONOTONIC) < end;) {
		spin_ns(phase->b);
		sched_yield();
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}

static void *waker(void *arg)
{
	struct phase *phase = arg;

	pin(0);
	phase->waker_tid = gettid();
	for (long i = 0; i < phase->a; i++) {
		usleep(1000);
		if (write(phase->pipe[1], "x", 1) != 1)
			die("write");
	}
	return NULL;
}

static void wake(struct phase *phase)
{
	pthread_t other;
	char byte;

	if (pipe(phase->pipe))
		die("pipe");
	pthread_create(&other, NULL, waker, phase);
	for (long i = 0; i < phase->a; i++) {
		if (read(phase->pipe[0], &byte, 1) != 1)
			die("read");
	}
}

static void move(struct phase *phase)
{
	for (long i = 0; i < phase->a; i++)
		pin(i % 2);
}

static void *one_of_many(void *arg)
{
	usleep(20000);
	return arg;
}

static void crowd(struct phase *phase)
{
	pthread_t *threads = calloc(phase->a, sizeof(*threads));

	for (long i = 0; i < phase->a; i++)
		pthread_create(&threads[i], NULL, one_of_many, NULL);
	for (long i = 0; i < phase->a; i++)
		pthread_join(threads[i], NULL);
	free(threads);
}

const struct phase_kind switch_phases[] = {
	{"hog", with_busy},   {"yield", yield},
	{"each", yield_each}, {"alternate", alternate},
	{"storm", storm},     {"wait", wait_late},
	{"wake", wake},	      {"move", move},
	{"crowd", crowd},     {},
};
