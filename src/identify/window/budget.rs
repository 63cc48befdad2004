// SPDX-License-Identifier: GPL-2.0-only
//! How much time the windows may take that were triggered and found nobody. Pure.
//!
//! Every thread that a GPU process starts triggers one, and most of them never launch: a pool that
//! starts ten a second would keep the probes armed for good. Orders take nothing of it.

use std::time::Duration;

/// At once: a process that starts twenty threads, one after the other.
const MOST: Duration = Duration::from_secs(2);
/// From then on, a millisecond in so many.
const SHARE: u32 = 500;

/// What is left.
#[derive(Debug)]
pub struct Budget {
    left: Duration,
    /// Taken in this window: it comes back if somebody is found.
    taken: Duration,
    filled_at: Duration,
}

impl Budget {
    /// All of it, at `now`.
    pub fn new(now: Duration) -> Self {
        Self {
            left: MOST,
            taken: Duration::ZERO,
            filled_at: now,
        }
    }

    /// Time went by until `now`.
    pub fn fill(&mut self, now: Duration) {
        let gained = now.saturating_sub(self.filled_at) / SHARE;
        self.left = (self.left + gained).min(MOST);
        self.filled_at = now;
    }

    /// Takes what there is of `wanted`, unless that is less than `at_least`.
    pub fn take(&mut self, wanted: Duration, at_least: Duration) -> Option<Duration> {
        let taken = wanted.min(self.left);
        if taken < at_least {
            return None;
        }
        self.left -= taken;
        self.taken += taken;
        Some(taken)
    }

    /// Somebody was found: the window was worth it.
    pub fn give_back(&mut self) {
        self.left = (self.left + self.taken).min(MOST);
        self.taken = Duration::ZERO;
    }

    /// The window is over.
    pub fn settle(&mut self) {
        self.taken = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn gives_all_at_once_and_then_a_trickle() {
        let mut budget = Budget::new(ms(0));
        assert_eq!(budget.take(ms(1950), ms(10)), Some(ms(1950)));
        assert_eq!(budget.take(ms(100), ms(10)), Some(ms(50)), "what is left");
        assert_eq!(budget.take(ms(100), ms(10)), None);
        budget.fill(ms(4_999));
        assert_eq!(budget.take(ms(100), ms(10)), None);
        budget.fill(ms(5_000));
        assert_eq!(budget.take(ms(100), ms(10)), Some(ms(10)));
        budget.fill(ms(100_000_000));
        assert_eq!(budget.take(ms(9_000), ms(10)), Some(MOST));
    }

    #[test]
    fn a_find_pays_for_its_window_and_for_no_other() {
        let mut budget = Budget::new(ms(0));
        budget.take(ms(1000), ms(0));
        budget.settle();
        budget.take(ms(1000), ms(0));
        budget.give_back();
        assert_eq!(budget.take(ms(2000), ms(0)), Some(ms(1000)));
    }
}
