// SPDX-License-Identifier: GPL-2.0-only
//! scx_gpuaware: a sched_ext scheduler that keeps GPU launch threads running beside noisy
//! neighbours.
//!
//! Imports run downward only: `cli` -> `top` -> {`sched`, `doctor`, `trace`} -> `identify` ->
//! {`policy`, `topology`}. `bpf` holds what the build generated; only `sched`, `identify` and
//! `trace` use it. `pidfd` belongs to nobody.

mod bpf;
pub mod cli;
pub mod doctor;
pub mod identify;
mod pidfd;
pub mod policy;
pub mod sched;
pub mod top;
pub mod topology;
pub mod trace;
