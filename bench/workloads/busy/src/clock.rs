// SPDX-License-Identifier: GPL-2.0-only
//! Monotonic time, CPU time that is really burnt, and what a thread has used.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Longest piece that is burnt at once.
const PIECE: Duration = Duration::from_micros(20);

/// Burns `cost` of CPU time. In pieces, each begun anew: a thread that is preempted for 3 ms must
/// not find its whole cost paid by the waiting.
pub fn burn(cost: Duration) {
    let mut left = cost;
    let mut at = Instant::now();
    while !left.is_zero() {
        let piece = left.min(PIECE);
        let deadline = at + piece;
        while at < deadline {
            at = Instant::now();
        }
        // A small overshoot is time paid, a large one is preemption and is not.
        let over = at - deadline;
        left -= piece;
        if over < PIECE {
            left = left.saturating_sub(over);
        }
    }
}

/// Burns until the thread itself has run for `cost`, as the kernel counts its CPU time.
///
/// # Errors
/// The thread's clock cannot be read.
pub fn burn_cpu(cost: Duration) -> Result<()> {
    let used = || {
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
            .map(Duration::from)
            .context("cannot read the thread's clock")
    };
    let end = used()? + cost;
    loop {
        let left = end.saturating_sub(used()?);
        if left.is_zero() {
            return Ok(());
        }
        // Reading that clock is a call into the kernel: seldom, so that the work is the program's own.
        spin(left.min(PIECE));
    }
}

/// Spins until `time` has passed on the wall's clock, whether the thread ran or not.
pub fn spin(time: Duration) {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        std::hint::spin_loop();
    }
}

/// CLOCK_MONOTONIC.
pub fn monotonic_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read the clock")?;
    Ok(now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned())
}

/// What the calling thread has used since it began.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Usage {
    pub context_switches: Switches,
    pub cpu_s: CpuSeconds,
}

/// By the kernel's count; a `sched_yield` that switches is involuntary.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Switches {
    pub voluntary: i64,
    pub involuntary: i64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct CpuSeconds {
    pub user: f64,
    pub sys: f64,
}

impl Usage {
    /// What came since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            context_switches: Switches {
                voluntary: self.context_switches.voluntary - earlier.context_switches.voluntary,
                involuntary: self.context_switches.involuntary
                    - earlier.context_switches.involuntary,
            },
            cpu_s: CpuSeconds {
                user: self.cpu_s.user - earlier.cpu_s.user,
                sys: self.cpu_s.sys - earlier.cpu_s.sys,
            },
        }
    }

    pub fn of_this_thread() -> Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).context("cannot read the thread's usage")?;
        let seconds =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        Ok(Self {
            context_switches: Switches {
                voluntary: usage.voluntary_context_switches(),
                involuntary: usage.involuntary_context_switches(),
            },
            cpu_s: CpuSeconds {
                user: seconds(usage.user_time()),
                sys: seconds(usage.system_time()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_for_as_long_as_it_is_told() {
        let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        let before = used();
        burn_cpu(Duration::from_millis(5)).unwrap();
        let ran = used() - before;
        assert!(ran >= Duration::from_millis(5), "{ran:?}");
    }

    #[test]
    fn burning_uses_the_cpu_and_counts() {
        let before = Usage::of_this_thread().unwrap();
        burn(Duration::from_millis(30));
        let after = Usage::of_this_thread().unwrap();
        let cpu = |usage: &Usage| usage.cpu_s.user + usage.cpu_s.sys;
        let used = cpu(&after) - cpu(&before);
        assert!((0.025..0.2).contains(&used), "{used}");
    }
}
