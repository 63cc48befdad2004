// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel keeps for a scheduler: maps, task storage, masks and timers. Nothing is freed before the simulation
//! ends, as RCU would free nothing while somebody looks.

use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::abi::{CpuMask, MAX_STORAGES, Map, TaskStruct};

const HASH: u32 = 1;
const ARRAY: u32 = 2;
const PERCPU_ARRAY: u32 = 6;
const TASK_STORAGE: u32 = 29;

/// A cache line, to which values may be aligned.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Memory of zeros that stays where it is.
#[derive(Debug)]
struct Block(*mut u64, usize);

impl Block {
    fn zeros(bytes: usize) -> Self {
        let lines = bytes.div_ceil(size_of::<Line>());
        let memory = vec![Line([0; 8]); lines].into_boxed_slice();
        Self(Box::into_raw(memory).cast(), lines)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: made in zeros(), of that length; the scheduler that used it is gone.
        drop(unsafe {
            Box::from_raw(ptr::slice_from_raw_parts_mut(self.0.cast::<Line>(), self.1))
        });
    }
}

#[derive(Debug)]
struct OwnMap {
    shared: Box<Map>,
    key_size: usize,
    max_entries: usize,
    hash: FxHashMap<Vec<u8>, Block>,
    /// What was deleted, or an array's values.
    blocks: Vec<Block>,
}

/// A timer of the scheduler: the first member of an array's value.
#[derive(Debug)]
pub struct Timer {
    pub map: *mut c_void,
    pub value: *mut c_void,
    /// Of the value in the array.
    pub index: i32,
    pub callback: *const c_void,
    /// How often it was started: an older start is void.
    pub starts: u64,
    /// The CPU where it was started, on which it fires.
    pub cpu: usize,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Memory {
    maps: Vec<OwnMap>,
    nr_storages: usize,
    blocks: Vec<Block>,
    masks: Vec<Rc<CpuMask>>,
    pub timers: Vec<Timer>,
}

impl Memory {
    /// Errors say what the simulator does not have.
    pub fn create_map(
        &mut self,
        kind: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        nr_cpus: usize,
    ) -> Result<*const Map, String> {
        let value_size = (value_size as usize).next_multiple_of(8);
        let copies = match kind {
            ARRAY => 1,
            PERCPU_ARRAY => nr_cpus,
            HASH | TASK_STORAGE => 0,
            _ => return Err(format!("maps of type {kind} are not modelled")),
        };
        let index = self.nr_storages;
        if kind == TASK_STORAGE {
            self.nr_storages += 1;
            if index == MAX_STORAGES {
                return Err(format!("more than {MAX_STORAGES} maps of task storage"));
            }
        }
        let values = Block::zeros(value_size * max_entries as usize * copies);
        self.maps.push(OwnMap {
            shared: Box::new(Map {
                max_entries: u64::from(max_entries),
                value_size: value_size as u64,
                index: index as u64,
                values: values.0,
            }),
            key_size: key_size as usize,
            max_entries: max_entries as usize,
            hash: FxHashMap::default(),
            blocks: vec![values],
        });
        Ok(self
            .maps
            .last()
            .map_or(ptr::null(), |map| ptr::from_ref(&*map.shared)))
    }

    fn map(&mut self, map: *const Map) -> Option<&mut OwnMap> {
        self.maps
            .iter_mut()
            .find(|own| ptr::eq(&raw const *own.shared, map))
    }

    /// The value at `key`, or null.
    ///
    /// # Safety
    ///
    /// `key` points to as many bytes as the map's keys have.
    pub unsafe fn lookup(&mut self, map: *const Map, key: *const u8) -> *mut u64 {
        let Some(map) = self.map(map) else {
            return ptr::null_mut();
        };
        // SAFETY: the caller's promise.
        let key = unsafe { std::slice::from_raw_parts(key, map.key_size) };
        map.hash.get(key).map_or(ptr::null_mut(), |block| block.0)
    }

    /// Sets the value at `key`. False: the map is full.
    ///
    /// # Safety
    ///
    /// As for [`Memory::lookup`]; `value` points to as many bytes as the map's values have.
    pub unsafe fn update(&mut self, map: *const Map, key: *const u8, value: *const u8) -> bool {
        let Some(map) = self.map(map) else {
            return false;
        };
        // SAFETY: the caller's promise.
        let key = unsafe { std::slice::from_raw_parts(key, map.key_size) }.to_vec();
        if map.hash.len() >= map.max_entries && !map.hash.contains_key(&key) {
            return false;
        }
        let size = map.shared.value_size as usize;
        let block = map.hash.entry(key).or_insert_with(|| Block::zeros(size));
        // SAFETY: the caller's promise, and the block is as large. Values are multiples of 8 in BPF.
        unsafe { ptr::copy_nonoverlapping(value, block.0.cast(), size) };
        true
    }

    /// Takes the value at `key` out. False: there was none.
    ///
    /// # Safety
    ///
    /// As for [`Memory::lookup`].
    pub unsafe fn delete(&mut self, map: *const Map, key: *const u8) -> bool {
        let Some(map) = self.map(map) else {
            return false;
        };
        // SAFETY: the caller's promise.
        let key = unsafe { std::slice::from_raw_parts(key, map.key_size) };
        let deleted = map.hash.remove(key);
        let was_there = deleted.is_some();
        map.blocks.extend(deleted);
        was_there
    }

    /// Storage number `index` of `task`, all zeros.
    pub fn create_storage(&mut self, task: &TaskStruct, index: usize, size: usize) -> *mut u64 {
        let block = Block::zeros(size);
        let address = block.0;
        self.blocks.push(block);
        task.storage[index].set(address);
        address
    }

    pub fn create_mask(&mut self) -> *const CpuMask {
        let mask = Rc::new(CpuMask::default());
        self.masks.push(Rc::clone(&mask));
        Rc::as_ptr(&mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_hash_takes_no_more_and_what_is_deleted_is_gone() {
        let mut memory = Memory::default();
        let map = memory.create_map(HASH, 8, 16, 1, 1).unwrap();
        let (first, second, value) = (1_u64, 2_u64, [5_u64, 6]);
        let bytes = |number: &u64| ptr::from_ref(number).cast::<u8>();
        // SAFETY: keys of 8 bytes and values of 16, as the map has.
        unsafe {
            assert!(memory.update(map, bytes(&first), bytes(&value[0])));
            assert!(!memory.update(map, bytes(&second), bytes(&value[0])));
            let found = memory.lookup(map, bytes(&first));
            assert_eq!([*found, *found.add(1)], value);
            assert!(memory.delete(map, bytes(&first)) && !memory.delete(map, bytes(&first)));
            assert_eq!(*found, 5, "somebody may still look at it");
            assert!(memory.lookup(map, bytes(&first)).is_null());
        }
    }

    #[test]
    fn a_kind_of_map_that_is_not_modelled_is_refused() {
        let error = Memory::default().create_map(27, 4, 4, 1, 1).unwrap_err();
        assert!(error.contains("not modelled"), "{error}");
    }
}
