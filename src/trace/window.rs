// SPDX-License-Identifier: GPL-2.0-only
//! When launches are probed: in one window in each period, at a random place in it. Pure: driven by
//! time and by the random numbers that it is given.

use std::time::Duration;

/// What to do to the launch probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Attach them: a window begins.
    Open,
    /// Take them away.
    Close,
}

/// The schedule.
#[derive(Debug)]
pub struct Windows {
    length: Duration,
    period: Duration,
    /// Begin of the period that the next window lies in.
    period_start: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    Closed { opens: Duration },
    Open { closes: Duration },
}

impl Windows {
    /// Windows of `length`, the first one in the period that begins at `now`. `random` is uniform
    /// from 0 to 1.
    pub fn new(length: Duration, period: Duration, now: Duration, random: f64) -> Self {
        Self {
            length,
            period,
            period_start: now,
            state: State::Closed {
                opens: now + (period - length).mul_f64(random),
            },
        }
    }

    /// What is due at `now`.
    pub fn step(&mut self, now: Duration, random: f64) -> Option<Action> {
        match self.state {
            State::Closed { opens } if now >= opens => {
                self.state = State::Open {
                    closes: now + self.length,
                };
                Some(Action::Open)
            }
            State::Open { closes } if now >= closes => {
                self.period_start = (self.period_start + self.period).max(now);
                self.state = State::Closed {
                    opens: self.period_start + (self.period - self.length).mul_f64(random),
                };
                Some(Action::Close)
            }
            _ => None,
        }
    }

    /// The window has begun at `now`: attaching took a while.
    pub fn opened(&mut self, now: Duration) {
        self.state = State::Open {
            closes: now + self.length,
        };
    }

    /// How long nothing is due.
    pub fn next_step(&self, now: Duration) -> Duration {
        let (State::Closed { opens: at } | State::Open { closes: at }) = self.state;
        at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_window_a_period_at_its_random_place() {
        let ms = Duration::from_millis;
        let mut windows = Windows::new(ms(10), ms(1000), ms(0), 0.5);
        assert_eq!(windows.step(ms(494), 0.0), None);
        assert_eq!(windows.next_step(ms(494)), ms(1));
        assert_eq!(windows.step(ms(495), 0.0), Some(Action::Open));
        windows.opened(ms(498));
        assert_eq!(windows.step(ms(507), 0.0), None);
        assert_eq!(windows.step(ms(508), 0.25), Some(Action::Close));
        // 25 % of the 990 ms of the second period in which a window may begin.
        assert_eq!(windows.next_step(ms(508)), Duration::from_micros(739_500));
    }

    #[test]
    fn a_late_step_lengthens_one_window_only() {
        let ms = Duration::from_millis;
        let mut windows = Windows::new(ms(10), ms(100), ms(0), 0.0);
        assert_eq!(windows.step(ms(5000), 0.0), Some(Action::Open));
        assert_eq!(windows.step(ms(5009), 0.0), None);
        assert_eq!(windows.step(ms(5010), 0.0), Some(Action::Close));
        assert_eq!(windows.step(ms(5010), 0.0), Some(Action::Open));
    }
}
