// SPDX-License-Identifier: GPL-2.0-only
//! What a line of a trace can be, whatever its format.

use crate::trace::analyze::event::Event;
use crate::trace::schema::{End, Header};

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
