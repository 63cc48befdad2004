// SPDX-License-Identifier: GPL-2.0-only
//! What a run of the tracer found, whatever ran it.

use std::process::ExitStatus;

use crate::schema::{Comm, End, Header, Kind, Name};
use crate::thread::Thread;

/// All of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What was known when tracing began.
    pub header: Header,
    /// What was known when it had ended.
    pub end: End,
    /// Every thread that was traced.
    pub threads: Vec<Thread>,
    /// Interrupts on top of them.
    pub irqs: Vec<IrqTotal>,
    /// Who preempted them.
    pub preemptors: Vec<PreemptorTotal>,
    /// Preemptions that found no room in that table.
    pub lost_preemptors: u64,
    /// Interrupts that found no room in theirs.
    pub lost_irqs: u64,
    /// How the command ended.
    pub command: Option<ExitStatus>,
}

/// Interrupts of one sort on top of traced threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IrqTotal {
    /// Hard, soft or of a vector.
    pub kind: Kind,
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: Name<32>,
    /// How many.
    pub count: u64,
    /// Their own time.
    pub self_ns: u64,
    /// The longest own time.
    pub worst_ns: u64,
}

/// What threads of one name took from the threads of a process by preempting them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreemptorTotal {
    /// Process of the victims.
    pub victim_tgid: i32,
    /// Name of who got the CPU first.
    pub comm: Comm,
    /// Preemptions.
    pub count: u64,
    /// Until the victim ran again.
    pub ns: u64,
}
