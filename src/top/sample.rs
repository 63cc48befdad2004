// SPDX-License-Identifier: GPL-2.0-only
//! One look at the scheduler that runs and at the threads that have a class.

use anyhow::Result;

use crate::identify::Class;
use crate::identify::marks::{Mark, Pins};
use crate::sched::stats::{Metrics, Totals};

/// What is seen at one moment; counters since the load.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    pub metrics: Metrics,
    pub threads: Vec<Thread>,
}

/// A thread that has a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    pub tid: i32,
    pub comm: String,
    pub class: Class,
    /// Who said so.
    pub source: String,
    /// The CPU that it runs on or ran on last.
    pub cpu: Option<u32>,
    pub times: Times,
}

/// Of one thread since it started; zeros where the kernel does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// On a CPU.
    pub run_ns: u64,
    /// Runnable, waiting for one.
    pub wait_ns: u64,
    /// Times that it was given one.
    pub runs: u64,
}

/// Reads samples.
pub struct Sampler {
    totals: Totals,
    pins: Pins,
}

impl Sampler {
    /// # Errors
    /// No scheduler runs.
    pub fn connect() -> Result<Self> {
        Ok(Self {
            totals: Totals::connect()?,
            pins: Pins::default(),
        })
    }

    /// # Errors
    /// The scheduler has ended, or this user may not read its marks.
    pub fn read(&mut self) -> Result<Sample> {
        Ok(Sample {
            metrics: self.totals.read()?,
            threads: self.pins.list()?.into_iter().map(thread).collect(),
        })
    }
}

fn thread(mark: Mark) -> Thread {
    let file = |name: &str| {
        let path = format!("/proc/{}/task/{}/{name}", mark.tgid, mark.tid);
        std::fs::read_to_string(path).unwrap_or_default()
    };
    Thread {
        tid: mark.tid,
        class: mark.class,
        source: mark.source.name(),
        cpu: cpu_of(&file("stat")),
        times: times_of(&file("schedstat")),
        comm: mark.comm,
    }
}

/// The CPU in a text of `/proc/TID/stat`.
fn cpu_of(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(36)?.parse().ok()
}

/// The numbers in a text of `/proc/TID/schedstat`.
fn times_of(schedstat: &str) -> Times {
    let mut numbers = schedstat
        .split_whitespace()
        .map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    Times {
        run_ns: next(),
        wait_ns: next(),
        runs: next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_thread() {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert!(cpu_of(&stat).is_some());
        let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        assert!(times_of(&times).runs > 0);
    }

    #[test]
    fn a_thread_that_has_ended_has_no_cpu() {
        assert_eq!(cpu_of(""), None);
        assert_eq!(times_of(""), Times::default());
    }
}
