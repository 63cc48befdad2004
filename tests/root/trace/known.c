// SPDX-License-Identifier: GPL-2.0-only
/*
 * A program of known behaviour: what it does is asked for on the command line, what came of it is
 * counted by itself with getrusage(2) and clocks. The tests of the tracer compare.
 *
 * usage: known PHASE...
 *
 *   launch:N ex:N graph:N sync:N   calls into libcuda
 *
 *   pace:N:NS    N launches, one every NS nanoseconds
 *
 *   lag:N:US     N launches, a sleep of US microseconds after each
 *
 *   block:N:US   N sleeps of US microseconds
 *
 *   wait:N:US    N waits: asleep for US microseconds, then woken while the CPU is taken for as long
 *
 *   hog:MS       runs for MS milliseconds beside a busy thread on the same CPU
 *
 *   yield:MS:NS  two threads on one CPU, each runs NS nanoseconds and yields
 *
 *   each:N:NS    the same N times, and tells the switches of each yield
 *
 *   alternate:N  yields N times to a thread that yields back: both SCHED_FIFO, so no tick comes
 * between
 *
 *   storm:MS:NS  two such threads on each of two CPUs
 *
 *   disk:N       reads N blocks, one after the other, and never leaves the CPU that is interrupted
 * for it, which it looks for: one span, with the interrupts of devices by the kernel's count
 *
 *   gaps:MS:NS   looks at the clock for MS milliseconds: a span each time that it was away for NS
 * nanoseconds or more
 *
 *   udp:MS       sends datagrams to itself: softirqs with interrupts on top
 *
 *   wake:N       waits N times for another thread to write to a pipe
 *
 *   move:N       moves N times from one CPU to the other
 *
 *   crowd:N      starts N threads at once; each sleeps once
 *
 * Each phase runs in a thread of its own; for each there is one line of JSON.
 */
#include "known.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* What is needed of cuda.h, which is not everywhere that tests are built. */
typedef struct {
	unsigned grid[3], block[3], shared;
	void *stream, *attrs;
	unsigned nr_attrs;
} launch_config;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **ctx, int dev);
int cuCtxSetCurrent(void *ctx);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **f, void *module, const char *name);
int cuStreamCreate(void **stream, unsigned flags);
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
		   unsigned bz, unsigned shared, void *stream, void **params, void **extra);
int cuLaunchKernelEx(const launch_config *config, void *f, void **params, void **extra);
int cuStreamSynchronize(void *stream);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags);
int cuGraphLaunch(void *exec, void *stream);

static void *function, *stream;

uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void die(const char *what)
{
	fprintf(stderr, "known: %s\n", what);
	exit(1);
}

/* Time that this thread was runnable and did not run, as the kernel has it. */
static uint64_t wait_ns(void)
{
	FILE *file = fopen("/proc/thread-self/schedstat", "r");
	unsigned long run, wait;

	if (!file || fscanf(file, "%lu %lu", &run, &wait) != 2)
		die("schedstat");
	fclose(file);
	return wait;
}

/* Runs of the softirq NET_RX on CPU 1, as the kernel counts them. */
static uint64_t net_rx(void)
{
	FILE *file = fopen("/proc/softirqs", "r");
	unsigned long count = 0;
	char line[4096];

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, " NET_RX: %*u %lu", &count);
	fclose(file);
	return count;
}

/* Time that the host of a virtual machine did not run CPU 1: nobody inside can tell it from work.
 */
static uint64_t steal_ns(void)
{
	FILE *file = fopen("/proc/stat", "r");
	unsigned long steal = 0;
	char line[512];

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "cpu1 %*u %*u %*u %*u %*u %*u %*u %lu", &steal);
	fclose(file);
	return steal * (1000000000ull / sysconf(_SC_CLK_TCK));
}

/* Counts and the time that they are of: no switch fell in between. */
struct snapshot switches(void)
{
	struct snapshot shot = {};
	struct rusage before, after;

	do {
		getrusage(RUSAGE_THREAD, &before);
		shot.time_ns = clock_ns(CLOCK_MONOTONIC);
		getrusage(RUSAGE_THREAD, &after);
	} while (before.ru_nvcsw != after.ru_nvcsw || before.ru_nivcsw != after.ru_nivcsw);
	shot.nvcsw = after.ru_nvcsw;
	shot.nivcsw = after.ru_nivcsw;
	return shot;
}

static struct snapshot snapshot(void)
{
	struct snapshot shot = switches();

	shot.wait_ns = wait_ns();
	shot.steal_ns = steal_ns();
	return shot;
}

void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

void spin_ns(uint64_t ns)
{
	uint64_t end = clock_ns(CLOCK_MONOTONIC) + ns;

	while (clock_ns(CLOCK_MONOTONIC) < end)
		;
}

static void launch(unsigned gx)
{
	unsigned long long ns = 1000;
	void *params[] = {&ns};

	if (cuLaunchKernel(function, gx, 2, 3, 32, 4, 2, 256, stream, params, NULL))
		die("cuLaunchKernel");
}

static void launch_ex(unsigned gx)
{
	unsigned long long ns = 1000;
	void *params[] = {&ns};
	launch_config config = {
		.grid = {gx, 5, 6}, .block = {64, 1, 1}, .shared = 512, .stream = stream};

	if (cuLaunchKernelEx(&config, function, params, NULL))
		die("cuLaunchKernelEx");
}

