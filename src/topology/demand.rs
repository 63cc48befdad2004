// SPDX-License-Identifier: GPL-2.0-only
//! How many threads the preferred CPUs are for. Pure: time is an argument.

use std::time::Duration;

/// Threads that are runnable at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Of class launch.
    pub launch: u32,
    /// Of class handoff.
    pub handoff: u32,
}

impl Demand {
    /// One launcher: what is expected before anything is known.
    pub const ONE: Self = Self {
        launch: 1,
        handoff: 0,
    };

    /// All of them.
    pub fn threads(self) -> u32 {
        self.launch.saturating_add(self.handoff)
    }

    fn max(self, other: Self) -> Self {
        Self {
            launch: self.launch.max(other.launch),
            handoff: self.handoff.max(other.handoff),
        }
    }
}

/// The peak of the demand in the recent past: grows at once, shrinks late. The CPUs that are too
/// many meanwhile are lent, so this costs little, and a set that changes every second costs more.
#[derive(Debug, Clone)]
pub struct RecentDemand {
    window: Duration,
    began: Duration,
    before: Demand,
    current: Demand,
}

impl RecentDemand {
    /// Remembers peaks for one to two times `window`.
    pub fn new(window: Duration) -> Self {
        let none = Demand {
            launch: 0,
            handoff: 0,
        };
        Self {
            window,
            began: Duration::ZERO,
            before: none,
            current: none,
        }
    }

    /// Takes the demand at `now` and returns the recent peak.
    pub fn observe(&mut self, now: Duration, demand: Demand) -> Demand {
        let age = now.saturating_sub(self.began);
        if age >= self.window {
            // A gap of two windows leaves nothing to remember.
            self.before = if age < self.window * 2 {
                self.current
            } else {
                demand
            };
            self.current = demand;
            self.began = now;
        }
        self.current = self.current.max(demand);
        self.current.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(recent: &mut RecentDemand, second: u64, launch: u32, handoff: u32) -> (u32, u32) {
        let peak = recent.observe(Duration::from_secs(second), Demand { launch, handoff });
        (peak.launch, peak.handoff)
    }

    #[test]
    fn grows_at_once_and_shrinks_after_the_window() {
        let mut recent = RecentDemand::new(Duration::from_secs(10));
        assert_eq!(observe(&mut recent, 0, 1, 0), (1, 0));
        assert_eq!(observe(&mut recent, 1, 4, 1), (4, 1));
        for second in 2..20 {
            assert_eq!(observe(&mut recent, second, 2, 0), (4, 1), "{second}");
        }
        assert_eq!(observe(&mut recent, 20, 2, 0), (2, 0));
    }

    #[test]
    fn forgets_what_was_before_a_long_gap() {
        let mut recent = RecentDemand::new(Duration::from_secs(10));
        observe(&mut recent, 0, 8, 8);
        assert_eq!(observe(&mut recent, 60, 1, 0), (1, 0));
    }
}
