// SPDX-License-Identifier: GPL-2.0-only
//! A thread, as a recorder counted it, or several of one kind that have ended.

use super::{Class, Histogram, Policy};

/// What was counted from the begin of the recording or its birth to the end of the recording or its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// One for each thread: they tell wakers apart, and go no further.
    pub pids: Vec<i32>,
    /// Of the kernel.
    pub kernel: bool,
    /// What it is to scx_gpuaware.
    pub class: Class,
    /// -20 to 19
    pub nice: i32,
    /// The kernel's.
    pub policy: Policy,
    /// Where it may run; `None`: anywhere.
    pub cpus: Option<Vec<u32>>,
    /// During the recording.
    pub alive_ns: u64,
    /// On a CPU, without interrupts on top of it.
    pub cpu_ns: u64,
    /// Runnable, while others ran.
    pub ready_ns: u64,
    /// Switches away though it could have run.
    pub preempted: u64,
    /// Switches away by `sched_yield`.
    pub yielded: u64,
    /// Time on a CPU from one sleep to the next.
    pub run: Histogram,
    /// Sleeps that a timer or an interrupt ended.
    pub sleep_alone: Histogram,
    /// Sleeps that another thread ended.
    pub sleep_awaited: Histogram,
    /// From a wakeup to a CPU.
    pub wait: Histogram,
    /// Wakeups by timers.
    pub by_timer: u64,
    /// By interrupts of other sorts.
    pub by_interrupt: u64,
    /// By other threads: who, and how often.
    pub wakers: Vec<(i32, u64)>,
    /// By threads that there was no room for among these.
    pub by_others: u64,
}

impl Observed {
    /// Puts another one of its kind to it.
    pub(super) fn absorb(&mut self, other: Self) {
        self.pids.extend(other.pids);
        self.alive_ns += other.alive_ns;
        self.cpu_ns += other.cpu_ns;
        self.ready_ns += other.ready_ns;
        self.preempted += other.preempted;
        self.yielded += other.yielded;
        self.run.merge(&other.run);
        self.sleep_alone.merge(&other.sleep_alone);
        self.sleep_awaited.merge(&other.sleep_awaited);
        self.wait.merge(&other.wait);
        self.by_timer += other.by_timer;
        self.by_interrupt += other.by_interrupt;
        self.by_others += other.by_others;
        for (pid, count) in other.wakers {
            match self.wakers.iter_mut().find(|(own, _)| *own == pid) {
                Some((_, all)) => *all += count,
                None => self.wakers.push((pid, count)),
            }
        }
    }
}
