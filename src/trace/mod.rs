// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler and interrupts do to the threads that launch GPU work, measured.
//!
//! Works under any scheduler and changes nothing. `session` is one run; `kernel` and `calls` hold
//! what is attached; the rest turns events and counters into files and tables and is pure.

pub mod analyze;
mod calls;
mod decode;
pub mod export;
mod kernel;
mod order;
pub mod schema;
pub mod session;
pub mod summary;
pub mod target;
pub mod threads;
mod window;
