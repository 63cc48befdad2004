// SPDX-License-Identifier: GPL-2.0-only
//! One event as the analysis sees it, whichever format it came from. Owns no reading, no counting.

use std::collections::HashMap;

use serde::Serialize;

/// Names kept apart. Thread names are few; a file that is not what it claims must not fill memory.
const MAX_NAMES: usize = 16_384;
const OTHER: &str = "(other names)";

/// A thread or interrupt name, kept once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(u32);

/// The names of one file.
#[derive(Debug)]
pub struct Names {
    known: HashMap<Box<str>, Name>,
    texts: Vec<Box<str>>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            texts: vec![OTHER.into()],
        }
    }
}

impl Names {
    /// The name with this text; all share one once there are too many.
    pub fn keep(&mut self, text: &str) -> Name {
        if let Some(&name) = self.known.get(text) {
            return name;
        }
        if self.texts.len() >= MAX_NAMES {
            return Name::default();
        }
        let name = Name(self.texts.len() as u32);
        self.texts.push(text.into());
        self.known.insert(text.into(), name);
        name
    }

    /// The text of `name`.
    pub fn text(&self, name: Name) -> &str {
        self.texts
            .get(name.0 as usize)
            .map_or(OTHER, |text| text.as_ref())
    }
}

/// A thread.
pub type Tid = i32;

/// What happened, when, where and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Nanoseconds of the trace's clock. Negative: before the tracer's own zero.
    pub time_ns: i64,
    /// Process, as the file says: cuda_sched_trace writes the TID here in scheduler rows.
    pub tgid: i32,
    /// Thread.
    pub tid: Tid,
    /// CPU it happened on.
    pub cpu: u32,
    /// Name of the thread.
    pub comm: Name,
    /// What happened.
    pub what: EventKind,
}

/// What happened to the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// It asked for GPU work.
    Launch {
        /// Through which interface.
        api: Api,
        /// Digest of grid, block, shared memory and stream: tells the same launch seen twice.
        shape: u64,
    },
    /// It began to wait for the GPU.
    SyncEnter,
    /// It ended waiting for the GPU.
    SyncExit,
    /// It left the CPU.
    Off {
        /// Why, where the tracer knows.
        why: OffReason,
        /// Who ran next, where the tracer knows.
        next: Option<(Tid, Name)>,
    },
    /// It came onto the CPU.
    On(Option<OffCpu>),
    /// An interrupt began on top of it.
    IrqEnter(Irq),
    /// An interrupt ended on top of it.
    IrqExit {
        /// Which.
        irq: Irq,
        /// How long it took, others that were nested in it included.
        duration_ns: u64,
        /// How long without them; where the tracer does not know, entries and exits tell.
        self_ns: Option<u64>,
    },
    /// It ended: its id may come back as another's.
    Exit,
    /// From here on launches are recorded.
    WindowOpen,
    /// From here on they are not.
    WindowClose,
}

/// The time off the CPU that has just ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OffCpu {
    /// Why.
    pub why: OffReason,
    /// How long.
    pub off_ns: u64,
    /// The part of it in which the thread could have run.
    pub wait_ns: u64,
}

/// Who was asked for the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Api {
    /// libcuda.
    Driver,
    /// libcudart, which then calls libcuda.
    Runtime,
    /// libcuda, a graph of many kernels.
    Graph,
}

/// Why a thread left the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OffReason {
    /// Somebody else was given the CPU while it could go on.
    Preempted,
    /// It called sched_yield.
    Yielded,
    /// It waits for something.
    Blocked,
    /// The tracer did not record it.
    Unknown,
}

/// An interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Irq {
    /// Of which kind.
    pub kind: IrqKind,
    /// Interrupt number or soft interrupt vector.
    pub number: u32,
    /// Name of the handler or the vector.
    pub name: Name,
}

/// The kinds of interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IrqKind {
    /// A device asked for attention.
    Hard,
    /// The kernel's deferred work.
    Soft,
    /// The timer, a reschedule, a function call: no handler of its own.
    Vector,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_bounded() {
        let mut names = Names::default();
        let a = names.keep("qwen3");
        assert_eq!(names.keep("qwen3"), a);
        assert_eq!(names.text(a), "qwen3");
        for at in 0..2 * MAX_NAMES {
            names.keep(&format!("thread-{at}"));
        }
        assert_eq!(names.texts.len(), MAX_NAMES);
        let over = names.keep("one too many");
        assert_eq!(names.text(over), OTHER);
    }
}
