// SPDX-License-Identifier: GPL-2.0-only
//! An arm: one way to protect the launcher, as data. A scheduler to run, what is done to the workload, its threads
//! and the neighbours, arguments for the kernel's command line, and what it needs.

mod file;
mod model;
mod thread;

pub use model::{Arm, Boot, NeighbourSettings, Scheduler, WorkloadSettings};
pub use thread::ThreadSettings;
