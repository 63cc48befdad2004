// SPDX-License-Identifier: GPL-2.0-only
//! Dispatch queues: first in, first out, or by virtual time, in the order that the kernel keeps.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use rustc_hash::FxHashMap;

/// Index of a task.
pub type TaskId = usize;

/// Where a task is in its queue: by virtual time (or how far it was put to the front), then by when it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub order: i64,
    pub seq: u64,
}

/// One queue.
#[derive(Debug, Default)]
pub struct Dsq {
    entries: BTreeMap<Key, TaskId>,
    by_vtime: bool,
    fronts: i64,
}

impl Dsq {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn at(&self, key: Key) -> Option<TaskId> {
        self.entries.get(&key).copied()
    }

    pub fn tasks(&self) -> impl Iterator<Item = (Key, TaskId)> {
        self.entries.iter().map(|(key, task)| (*key, *task))
    }

    /// The next task after `from`, or the first; backwards if `reversed`. Only what came before `limit`.
    pub fn next(&self, from: Option<Key>, reversed: bool, limit: u64) -> Option<(Key, TaskId)> {
        let seen = |(key, _): &(&Key, &TaskId)| key.seq < limit;
        let found = match (from, reversed) {
            (Some(from), false) => self.entries.range((Excluded(from), Unbounded)).find(seen),
            (Some(from), true) => self.entries.range(..from).rev().find(seen),
            (None, false) => self.entries.iter().find(seen),
            (None, true) => self.entries.iter().rev().find(seen),
        };
        found.map(|(key, task)| (*key, *task))
    }
}

/// All queues by id. The order of the map is never used.
#[derive(Debug, Default)]
pub struct Dsqs {
    by_id: FxHashMap<u64, Dsq>,
    /// Tasks in all of them.
    total: usize,
    seq: u64,
}

impl Dsqs {
    /// False: there is one with that id.
    pub fn create(&mut self, id: u64) -> bool {
        let is_new = !self.by_id.contains_key(&id);
        self.by_id.entry(id).or_default();
        is_new
    }

    pub fn get(&self, id: u64) -> Option<&Dsq> {
        self.by_id.get(&id)
    }

    /// Tasks in all queues.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The last insertion's place in time.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Puts `task` into queue `id`: at the end, at the front, or at `vtime`. Errors as the kernel's.
    pub fn insert(
        &mut self,
        id: u64,
        task: TaskId,
        vtime: Option<u64>,
        front: bool,
    ) -> Result<Key, String> {
        let dsq = self.by_id.get_mut(&id);
        let dsq = dsq.ok_or_else(|| format!("non-existent DSQ {id:#x}"))?;
        if !dsq.is_empty() && dsq.by_vtime != vtime.is_some() {
            return Err(format!(
                "DSQ {id:#x} has tasks of the other order, FIFO or vtime"
            ));
        }
        dsq.by_vtime = vtime.is_some();
        self.seq += 1;
        let order = match vtime {
            // Virtual times are compared by their difference: near 0, that is their order as signed numbers.
            Some(vtime) => vtime.cast_signed(),
            None if front => {
                dsq.fronts += 1;
                -dsq.fronts
            }
            None => 0,
        };
        let key = Key {
            order,
            seq: self.seq,
        };
        dsq.entries.insert(key, task);
        self.total += 1;
        Ok(key)
    }

    /// Takes out the task at `key`.
    pub fn remove(&mut self, id: u64, key: Key) -> Option<TaskId> {
        let task = self.by_id.get_mut(&id)?.entries.remove(&key)?;
        self.total -= 1;
        Some(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(dsqs: &Dsqs) -> Vec<TaskId> {
        let queue = dsqs.get(7).unwrap();
        queue.tasks().map(|(_, task)| task).collect()
    }

    fn queue() -> Dsqs {
        let mut dsqs = Dsqs::default();
        assert!(dsqs.create(7) && !dsqs.create(7));
        dsqs
    }

    #[test]
    fn fifo_keeps_the_order_and_the_front_comes_first() {
        let mut dsqs = queue();
        for (task, front) in [(1, false), (2, false), (3, true), (4, true)] {
            dsqs.insert(7, task, None, front).unwrap();
        }
        assert_eq!(tasks(&dsqs), [4, 3, 1, 2]);
    }

    #[test]
    fn equal_vtimes_keep_the_order_and_one_just_below_zero_comes_first() {
        let mut dsqs = queue();
        for (task, vtime) in [(1, 5), (2, 5), (3, u64::MAX), (4, 0)] {
            dsqs.insert(7, task, Some(vtime), false).unwrap();
        }
        assert_eq!(tasks(&dsqs), [3, 4, 1, 2]);
    }

    #[test]
    fn one_queue_has_one_order() {
        let mut dsqs = queue();
        dsqs.insert(7, 1, Some(3), false).unwrap();
        assert!(dsqs.insert(7, 2, None, false).is_err());
        assert!(dsqs.insert(8, 2, None, false).is_err());
    }

    #[test]
    fn who_walks_a_queue_does_not_see_what_comes_meanwhile() {
        let mut dsqs = queue();
        let first = dsqs.insert(7, 1, Some(10), false).unwrap();
        dsqs.insert(7, 2, Some(20), false).unwrap();
        let limit = dsqs.seq() + 1;
        assert_eq!(
            (dsqs.remove(7, first), dsqs.remove(7, first)),
            (Some(1), None)
        );
        assert_eq!(dsqs.total(), 1);
        dsqs.insert(7, 1, Some(30), false).unwrap();
        let queue = dsqs.get(7).unwrap();
        let (key, task) = queue.next(None, false, limit).unwrap();
        assert_eq!(task, 2);
        assert_eq!(queue.next(Some(key), false, limit), None);
        assert_eq!(
            queue.next(None, true, u64::MAX).map(|(_, task)| task),
            Some(1)
        );
    }
}
