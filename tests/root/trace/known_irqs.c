// SPDX-License-Identifier: GPL-2.0-only
/* Phases that make interrupts. */
#include "known.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

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

/* Interrupts of devices on @cpu, as the kernel counts them: those with a number. */
static long device_irqs(int cpu)
{
	FILE *file = fopen("/proc/interrupts", "r");
	int nr_cpus = 0, column = -1;
	long sum = 0, count = 0, nr;
	char *word, *rest, line[65536];

	if (!file || !fgets(line, sizeof(line), file))
		die("/proc/interrupts");
	for (word = strtok(line, " \n"); word; word = strtok(NULL, " \n"), nr_cpus++) {
		if (atoi(word + strlen("CPU")) == cpu)
			column = nr_cpus;
	}
	while (fgets(line, sizeof(line), file)) {
		nr = strtol(line, &rest, 10);
		if (*rest != ':' || (!nr && rest[-1] != '0'))
			continue;
		for (rest++, nr = 0; nr <= column; nr++)
			count = strtol(rest, &rest, 10);
		sum += count;
	}
	fclose(file);
	return sum;
}

/* The count and a moment at which it was that. */
static long device_irqs_at(int cpu, uint64_t *at_ns)
{
	for (int tries = 0; tries < 1000; tries++) {
		long before = device_irqs(cpu);

		*at_ns = clock_ns(CLOCK_MONOTONIC);
		if (device_irqs(cpu) == before)
			return before;
	}
	die("other devices never rest");
}

#define BLOCK_LEN 4096

/* Reads past the page cache without sleeping: what interrupts this CPU for it hits this thread. */
static void read_blocks(aio_context_t aio, int fd, void *block, long nr)
{
	for (long i = 0; i < nr; i++) {
		struct iocb request = {.aio_fildes = fd,
				       .aio_lio_opcode = IOCB_CMD_PREAD,
				       .aio_buf = (uintptr_t)block,
				       .aio_nbytes = BLOCK_LEN};
		struct iocb *requests[] = {&request};
		struct timespec at_once = {};
		struct io_event event;

		if (syscall(SYS_io_submit, aio, 1, requests) != 1)
			die("io_submit");
		while (syscall(SYS_io_getevents, aio, 0, 1, &event, &at_once) == 0)
			;
		if (event.res != BLOCK_LEN)
			die("reading a block");
	}
}

static void disk(struct phase *phase)
{
	struct sched_param param = {.sched_priority = 90};
	char path[] = "known-XXXXXX";
	int fd = mkostemp(path, O_DIRECT);
	struct span *span = calloc(1, sizeof(*span));
	aio_context_t aio = 0;
	long before;
	void *block;

	if (fd < 0 || unlink(path) || posix_memalign(&block, BLOCK_LEN, BLOCK_LEN) ||
	    write(fd, memset(block, 1, BLOCK_LEN), BLOCK_LEN) != BLOCK_LEN || fsync(fd) ||
	    syscall(SYS_io_setup, 1, &aio) || sched_setscheduler(0, SCHED_FIFO, &param))
		die("the block to read");
	/* Some disks interrupt the CPU that asks, others one of their own. */
	for (phase->cpu = get_nprocs() - 1; phase->cpu >= 0; phase->cpu--) {
		pin(phase->cpu);
		before = device_irqs(phase->cpu);
		read_blocks(aio, fd, block, 20);
		if (device_irqs(phase->cpu) - before >= 20)
			break;
	}
	if (phase->cpu < 0)
		die("reading a block interrupts no CPU");
	phase->spans = span;
	phase->nr_spans = 1;
	before = device_irqs_at(phase->cpu, &span->from_ns);
	read_blocks(aio, fd, block, phase->a);
	span->count = device_irqs_at(phase->cpu, &span->to_ns) - before;
	close(fd);
}

#define MAX_GAPS (1 << 18)

/* What takes the CPU from a thread that does nothing but look at the clock. */
static void gaps(struct phase *phase)
{
	uint64_t before = clock_ns(CLOCK_MONOTONIC), now = before;
	uint64_t end = before + phase->a * 1000000;
	struct span *spans = calloc(MAX_GAPS, sizeof(*spans));
	long nr = 0;

	while (nr < MAX_GAPS && now < end) {
		now = clock_ns(CLOCK_MONOTONIC);
		if (now - before >= (uint64_t)phase->b)
			spans[nr++] = (struct span){.from_ns = before, .to_ns = now};
		before = now;
	}
	phase->spans = spans;
	phase->nr_spans = nr;
}

const struct phase_kind irq_phases[] = {{"udp", udp}, {"disk", disk}, {"gaps", gaps}, {}};
