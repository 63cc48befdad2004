// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is allocated: device memory, backed by the host's and touched lazily, and pinned host
 * memory.
 *
 * Device addresses lie above the 47-bit user space: none is ever a host address.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "fakecuda.h"

#define FK_DEVICE_BASE 0xfa0000000000ull

/* In no order: programs that are benched here hold a few dozen. */
static struct fk_allocation *fk_allocations;
static size_t fk_nr_allocations;
static size_t fk_allocations_capacity;
static uint64_t fk_next_base = FK_DEVICE_BASE;
static uint64_t fk_used_bytes[FK_MAX_DEVICES];

static struct fk_allocation *fk_allocation_at(uint64_t address, bool host)
{
	for (size_t i = 0; i < fk_nr_allocations; i++) {
		struct fk_allocation *a = &fk_allocations[i];

		if (a->host == host && address >= a->base && address - a->base < a->bytes)
			return a;
	}
	return NULL;
}

bool fk_memory_valid(uint64_t address, uint64_t bytes)
{
	struct fk_allocation *a = fk_allocation_at(address, false);

	if (!a && address < FK_DEVICE_BASE)
		a = fk_allocation_at(address, true);
	return a && bytes <= a->bytes - (address - a->base);
}

/* Where the bytes are: NULL for a device address that is no longer allocated. */
static unsigned char *fk_memory_bytes(uint64_t address, uint64_t bytes)
{
	struct fk_allocation *a;

	if (address < FK_DEVICE_BASE)
		return (unsigned char *)(uintptr_t)address;
	a = fk_allocation_at(address, false);
	if (!a || bytes > a->bytes - (address - a->base))
		return NULL;
	return a->backing + (address - a->base);
}

void fk_memory_copy(uint64_t dst, uint64_t src, uint64_t bytes)
{
	unsigned char *to = fk_memory_bytes(dst, bytes);
	const unsigned char *from = fk_memory_bytes(src, bytes);

	if (to && from)
		memmove(to, from, bytes);
}

void fk_memory_set(uint64_t dst, uint64_t bytes, uint32_t value, uint32_t value_bytes)
{
	unsigned char *to = fk_memory_bytes(dst, bytes);

	if (!to)
		return;
	if (value_bytes == 1)
		memset(to, (int)value, bytes);
	else
		for (uint64_t at = 0; at + value_bytes <= bytes; at += value_bytes)
			memcpy(to + at, &value, value_bytes);
}

static struct fk_allocation *fk_allocation_new(void)
{
	size_t capacity = fk_allocations_capacity ? fk_allocations_capacity * 2 : 64;
	struct fk_allocation *grown;

	if (fk_nr_allocations == fk_allocations_capacity) {
		grown = realloc(fk_allocations, capacity * sizeof(*grown));
		if (!grown)
			return NULL;
		fk_allocations = grown;
		fk_allocations_capacity = capacity;
	}
	return &fk_allocations[fk_nr_allocations];
}

static void fk_allocation_free(struct fk_allocation *a)
{
	munmap(a->backing, a->bytes);
	if (!a->host)
		fk_used_bytes[a->device] -= a->bytes;
	*a = fk_allocations[--fk_nr_allocations];
}

void fk_memory_release_owner(uint64_t owner)
{
	for (size_t i = fk_nr_allocations; i-- > 0;)
		if (fk_allocations[i].owner == owner)
			fk_allocation_free(&fk_allocations[i]);
}

CUresult fk_memory_allocate(const struct fk_context *ctx, uint64_t bytes, bool host, uint64_t *base)
{
	uint64_t total = fk_config.mem_mib << 20;
	struct fk_allocation *a = fk_allocation_new();
	void *backing;

	if (!a || bytes > total || (!host && bytes > total - fk_used_bytes[ctx->device]))
		return CUDA_ERROR_OUT_OF_MEMORY;
	bytes = (bytes + FK_ALIGNMENT - 1) / FK_ALIGNMENT * FK_ALIGNMENT;
	backing = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (backing == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*a = (struct fk_allocation){
		.base = host ? (uint64_t)(uintptr_t)backing : fk_next_base,
		.bytes = bytes,
		.owner = ctx->obj.handle,
		.device = ctx->device,
		.host = host,
		.backing = backing,
	};
	*base = a->base;
	fk_nr_allocations++;
	if (!host) {
		fk_next_base += bytes;
		fk_used_bytes[ctx->device] += bytes;
	}
	return CUDA_SUCCESS;
}

/* base is where an allocation begins. */
CUresult fk_memory_free(uint64_t base, bool host)
{
	struct fk_allocation *a = fk_allocation_at(base, host);

	if (!a || a->base != base)
		return CUDA_ERROR_INVALID_VALUE;
	fk_allocation_free(a);
	return CUDA_SUCCESS;
}

const struct fk_allocation *fk_memory_find(uint64_t address, bool host)
{
	return fk_allocation_at(address, host);
}

uint64_t fk_memory_used(CUdevice dev)
{
	return fk_used_bytes[dev];
}
