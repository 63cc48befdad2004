// SPDX-License-Identifier: GPL-2.0-only
//! When the launch probes are armed. Pure: driven by counters and time.
//!
//! A probed launch costs microseconds, a probe that nobody hits costs nothing. So probes rest
//! armed while no known launcher could run into them. Once there is one, they are taken away and
//! come back in short sweeps, further and further apart, as long as some thread could still be
//! new; a process that initialises CUDA or starts a thread brings them back at once.

use std::time::Duration;

/// After a trigger, keep looking this long: a process starts its threads and loads its kernels.
const AFTER_TRIGGER: Duration = Duration::from_millis(100);
/// After a find, keep looking this long: threads come in groups.
const AFTER_FIND: Duration = Duration::from_millis(30);
/// How often to look while nothing can be missed by looking late.
const IDLE_STEP: Duration = Duration::from_millis(100);
/// How often to look while probes are armed.
const ARMED_STEP: Duration = Duration::from_millis(10);
/// First pause after probes were taken away.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Pauses double up to this, while threads are young, and grow by an eighth from then on.
const KEEN_PAUSE: Duration = Duration::from_millis(800);
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

/// What is known of threads. Asked only when the answer matters: it costs a look into `/proc`.
pub trait Threads {
    /// Did a thread of a GPU process run that has no mark, since this was asked last?
    fn strangers_ran(&mut self) -> bool;
    /// Is there a launcher that was marked by a probe and would run into it again?
    fn launchers_alive(&mut self) -> bool;
}

/// What the policy sets.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Are probes armed all the time?
    pub always: bool,
    /// How long a sweep looks. Longer than the burst interval of a fast decoder.
    pub sweep: Duration,
    /// Longest pause while unknown threads of a GPU process run: what bounds the time to a mark.
    pub max_pause: Duration,
}

/// The controller.
#[derive(Debug)]
pub struct Window {
    bounds: Bounds,
    seen: Counters,
    hits_at_arming: u64,
    state: State,
    pause: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Probes are on, until `until` at least.
    Armed { until: Duration },
    /// Probes are off. The next sweep may start at `at`; it does at `at_latest`.
    Paused { at: Duration, at_latest: Duration },
}

impl Window {
    /// The controller of probes that are armed at `now`.
    pub fn new(now: Duration, bounds: Bounds) -> Self {
        Self {
            bounds,
            seen: Counters::default(),
            hits_at_arming: 0,
            state: State::Armed {
                until: now + AFTER_TRIGGER,
            },
            pause: FIRST_PAUSE,
        }
    }

    /// Goes by `bounds` from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Are the probes on?
    pub fn is_armed(&self) -> bool {
        matches!(self.state, State::Armed { .. })
    }

