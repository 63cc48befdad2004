// SPDX-License-Identifier: GPL-2.0-only
//! What is known of callbacks that come in between each other: interleave.rs has how they do.

use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;

use crate::dsq::TaskId;

/// How often, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interleaving {
    /// One of so many points, on average.
    pub points: u32,
    /// What is due within this time: so long may a callback take.
    pub window_ns: u64,
}

/// A wakeup whose CPU is selected.
#[derive(Debug, Clone, Copy)]
pub struct Woken {
    pub task: TaskId,
    pub by: usize,
    pub cpu: usize,
    pub flags: u64,
}

/// What waits for a lock, with the CPU that waits.
#[derive(Debug, Clone, Copy)]
pub enum Late {
    Wakeup { task: TaskId, by: usize, sync: u64 },
    Enqueue(Woken),
}

impl Late {
    fn by(self) -> usize {
        match self {
            Self::Wakeup { by, .. } => by,
            Self::Enqueue(woken) => woken.by,
        }
    }
}

/// A callback that others have come in between.
#[derive(Debug)]
pub struct Frame {
    pub cpu: usize,
    /// Whose run queue it has locked.
    pub locked: Option<usize>,
}

/// The state of it.
#[derive(Debug)]
pub struct Interleave {
    pub spec: Interleaving,
    pub rng: Pcg64Mcg,
    pub frames: Vec<Frame>,
    pub late: VecDeque<Late>,
    /// Those go on, one after the other: else all that happens could happen within them, for ever.
    pub catches_up: bool,
}

impl Interleave {
    /// Does `cpu` run a callback, or wait for the lock of one?
    pub fn is_in_callback(&self, cpu: usize) -> bool {
        let is_it = |frame: &Frame| frame.cpu == cpu || frame.locked == Some(cpu);
        self.frames.iter().any(is_it) || self.is_late(cpu)
    }

    /// Does it wait for one?
    pub fn is_late(&self, cpu: usize) -> bool {
        self.late.iter().any(|late| late.by() == cpu)
    }
}
