// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler and interrupts do to the threads that launch GPU work, measured.
//!
//! Works under any scheduler and changes nothing. `session` is one run; `kernel` and `calls` hold
//! what is attached. `record` is a run that records a whole host for the simulator; `recorder`
//! holds what that attaches besides. The rest turns what the kernel side says into records and
//! threads and is pure. What these are, and what is made of them, is the crate gpuaware-trace.

mod calls;
mod decode;
mod kernel;
mod observed;
mod order;
pub mod record;
mod recorder;
pub mod session;
pub mod target;
mod threads;
mod window;
mod wire;
