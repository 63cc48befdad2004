// SPDX-License-Identifier: GPL-2.0-only
//! A rate limit for work that any user can trigger at any time, such as going through all cgroups: a twentieth of a CPU.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// For every millisecond of CPU time, none of the next twenty.
const REST: u32 = 20;
/// Where it takes next to nothing it is done so often all the same.
const INTERVAL: Duration = Duration::from_millis(100);

/// A rest after work, so that it takes a twentieth of a CPU at most, whoever asks for it. The first time after a
/// while is at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rest {
    next: Duration,
}

impl Rest {
    /// Is it over at `now`?
    pub fn is_over(&self, now: Duration) -> bool {
        now >= self.next
    }

    /// Work that began at `now` has taken `cpu`. By the clock, work that others kept off its CPU for a second would be
    /// followed by a rest of twenty.
    pub fn begin(&mut self, now: Duration, cpu: Duration) {
        self.next = now + (cpu * REST).max(INTERVAL);
    }
}

/// What a piece of work has taken so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    /// CPU time.
    pub cpu: Duration,
    /// Time by the clock.
    pub clock: Duration,
}

/// Tells what the calling thread has spent since this was called.
pub fn spending() -> impl Fn() -> Spent {
    let (start, began) = (cpu_time(), Instant::now());
    move || Spent {
        cpu: cpu_time().saturating_sub(start),
        clock: began.elapsed(),
    }
}

/// CPU time of the calling thread so far: what work costs is told in it.
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_all_the_time_takes_a_twentieth_of_it_and_what_is_cheap_is_done_often() {
        for cpu in [Duration::ZERO, Duration::from_millis(60)] {
            let mut rest = Rest::default();
            let mut done = 0;
            for step in 0..6_000 {
                let now = Duration::from_millis(step * 10);
                if rest.is_over(now) {
                    done += 1;
                    rest.begin(now, cpu);
                }
            }
            let expected = if cpu.is_zero() { 600 } else { 50 };
            assert_eq!(done, expected, "{cpu:?} each, in a minute");
        }
    }
}
