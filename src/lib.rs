// SPDX-License-Identifier: GPL-2.0-only
//! scx_gpuaware: a sched_ext scheduler that keeps GPU launch threads running beside noisy
//! neighbours.
//!
//! Imports run downward only: `cli` -> `top` -> {`sched`, `doctor`, `trace`} -> `identify` ->
//! {`policy`, `topology`}. `bpf` holds what the build generated; only `sched`, `identify` and
//! `trace` use it. The other files and `proc` belong to nobody and import none of these.

mod bpf;
mod bpffs;
pub mod cli;
pub mod doctor;
pub mod identify;
mod limits;
mod listed;
mod namespaces;
mod pidfd;
pub mod policy;
pub mod proc;
mod running;
pub mod sched;
pub mod shutdown;
pub mod top;
pub mod topology;
pub mod trace;
mod unread;

pub use gpuaware_trace::printable;
