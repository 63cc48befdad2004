// SPDX-License-Identifier: GPL-2.0-only
//! Whose launches count though nobody said so: without `guard.trust_uids` everybody's do, and the log has whose. Pure.

use std::collections::HashSet;
use std::time::Duration;

use log::info;

use crate::bpf::intf;

use super::rest::Rest;

/// A user namespace has thousands of users: of those that come later the log has nothing.
const MOST: usize = 64;

/// Root could do anything else as well.
const ROOT: u32 = 0;

/// Users who were named.
#[derive(Debug, Default)]
pub struct Users {
    named: HashSet<u32>,
    /// Launchers that had been found at the last look.
    finds_seen: u64,
    /// From looking, which goes through all tasks: anybody may have new launchers in a loop.
    rest: Rest,
}

impl Users {
    /// Is there somebody to look for at `now`, when `finds` launchers have been found so far?
    pub fn are_due(&mut self, now: Duration, finds: u64) -> bool {
        let due = finds != self.finds_seen && self.rest.is_over(now);
        if due {
            self.finds_seen = finds;
        }
        due
    }

    /// A look that began at `now` has taken `cpu`.
    pub fn looked(&mut self, now: Duration, cpu: Duration) {
        self.rest.begin(now, cpu);
    }

    /// Logs who launches and was not named before.
    pub fn tell(&mut self, records: &[intf::gpuaware_mark_record]) {
        for uid in self.new_among(records) {
            info!(
                "user {uid} has launchers: without guard.trust_uids everybody's count, within guard.max_share"
            );
        }
    }

    /// Users, but root, whose threads `records` have launch by a probe, and who were not named before. Sorted.
    fn new_among(&mut self, records: &[intf::gpuaware_mark_record]) -> Vec<u32> {
        let by_probe = |record: &&intf::gpuaware_mark_record| {
            record.source == intf::gpuaware_source_GPUAWARE_SOURCE_UPROBE && record.uid != ROOT
        };
        let mut new = Vec::new();
        for record in records.iter().filter(by_probe) {
            if self.named.len() < MOST && self.named.insert(record.uid) {
                new.push(record.uid);
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
    fn each_user_whose_launches_count_is_named_once() {
        let mut users = Users::default();
        let first = [launcher(1001), launcher(0), launcher(1000), launcher(1001)];
        assert_eq!(users.new_among(&first), [1000, 1001]);
        assert!(users.new_among(&first).is_empty());
        assert_eq!(users.new_among(&[launcher(1000), launcher(7)]), [7]);
    }

    #[test]
    fn who_is_refused_or_is_a_launcher_by_hand_or_by_cgroup_is_not_named() {
        let mut users = Users::default();
        for source in [
            intf::gpuaware_source_GPUAWARE_SOURCE_REFUSED,
            intf::gpuaware_source_GPUAWARE_SOURCE_MARK,
            intf::gpuaware_source_GPUAWARE_SOURCE_CGROUP,
        ] {
            assert!(users.new_among(&[record(1000, source)]).is_empty());
        }
    }

    #[test]
    fn tasks_are_gone_through_for_new_launchers_only_and_not_all_the_time() {
        let (mut users, second) = (Users::default(), Duration::from_secs(1));
        assert!(!users.are_due(second, 0));
        assert!(users.are_due(second, 1) && !users.are_due(second, 1));
        users.looked(second, Duration::from_millis(100));
        assert!(
            !users.are_due(2 * second, 2),
            "a look of 100 ms is followed by 2 s of rest"
        );
        assert!(users.are_due(3 * second, 3));
    }

    #[test]
    fn ever_new_users_do_not_fill_the_log() {
        let mut users = Users::default();
        let named = (1..10_000).map(|uid| users.new_among(&[launcher(uid)]).len());
        assert_eq!(named.sum::<usize>(), MOST);
    }
}
