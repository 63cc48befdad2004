// SPDX-License-Identifier: GPL-2.0-only
//! Processes that wait to be looked at: they may map a library that they did not, or have other names. Pure.
//!
//! Anybody can map something executable, start a program or rename a thread in a loop. So processes are
//! looked at in turn, and for so much of a CPU's time at most, however many ask for it.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::rest::{Rest, Spent};

/// Looks are taken in batches of about so much CPU time.
const BATCH: Duration = Duration::from_millis(5);
/// A batch ends after so much time, whoever has the CPU: other work waits for it.
const LONGEST_BATCH: Duration = Duration::from_millis(50);

/// The processes to look at.
#[derive(Debug, Default)]
pub struct Backlog {
    waiting: VecDeque<u32>,
    /// The same, to have each once.
    is_waiting: HashSet<u32>,
    rest: Rest,
}

impl Backlog {
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
        self.rest.is_over(now)
    }

    /// Has `look` look at those that wait, until time is up or nobody does. `spent` tells what this
    /// round, which began at `now`, has taken so far.
    pub fn look(
        &mut self,
        now: Duration,
        mut spent: impl FnMut() -> Spent,
        mut look: impl FnMut(u32),
    ) {
        while let Some(tgid) = self.waiting.pop_front() {
            self.is_waiting.remove(&tgid);
            look(tgid);
            let Spent { cpu, clock } = spent();
            if cpu >= BATCH || clock >= LONGEST_BATCH {
                break;
            }
        }
        self.rest.begin(now, spent().cpu);
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
        let mut backlog = Backlog::default();
        for tgid in [3, 1, 3, 2] {
            backlog.push(tgid);
        }
        let mut seen = Vec::new();
        backlog.look(ms(7), Spent::default, |tgid| seen.push(tgid));
        assert_eq!(seen, [3, 1, 2]);
        assert!(backlog.is_empty());
        assert!(!backlog.is_due(ms(106)) && backlog.is_due(ms(107)));
        backlog.push(3);
        assert!(!backlog.is_empty(), "it may have mapped more since");
    }

    #[test]
    fn others_that_have_the_cpu_end_a_round_and_make_no_rest_longer() {
        let mut backlog = Backlog::default();
        (0..9).for_each(|tgid| backlog.push(tgid));
        let kept_off = || Spent {
            cpu: Duration::from_micros(100),
            clock: ms(800),
        };
        let mut seen = Vec::new();
        backlog.look(ms(0), kept_off, |tgid| seen.push(tgid));
        assert_eq!(seen, [0]);
        assert!(backlog.is_due(ms(100)));
    }

    #[test]
    fn a_flood_takes_a_twentieth_of_the_time_and_starves_nobody() {
        const LOOK: Duration = Duration::from_micros(100);
        let mut backlog = Backlog::default();
        let (mut looking, mut found_at) = (ms(0), None);
        for step in 0..1000 {
            let now = ms(step * 10);
            for tgid in 0..2000 {
                backlog.push(tgid);
            }
            if step == 1 {
                backlog.push(9999);
            }
            if !backlog.is_due(now) {
                continue;
            }
            let spent = std::cell::Cell::new(ms(0));
            backlog.look(
                now,
                || Spent {
                    cpu: spent.get(),
                    clock: spent.get(),
                },
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
