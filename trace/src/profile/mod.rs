// SPDX-License-Identifier: GPL-2.0-only
//! A recorded profile of a host: what the simulator needs to do as it does, and nothing that says whose it is. Numbers,
//! and words of this file: no name, argument, path, user or address. The page for people is `docs/tracing.md`.
//!
//! `observed` is what a recorder counted of one thread, `group` puts threads of one kind together, `text` writes and
//! reads. A change that old readers would misread takes a new [`VERSION`].

pub mod group;
mod histogram;
pub mod observed;
pub mod text;

use serde::{Deserialize, Serialize};

pub use histogram::{Bucket, Histogram, NR_BUCKETS};

/// Version of the schema.
pub const VERSION: u32 = 1;
/// CPUs that a profile may have.
pub const MAX_CPUS: usize = 1024;
/// Threads that a profile may have in all groups together, one after the other too.
pub const MAX_THREADS: u64 = 100_000_000;

/// A host for a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`VERSION`]
    pub schema: u32,
    /// Of the recording.
    pub length_ns: u64,
    /// Ticks a second of the kernel; `None`: not known.
    pub hz: Option<u32>,
    /// Its CPUs and GPUs.
    pub machine: Machine,
    /// One for each CPU, in their order.
    pub interrupts: Vec<Interrupts>,
    /// Threads that slept all the time. They are in no group.
    pub quiet_threads: u64,
    /// Threads, switches and interrupts that were not counted: 0 unless something is wrong.
    pub missed: u64,
    /// All other threads.
    pub groups: Vec<Group>,
}

/// CPUs by number, from 0 without a gap, whatever their numbers on the host: those that were online.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// In the order of their numbers.
    pub cpus: Vec<Cpu>,
    /// The node of each GPU.
    pub gpus: Vec<usize>,
}

/// Numbers of what a CPU belongs to, each from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Threads of one core have the same.
    pub core: usize,
    /// Last-level cache.
    pub llc: usize,
    /// NUMA node.
    pub node: usize,
}

/// How many interrupts of a sort came, and how long their handlers took in all, nothing twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count(pub u64, pub u64);

/// Of one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interrupts {
    /// Of devices.
    pub hard: Count,
    /// Softirqs.
    pub soft: Count,
    /// Ticks and other timers, where the kernel tells them from devices.
    pub timer: Count,
    /// From other CPUs: most are the scheduler's own.
    pub ipi: Count,
}

/// What a thread is to scx_gpuaware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It launches GPU work.
    Launch,
    /// It hands work to launchers.
    Handoff,
    /// Everybody else.
    Background,
}

/// What the kernel's policy of scheduling is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// `SCHED_OTHER`, `SCHED_BATCH` and `SCHED_EXT`.
    Normal,
    /// `SCHED_IDLE`
    Idle,
    /// `SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`: above all others.
    RealTime,
}

/// Where threads may run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// Anywhere.
    All,
    /// Each on any of these CPUs.
    AnyOf(Vec<u32>),
    /// On one CPU each: a number for each thread.
    Each(Vec<u32>),
}

/// Who ended sleeps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WokenBy {
    /// Timers.
    pub timer: u64,
    /// Interrupts of devices, softirqs, other CPUs.
    pub interrupt: u64,
    /// Threads that are in no group.
    pub unknown: u64,
    /// Threads of these groups, by their place in the file, and how often.
    pub groups: Vec<(usize, u64)>,
}

/// Threads of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// How many were there, one after the other too.
    pub threads: u64,
    /// How long they lived during the recording, all together.
    pub alive_ns: u64,
    /// Threads of the kernel.
    pub kernel: bool,
    /// As scx_gpuaware has them, or as they were seen to launch.
    pub class: Class,
    /// -20 to 19
    pub nice: i32,
    /// The kernel's.
    pub policy: Policy,
    /// Where they may run.
    pub affinity: Affinity,
    /// On a CPU, interrupts on top left out.
    pub cpu_ns: u64,
    /// Runnable, while others ran.
    pub ready_ns: u64,
    /// Switches away though they could have run.
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
    /// Who woke them.
    pub woken_by: WokenBy,
}
