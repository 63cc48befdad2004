// SPDX-License-Identifier: GPL-2.0-only
/* cuGetProcAddress: a name and a CUDA version to the exported function, as genuine drivers do. */
#include <string.h>
#include "fakecuda.h"

struct fk_symbol {
	const char *name;
	int since; /* first CUDA version with this variant, as cudaVersion counts */
	void *fn;
	void *ptsz; /* NULL: no variant for per-thread default streams */
};

/* A name's variants stand together, newest last. */
static const struct fk_symbol fk_symbols[] = {
#define FK_PLAIN(name, since)	    {#name, since, (void *)name, NULL},
#define FK_AS(name, since, fn)	    {#name, since, (void *)fn, NULL},
#define FK_PTSZ(name, since)	    {#name, since, (void *)name, (void *)name##_ptsz},
#define FK_PTSZ_AS(name, since, fn) {#name, since, (void *)fn, (void *)fn##_ptsz},
#define FK_PTDS_AS(name, since, fn) {#name, since, (void *)fn, (void *)fn##_ptds},
#include "symbols.h"
};

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **out, int version, cuuint64_t flags,
				     CUdriverProcAddressQueryResult *status)
{
	const cuuint64_t known =
		CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	const struct fk_symbol *best = NULL;
	bool known_name = false;

	if (!symbol || !out || flags & ~known || flags == known)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	for (size_t i = 0; i < sizeof(fk_symbols) / sizeof(fk_symbols[0]); i++) {
		if (strcmp(fk_symbols[i].name, symbol))
			continue;
		known_name = true;
		if (fk_symbols[i].since <= version)
			best = &fk_symbols[i];
	}
	if (status)
		*status = best	       ? CU_GET_PROC_ADDRESS_SUCCESS
			  : known_name ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (!best)
		return CUDA_ERROR_NOT_FOUND;
	*out = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM && best->ptsz ? best->ptsz
										   : best->fn;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **out, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, out, version, flags, NULL);
}
