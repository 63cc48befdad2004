// SPDX-License-Identifier: GPL-2.0-only
//! Traces of what the scheduler and interrupts do to threads that launch GPU work: what is in them, the formats in which
//! they are written, and what can be said from them.
//!
//! The tracer itself, which needs BPF and root, is `src/trace` of scx_gpuaware; nothing here knows of it. `schema` is
//! what a trace is; `export` writes it and `analyze` reads it; `outcome` and `thread` are what a run counted, and
//! `summary` shows that. `profile` is a whole host, recorded for the simulator. Nothing here opens a file or asks for the
//! time.

pub mod analyze;
pub mod export;
pub mod outcome;
pub mod printable;
pub mod profile;
pub mod schema;
pub mod summary;
pub mod thread;
