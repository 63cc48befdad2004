// SPDX-License-Identifier: GPL-2.0-only
//! Tasks of the classes above, as a scenario has them.

/// Classes above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Higher {
    RealTime,
    Deadline,
}

impl Higher {
    /// `SCX_CPU_PREEMPT_…`
    pub fn reason(self) -> u32 {
        match self {
            Self::RealTime => 0,
            Self::Deadline => 1,
        }
    }

    /// As the kernel counts: below 100, and below 0.
    pub fn prio(self) -> i32 {
        match self {
            Self::RealTime => 49,
            Self::Deadline => -1,
        }
    }
}

/// A task of a class above, pinned to a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Above {
    pub class: Higher,
    pub cpu: usize,
    pub start_ns: u64,
    /// From one wakeup to the next.
    pub period_ns: u64,
    /// How long it runs each time.
    pub lasts_ns: u64,
}
