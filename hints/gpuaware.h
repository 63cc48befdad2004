/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * A thread's hint to scx_gpuaware: what it does for a GPU. C11 or C++, Linux, no library.
 *
 *     gpuaware_hint(GPUAWARE_LAUNCH);    // this thread launches GPU work
 *     gpuaware_hint(GPUAWARE_HANDOFF);   // this thread hands work to one that does
 *     gpuaware_hint(GPUAWARE_NOTHING);   // not any more
 *
 * Returns 0 when the hint was left for scx_gpuaware, or a negative errno: -ENOENT where it has not
 * run since boot or ended cleanly, or this container does not see its BPF file system, -EACCES or
 * -EPERM where its policy does not let this user hint (guard.hint_gid), -EINVAL before Linux 6.9
 * for threads that are not the first of their process. A program may ignore all of them. 0 does
 * not say that the hint counts: a user who is not in guard.trust_uids is refused later, and after
 * a kill -9 nobody takes it. `scx_gpuaware marks` says. The hint counts within 250 ms, until the
 * thread ends, its process starts another program or the scheduler ends. About 20 us a call.
 */
#ifndef GPUAWARE_H
#define GPUAWARE_H

#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum gpuaware_hint_class {
	GPUAWARE_NOTHING = 0,
	GPUAWARE_LAUNCH = 1,
	GPUAWARE_HANDOFF = 2,
};

#ifndef GPUAWARE_PINS
#define GPUAWARE_PINS "/sys/fs/bpf/scx_gpuaware"
#endif

static inline int gpuaware_bpf(int cmd, union bpf_attr *attr)
{
	long ret = syscall(SYS_bpf, cmd, attr, sizeof(*attr));

	return ret < 0 ? -errno : (int)ret;
}

static inline int gpuaware_update(const char *pin, const void *key, const void *value)
{
	union bpf_attr attr;
	int map, ret;

	memset(&attr, 0, sizeof(attr));
	attr.pathname = (uint64_t)(uintptr_t)pin;
	map = gpuaware_bpf(BPF_OBJ_GET, &attr);
	if (map < 0)
		return map;
	memset(&attr, 0, sizeof(attr));
	attr.map_fd = (uint32_t)map;
	attr.key = (uint64_t)(uintptr_t)key;
	attr.value = (uint64_t)(uintptr_t)value;
	ret = gpuaware_bpf(BPF_MAP_UPDATE_ELEM, &attr);
	close(map);
	return ret;
}

/* Says what the calling thread does. */
static inline int gpuaware_hint(enum gpuaware_hint_class hint)
{
	const unsigned int pidfd_thread = 0200; /* PIDFD_THREAD is O_EXCL */
	long tid = syscall(SYS_gettid);
	uint32_t value = (uint32_t)hint, zero = 0;
	struct timespec now;
	uint64_t call;
	int pidfd, ret;

	pidfd = (int)syscall(SYS_pidfd_open, tid, tid == getpid() ? 0 : pidfd_thread);
	if (pidfd < 0)
		return -errno;
	ret = gpuaware_update(GPUAWARE_PINS "/hints", &pidfd, &value);
	close(pidfd);
	if (ret)
		return ret;
	/* Any value that was not there before has the scheduler look. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	call = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	return gpuaware_update(GPUAWARE_PINS "/hint_calls", &zero, &call);
}

#endif /* GPUAWARE_H */
