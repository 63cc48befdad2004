// SPDX-License-Identifier: GPL-2.0-only
//! Which affinities were changed, from what, and whether they are still ours. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::threads::Thread;
use crate::policy::cpuset::CpuSet;
use crate::policy::pin::Deal;

/// A thread whose affinity this program has changed. Without `deal` it is an entry of the state file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pinned {
    pub tid: i32,
    pub tgid: i32,
    /// When the thread started and when it was pinned, in clock ticks since the boot.
    pub started: u64,
    pub since: u64,
    /// Absent: nothing but its cpuset restricted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<CpuSet>,
    /// What the pin says, and what of it the kernel granted then.
    pub asked: CpuSet,
    pub granted: CpuSet,
    #[serde(skip)]
    pub deal: Option<Deal>,
}

impl Pinned {
    /// Is `affinity` what the pin comes to, `allowed` being the CPUs of its cpuset that are online? Else the program
    /// or somebody else has set it since.
    pub fn is_ours(&self, affinity: &CpuSet, allowed: &CpuSet) -> bool {
        let left = self.asked.intersection(allowed);
        if left.is_empty() {
            // The kernel lets such a thread run on all that it allows, once it wakes up.
            return affinity.is_empty() || affinity == allowed;
        }
        *affinity == self.granted || *affinity == left
    }
}

/// All of them, by TID.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger(pub BTreeMap<i32, Pinned>);

impl Ledger {
    /// What the ledger says of `thread`: a TID may be another thread's by now.
    pub fn of(&self, thread: &Thread) -> Option<&Pinned> {
        let pinned = self.0.get(&thread.tid)?;
        (pinned.started == thread.started).then_some(pinned)
    }

    /// What `thread` had before any pin, if it has its `affinity` only because a pinned thread of `line`, its
    /// process and those that it comes from, started it.
    pub fn inherited(
        &self,
        thread: &Thread,
        line: &[i32],
        affinity: &CpuSet,
    ) -> Option<Option<CpuSet>> {
        let started_it = |pinned: &&Pinned| {
            line.contains(&pinned.tgid)
                && pinned.tid != thread.tid
                && pinned.since <= thread.started
                && pinned.granted == *affinity
        };
        let pinned = self.0.values().find(started_it)?;
        Some(pinned.original.clone())
    }

    /// Is a thread of one of the processes of `line` pinned?
    pub fn knows(&self, line: &[i32]) -> bool {
        self.0.values().any(|pinned| line.contains(&pinned.tgid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn pinned() -> Pinned {
        Pinned {
            tid: 11,
            tgid: 10,
            started: 100,
            since: 200,
            original: None,
            asked: cpus("2-3"),
            granted: cpus("2-3"),
            deal: None,
        }
    }

    fn thread(tid: i32, started: u64) -> Thread {
        Thread {
            tid,
            tgid: 10,
            parent: 1,
            comm: "x".to_owned(),
            started,
            is_new: true,
        }
    }

    #[test]
    fn what_the_kernel_made_of_a_pin_is_ours_and_anything_else_is_not() {
        let ours =
            |affinity: &str, allowed: &str| pinned().is_ours(&cpus(affinity), &cpus(allowed));
        assert!(ours("2-3", "0-7"));
        assert!(ours("3", "0-1,3-7"), "CPU 2 went offline");
        assert!(ours("0-1", "0-1"), "both went offline");
        let asleep = pinned().is_ours(&CpuSet::default(), &cpus("0-1"));
        assert!(asleep, "it sleeps since both went offline");
        assert!(!ours("2", "0-7"));
        assert!(!ours("0-7", "0-7"));
    }

    #[test]
    fn a_reused_tid_is_another_thread() {
        let ledger = Ledger([(11, pinned())].into());
        assert_eq!(ledger.of(&thread(11, 100)), Some(&pinned()));
        assert_eq!(ledger.of(&thread(11, 300)), None);
    }

    #[test]
    fn threads_that_a_pinned_one_started_inherit_what_it_had() {
        let ledger = Ledger([(11, pinned())].into());
        let inherited = |started, line: &[i32], affinity| {
            ledger.inherited(&thread(12, started), line, &cpus(affinity))
        };
        assert_eq!(inherited(250, &[10], "2-3"), Some(None));
        assert_eq!(inherited(250, &[77, 10, 1], "2-3"), Some(None), "a child's");
        assert_eq!(inherited(150, &[10], "2-3"), None, "was there before");
        assert_eq!(inherited(250, &[10], "2"), None, "has set its own");
        assert_eq!(inherited(250, &[20], "2-3"), None, "a stranger");
    }
}
