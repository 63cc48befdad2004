// SPDX-License-Identifier: GPL-2.0-only
//! When the launch probes are armed. Pure: driven by counters and time.
//!
//! A probed launch costs microseconds, a probe that nobody hits costs nothing. So probes rest
//! armed while no known launcher could run into them. Once there is one, they are taken away when it
//! has met enough of them, and come back in sweeps, further and further apart, as long as some thread could still be
//! new; a process that initialises CUDA or starts a thread brings them back at once, as long as that
//! is not too often in vain. What the operator orders, or a new library, always does (`orders.rs`).

mod budget;

use std::time::Duration;

use budget::Budget;

/// After a trigger, keep looking this long: a process starts its threads and loads its kernels.
const AFTER_TRIGGER: Duration = Duration::from_millis(100);
/// After a find, keep looking this long: threads come in groups.
const AFTER_FIND: Duration = Duration::from_millis(30);
/// After a find, this long while launches are left of what may be met: a thread of a pipeline launches
/// for the first time when the first work has come to it.
const AFTER_FIND_AT_LATEST: Duration = Duration::from_secs(2);
/// Launches that windows after finds may meet in all, at 10 us each: 40 ms at once, and from then on so
/// many a second. Who starts launching threads all the time does not keep others probed.
const GROUP_HITS: u64 = 4000;
const GROUP_HITS_PER_S: u64 = 100;
/// A sweep goes on for so many times its length, or for as long as the pause before it, while it
/// meets few launches: a loop that launches one graph every 30 ms is in it.
const LONGEST_SWEEP: u32 = 5;
/// No sweep is longer, whatever the policy's longest pause.
const LONGEST_SWEEP_EVER: Duration = Duration::from_secs(5);
/// Launches that a sweep may meet, at 10 us each: a millisecond, and four for each second of the pause
/// before it.
const FEW_HITS: u64 = 100;
const FEW_HITS_PER_S: u64 = 400;
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
    /// Threads that were met launching for the first time.
    pub finds: u64,
    /// Processes that initialised CUDA and threads that GPU processes started: those of trusted
    /// users.
    pub triggers: u64,
    /// What is answered whatever it costs: rescans that the operator asked for, and the first libraries of each
    /// trusted user that were never seen.
    pub orders: u64,
}

/// What to do to the probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Attach them.
    Arm,
    /// Take them away.
    Disarm,
}

/// What is known of threads. Asked only when the answer matters: it costs a look at every thread of every GPU process.
pub trait Threads {
    /// Did a thread of a GPU process that has no mark run since this was asked last, for so long that it may launch?
    fn strangers_ran(&mut self) -> bool;
    /// Is there a thread that a probe has met launching and that would run into it again?
    fn launchers_alive(&mut self) -> bool;
}

/// What the policy sets.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Are probes armed all the time?
    pub always: bool,
    /// How long a sweep looks, at least. Longer than the burst interval of a fast decoder.
    pub sweep: Duration,
    /// Longest pause while unknown threads of a GPU process run: what bounds the time to a mark.
    pub max_pause: Duration,
}

/// What the probes do, for the statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    /// There are none.
    #[default]
    Off,
    /// Armed until time is up or somebody is found.
    Looking,
    /// Armed, and nobody runs into them.
    Resting,
    /// Taken away from launchers that are known.
    Paused,
}

impl Phase {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Off, Self::Looking, Self::Resting, Self::Paused];

    /// In a word, as in the statistics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Looking => "looking",
            Self::Resting => "resting",
            Self::Paused => "paused",
        }
    }
}

/// The controller.
#[derive(Debug)]
pub struct Window {
    bounds: Bounds,
    seen: Counters,
    before: Counters,
    /// What windows after finds may still meet, as it was then.
    group: (u64, Duration),
    /// Has somebody been found in this window?
    is_after_find: bool,
    state: State,
    pause: Duration,
    /// When probes were last taken away.
    paused_at: Duration,
    /// Has a trigger still to be answered?
    is_called: bool,
    budget: Budget,
    /// Was one found since nobody was left, as far as is known?
    has_launchers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Probes are on, until `until` at least; until `at_latest` while `most_hits` launches are not exceeded.
    Armed {
        until: Duration,
        at_latest: Duration,
        most_hits: u64,
    },
    /// Probes are off. The next sweep may start at `at`; it does at `at_latest`.
    Paused { at: Duration, at_latest: Duration },
}

