// SPDX-License-Identifier: GPL-2.0-only
/*
 * The threads of an LLM server as identification sees them: one that serves HTTP and wakes the
 * engine, the engine, which launches and sleeps in turn, and helpers that only wake up. Linked with
 * runtime.c. Says its port and the TIDs of the first two, and serves until it is killed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NR_HELPERS 20
#define NR_CLIENTS 64

int __cudaLaunchKernel(void);

static int requests; /* an eventfd */
static pid_t engine_tid;
static pthread_barrier_t started;

static void *engine(void *unused)
{
	uint64_t nr;

	engine_tid = gettid();
	pthread_barrier_wait(&started);
	while (read(requests, &nr, sizeof(nr)) == sizeof(nr)) {
		__cudaLaunchKernel();
		/* The GPU works: a timer wakes the engine, in whatever runs then. */
		usleep(500);
	}
	return unused;
}

static void *helper(void *unused)
{
	for (;;)
		usleep(10000);
	return unused;
}

static void serve(int listener)
{
	struct pollfd fds[1 + NR_CLIENTS] = {{.fd = listener, .events = POLLIN}};
	uint64_t one = 1;
	char buffer[64];
	int nr = 1;

	while (poll(fds, nr, -1) > 0) {
		for (int i = 1; i < nr; i++) {
			if (!(fds[i].revents & POLLIN))
				continue;
			if (read(fds[i].fd, buffer, sizeof(buffer)) <= 0) {
				close(fds[i].fd);
				fds[i].fd = -1;
				continue;
			}
			if (write(requests, &one, sizeof(one)) < 0 || write(fds[i].fd, "ok", 2) < 0)
				return;
		}
		if (fds[0].revents & POLLIN && nr <= NR_CLIENTS)
			fds[nr++] = (struct pollfd){.fd = accept(listener, NULL, NULL),
						    .events = POLLIN};
	}
}

int main(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(address);
	pthread_t thread;

	if (bind(listener, (struct sockaddr *)&address, len) || listen(listener, NR_CLIENTS) ||
	    getsockname(listener, (struct sockaddr *)&address, &len))
		return 1;
	requests = eventfd(0, EFD_CLOEXEC);
	pthread_barrier_init(&started, NULL, 2);
	pthread_create(&thread, NULL, engine, NULL);
	for (int i = 0; i < NR_HELPERS; i++)
		pthread_create(&thread, NULL, helper, NULL);
	pthread_barrier_wait(&started);
	printf("%d %d %d\n", ntohs(address.sin_port), gettid(), engine_tid);
	fflush(stdout);
	serve(listener);
	return 1;
}
