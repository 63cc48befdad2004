/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a thread is seen doing: launching, waking launchers, sending to an LLM endpoint. Each
 * program is attached only while a rule of the policy asks for it.
 */
#ifndef __GPUAWARE_OBSERVE_BPF_H
#define __GPUAWARE_OBSERVE_BPF_H

#include <bpf/bpf_endian.h>

#include "class.bpf.h"
#include "pidns.bpf.h"
#include "yield.bpf.h"

#define NS_PER_TICK 10000000ULL /* of the times in /proc */

/* A thread that wakes launchers this often is one that hands work over. */
#define WAKE_WINDOW_NS 1000000000ULL
#define MIN_WAKES      10

#define PF_KTHREAD 0x00200000

#define AF_UNIX	    1
#define AF_INET	    2
#define AF_INET6    10
#define SOCK_STREAM 1
#define S_IFMT	    0170000
#define S_IFCHR	    0020000

/* Set by user space. */
u32 trust_by_uid;    /* 0: everybody is trusted */
u32 trust_by_device; /* 0: whatever a process has open */
u32 unix_endpoints;  /* how many endpoints are Unix-domain sockets */
u32 classes_held; /* rules are being exchanged: classes stay until user space counts a generation */

u64 nr_mark_changes; /* that may have given a task another class */
u64 nr_refused;	     /* sightings that guard.trust_uids or guard.trust_devices does not let count */

/* Users whose sightings count. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GPUAWARE_MAX_TRUSTED_UIDS);
	__type(key, u32);
	__type(value, u8);
} trusted_uids SEC(".maps");

/* Of which a process must have one open for its launches to count: major number << 20 | minor. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u8);
} trusted_devices SEC(".maps");

/* Those of GPUs, as above, and the NUMA node of each, plus one; 0: firmware does not say. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u32);
} gpu_devices SEC(".maps");

/* @mark says something else of its task now. */
static __always_inline void class_changed(struct task_mark *mark)
{
	__sync_fetch_and_add(&nr_mark_changes, 1);
	if (!classes_held)
		__sync_fetch_and_add(&mark->epoch, 1);
}

static __always_inline bool is_trusted(struct task_struct *p)
{
	u32 uid = BPF_CORE_READ(p, cred, uid.val);

	return !trust_by_uid || bpf_map_lookup_elem(&trusted_uids, &uid);
}

/* Drivers open their devices before a server accepts clients: what comes later is not looked at. */
#define MOST_FILES 1024

/* The number of the character device that file number @i of @table is; 0: none. */
static __always_inline u32 open_device(struct fdtable *table, u32 i)
{
	struct file **files = BPF_CORE_READ(table, fd), *file = NULL;

	bpf_probe_read_kernel(&file, sizeof(file), files + i);
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFCHR)
		return 0;
	return BPF_CORE_READ(file, f_inode, i_rdev);
}

/* Has @p's process one of the devices open that launches are trusted by? */
static __always_inline bool has_trusted_device(struct task_struct *p)
{
	struct fdtable *table = BPF_CORE_READ(p, files, fdt);
	u32 nr = BPF_CORE_READ(table, max_fds), i;

	bpf_for (i, 0, MOST_FILES) {
		u32 device;

		if (i >= nr)
			break;
		device = open_device(table, i);
		if (device && bpf_map_lookup_elem(&trusted_devices, &device))
			return true;
	}
	return false;
}

/* As gpu_node() says it: where the GPUs are that @p's process has open. */
static __always_inline u32 find_gpu_node(struct task_struct *p)
{
	struct fdtable *table = BPF_CORE_READ(p, files, fdt);
	u32 nr = BPF_CORE_READ(table, max_fds), found = 0, i;

	bpf_for (i, 0, MOST_FILES) {
		u32 device, *node;

		if (i >= nr)
			break;
		device = open_device(table, i);
		node = device ? bpf_map_lookup_elem(&gpu_devices, &device) : NULL;
		if (!node)
			continue;
		if (!*node || (found && *node != found))
			return 0;
		found = *node;
	}
	return found;
}

