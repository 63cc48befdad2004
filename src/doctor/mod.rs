// SPDX-License-Identifier: GPL-2.0-only
//! Can scx_gpuaware work on this host, and what stands in its way?
//!
//! `gather` reads the facts below a root path; `checks` judges them and is pure. Nothing is changed.

mod checks;
mod cmdline;
mod config;
mod facts;
mod finding;
mod gather;
mod libraries;
mod servers;
mod waking;

pub use checks::examine;
pub use config::KernelConfig;
pub use facts::{Facts, Gpu, Realtime};
pub use finding::{Finding, Verdict};
pub use gather::gather;
pub use libraries::Libcuda;
pub use servers::Server;
pub use waking::Waking;
