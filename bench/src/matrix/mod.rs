// SPDX-License-Identifier: GPL-2.0-only
//! A comparison as data: which workloads beside which neighbours under which arms, how often and
//! for how long. Reading and checking only; `run` executes it.

mod driver;
mod file;
mod keys;
mod model;
mod published;
mod reference;
mod scalar;
mod served;
mod sweep;
mod workload;

pub use driver::{Driver, Gpus};
pub use model::{Cgroups, Matrix};
pub use published::{Figure, Measure, Published, PublishedRow, Value};
pub use reference::{Reference, ReferenceRow, ReferenceSoftIrq};
pub use scalar::check_seconds;
pub use served::{Client, Launches, Requests, Served, Server};
pub use sweep::Sweep;
pub use workload::{GpuLaunch, LlmServer, Pipeline, Program, Recording, Sync, Trace, Workload};