impl Window {
    /// The controller of probes that are armed at `now`.
    pub fn new(now: Duration, bounds: Bounds) -> Self {
        Self {
            bounds,
            seen: Counters::default(),
            before: Counters::default(),
            group: (GROUP_HITS, now),
            is_after_find: false,
            state: armed_until(now + AFTER_TRIGGER),
            pause: FIRST_PAUSE.min(bounds.max_pause),
            paused_at: now,
            is_called: false,
            budget: Budget::new(now),
            has_launchers: false,
        }
    }

    /// Goes by `bounds` from `now` on.
    pub fn set_bounds(&mut self, now: Duration, bounds: Bounds) {
        self.bounds = bounds;
        self.pause = self.pause.min(bounds.max_pause);
        if let State::Paused { at, .. } = &mut self.state {
            *at = (*at).min(now + bounds.max_pause);
        }
    }

    /// Are the probes on?
    pub fn is_armed(&self) -> bool {
        matches!(self.state, State::Armed { .. })
    }

    /// Are they never taken away?
    pub fn is_always(&self) -> bool {
        self.bounds.always
    }

    /// What the probes do at `now`.
    pub fn phase(&self, now: Duration) -> Phase {
        match self.state {
            State::Armed { until, .. } if self.bounds.always || now < until => Phase::Looking,
            State::Armed { .. } => Phase::Resting,
            State::Paused { .. } => Phase::Paused,
        }
    }

    /// How long the next pause is: what backing off has come to.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// One step at `now`.
    pub fn step(
        &mut self,
        now: Duration,
        counters: Counters,
        threads: &mut impl Threads,
    ) -> Option<Action> {
        let found = counters.finds != self.seen.finds;
        let is_ordered = counters.orders != self.seen.orders;
        self.is_called |= counters.triggers != self.seen.triggers;
        self.seen = counters;
        self.budget.fill(now);
        if found {
            self.budget.give_back();
            self.pause = self.first_pause();
            self.has_launchers = true;
        }
        if self.bounds.always {
            self.is_called = false;
            let is_paused = !self.is_armed();
            return is_paused.then(|| self.arm(counters, armed_until(now + AFTER_TRIGGER)));
        }
        let until = if is_ordered {
            Some(self.obey(now))
        } else {
            self.answer(now)
        };
        if let Some(until) = until {
            let armed = self.longer(until);
            let is_paused = !self.is_armed();
            if is_paused {
                return Some(self.arm(counters, armed));
            }
            self.state = armed;
            if found {
                self.stay_for_others(now, until, counters);
            }
            return None;
        }
        match self.state {
            // What the trigger announced is here: others of its kind may follow.
            State::Armed { .. } if found => {
                self.stay_for_others(now, now + AFTER_FIND, counters);
                None
            }
            State::Armed { until, .. } if now >= until => self.end_window(now, counters, threads),
            State::Armed { .. } => None,
            State::Paused { at, at_latest } if now >= at => {
                if threads.strangers_ran() {
                    return Some(self.sweep(now, counters, now.saturating_sub(self.paused_at)));
                }
                if now >= at_latest {
                    return Some(self.sweep(now, counters, Duration::ZERO));
                }
                self.state = State::Paused {
                    at: now + self.pause,
                    at_latest,
                };
                self.back_off();
                None
            }
            State::Paused { .. } => None,
        }
    }

    /// Somebody was found: looks until `until`, and longer while little is met.
    fn stay_for_others(&mut self, now: Duration, until: Duration, counters: Counters) {
        self.pay(counters);
        let (left, since) = self.group;
        let gained = GROUP_HITS_PER_S * now.saturating_sub(since).as_millis() as u64 / 1000;
        let left = (left + gained).min(GROUP_HITS);
        self.group = (left, now);
        self.is_after_find = true;
        self.state = State::Armed {
            until,
            at_latest: until.max(now + AFTER_FIND_AT_LATEST),
            most_hits: left,
        };
    }

    /// What a window after a find has met up to now is gone.
    fn pay(&mut self, counters: Counters) {
        let met = counters.hits.saturating_sub(self.before.hits);
        if self.is_after_find {
            self.group.0 = self.group.0.saturating_sub(met);
        }
        self.before = counters;
        self.is_after_find = false;
    }