/* Notes the GPU's node of @p, which has not launched before, or has been refused so far. */
static __always_inline void note_gpu_node(struct task_struct *p, const struct task_mark *mark)
{
	struct gpu_process *process;

	/* Searching files is slow: a refused thread is checked again at each 64th sighting. */
	if (((mark->observed & GPUAWARE_OBSERVED_LAUNCH) && mark->launched.hits) ||
	    ((mark->refused & GPUAWARE_OBSERVED_LAUNCH) && mark->launched.hits % 64))
		return;
	process = gpu_process_of(p, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (process)
		process->node = find_gpu_node(p);
}

/*
 * @p, whose mark is @mark, was seen doing what @bits say. With @by_device that counts only if its
 * process has a trusted device open. True if it is new; whether it counts is checked then, not at
 * every sighting.
 */
static __always_inline bool observe(struct task_struct *p, struct task_mark *mark,
				    struct sighting *sighting, u64 bits, bool by_device)
{
	bool is_new;

	sighting->last_ns = bpf_ktime_get_ns();
	sighting->hits++;
	if (sighting->hits == 1 || !((mark->observed | mark->refused) & bits))
		sighting->first_ns = sighting->last_ns;
	if ((mark->observed & bits) == bits)
		return false;
	/* Searching files is slow: see note_gpu_node(). */
	if ((by_device && (mark->refused & bits) == bits && sighting->hits % 64 != 1) ||
	    !is_trusted(p) || (by_device && !has_trusted_device(p))) {
		is_new = (mark->refused & bits) != bits;
		mark->refused |= bits;
		__sync_fetch_and_add(&nr_refused, 1);
		return is_new;
	}
	/* Atomic: user space may have forget_outdated() run on another CPU. */
	__sync_fetch_and_or(&mark->observed, bits);
	class_changed(mark);
	return true;
}

/*
 * @p makes a context of a GPU current, for the first time that anybody sees. It will launch: a
 * stage of a pipeline has much to do before, and would starve as background beside those that
 * launch already. Once, as one that never launches is no launcher. Not a main thread: it loads
 * models first, at the expense of those that launch.
 */
static __always_inline bool is_first_context(struct task_struct *p, const struct task_mark *mark)
{
	return p->pid != p->tgid && !mark->entered.hits && !mark->launched.hits;
}

/* Of a thread as one that is woken, and as one that wakes. */
struct wake_ctx {
	struct class_basis basis; /* of the class */
	u64 window_start_ns;
	u32 class;
	u32 nr_wakes;  /* of launchers, in the window */
	u32 nr_before; /* in the window before */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wake_ctx);
} wake_ctxs SEC(".maps");

/*
 * In an interrupt or a softirq, the current task is the one that was interrupted. x86 and arm64 run
 * them on stacks of their own, which @ctx is then on, unless they come from user space: then the
 * task is in no system call. A task's own stack ends with the registers of its entry into the
 * kernel. The preempt count would say it too, but not every kernel shows its address.
 */
static __always_inline bool in_interrupt(struct task_struct *p, void *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	u64 at, end, stack = (u64)BPF_CORE_READ(p, stack);

	/* Read from memory, a pointer is a number to the verifier. */
	bpf_probe_read_kernel(&at, sizeof(at), &ctx);
	bpf_probe_read_kernel(&end, sizeof(end), &regs);
	return at < stack || at >= end || (s32)SYSCALL_NR(regs) < 0;
}

static __always_inline bool is_launcher(struct task_struct *p)
{
	struct wake_ctx *wctx;

	wctx = bpf_task_storage_get(&wake_ctxs, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!wctx)
		return false;
	if (renew_basis(p, &wctx->basis))
		wctx->class = judge_task(p).class;
	return wctx->class == GPUAWARE_CLASS_LAUNCH;
}

