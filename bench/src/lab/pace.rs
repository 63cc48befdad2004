// SPDX-License-Identifier: GPL-2.0-only
//! How fast this machine is now: the CPU time of two fixed pieces of work, on one CPU after the other.
//!
//! Another tenant of its host slows this machine down and takes none of its time: on a core's other thread, by what
//! makes the clock fall, or by what it fetches from memory and throws out of a cache that all share. No counter tells.
//! One piece works in registers, one waits for memory: they are compiled with the workloads, whose speed it is.

use std::time::Duration;

use busy::pieces::{Memory, work};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::cpus;

/// A machine with many CPUs gets to all of them in time.
const PIECES: usize = 4;

const THIS_THREAD: Pid = Pid::from_raw(0);

/// Work done by one thread, and what it took.
#[derive(Debug)]
pub struct Pace {
    cpus: Vec<usize>,
    /// Where the next piece is done.
    next: usize,
    /// Of each kind.
    pub pieces: u64,
    /// CPU time of all those in registers.
    pub ns: u64,
    /// The same of those that load.
    pub loads_ns: u64,
    memory: Memory,
}

impl Pace {
    /// For the calling thread, on the CPUs that it may use. A thread whose CPUs are not known works where it is.
    pub fn new() -> Self {
        Self {
            cpus: cpus::allowed(THIS_THREAD).unwrap_or_default(),
            next: 0,
            pieces: 0,
            ns: 0,
            loads_ns: 0,
            memory: Memory::new(),
        }
    }

    /// Does a piece of each kind on each CPU, or on the next ones where there are many. The thread may use all of them
    /// afterwards.
    pub fn look(&mut self) {
        for _ in 0..self.cpus.len().clamp(1, PIECES) {
            self.go_to_next_cpu();
            if let (Some(ns), Some(loads_ns)) = (time_of(work), time_of(|| self.memory.load())) {
                self.pieces += 1;
                self.ns += ns;
                self.loads_ns += loads_ns;
            }
        }
        let _ = cpus::allow(THIS_THREAD, &self.cpus);
    }

    fn go_to_next_cpu(&mut self) {
        let Some(&cpu) = self.cpus.get(self.next) else {
            return;
        };
        self.next = (self.next + 1) % self.cpus.len();
        // A CPU that is gone meanwhile is passed over.
        let _ = cpus::allow(THIS_THREAD, &[cpu]);
    }
}

/// CPU time of `work`, in ns.
fn time_of(work: impl FnOnce()) -> Option<u64> {
    let before = thread_time()?;
    work();
    let took = thread_time()?.checked_sub(before)?;
    u64::try_from(took.as_nanos()).ok()
}

/// CPU time of the calling thread.
pub fn thread_time() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .ok()
        .map(Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use busy::pieces::{LOADS, STEPS};

    #[test]
    fn works_on_one_cpu_after_the_other() {
        // Its thread's affinity is changed.
        std::thread::spawn(|| {
            let mut pace = Pace::new();
            let count = pace.cpus.len();
            let each = count.clamp(1, PIECES) as u64;
            pace.look();
            pace.look();
            assert_eq!(pace.pieces, 2 * each);
            // No CPU does a step in a fiftieth of a nanosecond, nor needs a microsecond.
            let step = pace.ns as f64 / pace.pieces as f64 / f64::from(STEPS);
            assert!((0.02..1000.0).contains(&step), "{step} ns");
            let load = pace.loads_ns as f64 / pace.pieces as f64 / LOADS as f64;
            assert!((0.2..100_000.0).contains(&load), "{load} ns");
            assert_eq!(pace.next as u64, 2 * each % count as u64);
            assert_eq!(cpus::allowed(THIS_THREAD).unwrap(), pace.cpus);
        })
        .join()
        .unwrap();
    }
}
