// SPDX-License-Identifier: GPL-2.0-only
/* Modules and their functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fakecuda.h"

static bool fk_name_is(const struct fk_function *function, const char *name)
{
	return !strcmp(function->name, name);
}

static void fk_module_destroy(struct fk_object *obj)
{
	fk_functions_free((struct fk_module *)obj);
	fk_object_free(obj);
}

static CUresult fk_module_load(CUmodule *out, const void *image)
{
	struct fk_context *ctx;
	struct fk_module *module;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!out || !image)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	module = fk_object_new(FK_MODULE, sizeof(*module), ctx->obj.handle);
	if (!module)
		return fk_leave(CUDA_ERROR_OUT_OF_MEMORY);
	module->obj.destroy = fk_module_destroy;
	result = fk_image_scan(module, image);
	if (result)
		fk_module_destroy(&module->obj);
	else
		*out = FK_HANDLE(CUmodule, module);
	return fk_leave(result);
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
	return fk_module_load(module, image);
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int nr_options,
				    CUjit_option *options, void **values)
{
	if (nr_options && (!options || !values))
		return CUDA_ERROR_INVALID_VALUE;
	return fk_module_load(module, image);
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
	return fk_module_load(module, image);
}

/* NULL when it cannot be read. Padded with zeros, so that text ends and short files are no trap. */
static void *fk_read_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	char *data = NULL;
	long size;

	if (!file)
		return NULL;
	if (!fseek(file, 0, SEEK_END) && (size = ftell(file)) >= 0 && !fseek(file, 0, SEEK_SET)) {
		data = calloc(1, (size_t)size + 64);
		if (data && fread(data, 1, (size_t)size, file) != (size_t)size) {
			free(data);
			data = NULL;
		}
	}
	fclose(file);
	return data;
}

CUresult CUDAAPI cuModuleLoad(CUmodule *module, const char *path)
{
	void *image;
	CUresult result;

	if (!path)
		return CUDA_ERROR_INVALID_VALUE;
	image = fk_read_file(path);
	if (!image)
		return CUDA_ERROR_FILE_NOT_FOUND;
	result = fk_module_load(module, image);
	free(image);
	return result;
}

CUresult CUDAAPI cuModuleUnload(CUmodule handle)
{
	struct fk_context *ctx;
	struct fk_module *module;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	module = fk_object_get(FK_MODULE, handle);
	if (!module)
		return fk_leave(CUDA_ERROR_INVALID_HANDLE);
	fk_module_destroy(&module->obj);
	return fk_leave(CUDA_SUCCESS);
}

static CUresult fk_find_function(CUfunction *out, struct fk_module *module, const char *name)
{
	CUresult result;

	for (uint32_t i = 0; i < module->nr_functions; i++) {
		struct fk_function *function = fk_object_get_u64(FK_FUNCTION, module->functions[i]);

		if (function && fk_name_is(function, name)) {
			*out = FK_HANDLE(CUfunction, function);
			return CUDA_SUCCESS;
		}
	}
	if (!module->open_names || strlen(name) >= FK_NAME_LEN)
		return CUDA_ERROR_NOT_FOUND;
	result = fk_function_load(module, name, 0, 0, false);
	if (!result)
		*out = (CUfunction)(uintptr_t)module->functions[module->nr_functions - 1];
	return result;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
	struct fk_context *ctx;
	struct fk_module *module;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!out || !name)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	module = fk_object_get(FK_MODULE, handle);
	if (!module)
		return fk_leave(CUDA_ERROR_INVALID_HANDLE);
	return fk_leave(fk_find_function(out, module, name));
}

CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int *count, CUmodule handle)
{
	struct fk_context *ctx;
	struct fk_module *module;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	module = fk_object_get(FK_MODULE, handle);
	if (!count || !module)
		return fk_leave(count ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
	*count = module->nr_functions;
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = CU_MODULE_EAGER_LOADING;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetModule(CUmodule *out, CUfunction handle)
{
	struct fk_context *ctx;
	struct fk_function *function;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	function = fk_object_get(FK_FUNCTION, handle);
	if (!out || !function)
		return fk_leave(out ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
	*out = (CUmodule)(uintptr_t)function->module;
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetName(const char **name, CUfunction handle)
{
	struct fk_context *ctx;
	struct fk_function *function;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	function = fk_object_get(FK_FUNCTION, handle);
	if (!name || !function)
		return fk_leave(name ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
	*name = function->name;
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attrib, CUfunction handle)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if (!value || (int)attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	if (!fk_object_get(FK_FUNCTION, handle))
		return fk_leave(CUDA_ERROR_INVALID_HANDLE);
	*value = attrib == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
		 : attrib == CU_FUNC_ATTRIBUTE_NUM_REGS		   ? 16
								   : 0;
	return fk_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attrib, int value)
{
	struct fk_context *ctx;
	CUresult result = fk_enter(&ctx);

	if (result)
		return result;
	if ((int)attrib < 0 || attrib >= CU_FUNC_ATTRIBUTE_MAX || value < 0)
		return fk_leave(CUDA_ERROR_INVALID_VALUE);
	return fk_leave(fk_object_get(FK_FUNCTION, handle) ? CUDA_SUCCESS
							   : CUDA_ERROR_INVALID_HANDLE);
}
