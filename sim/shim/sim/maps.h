/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * BPF maps, task storage and timers. A map is a variable whose members are pointers that only carry
 * types and sizes; the first one, `type`, holds the simulator's map once it was used.
 */
#ifndef __SIM_MAPS_H
#define __SIM_MAPS_H

#include "env.h"

#define BPF_MAP_TYPE_HASH	  1
#define BPF_MAP_TYPE_ARRAY	  2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_TASK_STORAGE 29

#define BPF_ANY			       0
#define BPF_NOEXIST		       1
#define BPF_F_NO_PREALLOC	       1
#define BPF_F_MMAPABLE		       1024
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1

/* Keys and values are told by their types or by their sizes. */
#define __uint(name, val)	  SIM_UINT_##name(val)
#define SIM_UINT_type(val)	  int(*type)[val]
#define SIM_UINT_max_entries(val) int(*max_entries)[val]
#define SIM_UINT_map_flags(val)	  int(*map_flags)[val]
#define SIM_UINT_key_size(val)	  char(*key)[val]
#define SIM_UINT_value_size(val)  char(*value)[val]
#define __type(name, val)	  typeof(val) *name

#define SIM_SIZE_OF(pointer) ((u32)(sizeof(*(pointer)) / sizeof(int)))
#define SIM_TYPE_OF(map)     SIM_SIZE_OF((map)->type)

static inline struct sim_map *sim_map_of(void *map, u32 type, u32 key_size, u32 value_size,
					 u32 max_entries)
{
	struct sim_map **slot = map;

	if (!*slot)
		*slot = sim_map_create(sim_env.kernel, type, key_size, value_size, max_entries);
	return *slot;
}

#define SIM_MAP(map)                                                                            \
	sim_map_of((void *)(map), SIM_TYPE_OF(map), sizeof(*(map)->key), sizeof(*(map)->value), \
		   SIM_SIZE_OF((map)->max_entries))

static inline void *sim_map_lookup(struct sim_map *map, u32 type, const void *key, u32 cpu)
{
	u64 index;

	if (type == BPF_MAP_TYPE_HASH)
		return sim_hash_lookup(sim_env.kernel, map, key);
	index = *(const u32 *)key;
	if (index >= map->max_entries)
		return NULL;
	if (type == BPF_MAP_TYPE_PERCPU_ARRAY)
		index += cpu * map->max_entries;
	return map->values + index * map->value_size;
}

static inline s32 sim_map_update(struct sim_map *map, u32 type, const void *key, const void *value,
				 u32 size, u64 flags)
{
	void *found;

	if (type == BPF_MAP_TYPE_HASH)
		return sim_hash_update(sim_env.kernel, map, key, value, flags);
	found = sim_map_lookup(map, type, key, sim_env.cpu);
	if (!found)
		return -ENOENT;
	memcpy(found, value, size);
	return 0;
}

#define bpf_map_lookup_elem(map, key) \
	(sim_point(), sim_map_lookup(SIM_MAP(map), SIM_TYPE_OF(map), key, sim_env.cpu))
#define bpf_map_lookup_percpu_elem(map, key, cpu) \
	(sim_point(), sim_map_lookup(SIM_MAP(map), SIM_TYPE_OF(map), key, cpu))
#define bpf_map_update_elem(map, at, from, flags) \
	(sim_point(),                             \
	 sim_map_update(SIM_MAP(map), SIM_TYPE_OF(map), at, from, sizeof(*(map)->value), flags))

/* Of hash maps only: else the kernel refuses. */
#define bpf_map_delete_elem(map, key)                                                 \
	({                                                                            \
		_Static_assert(SIM_TYPE_OF(map) == BPF_MAP_TYPE_HASH, "no hash map"); \
		sim_point();                                                          \
		sim_hash_delete(sim_env.kernel, SIM_MAP(map), key);                   \
	})

static inline void *sim_storage_get(struct sim_map *map, struct task_struct *p, u32 size, u64 flags)
{
	void *found;

	sim_point();
	found = p->sim_storage[map->index];
	if (!found && (flags & BPF_LOCAL_STORAGE_GET_F_CREATE))
		found = sim_storage_create(sim_env.kernel, p, map->index, size);
	return found;
}

#define bpf_task_storage_get(map, p, initial, flags)                                     \
	sim_storage_get(sim_map_of((void *)(map), SIM_TYPE_OF(map), sizeof(*(map)->key), \
				   sizeof(*(map)->value), 0),                            \
			p, sizeof(*(map)->value), flags)

struct bpf_spin_lock {
	u32 unused;
};

/* Nobody comes in between while one is held, so nobody ever waits for one. */
static inline void bpf_spin_lock(struct bpf_spin_lock *lock)
{
	sim_point();
	sim_env.nr_locks++;
}

static inline void bpf_spin_unlock(struct bpf_spin_lock *lock)
{
	sim_env.nr_locks--;
	sim_point();
}

/* The first member of an array's value. */
struct bpf_timer {
	u64 number;
};

#define bpf_timer_init(timer, map, clock) \
	((timer)->number = sim_timer_init(sim_env.kernel, (void *)(map), (void *)(timer)), 0)
#define bpf_timer_set_callback(timer, callback) \
	sim_timer_set_callback(sim_env.kernel, (timer)->number, (void *)(callback))
#define bpf_timer_start(timer, ns, flags) \
	(sim_point(), sim_timer_start(sim_env.kernel, (timer)->number, ns))

#endif /* __SIM_MAPS_H */
