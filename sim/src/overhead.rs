// SPDX-License-Identifier: GPL-2.0-only
//! What the machine, the kernel and the scheduler take of a CPU's time.

use crate::callbacks::{FREQUENT, NATIVE_NS};

/// What things cost and how often the tick comes. Fixed figures, not measured ones: docs/simulator.md.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Costs {
    pub tick_ns: u64,
    /// From one task to another, before it gets anything done.
    pub switch_ns: u64,
    /// Until a kick has got from irq_work to the CPU.
    pub kick_ns: u64,
    /// An interrupt of another CPU.
    pub ipi_ns: u64,
    /// Out of the idle state.
    pub idle_exit_ns: u64,
    /// What a waker pays for a wakeup.
    pub wake_ns: u64,
    /// How fast a thread is while another one of its core runs, in percent.
    pub smt_percent: u64,
    /// Until what a task needs is in a cache that it moved to; in that of another node.
    pub llc_ns: u64,
    pub node_ns: u64,
    /// How fast a task is that uses a GPU of another node, in percent.
    pub remote_percent: u64,
    /// What a call of each of [`FREQUENT`] takes from the CPU that makes it.
    pub callback_ns: [u64; FREQUENT.len()],
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            tick_ns: 4_000_000,
            switch_ns: 1_500,
            kick_ns: 1_000,
            ipi_ns: 1_000,
            idle_exit_ns: 2_000,
            wake_ns: 1_000,
            smt_percent: 62,
            llc_ns: 20_000,
            node_ns: 60_000,
            remote_percent: 85,
            callback_ns: NATIVE_NS,
        }
    }
}
