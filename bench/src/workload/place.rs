// SPDX-License-Identifier: GPL-2.0-only
//! Where a workload runs: the programs, the CPUs that are the launcher's, and the cgroup that an arm makes for it.

use std::path::Path;

use anyhow::Result;

use crate::arm::WorkloadSettings;
use crate::cgroup::Cgroup;

/// Where a workload runs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The folder of built programs.
    pub target: &'a Path,
    /// The CPUs that arms may use for the launcher.
    pub preferred: &'a str,
}

/// The arm's cgroup for the workload, if it has one.
pub fn cgroup(settings: &WorkloadSettings) -> Result<Option<Cgroup>> {
    let mut cgroup = settings.cgroup.as_deref().map(Cgroup::make).transpose()?;
    if let Some(cgroup) = &mut cgroup {
        if let Some(cpus) = &settings.cpuset {
            cgroup.confine(cpus, settings.isolated)?;
        }
        if let Some(weight) = settings.weight {
            cgroup.weigh(weight)?;
        }
    }
    Ok(cgroup)
}
