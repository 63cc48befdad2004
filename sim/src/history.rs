// SPDX-License-Identifier: GPL-2.0-only
//! What becomes of tasks, one by one. Kept only for who asks for it: a second of many CPUs has millions.

use crate::dsq::TaskId;

/// What becomes of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedEvent {
    /// It is made runnable: it begins, or it is woken.
    Wakeup,
    /// It gets the CPU.
    SwitchIn,
    /// It loses the CPU and could go on.
    Preempted,
    /// It waits for something else.
    Blocked,
    Exited,
}

/// When and where. Of a wakeup the CPU is the waker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    pub at_ns: u64,
    pub cpu: usize,
    pub task: TaskId,
    pub event: SchedEvent,
}
