// SPDX-License-Identifier: GPL-2.0-only
//! The integration tests, one binary. The folder is the tier:
//!
//! - `host`: no rights, no special kernel.
//! - `root`: loads BPF programs into this kernel (probes, not the scheduler).
//! - `vm`: needs a sched_ext kernel. `make test` runs these in the lab; elsewhere they are ignored.
//! - `gpu`: needs a GPU with its own driver.
//!
//! A tier that cannot run says so on standard error, whatever the test runner captures. Tiers
//! named in `GPUAWARE_REQUIRE` (comma-separated) fail instead. `length` says what is shorter in the gate.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bench;
mod bpffs;
mod disturbed;
mod gpu;
mod host;
mod length;
mod process;
mod root;
mod sysfs;
mod tier;
mod times;
mod vm;