    /// One step at `now`.
    pub fn step(
        &mut self,
        now: Duration,
        counters: Counters,
        threads: &mut impl Threads,
    ) -> Option<Action> {
        let triggered = counters.triggers != self.seen.triggers;
        let found = counters.finds != self.seen.finds;
        self.seen = counters;
        if triggered || found {
            self.pause = FIRST_PAUSE;
        }
        if self.bounds.always {
            let is_paused = !self.is_armed();
            return is_paused.then(|| self.arm(now, counters, AFTER_TRIGGER));
        }
        match self.state {
            State::Armed { until } if triggered => {
                self.state = State::Armed {
                    until: until.max(now + AFTER_TRIGGER),
                };
                None
            }
            // What the trigger announced is here: every further probed launch costs it.
            State::Armed { .. } if found => {
                self.state = State::Armed {
                    until: now + AFTER_FIND,
                };
                None
            }
            State::Armed { until } if now >= until => {
                let hit = counters.hits != self.hits_at_arming;
                (hit || threads.launchers_alive()).then(|| self.disarm(now))
            }
            State::Armed { .. } => None,
            State::Paused { .. } if triggered => Some(self.arm(now, counters, AFTER_TRIGGER)),
            State::Paused { at, at_latest } if now >= at => {
                if now >= at_latest || threads.strangers_ran() {
                    return Some(self.arm(now, counters, self.bounds.sweep));
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
    pub fn next_step(&self, now: Duration) -> Duration {
        match self.state {
            State::Armed { until } if now < until => (until - now).min(ARMED_STEP),
            // At rest: nobody pays for a probe that nobody hits.
            State::Armed { .. } => IDLE_STEP,
            State::Paused { at, .. } => at.saturating_sub(now).min(IDLE_STEP),
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
        let longer = match self.pause < KEEN_PAUSE {
            true => self.pause * 2,
            false => self.pause * 9 / 8,
        };
        self.pause = longer.min(self.bounds.max_pause);
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

    /// What the threads are like.
    struct Fixed {
        strangers: bool,
        launchers: bool,
    }

    impl Threads for Fixed {
        fn strangers_ran(&mut self) -> bool {
            self.strangers
        }

        fn launchers_alive(&mut self) -> bool {
            self.launchers
        }
    }

    const BOUNDS: Bounds = Bounds {
        always: false,
        sweep: Duration::from_millis(10),
        max_pause: Duration::from_secs(5),
    };
    const NOBODY: Fixed = Fixed {
        strangers: false,
        launchers: false,
    };
    const ALL_KNOWN: Fixed = Fixed {
        strangers: false,
        launchers: true,
    };
    const STRANGERS: Fixed = Fixed {
        strangers: true,
        launchers: true,
    };

    /// A window at 200 ms whose one launcher was found at once and whose probes were taken away.
    fn paused() -> Window {
        let mut window = Window::new(ms(0), BOUNDS);
        assert_eq!(
            window.step(ms(10), counters(1, 1, 1), &mut { ALL_KNOWN }),
            None
        );
        assert_eq!(
            window.step(ms(200), counters(900, 1, 1), &mut { ALL_KNOWN }),
            Some(Action::Disarm)
        );
        window
    }

    #[test]
    fn rests_armed_while_nobody_launches() {
        let mut window = Window::new(ms(0), BOUNDS);
        for second in 1..100 {
            let now = ms(second * 1000);
            assert_eq!(window.step(now, counters(0, 0, 0), &mut { NOBODY }), None);
            assert_eq!(window.next_step(now), IDLE_STEP);
        }
        assert!(window.is_armed());
    }

    #[test]
    fn keeps_looking_after_a_find() {
        let mut window = Window::new(ms(0), BOUNDS);
        let mut step =
            |at, hits, finds| window.step(ms(at), counters(hits, finds, 0), &mut { ALL_KNOWN });
        assert_eq!(step(500, 1, 1), None);
        assert_eq!(step(520, 50, 1), None);
        assert_eq!(step(525, 51, 2), None);
        assert_eq!(step(554, 90, 2), None);
        assert_eq!(step(556, 99, 2), Some(Action::Disarm));
    }

    /// The longest pause between two sweeps from `from` to `to` seconds, beside a hot launcher.
    fn longest_pause(from: u64, to: u64) -> Duration {
        let mut window = paused();
        let (mut hits, mut longest) = (900, ms(0));
        let mut disarmed_at = ms(200);
        for now in (205..to * 1000).step_by(5).map(ms) {
            hits += u64::from(window.is_armed());
            match window.step(now, counters(hits, 1, 1), &mut { STRANGERS }) {
                Some(Action::Arm) if now >= ms(from * 1000) => {
                    longest = longest.max(now - disarmed_at);
                }
                Some(Action::Disarm) => disarmed_at = now,
                _ => {}
            }
        }
        longest
    }

    #[test]
    fn backs_off_while_strangers_run_and_nobody_is_found() {
        assert!(longest_pause(0, 3) < ms(1000), "{:?}", longest_pause(0, 3));
        let later = longest_pause(100, 200);
        assert!(later >= ms(4900) && later < ms(5100), "{later:?}");
    }

    #[test]
    fn always_is_always() {
        let always = Bounds {
            always: true,
            ..BOUNDS
        };
        let mut window = Window::new(ms(0), always);
        assert_eq!(
            window.step(ms(9000), counters(9000, 1, 1), &mut { ALL_KNOWN }),
            None
        );
        let mut window = paused();
        window.set_bounds(always);
        assert_eq!(
            window.step(ms(300), counters(900, 1, 1), &mut { ALL_KNOWN }),
            Some(Action::Arm)
        );
    }

    #[test]
    fn leaves_known_launchers_alone() {
        let mut window = paused();
        let (mut arms, mut armed) = (0, ms(0));
        for step in 0..5000 {
            let now = ms(200 + step * 10);
            armed += if window.is_armed() { ms(10) } else { ms(0) };
            // It launches rarely: no sweep meets it.
            if window.step(now, counters(900, 1, 1), &mut { ALL_KNOWN }) == Some(Action::Arm) {
                arms += 1;
            }
        }
        assert_eq!(arms, 1, "one sweep for good measure in 50 s");
        assert!(armed <= ms(20), "{armed:?}");
    }

    #[test]
    fn a_find_cuts_the_window_of_its_trigger_short() {
        let mut window = paused();
        let mut step =
            |at, finds| window.step(ms(at), counters(9000, finds, 2), &mut { ALL_KNOWN });
        assert_eq!(step(300, 1), Some(Action::Arm));
        assert_eq!(step(310, 2), None);
        assert_eq!(step(341, 2), Some(Action::Disarm));
    }

    #[test]
    fn rests_armed_again_when_the_launchers_are_gone() {
        let mut window = paused();
        for step in 0..5000 {
            window.step(ms(200 + step * 10), counters(900, 1, 1), &mut { NOBODY });
        }
        assert!(window.is_armed());
    }

    #[test]
    fn a_trigger_arms_at_once() {
        let mut window = paused();
        assert_eq!(
            window.step(ms(201), counters(900, 1, 2), &mut { ALL_KNOWN }),
            Some(Action::Arm)
        );
        assert_eq!(window.next_step(ms(201)), ARMED_STEP);
        // A hot launcher beside it does not end the window early.
        assert_eq!(
            window.step(ms(290), counters(5000, 1, 2), &mut { ALL_KNOWN }),
            None
        );
    }
}
