// SPDX-License-Identifier: GPL-2.0-only
/*
 * How a thread sleeps until the device is done. Not the device's interrupt wakes it but a thread of
 * the driver's, `cuda-EvtHandlr`, which the interrupt wakes: so it is with driver 580.159 on an
 * H100, where it was every one of 429 wakeups. A scheduler that boosts only the thread that
 * launches leaves half of the way to the neighbours. The interrupt is a timer here.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "fakecuda.h"

struct fk_sleeper {
	struct fk_sleeper *next;
	uint64_t until_ns;
	bool is_due;
	pthread_cond_t due;
};

static pthread_mutex_t fk_sleepers_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fk_sleeper *fk_sleepers;
static int fk_timer = -1;
static uint64_t fk_timer_ns;

/* The earliest sleeper's time; callers hold the mutex. */
static void fk_timer_set(void)
{
	uint64_t earliest_ns = UINT64_MAX;
	struct itimerspec when = {};

	for (const struct fk_sleeper *one = fk_sleepers; one; one = one->next)
		if (one->until_ns < earliest_ns)
			earliest_ns = one->until_ns;
	if (earliest_ns == fk_timer_ns || earliest_ns == UINT64_MAX)
		return;
	fk_timer_ns = earliest_ns;
	when.it_value.tv_sec = (time_t)(earliest_ns / 1000000000ull);
	when.it_value.tv_nsec = (long)(earliest_ns % 1000000000ull);
	timerfd_settime(fk_timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void *fk_handle_events(void *unused)
{
	uint64_t expirations;

	for (;;) {
		if (read(fk_timer, &expirations, sizeof(expirations)) < 0)
			continue;
		pthread_mutex_lock(&fk_sleepers_mutex);
		for (struct fk_sleeper **at = &fk_sleepers; *at;) {
			struct fk_sleeper *one = *at;

			if (fk_now_ns() < one->until_ns) {
				at = &one->next;
				continue;
			}
			*at = one->next;
			one->is_due = true;
			pthread_cond_signal(&one->due);
		}
		fk_timer_set();
		pthread_mutex_unlock(&fk_sleepers_mutex);
	}
	return unused;
}

/* In the child of a fork there is neither the thread nor anybody who sleeps. */
static void fk_forget_sleepers(void)
{
	pthread_mutex_init(&fk_sleepers_mutex, NULL);
	fk_sleepers = NULL;
	fk_timer_ns = 0;
	if (fk_timer >= 0)
		close(fk_timer);
	fk_timer = -1;
}

/* Callers hold the mutex. */
static bool fk_handler_runs(void)
{
	static bool registered;
	sigset_t all, before;
	pthread_t thread;
	int failed;

	if (fk_timer >= 0)
		return true;
	if (!registered)
		registered = !pthread_atfork(NULL, NULL, fk_forget_sleepers);
	fk_timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	if (fk_timer < 0)
		return false;
	/* The program's signals are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failed = pthread_create(&thread, NULL, fk_handle_events, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed) {
		fk_forget_sleepers();
		return false;
	}
	pthread_setname_np(thread, "cuda-EvtHandlr");
	pthread_detach(thread);
	return true;
}

void fk_sleep_until(uint64_t until_ns)
{
	struct fk_sleeper me = {.until_ns = until_ns, .due = PTHREAD_COND_INITIALIZER};

	pthread_mutex_lock(&fk_sleepers_mutex);
	if (!fk_handler_runs()) {
		pthread_mutex_unlock(&fk_sleepers_mutex);
		fk_spin_until(until_ns);
		return;
	}
	me.next = fk_sleepers;
	fk_sleepers = &me;
	fk_timer_set();
	while (!me.is_due)
		pthread_cond_wait(&me.due, &fk_sleepers_mutex);
	pthread_mutex_unlock(&fk_sleepers_mutex);
}
