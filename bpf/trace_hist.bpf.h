/* SPDX-License-Identifier: GPL-2.0-only */
/* Buckets of histograms, as all that traces has them. */
#ifndef __GPUAWARE_TRACE_HIST_BPF_H
#define __GPUAWARE_TRACE_HIST_BPF_H

#include "trace_intf.h"

/* Bucket n counts values from 2^(n-1) to 2^n - 1, the first one 0, the last one all above. */
static __always_inline u32 bucket_of(u64 ns)
{
	u32 bucket = 0;

	if (ns >> 32) {
		bucket = 32;
		ns >>= 32;
	}
	if (ns >> 16) {
		bucket += 16;
		ns >>= 16;
	}
	if (ns >> 8) {
		bucket += 8;
		ns >>= 8;
	}
	if (ns >> 4) {
		bucket += 4;
		ns >>= 4;
	}
	if (ns >> 2) {
		bucket += 2;
		ns >>= 2;
	}
	bucket += ns > 1 ? 2 : ns;
	return bucket < TRACE_NR_BUCKETS ? bucket : TRACE_NR_BUCKETS - 1;
}

#endif /* __GPUAWARE_TRACE_HIST_BPF_H */
