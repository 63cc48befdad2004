// SPDX-License-Identifier: GPL-2.0-only
//! What a line of a trace can be, whatever its format.

use crate::analyze::event::{Event, EventKind};
use crate::schema::{End, Header};

/// What the tracer's summary says it counted, before it dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Calls of cuLaunchKernel.
    DriverLaunches,
    /// Calls of cudaLaunchKernel.
    RuntimeLaunches,
    /// Scheduler rows that were not dropped.
    Switches,
    /// Hard interrupts.
    HardIrqs,
    /// Soft interrupts.
    SoftIrqs,
    /// Rows of any kind that found the ring buffer full.
    Dropped,
}

/// What a line was.
#[derive(Debug, PartialEq)]
pub enum Parsed {
    Event(Event),
    /// A header of cuda_sched_trace: another run may begin.
    Restart,
    Header(Box<Header>),
    End(Box<End>),
    Counted(Counter, u64),
    OtherVersion(u64),
    UnknownKind,
    Nothing,
}

impl Parsed {
    /// The largest of its durations and counts.
    pub fn largest(&self) -> u64 {
        match self {
            Self::Event(event) => match event.what {
                EventKind::IrqExit { duration_ns, .. } => duration_ns,
                EventKind::On(Some(off_cpu)) => off_cpu.off_ns,
                _ => 0,
            },
            Self::Counted(_, count) => *count,
            Self::End(end) => {
                let counts = end.counted.values().chain(end.lost.values());
                let all = counts.chain(end.missed_by.values());
                let largest = all.copied().max().unwrap_or_default();
                largest.max(end.missed).max(end.window_ns).max(end.windows)
            }
            _ => 0,
        }
    }
}
