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
 *   storm:MS:NS  two such threads on each of two CPUs
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
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

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

struct snapshot {
	uint64_t time_ns, wait_ns, steal_ns, net_rx;
	long nvcsw, nivcsw;
};

/* A call of sched_yield(), and the switches between the two times. */
struct span {
	uint64_t from_ns, to_ns;
	long switches;
};

struct phase {
	const char *kind;
	long a, b;
	long yields_switched;
	uint64_t asleep_ns, waited_ns;
	_Atomic uint64_t woken_at_ns;
	int pipe[2];
	int waker_tid;
	int cpu;
	long datagrams;
	uint64_t sending_ns;
	struct span *spans;
	long nr_spans;
};

static void *function, *stream;
static atomic_int stop;

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static void die(const char *what)
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
static struct snapshot switches(void)
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
	shot.net_rx = net_rx();
	return shot;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static void spin_ns(uint64_t ns)
{
	uint64_t end = clock_ns(CLOCK_MONOTONIC) + ns;

	while (clock_ns(CLOCK_MONOTONIC) < end)
		;
}

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
	uint64_t start = clock_ns(CLOCK_MONOTONIC);

	nanosleep(&ts, NULL);
	phase->asleep_ns += clock_ns(CLOCK_MONOTONIC) - start;
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

/* Wakes the other thread of its CPU, and does not let it run for as long as it let it sleep. */
static void *late_waker(void *arg)
{
	struct sched_param param = {.sched_priority = 1};
	struct phase *phase = arg;

	pin(1);
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("SCHED_FIFO");
	for (long i = 0; i < phase->a; i++) {
		usleep(phase->b);
		phase->woken_at_ns = clock_ns(CLOCK_MONOTONIC);
		if (write(phase->pipe[1], "x", 1) != 1)
			die("write");
		spin_ns(phase->b * 1000);
	}
	return NULL;
}

static void wait_late(struct phase *phase)
{
	pthread_t other;
	char byte;

	if (pipe(phase->pipe))
		die("pipe");
	pthread_create(&other, NULL, late_waker, phase);
	for (long i = 0; i < phase->a; i++) {
		uint64_t start = clock_ns(CLOCK_MONOTONIC);

		if (read(phase->pipe[0], &byte, 1) != 1)
			die("read");
		phase->asleep_ns += phase->woken_at_ns - start;
		phase->waited_ns += clock_ns(CLOCK_MONOTONIC) - phase->woken_at_ns;
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
		span->switches = after.nivcsw - before.nivcsw + after.nvcsw - before.nvcsw;
	}
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

#define UDP_PAUSE_NS 8000

static void udp(struct phase *phase)
{
	struct sockaddr_in self = {.sin_family = AF_INET};
	uint64_t end = clock_ns(CLOCK_MONOTONIC) + phase->a * 1000000;
	socklen_t len = sizeof(self);
	char data[1024] = {};
	uint64_t next = 0;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(fd, (void *)&self, len) || getsockname(fd, (void *)&self, &len))
		die("bind");
	while (clock_ns(CLOCK_MONOTONIC) < end) {
		/* Unpaced, some machines make more events in a second than any buffer takes. */
		while (clock_ns(CLOCK_MONOTONIC) < next)
			;
		next = clock_ns(CLOCK_MONOTONIC);
		phase->datagrams += sendto(fd, data, sizeof(data), 0, (void *)&self, len) > 0;
		phase->sending_ns += clock_ns(CLOCK_MONOTONIC) - next;
		next += UDP_PAUSE_NS;
		recv(fd, data, sizeof(data), MSG_DONTWAIT);
	}
	close(fd);
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

static void run(struct phase *phase)
{
	if (!strcmp(phase->kind, "block"))
		block(phase);
	else if (!strcmp(phase->kind, "hog"))
		with_busy(phase);
	else if (!strcmp(phase->kind, "yield"))
		yield(phase);
	else if (!strcmp(phase->kind, "each"))
		yield_each(phase);
	else if (!strcmp(phase->kind, "storm"))
		storm(phase);
	else if (!strcmp(phase->kind, "wait"))
		wait_late(phase);
	else if (!strcmp(phase->kind, "udp"))
		udp(phase);
	else if (!strcmp(phase->kind, "wake"))
		wake(phase);
	else if (!strcmp(phase->kind, "move"))
		move(phase);
	else if (!strcmp(phase->kind, "crowd"))
		crowd(phase);
	else
		calls(phase);
}

static void *phase_thread(void *arg)
{
	struct phase *phase = arg;
	struct snapshot from, to;

	phase->cpu = 1;
	pin(phase->cpu);
	prctl(PR_SET_TIMERSLACK, 1);
	prctl(PR_SET_NAME, phase->kind);
	from = snapshot();
	run(phase);
	to = snapshot();
	printf("{\"phase\":\"%s\",\"tid\":%d,\"from_ns\":%lu,\"to_ns\":%lu,\"wait_ns\":%lu,"
	       "\"nvcsw\":%ld,\"nivcsw\":%ld,\"yields_switched\":%ld,\"asleep_ns\":%lu,"
	       "\"waker_tid\":%d,\"steal_ns\":%lu,\"waited_ns\":%lu,\"datagrams\":%ld,"
	       "\"sending_ns\":%lu,\"net_rx\":%lu,\"spans\":[",
	       phase->kind, gettid(), from.time_ns, to.time_ns, to.wait_ns - from.wait_ns,
	       to.nvcsw - from.nvcsw, to.nivcsw - from.nivcsw, phase->yields_switched,
	       phase->asleep_ns, phase->waker_tid, to.steal_ns - from.steal_ns, phase->waited_ns,
	       phase->datagrams, phase->sending_ns, to.net_rx - from.net_rx);
	for (long i = 0; i < phase->nr_spans; i++)
		printf("%s[%lu,%lu,%ld]", i ? "," : "", phase->spans[i].from_ns,
		       phase->spans[i].to_ns, phase->spans[i].switches);
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
