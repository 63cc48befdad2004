// SPDX-License-Identifier: GPL-2.0-only
//! While `guard.trust_uids` is not set, the log names each user who gives threads a class. Pure.

use std::collections::HashSet;
use std::time::Duration;

use log::info;

use crate::bpf::intf;

use super::rest::Rest;

/// A user namespace can have thousands of users: the log names the first ones.
const MOST: usize = 64;

/// Root could do anything else as well.
const ROOT: u32 = 0;

/// Sources of a class that are a user's own doing.
const HIS_OWN: [u32; 5] = [
    intf::gpuaware_source_GPUAWARE_SOURCE_HINT,
    intf::gpuaware_source_GPUAWARE_SOURCE_UPROBE,
    intf::gpuaware_source_GPUAWARE_SOURCE_WAKES,
    intf::gpuaware_source_GPUAWARE_SOURCE_SPINS,
    intf::gpuaware_source_GPUAWARE_SOURCE_CONNECTS,
];

/// Users who were named.
#[derive(Debug, Default)]
pub struct Users {
    named: HashSet<u32>,
    /// How often a class had changed at the last look.
    changes_seen: u64,
    /// From looking, which goes through all tasks: anybody may have new launchers in a loop.
    rest: Rest,
}

impl Users {
    /// Is there somebody to look for at `now`, when classes of threads and cgroups have changed so often?
    pub fn are_due(&self, now: Duration, changes: u64) -> bool {
        let has_room = self.named.len() < MOST;
        has_room && changes != self.changes_seen && self.rest.is_over(now)
    }

    /// A look that began at `now`, when classes had changed so often, has taken `cpu`.
    pub fn looked(&mut self, now: Duration, changes: u64, cpu: Duration) {
        self.changes_seen = changes;
        self.rest.begin(now, cpu);
    }

    /// Logs whose threads have a class by what they do or hint, or who gave cgroups one as their owner, and was not
    /// named before.
    pub fn tell(&mut self, records: &[intf::gpuaware_mark_record], owners: &[u32]) {
        for uid in self.new_among(records, owners) {
            info!(
                "user {uid} gives threads a class, by launches, wakeups, spins, sends, hints or xattrs: without \
                 guard.trust_uids everybody may, within guard.max_share"
            );
        }
    }

    /// Of `owners` and the users whose threads have a class by their own doing in `records` those who were not named
    /// before, but root. Sorted.
    fn new_among(&mut self, records: &[intf::gpuaware_mark_record], owners: &[u32]) -> Vec<u32> {
        let by_himself = |record: &&intf::gpuaware_mark_record| HIS_OWN.contains(&record.source);
        let uids = records.iter().filter(by_himself).map(|record| record.uid);
        let mut new = Vec::new();
        for uid in uids.chain(owners.iter().copied()) {
            if uid != ROOT && self.named.len() < MOST && self.named.insert(uid) {
                new.push(uid);
            }
        }
        new.sort_unstable();
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: u32, source: u32) -> intf::gpuaware_mark_record {
        // SAFETY: plain integers, for which zeros are values.
        let mut record: intf::gpuaware_mark_record = unsafe { std::mem::zeroed() };
        (record.uid, record.source) = (uid, source);
        record
    }

    fn launcher(uid: u32) -> intf::gpuaware_mark_record {
        record(uid, intf::gpuaware_source_GPUAWARE_SOURCE_UPROBE)
    }

    #[test]
    fn each_user_who_gives_a_class_is_named_once_whatever_by() {
        let mut users = Users::default();
        let first = [launcher(1001), launcher(0), launcher(1000), launcher(1001)];
        assert_eq!(users.new_among(&first, &[0, 1000]), [1000, 1001]);
        assert!(users.new_among(&first, &[1000]).is_empty());
        assert_eq!(
            users.new_among(&[launcher(1000), launcher(7)], &[3]),
            [3, 7]
        );
        for (uid, source) in (20..).zip(HIS_OWN) {
            assert_eq!(users.new_among(&[record(uid, source)], &[]), [uid]);
        }
    }

    #[test]
    fn who_is_refused_or_has_a_class_by_the_operators_word_is_not_named() {
        let mut users = Users::default();
        for source in [
            intf::gpuaware_source_GPUAWARE_SOURCE_REFUSED,
            intf::gpuaware_source_GPUAWARE_SOURCE_MARK,
            intf::gpuaware_source_GPUAWARE_SOURCE_CGROUP,
            intf::gpuaware_source_GPUAWARE_SOURCE_RULE,
        ] {
            assert!(users.new_among(&[record(1000, source)], &[]).is_empty());
        }
    }

    #[test]
    fn tasks_are_gone_through_for_new_classes_only_and_not_all_the_time() {
        let (mut users, second) = (Users::default(), Duration::from_secs(1));
        assert!(!users.are_due(second, 0));
        assert!(users.are_due(second, 1));
        users.looked(second, 1, Duration::from_millis(100));
        assert!(!users.are_due(9 * second, 1));
        assert!(
            !users.are_due(2 * second, 2),
            "a look of 100 ms is followed by 2 s of rest"
        );
        assert!(users.are_due(3 * second, 3));
    }

    #[test]
    fn ever_new_users_do_not_fill_the_log() {
        let mut users = Users::default();
        let named = (1..10_000).map(|uid| users.new_among(&[launcher(uid)], &[]).len());
        assert_eq!(named.sum::<usize>(), MOST);
        assert!(
            !users.are_due(Duration::from_secs(1), 1),
            "nobody could be named"
        );
    }
}
