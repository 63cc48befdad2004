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
    use perf_event::events::Software;

    use super::*;

    /// Software counts are everywhere, and come by the same way.
    #[test]
    fn counts_in_threads_that_come_later_and_still_live() {
        let mut faults = Misses::of(Software::PAGE_FAULTS);
        if let Err(error) = &faults.0 {
            // A container, or a user who may count nothing.
            eprintln!("SKIPPED: perf_event_open: {error}");
            return;
        }
        let before = faults.so_far().unwrap();
        let (touched, is_touched) = std::sync::mpsc::channel();
        let (end, is_end) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let pages = vec![1u8; 64 << 20];
            touched.send(pages.len()).unwrap();
            let _ = is_end.recv();
        });
        assert_eq!(is_touched.recv().unwrap(), 64 << 20);
        let seen = faults.so_far().unwrap() - before;
        drop(end);
        thread.join().unwrap();
        // With huge pages there are few.
        assert!(seen >= 32, "{seen}");
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
