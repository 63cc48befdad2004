// SPDX-License-Identifier: GPL-2.0-only
//! Processes that may map a library that they did not, and when to look at them. Pure.
//!
//! Anybody can map something executable in a loop. So processes are looked at in turn, and for so
//! much of a CPU's time at most, however many ask for it.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// Looks are taken in batches of about so much CPU time.
const BATCH: Duration = Duration::from_millis(5);
/// For every millisecond of looking, none of the next twenty.
const REST: u32 = 20;
/// Who maps a library is looked at by then, as long as few do.
const INTERVAL: Duration = Duration::from_millis(100);

/// The processes to look at.
#[derive(Debug, Default)]
pub struct Mappers {
    waiting: VecDeque<u32>,
    /// The same, to have each once.
    is_waiting: HashSet<u32>,
    next: Duration,
}

impl Mappers {
    /// Process `tgid` is to be looked at.
    pub fn push(&mut self, tgid: u32) {
        if self.is_waiting.insert(tgid) {
            self.waiting.push_back(tgid);
        }
    }

    /// Does nobody wait?
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Is it time to look at `now`?
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.next
    }

    /// Has `look` look at those that wait, until time is up or nobody does. `spent` tells how much CPU
    /// time this round, which began at `now`, has taken so far.
    pub fn look(
        &mut self,
        now: Duration,
        mut spent: impl FnMut() -> Duration,
        mut look: impl FnMut(u32),
    ) {
        while let Some(tgid) = self.waiting.pop_front() {
            self.is_waiting.remove(&tgid);
            look(tgid);
            if spent() >= BATCH {
                break;
            }
        }
        self.next = now + (spent() * REST).max(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn looks_at_each_process_once_and_in_turn() {
        let mut mappers = Mappers::default();
        for tgid in [3, 1, 3, 2] {
            mappers.push(tgid);
        }
        let mut seen = Vec::new();
        mappers.look(ms(7), || ms(0), |tgid| seen.push(tgid));
        assert_eq!(seen, [3, 1, 2]);
        assert!(mappers.is_empty());
        assert!(!mappers.is_due(ms(106)) && mappers.is_due(ms(107)));
        mappers.push(3);
        assert!(!mappers.is_empty(), "it may have mapped more since");
    }

    #[test]
    fn a_flood_takes_a_twentieth_of_the_time_and_starves_nobody() {
        const LOOK: Duration = Duration::from_micros(100);
        let mut mappers = Mappers::default();
        let (mut looking, mut found_at) = (ms(0), None);
        for step in 0..1000 {
            let now = ms(step * 10);
            for tgid in 0..2000 {
                mappers.push(tgid);
            }
            if step == 1 {
                mappers.push(9999);
            }
            if !mappers.is_due(now) {
                continue;
            }
            let spent = std::cell::Cell::new(ms(0));
            mappers.look(
                now,
                || spent.get(),
                |tgid| {
                    spent.set(spent.get() + LOOK);
                    if tgid == 9999 {
                        found_at.get_or_insert(now);
                    }
                },
            );
            looking += spent.get();
        }
        assert!(looking <= ms(10_000) / 19, "{looking:?} of ten seconds");
        assert!(found_at.is_some_and(|at| at < ms(5000)), "{found_at:?}");
    }
}
