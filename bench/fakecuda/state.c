// SPDX-License-Identifier: GPL-2.0-only
/* The one lock, whether cuInit has run, and what a fork does to both. */
#include <pthread.h>
#include "fakecuda.h"

static pthread_mutex_t fk_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool fk_is_initialized;

uint32_t fk_driver_state;

static __attribute__((destructor)) void fk_shut_down(void)
{
	fk_driver_state = FK_SHUT_DOWN;
}

void fk_lock(void)
{
	pthread_mutex_lock(&fk_mutex);
}

void fk_unlock(void)
{
	pthread_mutex_unlock(&fk_mutex);
}

CUresult fk_leave(CUresult result)
{
	fk_unlock();
	return result;
}

bool fk_initialized(void)
{
	return __atomic_load_n(&fk_is_initialized, __ATOMIC_ACQUIRE);
}

/* CUDA does not survive fork: the child must not use it, and is told so by every call. */
static void fk_forked_child(void)
{
	__atomic_store_n(&fk_is_initialized, false, __ATOMIC_RELEASE);
	pthread_mutex_init(&fk_mutex, NULL);
}

void fk_set_initialized(void)
{
	static bool registered;

	fk_lock();
	if (!registered)
		pthread_atfork(NULL, NULL, fk_forked_child);
	registered = true;
	__atomic_store_n(&fk_is_initialized, true, __ATOMIC_RELEASE);
	fk_unlock();
}
