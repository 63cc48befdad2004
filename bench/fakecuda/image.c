// SPDX-License-Identifier: GPL-2.0-only
/*
 * Module images: which kernels one holds and how many parameter bytes each takes.
 *
 * PTX is read as text; in a cubin (ELF) the sections .text.NAME name the kernels; in a fat binary
 * the first uncompressed one of these is used. Nothing is compiled and nothing could run.
 */
#include <elf.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "fakecuda.h"

#define FK_FATBIN_MAGIC	     0xba55ed50u
#define FK_FATBIN_WRAPPER    0x466243b1u
#define FK_FATBIN_KIND_PTX   1
#define FK_FATBIN_KIND_ELF   2
#define FK_FATBIN_COMPRESSED 0x2000ull

struct fk_fatbin_header {
	uint32_t magic;
	uint16_t version;
	uint16_t header_bytes;
	uint64_t payload_bytes;
};

struct fk_fatbin_entry {
	uint16_t kind;
	uint16_t unknown;
	uint32_t header_bytes;
	uint64_t payload_bytes;
	uint32_t compressed_bytes;
	uint32_t options;
	uint16_t minor;
	uint16_t major;
	uint32_t arch;
	uint32_t name_offset;
	uint32_t name_bytes;
	uint64_t flags;
};

struct fk_fatbin_wrapper {
	uint32_t magic;
	uint32_t version;
	const void *data;
	const void *filename;
};

static bool fk_is_name_char(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* Bytes of one parameter declaration: the type's size times the array's length, if it has one. */
static uint32_t fk_ptx_param_bytes(const char *decl, const char *end)
{
	const char *dot = decl;
	const char *bracket = memchr(decl, '[', (size_t)(end - decl));
	uint32_t bytes = 8;
	uint32_t count = 1;

	while ((dot = memchr(dot, '.', (size_t)(end - dot)))) {
		dot++;
		if (strchr("busf", *dot) && isdigit((unsigned char)dot[1]))
			bytes = (uint32_t)strtoul(dot + 1, NULL, 10) / 8;
	}
	if (bracket)
		count = (uint32_t)strtoul(bracket + 1, NULL, 10);
	return bytes * count;
}

static void fk_ptx_params(const char *open, const char *close, uint32_t *nr, uint32_t *bytes)
{
	const char *at = open;

	*nr = 0;
	*bytes = 0;
	while (at < close && (at = strstr(at, ".param")) && at < close) {
		const char *comma = memchr(at, ',', (size_t)(close - at));
		const char *end = comma ? comma : close;
		uint32_t size = fk_ptx_param_bytes(at + 6, end);
		uint32_t align = size >= 8 ? 8 : size ? size : 1;

		*bytes = (*bytes + align - 1) / align * align + size;
		(*nr)++;
		at = end;
	}
}

static CUresult fk_scan_ptx(struct fk_module *module, const char *text)
{
	const char *at = text;
	CUresult result = CUDA_SUCCESS;

	while (!result && (at = strstr(at, ".entry"))) {
		char name[FK_NAME_LEN];
		const char *open, *close;
		uint32_t nr = 0, bytes = 0;
		size_t len = 0;

		at += strlen(".entry");
		at += strspn(at, " \t\r\n");
		while (fk_is_name_char(at[len]) && len + 1 < sizeof(name))
			len++;
		if (!len)
			return CUDA_ERROR_INVALID_PTX;
		memcpy(name, at, len);
		name[len] = '\0';
		open = at + len + strspn(at + len, " \t\r\n");
		close = *open == '(' ? strchr(open, ')') : open;
		if (!close)
			return CUDA_ERROR_INVALID_PTX;
		fk_ptx_params(open, close, &nr, &bytes);
		result = fk_function_load(module, name, nr, bytes, true);
		at = close;
	}
	return result;
}

static CUresult fk_scan_elf(struct fk_module *module, const unsigned char *image)
{
	const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + header->e_shoff);
	CUresult result = CUDA_SUCCESS;
	const char *names;

	if (header->e_machine != EM_CUDA || header->e_shentsize != sizeof(*sections) ||
	    header->e_shstrndx >= header->e_shnum)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	names = (const char *)image + sections[header->e_shstrndx].sh_offset;
	for (int i = 0; !result && i < header->e_shnum; i++) {
		const char *name = names + sections[i].sh_name;

		if (!strncmp(name, ".text.", 6) && strlen(name) - 6 < FK_NAME_LEN)
			result = fk_function_load(module, name + 6, 0, 0, false);
	}
	return result;
}

static CUresult fk_scan_fatbin(struct fk_module *module, const unsigned char *image)
{
	const struct fk_fatbin_header *header = (const void *)image;
	const unsigned char *at = image + header->header_bytes;
	const unsigned char *end = at + header->payload_bytes;
	bool compressed = false;

	while (at + sizeof(struct fk_fatbin_entry) <= end) {
		const struct fk_fatbin_entry *entry = (const void *)at;
		const unsigned char *payload = at + entry->header_bytes;

		if (!entry->header_bytes)
			break;
		if (entry->flags & FK_FATBIN_COMPRESSED || entry->compressed_bytes)
			compressed = true;
		else if (entry->kind == FK_FATBIN_KIND_ELF)
			return fk_scan_elf(module, payload);
		else if (entry->kind == FK_FATBIN_KIND_PTX)
			return fk_scan_ptx(module, (const char *)payload);
		at = payload + entry->payload_bytes;
	}
	module->open_names = compressed;
	return compressed ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static bool fk_looks_like_ptx(const char *text)
{
	/* Comments and white space may come before the mandatory .version. */
	for (;;) {
		text += strspn(text, " \t\r\n");
		if (text[0] == '/' && text[1] == '/') {
			text += strcspn(text, "\n");
		} else if (text[0] == '/' && text[1] == '*') {
			text = strstr(text, "*/");
			if (!text)
				return false;
			text += 2;
		} else {
			return !strncmp(text, ".version", 8);
		}
	}
}

CUresult fk_image_scan(struct fk_module *module, const void *image)
{
	uint32_t magic;

	/* The caller promises an image; a text shorter than this ends before the first difference.
	 */
	if (fk_looks_like_ptx(image))
		return fk_scan_ptx(module, image);
	if (!memcmp(image, ELFMAG, SELFMAG))
		return fk_scan_elf(module, image);
	memcpy(&magic, image, sizeof(magic));
	if (magic == FK_FATBIN_WRAPPER) {
		image = ((const struct fk_fatbin_wrapper *)image)->data;
		memcpy(&magic, image, sizeof(magic));
	}
	if (magic == FK_FATBIN_MAGIC)
		return fk_scan_fatbin(module, image);
	return CUDA_ERROR_INVALID_IMAGE;
}
