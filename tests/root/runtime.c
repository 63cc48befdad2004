// SPDX-License-Identifier: GPL-2.0-only
/*
 * A CUDA runtime and a program on it, as far as identification can tell them from NVIDIA's: the
 * runtime opens libcuda by itself and asks it for its functions. RUNTIME and PROGRAM say which part
 * is compiled, so that the runtime may be a library of its own or within the program.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

int __cudaLaunchKernel(void);

#ifdef RUNTIME
typedef int init_fn(unsigned int);
typedef int get_fn(const char *, void **, int, unsigned long long);
typedef int launch_fn(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
		      unsigned int, unsigned int, void *, void **, void **);

/* That nothing can be launched without a context is the driver's business. */
int __cudaLaunchKernel(void)
{
	static launch_fn *launch;

	if (!launch) {
		void *driver = dlopen("libcuda.so.1", RTLD_NOW);
		init_fn *init = driver ? (init_fn *)dlsym(driver, "cuInit") : NULL;
		get_fn *get = driver ? (get_fn *)dlsym(driver, "cuGetProcAddress") : NULL;

		if (!init || !get || init(0) || get("cuLaunchKernel", (void **)&launch, 12000, 0))
			_exit(1);
	}
	return launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}
#endif

#ifdef PROGRAM
int main(void)
{
	for (;;) {
		__cudaLaunchKernel();
		usleep(1000);
	}
}
#endif
