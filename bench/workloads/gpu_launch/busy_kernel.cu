// SPDX-License-Identifier: GPL-2.0-only
// The kernel that gpu_launch launches: keeps one GPU thread busy for a given time and nothing else.
//
// Its name is a convention with bench/fakecuda, which has no GPU to run it on and reads the first
// parameter as the kernel's duration. So one program behaves alike on both.

// duration_ns: time to stay busy, in ns of %globaltimer (which ticks every 32 ns to 1 us, by GPU).
extern "C" __global__ void busy_ns(unsigned long long duration_ns)
{
	unsigned long long start_ns, now_ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start_ns));
	do {
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
	} while (now_ns - start_ns < duration_ns);
}