/* `wakes = "launch"`: the current thread wakes @p. */
SEC("tp_btf/sched_waking")
int BPF_PROG(thread_waking, struct task_struct *p)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct task_mark *mark;
	struct wake_ctx *wctx;
	u64 now;

	if ((waker->flags & PF_KTHREAD) || waker == p || waker->pid == loader_tid ||
	    !is_launcher(p) || in_interrupt(waker, ctx))
		return 0;
	wctx = bpf_task_storage_get(&wake_ctxs, waker, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!wctx)
		return 0;
	now = bpf_ktime_get_ns();
	if (now - wctx->window_start_ns > WAKE_WINDOW_NS) {
		wctx->window_start_ns = now;
		wctx->nr_before = wctx->nr_wakes;
		wctx->nr_wakes = 0;
	}
	if (++wctx->nr_wakes < MIN_WAKES)
		return 0;
	mark = bpf_task_storage_get(&task_marks, waker, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!mark)
		return 0;
	/* A window is a second; this one is not over. */
	mark->wake_rate = wctx->nr_wakes > wctx->nr_before ? wctx->nr_wakes : wctx->nr_before;
	observe(waker, mark, &mark->woke, GPUAWARE_OBSERVED_WAKES, false);
	return 0;
}

/* Address -> number of the endpoint. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GPUAWARE_MAX_ENDPOINTS);
	__type(key, struct gpuaware_endpoint);
	__type(value, u32);
} endpoints SEC(".maps");

static __always_inline u64 endpoint_bit(const struct gpuaware_endpoint *endpoint)
{
	u32 *number = bpf_map_lookup_elem(&endpoints, endpoint);

	return number ? (u64)GPUAWARE_OBSERVED_FIRST_ENDPOINT << *number : 0;
}

/* The address itself, and any address with its port. */
static __always_inline u64 inet_endpoints(struct sock *sk, u32 family)
{
	struct gpuaware_endpoint endpoint = {};
	u64 bits;

	if (sk->sk_type != SOCK_STREAM)
		return 0;
	endpoint.port = bpf_ntohs(sk->__sk_common.skc_dport);
	if (family == AF_INET6) {
		bpf_core_read(&endpoint.address, sizeof(struct in6_addr),
			      &sk->__sk_common.skc_v6_daddr);
	} else {
		u32 address = sk->__sk_common.skc_daddr;

		endpoint.address[10] = endpoint.address[11] = 0xff;
		__builtin_memcpy(&endpoint.address[12], &address, sizeof(address));
	}
	bits = endpoint_bit(&endpoint);
	__builtin_memset(endpoint.address, 0, 16);
	return bits | endpoint_bit(&endpoint);
}

/* What the server bound: an accepted socket has the address of the one that listened. */
static __always_inline u64 unix_endpoint(struct sock *sk)
{
	struct gpuaware_endpoint endpoint = {};
	struct unix_address *address;
	struct sock *peer;

	peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
	address = BPF_CORE_READ((struct unix_sock *)peer, addr);
	if (!peer || !address)
		return 0;
	bpf_probe_read_kernel_str(endpoint.address, sizeof(endpoint.address),
				  (void *)&address->name[0].sun_path);
	return endpoint_bit(&endpoint);
}

/* `connects_to`: the current thread has sent to @sk. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(socket_sent, struct sock *sk, int ret, int flags)
{
	u32 family = sk->__sk_common.skc_family;
	struct task_struct *p;
	u64 bits = 0;
	struct task_mark *mark;

	if (ret <= 0)
		return 0;
	if (family == AF_INET || family == AF_INET6)
		bits = inet_endpoints(sk, family);
	else if (family == AF_UNIX && unix_endpoints)
		bits = unix_endpoint(sk);
	if (!bits)
		return 0;
	p = bpf_get_current_task_btf();
	mark = bpf_task_storage_get(&task_marks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (mark)
		observe(p, mark, &mark->sent, bits, false);
	return 0;
}

#endif /* __GPUAWARE_OBSERVE_BPF_H */
