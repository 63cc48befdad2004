// SPDX-License-Identifier: GPL-2.0-only
//! Loads that missed the last-level cache, counted by the processor where it does that.

use std::io;

use perf_event::events::{Cache, CacheOp, CacheResult, Event, WhichCache};
use perf_event::{Builder, Counter};

const LOADS: Cache = Cache {
    which: WhichCache::LL,
    operation: CacheOp::READ,
    result: CacheResult::MISS,
};

/// Counts in user space, in the threads that its opener starts from then on.
#[derive(Debug)]
pub struct Misses(io::Result<Counter>);

impl Misses {
    pub fn open() -> Self {
        Self::of(LOADS)
    }

    fn of(event: impl Into<Event>) -> Self {
        let mut builder = Builder::new().kind(event);
        builder.inherit(true).enabled(true);
        Self(builder.build())
    }

    /// Since it was opened; scaled up where the counter was shared with others.
    ///
    /// # Errors
    /// Says why nothing is counted: a virtual machine without counters, a processor without this one, no permission.
    pub fn so_far(&mut self) -> Result<u64, String> {
        let counter = self.0.as_mut().map_err(|error| error.to_string())?;
        let read = counter.read_count_and_time();
        let read = read.map_err(|error| error.to_string())?;
        if read.time_running == 0 {
            return Err("the counter never ran: others have it".to_owned());
        }
        let whole = u128::from(read.count) * u128::from(read.time_enabled);
        let scaled = whole / u128::from(read.time_running);
        Ok(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use perf_event::events::Software;

    use super::*;

    /// Software counts are everywhere, and come by the same way.
    #[test]
    fn counts_in_threads_that_come_later_and_still_live() {
        let mut clock = Misses::of(Software::TASK_CLOCK);
        if let Err(error) = &clock.0 {
            // A container, or a user who may count nothing.
            eprintln!("SKIPPED: perf_event_open: {error}");
            return;
        }
        let before = clock.so_far().unwrap();
        let (ran, has_run) = std::sync::mpsc::channel();
        let (end, is_end) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let own = || {
                let id = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
                Duration::from(nix::time::clock_gettime(id).unwrap())
            };
            while own() < Duration::from_millis(20) {}
            ran.send(()).unwrap();
            let _ = is_end.recv();
        });
        has_run.recv().unwrap();
        let seen = clock.so_far().unwrap() - before;
        drop(end);
        thread.join().unwrap();
        assert!(seen >= 15_000_000, "{seen} ns of 20 ms");
    }

    #[test]
    fn what_a_machine_does_not_count_has_a_reason() {
        let mut unknown = Misses::of(Cache {
            which: WhichCache::BPU,
            operation: CacheOp::PREFETCH,
            result: CacheResult::ACCESS,
        });
        let error = unknown.so_far().unwrap_err();
        assert!(!error.is_empty());
    }
}
