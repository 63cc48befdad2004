// SPDX-License-Identifier: GPL-2.0-only
//! When the launch probes are armed. Pure: driven by counters and time.
//!
//! A probed launch costs microseconds, a probe that nobody hits costs nothing. So probes rest
//! armed while no known launcher runs into them. Once only known launchers do, they are taken
//! away and come back in short sweeps, further and further apart, as long as some thread could
//! still be new; a process that initialises CUDA or starts a thread brings them back at once.

use std::time::Duration;

/// After a trigger or a find, keep looking this long: threads come in groups.
const LINGER: Duration = Duration::from_millis(100);
/// How long a sweep looks. Longer than the burst interval of a fast decoder.
const SWEEP: Duration = Duration::from_millis(10);
/// First pause after probes were taken away.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause while unknown threads of a GPU process run: what bounds the time to a mark.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
/// A sweep for good measure when every thread that runs is known.
const IDLE_PAUSE: Duration = Duration::from_secs(30);

/// What the probes have counted since they were loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Probed launches.
    pub hits: u64,
    /// Threads that were marked for the first time.
    pub finds: u64,
    /// Processes that initialised CUDA, libraries that were found, threads that GPU processes
    /// started.
    pub triggers: u64,
}

/// What to do to the probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Attach them.
    Arm,
    /// Take them away.
    Disarm,
}

/// The controller.
#[derive(Debug)]
pub struct Window {
    seen: Counters,
    hits_at_arming: u64,
    state: State,
    pause: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Probes are on. They stay on until `until` at least, and as long as nobody hits them.
    Armed { until: Duration },
    /// Probes are off. The next sweep may start at `at`; it does at `at_latest`.
    Paused { at: Duration, at_latest: Duration },
}

impl Window {
    /// The controller of probes that are armed at `now`.
    pub fn new(now: Duration) -> Self {
        Self {
            seen: Counters::default(),
            hits_at_arming: 0,
            state: State::Armed {
                until: now + LINGER,
            },
            pause: FIRST_PAUSE,
        }
    }

    /// Are the probes on?
    pub fn is_armed(&self) -> bool {
        matches!(self.state, State::Armed { .. })
    }

    /// One step at `now`. `strangers_ran`: did threads of GPU processes run that have no mark? It
    /// is asked only when the answer matters, because it costs a look into `/proc`.
    pub fn step(
        &mut self,
        now: Duration,
        counters: Counters,
        strangers_ran: impl FnOnce() -> bool,
    ) -> Option<Action> {
        let triggered = counters.triggers != self.seen.triggers;
        let found = counters.finds != self.seen.finds;
        self.seen = counters;
        if triggered || found {
            self.pause = FIRST_PAUSE;
        }
        match self.state {
            State::Armed { until } if triggered || found => {
                self.state = State::Armed {
                    until: until.max(now + LINGER),
                };
                None
            }
            State::Armed { until } => {
                let hit = counters.hits != self.hits_at_arming;
                (hit && now >= until).then(|| self.disarm(now))
            }
            State::Paused { .. } if triggered => Some(self.arm(now, counters, LINGER)),
            State::Paused { at, at_latest } if now >= at => {
                if now >= at_latest || strangers_ran() {
                    return Some(self.arm(now, counters, SWEEP));
                }
                self.state = State::Paused {
                    at: now + self.pause,
                    at_latest,
                };
                None
            }
            State::Paused { .. } => None,
        }
    }

    /// How long until [`Window::step`] has to be called again.
    pub fn next_step(&self, now: Duration, counters: Counters) -> Duration {
        match self.state {
            // Nobody pays for a probe that nobody hits.
            State::Armed { .. } if counters.hits == self.hits_at_arming => LINGER,
            State::Armed { until } => until.saturating_sub(now).min(SWEEP),
            State::Paused { at, .. } => at.saturating_sub(now).min(LINGER),
        }
    }

    fn arm(&mut self, now: Duration, counters: Counters, at_least: Duration) -> Action {
        self.hits_at_arming = counters.hits;
        self.state = State::Armed {
            until: now + at_least,
        };
        Action::Arm
    }

    fn disarm(&mut self, now: Duration) -> Action {
        self.state = State::Paused {
            at: now + self.pause,
            at_latest: now + IDLE_PAUSE,
        };
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Action::Disarm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn counters(hits: u64, finds: u64, triggers: u64) -> Counters {
        Counters {
            hits,
            finds,
            triggers,
        }
    }

    /// A window at 200 ms whose one launcher was found at once and whose probes were taken away.
    fn paused() -> Window {
        let mut window = Window::new(ms(0));
        assert_eq!(window.step(ms(10), counters(1, 1, 1), || true), None);
        assert_eq!(
            window.step(ms(200), counters(900, 1, 1), || true),
            Some(Action::Disarm)
        );
        window
    }

    #[test]
    fn rests_armed_while_nobody_launches() {
        let mut window = Window::new(ms(0));
        for second in 1..100 {
            assert_eq!(
                window.step(ms(second * 1000), counters(0, 0, 0), || true),
                None
            );
        }
        assert!(window.is_armed());
    }

    #[test]
    fn keeps_looking_after_a_find() {
        let mut window = Window::new(ms(0));
        window.step(ms(500), counters(1, 1, 0), || true);
        assert_eq!(window.step(ms(590), counters(50, 1, 0), || true), None);
        assert_eq!(window.step(ms(595), counters(51, 2, 0), || true), None);
        assert_eq!(window.step(ms(690), counters(90, 2, 0), || true), None);
        assert_eq!(
            window.step(ms(696), counters(99, 2, 0), || true),
            Some(Action::Disarm)
        );
    }

    #[test]
    fn sweeps_within_a_second_while_strangers_run() {
        let mut window = paused();
        let (mut now, mut hits, mut longest) = (ms(200), 900, ms(0));
        let mut disarmed_at = now;
        for _ in 0..2000 {
            now += ms(5);
            hits += u64::from(window.is_armed());
            match window.step(now, counters(hits, 1, 1), || true) {
                Some(Action::Arm) => longest = longest.max(now - disarmed_at),
                Some(Action::Disarm) => disarmed_at = now,
                None => {}
            }
        }
        assert!(longest >= ms(700) && longest < ms(1000), "{longest:?}");
    }

    #[test]
    fn leaves_known_launchers_alone() {
        let mut window = paused();
        let mut arms = 0;
        for step in 0..5000 {
            let now = ms(200 + step * 10);
            if window.step(now, counters(900 + step, 1, 1), || false) == Some(Action::Arm) {
                arms += 1;
            }
        }
        assert_eq!(arms, 1, "one sweep for good measure in 50 s");
    }

    #[test]
    fn a_trigger_arms_at_once() {
        let mut window = paused();
        assert_eq!(
            window.step(ms(201), counters(900, 1, 2), || false),
            Some(Action::Arm)
        );
        // A hot launcher beside it does not end the window early.
        assert_eq!(window.step(ms(290), counters(5000, 1, 2), || false), None);
    }
}
