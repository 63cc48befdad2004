// SPDX-License-Identifier: GPL-2.0-only
//! Which new libraries have the launch probes armed whatever that costs. Any user can map one new file after the
//! other: beyond the first few of each, they count as other triggers do. Pure.

use std::collections::HashMap;

/// A user seldom has more than these at once: a toolkit's, a container's, a driver's update.
const OF_A_USER: u32 = 8;
/// A user namespace can have thousands of users.
const USERS: usize = 64;
const ROOT: u32 = 0;

/// How many each user has had.
#[derive(Debug, Default)]
pub struct Orders {
    by_user: HashMap<u32, u32>,
}

impl Orders {
    /// A library that nobody has seen was mapped by a process of this user, or is installed (`None`): is it one of those?
    pub fn take(&mut self, mapped_by: Option<u32>) -> bool {
        let Some(uid) = mapped_by.filter(|&uid| uid != ROOT) else {
            return true;
        };
        if self.by_user.len() == USERS && !self.by_user.contains_key(&uid) {
            return false;
        }
        let taken = self.by_user.entry(uid).or_default();
        *taken = taken.saturating_add(1);
        *taken <= OF_A_USER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_with_ever_new_libraries_does_not_keep_the_probes_armed() {
        let mut orders = Orders::default();
        let taken = |orders: &mut Orders, uid| (0..1000).filter(|_| orders.take(uid)).count();
        assert_eq!(taken(&mut orders, Some(1000)), OF_A_USER as usize);
        assert_eq!(taken(&mut orders, Some(1001)), OF_A_USER as usize);
        for installed_or_roots in [None, Some(ROOT)] {
            assert_eq!(taken(&mut orders, installed_or_roots), 1000);
        }
        let all: usize = (2000..70_000)
            .map(|uid| taken(&mut orders, Some(uid)))
            .sum();
        assert_eq!(all, (USERS - 2) * OF_A_USER as usize);
    }
}
