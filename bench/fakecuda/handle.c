// SPDX-License-Identifier: GPL-2.0-only
/*
 * Handles: kind, generation and index in one 64-bit value that is never dereferenced.
 *
 * A stale or invented handle misses its slot's generation and is an error, not a crash.
 */
#include <stdlib.h>
#include <string.h>
#include "fakecuda.h"

#define FK_INDEX_BITS	   24
#define FK_GENERATION_BITS 24
#define FK_INDEX_MASK	   ((1ull << FK_INDEX_BITS) - 1)
#define FK_GENERATION_MASK ((1ull << FK_GENERATION_BITS) - 1)
#define FK_TAG		   0xFACull

struct fk_slot {
	struct fk_object *obj;
	uint64_t generation;
	uint64_t next_free; /* index + 1, 0: none */
};

struct fk_table {
	struct fk_slot *slots;
	uint64_t nr_slots;
	uint64_t capacity;
	uint64_t first_free; /* index + 1, 0: none */
};

static struct fk_table fk_tables[FK_NR_KINDS];

static uint64_t fk_handle_make(enum fk_kind kind, uint64_t generation, uint64_t index)
{
	return FK_TAG << 52 | (uint64_t)kind << (FK_INDEX_BITS + FK_GENERATION_BITS) |
	       (generation & FK_GENERATION_MASK) << FK_INDEX_BITS | (index & FK_INDEX_MASK);
}

static bool fk_table_grow(struct fk_table *table)
{
	uint64_t capacity = table->capacity ? table->capacity * 2 : 64;
	struct fk_slot *slots;

	if (capacity > FK_INDEX_MASK)
		return false;
	slots = realloc(table->slots, capacity * sizeof(*slots));
	if (!slots)
		return false;
	table->slots = slots;
	table->capacity = capacity;
	return true;
}

static bool fk_slot_take(struct fk_table *table, uint64_t *index)
{
	if (table->first_free) {
		*index = table->first_free - 1;
		table->first_free = table->slots[*index].next_free;
		return true;
	}
	if (table->nr_slots == table->capacity && !fk_table_grow(table))
		return false;
	*index = table->nr_slots++;
	table->slots[*index] = (struct fk_slot){.generation = 1};
	return true;
}

/* NULL when there is no memory left. */
void *fk_object_new(enum fk_kind kind, size_t size, uint64_t owner)
{
	struct fk_table *table = &fk_tables[kind];
	struct fk_object *obj = calloc(1, size);
	uint64_t index;

	if (!obj)
		return NULL;
	if (!fk_slot_take(table, &index)) {
		free(obj);
		return NULL;
	}
	table->slots[index].obj = obj;
	obj->kind = kind;
	obj->handle = fk_handle_make(kind, table->slots[index].generation, index);
	obj->owner = owner;
	return obj;
}

void *fk_object_get_u64(enum fk_kind kind, uint64_t handle)
{
	struct fk_table *table = &fk_tables[kind];
	uint64_t index = handle & FK_INDEX_MASK;
	struct fk_object *obj;

	if (index >= table->nr_slots)
		return NULL;
	obj = table->slots[index].obj;
	return obj && obj->handle == handle ? obj : NULL;
}

void *fk_object_get(enum fk_kind kind, const void *handle)
{
	return fk_object_get_u64(kind, (uint64_t)(uintptr_t)handle);
}

void fk_object_free(struct fk_object *obj)
{
	struct fk_table *table = &fk_tables[obj->kind];
	uint64_t index = obj->handle & FK_INDEX_MASK;
	struct fk_slot *slot = &table->slots[index];

	slot->obj = NULL;
	slot->generation++;
	slot->next_free = table->first_free;
	table->first_free = index + 1;
	free(obj);
}

/* Visits every object of a kind that dies with owner; visit may free the object it is given. */
void fk_objects_of(enum fk_kind kind, uint64_t owner, void (*visit)(void *obj))
{
	struct fk_table *table = &fk_tables[kind];

	for (uint64_t i = 0; i < table->nr_slots; i++) {
		struct fk_object *obj = table->slots[i].obj;

		if (obj && obj->owner == owner)
			visit(obj);
	}
}

/* Destroys all that dies with owner, but what the destruction of others of these frees. */
void fk_objects_destroy(uint64_t owner)
{
	for (int kind = 1; kind < FK_NR_KINDS; kind++) {
		struct fk_table *table = &fk_tables[kind];

		for (uint64_t i = 0; i < table->nr_slots; i++) {
			struct fk_object *obj = table->slots[i].obj;

			if (obj && obj->owner == owner && obj->destroy)
				obj->destroy(obj);
		}
	}
}
