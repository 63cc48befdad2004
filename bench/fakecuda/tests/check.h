/* SPDX-License-Identifier: GPL-2.0-only */
/* The conformance program: small checks by topic, one line of output each. */
#ifndef CHECK_H
#define CHECK_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

typedef void (*check_fn)(void);

/* Prints "ok NAME" or "not ok NAME"; each check begins with a fresh context that is current. */
void run_check(const char *name, check_fn fn);
#define RUN(fn) run_check(#fn, fn)

/* Notes the line and goes on. */
void expect_result(const char *file, int line, const char *what, CUresult got, CUresult wanted);
void expect_true(const char *file, int line, const char *what, bool holds);
#define EXPECT(call, wanted) expect_result(__FILE__, __LINE__, #call, call, wanted)
#define OK(call)	     EXPECT(call, CUDA_SUCCESS)
#define TRUE(what)	     expect_true(__FILE__, __LINE__, #what, what)

extern const char check_ptx[];

uint64_t wall_ns(void);
uint64_t thread_cpu_ns(void);
/* The kernel busy_ns of a module loaded into the current context. */
CUfunction busy_kernel(void);
CUresult launch_busy(CUfunction f, CUstream stream, unsigned long long ns);

void checks_device(void);
void checks_context(void);
void checks_module(void);
void checks_launch(void);
void checks_stream(void);
void checks_event(void);
void checks_memory(void);
void checks_graph(void);
void checks_wait(void);
void checks_threads(void);

#endif /* CHECK_H */
