// SPDX-License-Identifier: GPL-2.0-only
/* How threads wait, by the CPU time and context switches that it costs; tolerances are wide. */
#include <sys/resource.h>
#include "check.h"

#define WAIT_NS 200000000ull

struct waited {
	uint64_t cpu_ns;
	long nr_voluntary;
	long nr_involuntary; /* a yield counts as one */
};

static struct waited wait_in_context(unsigned int flags, bool by_event, unsigned int event_flags)
{
	struct rusage before, after;
	struct waited waited;
	CUcontext ctx;
	CUevent event;

	OK(cuCtxCreate(&ctx, NULL, flags, 0));
	OK(launch_busy(busy_kernel(), NULL, WAIT_NS));
	OK(cuEventCreate(&event, event_flags));
	OK(cuEventRecord(event, NULL));
	getrusage(RUSAGE_THREAD, &before);
	waited.cpu_ns = thread_cpu_ns();
	if (by_event)
		OK(cuEventSynchronize(event));
	else
		OK(cuCtxSynchronize());
	waited.cpu_ns = thread_cpu_ns() - waited.cpu_ns;
	getrusage(RUSAGE_THREAD, &after);
	waited.nr_voluntary = after.ru_nvcsw - before.ru_nvcsw;
	waited.nr_involuntary = after.ru_nivcsw - before.ru_nivcsw;
	OK(cuCtxDestroy(ctx));
	return waited;
}

static void spin_burns_cpu(void)
{
	TRUE(wait_in_context(CU_CTX_SCHED_SPIN, false, 0).cpu_ns > WAIT_NS / 10);
}

static void block_sleeps(void)
{
	struct waited waited = wait_in_context(CU_CTX_SCHED_BLOCKING_SYNC, false, 0);

	TRUE(waited.cpu_ns < WAIT_NS / 10);
	TRUE(waited.nr_voluntary >= 1);
}

/* Beside others who want the CPU it burns little, but it goes on asking; who sleeps does not. */
static void yield_burns_cpu_or_gives_it_away(void)
{
	struct waited waited = wait_in_context(CU_CTX_SCHED_YIELD, false, 0);

	TRUE(waited.cpu_ns > WAIT_NS / 20 || waited.nr_involuntary >= 5);
}

static void auto_spins_with_few_contexts(void)
{
	struct waited waited = wait_in_context(CU_CTX_SCHED_AUTO, false, 0);

	TRUE(waited.cpu_ns > WAIT_NS / 20);
}

static void event_says_how_it_is_waited_for(void)
{
	TRUE(wait_in_context(CU_CTX_SCHED_SPIN, true, CU_EVENT_BLOCKING_SYNC).cpu_ns <
	     WAIT_NS / 10);
	TRUE(wait_in_context(CU_CTX_SCHED_BLOCKING_SYNC, true, 0).cpu_ns > WAIT_NS / 10);
}

void checks_wait(void)
{
	RUN(spin_burns_cpu);
	RUN(block_sleeps);
	RUN(yield_burns_cpu_or_gives_it_away);
	RUN(auto_spins_with_few_contexts);
	RUN(event_says_how_it_is_waited_for);
}
