// SPDX-License-Identifier: GPL-2.0-only
//! An arm: one way to protect the launcher, as data. A scheduler to run, a prefix for the
//! workload's command, arguments for the kernel's command line, and what it needs.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::datafile::{self, DataError};

/// An arm file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    pub description: String,
    /// Absent: the kernel's own scheduler.
    #[serde(default)]
    pub scheduler: Option<Scheduler>,
    #[serde(default)]
    pub workload: WorkloadSettings,
    #[serde(default)]
    pub boot: Boot,
    /// What must be there; what is missing becomes the reason in the arm's rows.
    #[serde(default)]
    pub needs: Vec<Need>,
}

/// A sched_ext scheduler that runs beside the cells of its arm.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    pub command: Vec<String>,
    /// The name that /sys/kernel/sched_ext/root/ops shows once it has attached.
    pub ops: String,
    /// A line on its stderr that contains this says that it has attached; absent: ops is enough.
    #[serde(default)]
    pub attached_line: Option<String>,
    /// Prints which threads it protects, as JSON, near the end of each cell.
    #[serde(default)]
    pub marks: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSettings {
    /// Put before the workload's command; it must exec, not fork.
    #[serde(default)]
    pub prefix: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// Arms with other boot arguments cannot share the boot; this says so to the reader.
    #[serde(default)]
    pub own_boot: bool,
    #[serde(default)]
    pub args: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// A kernel with sched_ext, and no `isolcpus=` on its command line.
    SchedExt,
    /// CPUs that the kernel shows as isolated: the preferred ones.
    IsolatedCpus,
}

impl Arm {
    /// Reads the arm and fills in `{preferred}`. `{target}` stays: where the programs lie is no part
    /// of a comparison, and a plan must not carry the paths of one machine.
    pub fn read(file: &Path, preferred: &str) -> Result<Self, DataError> {
        let mut arm: Self = datafile::read(file)?;
        if arm.boot.own_boot == arm.boot.args.is_empty() {
            return Err(DataError::Usage(format!(
                "{}: boot: expected own_boot = true exactly when args are given",
                file.display()
            )));
        }
        if arm
            .scheduler
            .as_ref()
            .is_some_and(|scheduler| scheduler.command.is_empty())
        {
            return Err(DataError::Usage(format!(
                "{}: scheduler.command: expected a program and its arguments",
                file.display()
            )));
        }
        arm.replace("{preferred}", preferred);
        Ok(arm)
    }

    /// The arm with the programs of this machine.
    pub fn with_programs_in(&self, target_dir: &Path) -> Self {
        let mut arm = self.clone();
        arm.replace("{target}", &target_dir.to_string_lossy());
        arm
    }

    fn replace(&mut self, name: &str, value: &str) {
        let scheduler = self.scheduler.iter_mut().flat_map(|scheduler| {
            scheduler
                .command
                .iter_mut()
                .chain(scheduler.marks.iter_mut().flatten())
        });
        let words = self
            .workload
            .prefix
            .iter_mut()
            .chain(self.boot.args.iter_mut())
            .chain(scheduler);
        for word in words {
            *word = word.replace(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped(name: &str) -> Arm {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheds/arms");
        let file = datafile::find("arm", name, &folder).unwrap();
        Arm::read(&file, "6-7").unwrap()
    }

    #[test]
    fn shipped_arms_are_filled_in() {
        assert!(shipped("eevdf").scheduler.is_none());
        assert_eq!(
            shipped("taskset-nice").workload.prefix,
            ["taskset", "-c", "6-7", "nice", "-n", "-10"]
        );
        let isolcpus = shipped("isolcpus");
        assert!(isolcpus.boot.own_boot);
        assert!(
            isolcpus.boot.args[0].starts_with("isolcpus=")
                && isolcpus.boot.args[0].ends_with("6-7")
        );
        let arm = shipped("gpuaware").with_programs_in(Path::new("/t"));
        let scheduler = arm.scheduler.unwrap();
        assert_eq!(
            scheduler.command,
            ["/t/release/scx_gpuaware", "--preferred-cpus", "6-7"]
        );
    }

    #[test]
    fn refuses_boot_arguments_on_a_shared_boot() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.toml");
        std::fs::write(&file, "description = \"x\"\n[boot]\nargs = [\"quiet\"]\n").unwrap();
        let error = Arm::read(&file, "1").unwrap_err().to_string();
        assert!(
            error.contains("x.toml: boot: expected own_boot = true"),
            "{error}"
        );
    }
}
