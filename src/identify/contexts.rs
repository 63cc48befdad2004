// SPDX-License-Identifier: GPL-2.0-only
//! Whether contexts are probed. Pure: driven by a counter and time.
//!
//! Most threads make a context current once, so these probes stay when those of launches are taken
//! away: who starts beside known launchers is met before it launches. Some programs do it before
//! every call, and would pay microseconds for each.

use std::time::Duration;

/// Contexts that say nothing new may be met at once: 40 ms at 10 us each.
const MOST: u64 = 4000;
/// And so many a second from then on.
const PER_S: u64 = 400;

/// What contexts may still cost.
#[derive(Debug)]
pub struct Contexts {
    left: u64,
    filled_at: Duration,
    /// Those that were met so far.
    seen: u64,
    are_probed: bool,
}

impl Contexts {
    /// Contexts that are probed at `now`.
    pub fn new(now: Duration) -> Self {
        Self {
            left: MOST,
            filled_at: now,
            seen: 0,
            are_probed: true,
        }
    }

    /// `met` contexts said nothing new up to `now`. `is_opened`: somebody may be new, as launches are probed from now on.
    ///
    /// Where all was spent, contexts are left alone until there is as much as at first, or somebody may be new.
    pub fn step(&mut self, now: Duration, met: u64, is_opened: bool) {
        let gained = now.saturating_sub(self.filled_at).as_millis() as u64 * PER_S / 1000;
        if gained > 0 {
            self.left = (self.left + gained).min(MOST);
            self.filled_at = now;
        }
        self.left = self.left.saturating_sub(met.saturating_sub(self.seen));
        self.seen = met;
        self.are_probed = match self.left {
            0 => false,
            MOST => true,
            _ => self.are_probed || is_opened,
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
        let mut contexts = Contexts::new(ms(0));
        for step in 1..10_000 {
            contexts.step(ms(step * 100), step * PER_S / 10, false);
            assert!(contexts.are_probed(), "{step}");
        }
    }

    #[test]
    fn who_enters_contexts_all_the_time_is_met_as_often_as_is_allowed() {
        const A_STEP: u64 = 10_000;
        for steps_a_window in [u64::MAX, 8] {
            let mut contexts = Contexts::new(ms(0));
            let (mut met, steps) = (0, 10_000);
            for step in 1..=steps {
                let is_opened = step % steps_a_window == 0;
                contexts.step(ms(step * 100), met, is_opened);
                met += u64::from(contexts.are_probed()) * A_STEP;
            }
            let allowed = MOST + PER_S * steps / 10;
            assert!(met <= allowed + A_STEP, "{met} of {allowed}");
        }
    }

    #[test]
    fn they_are_probed_again_where_somebody_may_be_new() {
        let mut contexts = Contexts::new(ms(0));
        contexts.step(ms(0), MOST, false);
        assert!(!contexts.are_probed());
        contexts.step(ms(0), MOST, true);
        assert!(!contexts.are_probed(), "there is nothing left");
        contexts.step(ms(100), MOST, false);
        assert!(!contexts.are_probed());
        contexts.step(ms(110), MOST, true);
        assert!(contexts.are_probed());
        contexts.step(ms(120), 2 * MOST, false);
        assert!(!contexts.are_probed());
        contexts.step(ms(10_110), 2 * MOST, false);
        assert!(!contexts.are_probed());
        contexts.step(ms(10_130), 2 * MOST, false);
        assert!(contexts.are_probed(), "as much is left as at first");
    }
}
