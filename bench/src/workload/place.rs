// SPDX-License-Identifier: GPL-2.0-only
//! Where a workload runs: the programs, and the CPUs that are the launcher's.

use std::path::Path;

/// Where a workload runs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The folder of built programs.
    pub target: &'a Path,
    /// The CPUs that arms may use for the launcher.
    pub preferred: &'a str,
}
