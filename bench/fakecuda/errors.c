// SPDX-License-Identifier: GPL-2.0-only
/* Names of errors, taken from cuda.h by the Makefile, and what they mean in words. */
#include "fakecuda.h"

struct fk_error {
	CUresult code;
	const char *name;
	const char *words; /* the name in lower case, without the underscores */
};

static const struct fk_error fk_errors[] = {
#define FK_ERROR(name, words) {name, #name, words},
#include "error_names.h"
#undef FK_ERROR
};

static const struct fk_error *fk_error_find(CUresult code)
{
	for (size_t i = 0; i < sizeof(fk_errors) / sizeof(fk_errors[0]); i++)
		if (fk_errors[i].code == code)
			return &fk_errors[i];
	return NULL;
}

CUresult CUDAAPI cuGetErrorName(CUresult code, const char **name)
{
	const struct fk_error *error = fk_error_find(code);

	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = error ? error->name : NULL;
	return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult code, const char **words)
{
	const struct fk_error *error = fk_error_find(code);

	if (!words)
		return CUDA_ERROR_INVALID_VALUE;
	*words = error ? error->words : NULL;
	return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
