// SPDX-License-Identifier: GPL-2.0-only
/* The functions of a module. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fakecuda.h"

CUresult fk_function_load(struct fk_module *module, const char *name, uint32_t nr_params,
			  uint32_t param_bytes, bool params_known)
{
	struct fk_function *function;
	uint64_t *functions;

	functions = realloc(module->functions, (module->nr_functions + 1) * sizeof(*functions));
	if (!functions)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->functions = functions;
	function = fk_object_new(FK_FUNCTION, sizeof(*function), module->obj.owner);
	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	function->module = module->obj.handle;
	snprintf(function->name, sizeof(function->name), "%s", name);
	function->duration_is_param = !strncmp(name, "busy_ns", 7) && (!params_known || nr_params);
	function->params_known = params_known;
	function->nr_params = nr_params;
	function->param_bytes = param_bytes;
	functions[module->nr_functions++] = function->obj.handle;
	return CUDA_SUCCESS;
}

void fk_functions_free(struct fk_module *module)
{
	for (uint32_t i = 0; i < module->nr_functions; i++) {
		struct fk_object *obj = fk_object_get_u64(FK_FUNCTION, module->functions[i]);

		if (obj)
			fk_object_free(obj);
	}
	free(module->functions);
}
