// SPDX-License-Identifier: GPL-2.0-only
//! For how many libraries one user can have the agent work: anybody can copy a file, call it libcuda
//! and map it, as often as the disk has room.

use std::collections::{HashMap, HashSet};

use log::warn;

use super::library::FileId;

/// Libraries of one user at a time. A container has one or two that are its own; a machine has some
/// dozens of containers at most. Each library takes three file descriptors, of 1024 where nobody has
/// raised the limit, and a place in a table of `GPUAWARE_MAX_TEXTS`, 1024, of which rules may take 576:
/// three users that take all they can leave room for those of others.
const MOST: usize = 128;

/// Root could end the agent as well.
const ROOT: u32 = 0;

/// Who has how many libraries.
#[derive(Debug, Default)]
pub struct Quota {
    /// By whom each library was seen mapped first. Not those of root.
    owners: HashMap<FileId, u32>,
    /// Users who were told.
    warned: HashSet<u32>,
    /// Processes that map more than their user may have.
    turned_away: HashSet<u32>,
}

impl Quota {
    /// May `user`, whose process `tgid` maps library `id`, have it as well?
    pub fn admits(&mut self, id: FileId, user: u32, tgid: u32) -> bool {
        if user == ROOT || self.owners.contains_key(&id) {
            return true;
        }
        let owned = self.owners.values().filter(|&&owner| owner == user).count();
        if owned < MOST {
            self.owners.insert(id, user);
            return true;
        }
        self.turned_away.insert(tgid);
        if self.warned.insert(user) {
            warn!(
                "user {user} maps more than {MOST} libcuda files: launches through the others are not \
                 seen. End processes that map them, share one file, or mark threads with \
                 `scx_gpuaware mark`, a rule or a hint"
            );
        }
        false
    }

    /// Keeps what `is_used` and makes room for the rest.
    pub fn retain(&mut self, is_used: impl Fn(&FileId) -> bool) {
        self.owners.retain(|id, _| is_used(id));
    }

    /// Takes the processes to which [`Quota::admits`] said no since the last call: there may be room.
    pub fn take_turned_away(&mut self) -> HashSet<u32> {
        std::mem::take(&mut self.turned_away)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u32 = 1000;
    const OTHER: u32 = 1001;
    const TGID: u32 = 7;

    fn file(number: usize) -> FileId {
        (1, number as u64)
    }

    /// The quota of a user who has all that it may.
    fn full() -> Quota {
        let mut quota = Quota::default();
        for number in 0..MOST {
            assert!(quota.admits(file(number), USER, TGID), "{number}");
        }
        assert!(quota.take_turned_away().is_empty());
        quota
    }

    #[test]
    fn a_user_has_so_many_and_others_have_theirs() {
        let mut quota = full();
        assert!(!quota.admits(file(MOST), USER, TGID));
        assert!(quota.admits(file(0), USER, TGID), "it has that");
        assert!(quota.admits(file(MOST), OTHER, 8), "it belongs to nobody");
        for number in 0..2 * MOST {
            assert!(quota.admits(file(1000 + number), ROOT, 9), "{number}");
        }
    }

    #[test]
    fn who_was_turned_away_has_what_becomes_free() {
        let mut quota = full();
        assert!(!quota.admits(file(MOST), USER, TGID));
        assert!(!quota.admits(file(MOST + 1), USER, TGID));
        quota.retain(|&id| id != file(3));
        assert_eq!(quota.take_turned_away(), HashSet::from([TGID]));
        assert!(quota.take_turned_away().is_empty());
        assert!(quota.admits(file(MOST), USER, TGID));
        assert!(!quota.admits(file(MOST + 1), USER, TGID));
    }
}
