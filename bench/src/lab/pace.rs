// SPDX-License-Identifier: GPL-2.0-only
//! How fast this machine's CPUs are now: the CPU time of a fixed piece of work, on one CPU after the other.
//!
//! Whoever shares a core with this machine slows it down and takes none of its time: another tenant of its host on the
//! core's other thread, or one that makes the clock fall. No counter tells.

use std::hint::black_box;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::cpus;

/// Some 25 us: short for whoever waits for the CPU meanwhile.
const STEPS: u32 = 20_000;
/// A machine with many CPUs gets to all of them in time.
const PIECES: usize = 4;

const THIS_THREAD: Pid = Pid::from_raw(0);

/// Work done by one thread, and what it took.
#[derive(Debug)]
pub struct Pace {
    cpus: Vec<usize>,
    /// Where the next piece is done.
    next: usize,
    pub pieces: u64,
    /// CPU time of all pieces.
    pub ns: u64,
}

impl Pace {
    /// For the calling thread, on the CPUs that it may use. A thread whose CPUs are not known works where it is.
    pub fn new() -> Self {
        Self {
            cpus: cpus::allowed(THIS_THREAD).unwrap_or_default(),
            next: 0,
            pieces: 0,
            ns: 0,
        }
    }

    /// Does a piece on each CPU, or on the next ones where there are many. The thread may use all of them afterwards.
    pub fn look(&mut self) {
        for _ in 0..self.cpus.len().clamp(1, PIECES) {
            self.go_to_next_cpu();
            if let Some(ns) = piece() {
                self.pieces += 1;
                self.ns += ns;
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

/// CPU time in ns of the piece: four chains that a core can work on at once, as what shares it takes from just that.
fn piece() -> Option<u64> {
    let before = thread_time()?;
    let mut chains = black_box([1_u64, 2, 3, 4]);
    for _ in 0..STEPS {
        for chain in &mut chains {
            *chain ^= *chain << 13;
            *chain ^= *chain >> 7;
        }
    }
    black_box(chains);
    let took = thread_time()?.checked_sub(before)?;
    u64::try_from(took.as_nanos()).ok()
}

fn thread_time() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .ok()
        .map(Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(pace.next as u64, 2 * each % count as u64);
            assert_eq!(cpus::allowed(THIS_THREAD).unwrap(), pace.cpus);
        })
        .join()
        .unwrap();
    }
}
