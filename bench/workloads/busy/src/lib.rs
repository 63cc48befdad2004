// SPDX-License-Identifier: GPL-2.0-only
//! What workloads in Rust are made of: CPU time that is burnt, GPU time through libcuda, what a thread has used.

mod clock;
mod driver;
pub mod pieces;
mod sync;

pub use clock::{CpuSeconds, Switches, Usage, burn, burn_cpu, monotonic_ns, spin};
pub use driver::Driver;
pub use sync::Sync;