    /// Until when to look because of an order: triggers in vain that came before take no time from it.
    fn obey(&mut self, now: Duration) -> Duration {
        // What triggers announced is looked for in the same time.
        self.is_called = false;
        self.pause = self.first_pause();
        self.sure_until(now).max(now + AFTER_TRIGGER)
    }

    /// Until when to look for what triggers announced, if there was one and there is time for it.
    fn answer(&mut self, now: Duration) -> Option<Duration> {
        if !self.is_called {
            return None;
        }
        let sure_until = self.sure_until(now);
        let wanted = (now + AFTER_TRIGGER).saturating_sub(sure_until);
        let time = self.budget.take(wanted, wanted.min(self.bounds.sweep))?;
        self.is_called = false;
        self.pause = self.first_pause();
        Some(sure_until + time)
    }

    /// The window that is open, until `until` at least.
    fn longer(&self, until: Duration) -> State {
        match self.state {
            State::Armed {
                at_latest,
                most_hits,
                ..
            } => State::Armed {
                until,
                at_latest: at_latest.max(until),
                most_hits,
            },
            State::Paused { .. } => armed_until(until),
        }
    }

    /// Until when probes are on for sure; `now`, if they may be taken away or are.
    fn sure_until(&self, now: Duration) -> Duration {
        match self.state {
            State::Armed { until, .. } => until.max(now),
            State::Paused { .. } => now,
        }
    }

    /// Time is up: goes on with a sweep that hardly costs anything, takes the probes away from
    /// launchers, or leaves them where nobody runs into them.
    fn end_window(
        &mut self,
        now: Duration,
        counters: Counters,
        threads: &mut impl Threads,
    ) -> Option<Action> {
        let met = counters.hits - self.before.hits;
        if let State::Armed {
            at_latest,
            most_hits,
            ..
        } = self.state
            && now < at_latest
            && met <= most_hits
        {
            self.state = State::Armed {
                until: (now + self.bounds.sweep).min(at_latest),
                at_latest,
                most_hits,
            };
            return None;
        }
        // Once nobody is left, nobody is there until one is found.
        self.has_launchers = met != 0 || self.has_launchers && threads.launchers_alive();
        self.has_launchers.then(|| self.disarm(now))
    }

    /// How long until [`Window::step`] has to be called again.
    pub fn next_step(&self, now: Duration) -> Duration {
        match self.state {
            State::Armed { until, .. } if now < until => (until - now).min(ARMED_STEP),
            // At rest: nobody pays for a probe that nobody hits.
            State::Armed { .. } => IDLE_STEP,
            State::Paused { at, .. } => at.saturating_sub(now).min(IDLE_STEP),
        }
    }

    /// A sweep that may go on for `longest` if that is cheap.
    fn sweep(&mut self, now: Duration, counters: Counters, longest: Duration) -> Action {
        let longest = longest.min(LONGEST_SWEEP_EVER);
        let armed = State::Armed {
            until: now + self.bounds.sweep,
            at_latest: now + longest.max(self.bounds.sweep * LONGEST_SWEEP),
            most_hits: FEW_HITS + FEW_HITS_PER_S * longest.as_millis() as u64 / 1000,
        };
        self.arm(counters, armed)
    }

    fn arm(&mut self, counters: Counters, armed: State) -> Action {
        self.pay(counters);
        self.state = armed;
        Action::Arm
    }

    fn first_pause(&self) -> Duration {
        FIRST_PAUSE.min(self.bounds.max_pause)
    }

    fn disarm(&mut self, now: Duration) -> Action {
        self.paused_at = now;
        self.state = State::Paused {
            at: now + self.pause,
            at_latest: now + IDLE_PAUSE,
        };
        self.back_off();
        self.budget.settle();
        Action::Disarm
    }

    fn back_off(&mut self) {
        let longer = match self.pause < KEEN_PAUSE {
            true => self.pause * 2,
            false => self.pause * 9 / 8,
        };
        self.pause = longer.min(self.bounds.max_pause);
    }
}

fn armed_until(until: Duration) -> State {
    State::Armed {
        until,
        at_latest: until,
        most_hits: 0,
    }
}

#[cfg(test)]
mod tests;
