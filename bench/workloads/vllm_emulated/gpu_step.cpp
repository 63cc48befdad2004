// SPDX-License-Identifier: GPL-2.0-only
// A model's step on the GPU, for a program in another language: launches kernels through libcuda,
// the genuine one or bench/fakecuda's, and waits for them. One thread calls all of it. A function
// returns 0, or -1 and says in `error` why.
#include <cstdio>
#include <memory>

#include "../gpu_launch/clock.hpp"
#include "../gpu_launch/driver.hpp"

namespace
{
std::unique_ptr<Driver> driver;
CUstream stream;

void launch(unsigned long long duration_ns)
{
	void *params[] = {&duration_ns};

	check("cuLaunchKernel", cuLaunchKernel(driver->gpus.front().busy, 1, 1, 1, 1, 1, 1, 0,
					       stream, params, nullptr));
}

template <typename F> int attempt(char *error, size_t size, F &&call)
{
	try {
		call();
		return 0;
	} catch (const std::exception &failure) {
		snprintf(error, size, "%s", failure.what());
		return -1;
	}
}
} // namespace

extern "C" {
// `sync`: auto, spin, yield or block.
int gpu_step_open(const char *sync, char *error, size_t size)
{
	return attempt(error, size, [&] {
		driver = std::make_unique<Driver>(1, sync);
		check("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	});
}

// `launches` kernels of `kernel_ns`, the last one longer by `more_ns`; before each `gap_ns` of CPU
// time of the framework.
int gpu_step_launch(uint64_t launches, uint64_t gap_ns, uint64_t kernel_ns, uint64_t more_ns,
		    char *error, size_t size)
{
	return attempt(error, size, [&] {
		for (uint64_t i = 1; i <= launches; i++) {
			burn(now_ns(), gap_ns);
			launch(i == launches ? kernel_ns + more_ns : kernel_ns);
		}
	});
}

int gpu_step_wait(char *error, size_t size)
{
	return attempt(error, size,
		       [&] { check("cuStreamSynchronize", cuStreamSynchronize(stream)); });
}
}
