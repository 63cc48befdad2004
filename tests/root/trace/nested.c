// SPDX-License-Identifier: GPL-2.0-only
/*
 * A libcuda of two calls, one of which makes the other, and a program that calls it ten times.
 * Compiled twice: with LIBCUDA it is the library.
 */
#include <unistd.h>

int cuStreamSynchronize(void *stream);
int cuGraphLaunch(void *exec, void *stream);

#ifdef LIBCUDA
int cuStreamSynchronize(void *stream)
{
	usleep(2000);
	return !stream;
}

int cuGraphLaunch(void *exec, void *stream)
{
	usleep(1000);
	return (!exec) | cuStreamSynchronize(stream);
}
#else
int main(void)
{
	int failed = 0;

	for (int i = 0; i < 10; i++)
		failed |= cuGraphLaunch(&failed, &failed);
	return failed;
}
#endif
