// SPDX-License-Identifier: GPL-2.0-only
//! One look at the scheduler that runs and at the threads that have a class.

use std::path::PathBuf;

use anyhow::Result;

use crate::identify::Class;
use crate::identify::marks::{Mark, Pins};
use crate::printable::printable;
use crate::proc::{PROC, Stat};
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
    let folder = PathBuf::from(format!("{PROC}/{}/task/{}", mark.tgid, mark.tid));
    let times = std::fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
    Thread {
        tid: mark.tid,
        class: mark.class,
        source: mark.source.name(),
        cpu: Stat::read(&folder).and_then(|stat| stat.cpu),
        times: times_of(&times),
        comm: printable(&mark.comm),
    }
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
    use crate::identify::Source;

    #[test]
    fn a_name_is_spelled_out_for_the_terminal() {
        let mark = Mark {
            tid: 0,
            tgid: 0,
            comm: "a\x1b[2J\n".to_owned(),
            class: Class::Launch,
            source: Source::Uprobe,
            symbol: None,
            evidence: String::new(),
            cgroup_id: 1,
            gpu_node: None,
            first_seen_ns: None,
            age_ms: None,
            last_seen_ms: None,
            hits: 1,
        };
        assert_eq!(thread(mark).comm, "a\\u{1b}[2J\\n");
    }

    #[test]
    fn reads_this_thread() {
        let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        assert!(times_of(&times).runs > 0);
    }

    #[test]
    fn a_thread_that_has_ended_has_no_times() {
        assert_eq!(times_of(""), Times::default());
    }
}