static void *graph(void)
{
	void *graph, *exec;

	if (cuStreamBeginCapture_v2(stream, 0))
		die("cuStreamBeginCapture");
	launch(1);
	if (cuStreamEndCapture(stream, &graph) || cuGraphInstantiateWithFlags(&exec, graph, 0))
		die("graph");
	return exec;
}

static void sleep_us(struct phase *phase, long us)
{
	struct timespec ts = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
	uint64_t start = clock_ns(CLOCK_MONOTONIC), slept_ns;

	nanosleep(&ts, NULL);
	slept_ns = clock_ns(CLOCK_MONOTONIC) - start;
	phase->asleep_ns += slept_ns;
	phase->late_sleeps += slept_ns >= 2000 * (uint64_t)us;
}

static void calls(struct phase *phase)
{
	void *exec = strcmp(phase->kind, "graph") ? NULL : graph();
	uint64_t next = clock_ns(CLOCK_MONOTONIC);

	for (long i = 0; i < phase->a; i++) {
		if (!strcmp(phase->kind, "launch")) {
			launch(i % 7 + 1);
		} else if (!strcmp(phase->kind, "pace")) {
			/* By the clock, so that a probe's cost does not make them fewer. */
			while (clock_ns(CLOCK_MONOTONIC) < next)
				;
			next += phase->b;
			launch(1);
		} else if (!strcmp(phase->kind, "lag")) {
			launch(1);
			sleep_us(phase, phase->b);
		} else if (!strcmp(phase->kind, "ex"))
			launch_ex(i % 5 + 1);
		else if (exec)
			cuGraphLaunch(exec, stream);
		else
			cuStreamSynchronize(stream);
	}
}

static void block(struct phase *phase)
{
	for (long i = 0; i < phase->a; i++)
		sleep_us(phase, phase->b);
}

static bool run_one_of(const struct phase_kind *kinds, struct phase *phase)
{
	while (kinds->kind && strcmp(kinds->kind, phase->kind))
		kinds++;
	if (kinds->kind)
		kinds->run(phase);
	return kinds->kind;
}

static void run(struct phase *phase)
{
	if (!strcmp(phase->kind, "block"))
		block(phase);
	else if (!run_one_of(switch_phases, phase) && !run_one_of(irq_phases, phase))
		calls(phase);
}

static void *phase_thread(void *arg)
{
	struct phase *phase = arg;
	struct snapshot from, to;
	uint64_t received;

	phase->cpu = 1;
	pin(phase->cpu);
	prctl(PR_SET_TIMERSLACK, 1);
	prctl(PR_SET_NAME, phase->kind);
	/* Around the times: what comes between the two is counted too. */
	received = net_rx();
	from = snapshot();
	run(phase);
	to = snapshot();
	received = net_rx() - received;
	printf("{\"phase\":\"%s\",\"tid\":%d,\"from_ns\":%lu,\"to_ns\":%lu,\"wait_ns\":%lu,"
	       "\"nvcsw\":%ld,\"nivcsw\":%ld,\"yields_switched\":%ld,\"asleep_ns\":%lu,"
	       "\"waker_tid\":%d,\"late_sleeps\":%ld,\"steal_ns\":%lu,\"waited_ns\":%lu,"
	       "\"datagrams\":%ld,"
	       "\"sending_ns\":%lu,\"net_rx\":%lu,\"spans\":[",
	       phase->kind, gettid(), from.time_ns, to.time_ns, to.wait_ns - from.wait_ns,
	       to.nvcsw - from.nvcsw, to.nivcsw - from.nivcsw, phase->yields_switched,
	       phase->asleep_ns, phase->waker_tid, phase->late_sleeps, to.steal_ns - from.steal_ns,
	       phase->waited_ns, phase->datagrams, phase->sending_ns, received);
	for (long i = 0; i < phase->nr_spans; i++)
		printf("%s[%lu,%lu,%ld]", i ? "," : "", phase->spans[i].from_ns,
		       phase->spans[i].to_ns, phase->spans[i].count);
	printf("]}\n");
	fflush(stdout);
	free(phase->spans);
	return NULL;
}

static void open_gpu(void)
{
	static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
				  ".visible .entry busy_ns(\n\t.param .u64 busy_ns_param_0\n)\n"
				  "{\n\tret;\n}\n";
	void *ctx, *module;

	if (cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) ||
	    cuModuleLoadData(&module, ptx) || cuModuleGetFunction(&function, module, "busy_ns") ||
	    cuStreamCreate(&stream, 0))
		die("no GPU");
}

static bool is_call(const char *kind)
{
	return !strcmp(kind, "launch") || !strcmp(kind, "pace") || !strcmp(kind, "lag") ||
	       !strcmp(kind, "ex") || !strcmp(kind, "graph") || !strcmp(kind, "sync");
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct phase phase = {};
		pthread_t thread;
		char *colon = strchr(argv[i], ':');

		if (!colon)
			die("expected PHASE:NUMBER");
		*colon = 0;
		phase.kind = argv[i];
		phase.a = strtol(colon + 1, &colon, 10);
		if (*colon == ':')
			phase.b = strtol(colon + 1, NULL, 10);
		if (is_call(phase.kind)) {
			/* In this thread: a context belongs to the thread that set it. */
			if (!function)
				open_gpu();
			phase_thread(&phase);
		} else {
			pthread_create(&thread, NULL, phase_thread, &phase);
			pthread_join(thread, NULL);
		}
	}
	return 0;
}
