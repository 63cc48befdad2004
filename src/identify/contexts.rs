// SPDX-License-Identifier: GPL-2.0-only
//! Whether contexts are probed. Pure: driven by a counter and time.
//!
//! Most threads make a context current once, so these probes stay when those of launches are taken
//! away: who starts beside known launchers is met before it launches. Some programs do it before
//! every call, and would pay microseconds for each.

use std::time::Duration;

/// Contexts that say nothing new may be met at once: 40 ms at 10 us each.
const MOST: i64 = 4000;
/// And so many a second from then on.
const PER_S: i64 = 400;
/// More than this many seconds of them nobody owes: a hot loop meets thousands between two looks.
const LONGEST_DEBT_S: i64 = 60;

/// What contexts may still cost.
#[derive(Debug)]
pub struct Contexts {
    /// Below zero: more were met than may be.
    left: i64,
    filled_at: Duration,
    /// Those that were met so far.
    seen: u64,
    are_probed: bool,
}

impl Contexts {
    /// Contexts that are probed at `now`, after `met` of them.
    pub fn new(now: Duration, met: u64) -> Self {
        Self {
            left: MOST,
            filled_at: now,
            seen: met,
            are_probed: true,
        }
    }

    /// `met` contexts said nothing new up to `now`. `is_called`: somebody may be new.
    ///
    /// Where all was spent, contexts are left alone until as much is left as at first, or, if somebody may be new, until
    /// anything is.
    pub fn step(&mut self, now: Duration, met: u64, is_called: bool) {
        let gained = now.saturating_sub(self.filled_at).as_millis() as i64 * PER_S / 1000;
        if gained > 0 {
            self.left = (self.left + gained).min(MOST);
            self.filled_at = now;
        }
        let spent = i64::try_from(met.saturating_sub(self.seen)).unwrap_or(i64::MAX);
        self.left = self.left.saturating_sub(spent).max(-LONGEST_DEBT_S * PER_S);
        self.seen = met;
        self.are_probed = match self.left {
            ..=0 => false,
            MOST => true,
            _ => self.are_probed || is_called,
        };
    }

    /// Are they to be probed?
    pub fn are_probed(&self) -> bool {
        self.are_probed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_few_a_second_are_probed_for_good() {
        let mut contexts = Contexts::new(ms(0), 7);
        for step in 1..10_000 {
            contexts.step(ms(step * 100), 7 + step * 40, false);
            assert!(contexts.are_probed(), "{step}");
        }
    }

    #[test]
    fn who_enters_contexts_all_the_time_is_met_as_often_as_is_allowed() {
        for a_step in [1000, 10_000] {
            for steps_a_call in [u64::MAX, 8, 1] {
                let mut contexts = Contexts::new(ms(0), 0);
                let (mut met, steps) = (0, 10_000);
                for step in 1..=steps {
                    contexts.step(ms(step * 100), met, step % steps_a_call == 0);
                    met += u64::from(contexts.are_probed()) * a_step;
                }
                let allowed = MOST as u64 + PER_S as u64 * steps / 10;
                assert!(met <= allowed + a_step, "{met} of {allowed}");
                assert!(met >= allowed / 2, "{met} of {allowed}");
            }
        }
    }

    #[test]
    fn they_are_probed_again_where_somebody_may_be_new() {
        let mut contexts = Contexts::new(ms(0), 0);
        contexts.step(ms(0), 4000, false);
        assert!(!contexts.are_probed());
        contexts.step(ms(0), 4000, true);
        assert!(!contexts.are_probed(), "there is nothing left");
        contexts.step(ms(100), 4000, false);
        assert!(!contexts.are_probed());
        contexts.step(ms(110), 4000, true);
        assert!(contexts.are_probed());
        contexts.step(ms(120), 4048, false);
        assert!(!contexts.are_probed());
        contexts.step(ms(10_110), 4048, false);
        assert!(!contexts.are_probed());
        contexts.step(ms(10_130), 4048, false);
        assert!(contexts.are_probed(), "as much is left as at first");
    }

    #[test]
    fn what_was_met_too_often_is_owed_for_a_minute_at_most() {
        let mut contexts = Contexts::new(ms(0), 0);
        contexts.step(ms(100), 100_000_000, true);
        contexts.step(ms(60_000), 100_000_000, true);
        assert!(!contexts.are_probed());
        contexts.step(ms(60_200), 100_000_000, true);
        assert!(contexts.are_probed());
    }
}
