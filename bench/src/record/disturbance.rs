// SPDX-License-Identifier: GPL-2.0-only
//! What else the machines did while a cell was measured.

use serde::{Deserialize, Serialize};

/// From before the workload's start until its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The machine that the cell ran on.
    pub here: Option<Load>,
    /// In the lab: the machine that QEMU ran on.
    pub host: Option<Load>,
}

/// What took CPU time away on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub seconds: f64,
    pub cpus: u64,
    /// CPUs that processes were busy on which have nothing to do with the run.
    pub outside_cpus: f64,
    /// CPUs that the hypervisor kept for others.
    pub steal_cpus: f64,
    /// Times that a CPU throttled itself because of heat.
    pub throttles: u64,
    /// The CPUs' limits of frequency at the end over those at the beginning; absent: not known.
    pub clock_limit: Option<f64>,
    /// CPU time that a fixed piece of work in registers took, mean, in us: more on CPUs that are slower. Absent: not
    /// looked at.
    pub piece_us: Option<f64>,
    /// The same for a piece that waits for memory.
    pub loads_us: Option<f64>,
}

/// A measurement that was disturbed and done again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Discarded {
    pub tokens_per_s: f64,
    pub surroundings: Surroundings,
    pub reasons: Vec<String>,
}
