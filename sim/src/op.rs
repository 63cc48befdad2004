// SPDX-License-Identifier: GPL-2.0-only
//! What a task wants of the kernel.

use crate::dsq::TaskId;

/// What a task does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Needs a CPU for so long, at full speed.
    Run(u64),
    /// Sleeps until its timer fires.
    Sleep(u64),
    /// Sleeps until somebody wakes it.
    Wait,
    /// Starts a timer, whose interrupt will wake another task.
    Arm {
        task: TaskId,
        ns: u64,
    },
    /// A system call that is over at once.
    Call,
    /// Wakes another task, and says whether it will sleep at once itself.
    Wake {
        task: TaskId,
        sync: bool,
    },
    /// Wakes one of these tasks that awaits that, from the one of that number on.
    WakeOne {
        first: TaskId,
        count: usize,
        from: usize,
    },
    /// Sleeps until another one does so, or for so long.
    Await(u64),
    Yield,
    Exit,
}
