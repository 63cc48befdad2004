// SPDX-License-Identifier: GPL-2.0-only
//! An arm: one way to protect the launcher, as data. A scheduler to run, a prefix and a cgroup for
//! the workload, arguments for the kernel's command line, and what it needs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cpus;
use crate::datafile::{self, DataError};
use crate::need::Need;
use crate::program;

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
    pub neighbours: NeighbourSettings,
    #[serde(default)]
    pub boot: Boot,
    /// What must be there; what is missing becomes the reason in the arm's rows.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// What `{file:NAME}` in a command stands for, by name. In an arm file it is left out: the files
    /// lie beside it. A plan carries them, so that a run says all of what was compared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

/// A sched_ext scheduler that runs beside the cells of its arm.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// Program and arguments. A program without a path is one of `make peers`, or on the PATH.
    pub command: Vec<String>,
    /// The name that /sys/kernel/sched_ext/root/ops shows once it has attached.
    pub ops: String,
    /// A line on its stderr that contains this says that it has attached; absent: ops is enough.
    #[serde(default)]
    pub attached_line: Option<String>,
    /// Prints which threads it protects, as JSON, near the end of each cell.
    #[serde(default)]
    pub marks: Option<Vec<String>>,
    /// Prints the settings in effect: kept beside the logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Vec<String>>,
    /// A program that runs beside it: program and arguments, started once it has attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub companion: Option<Vec<String>>,
    /// A line on the companion's stderr that contains this says that it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub companion_line: Option<String>,
    /// BPF objects that it leaves pinned: removed before it starts and after it has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSettings {
    /// Put before the workload's command; it must exec, not fork.
    #[serde(default)]
    pub prefix: Vec<String>,
    /// The workload runs in this cgroup, a folder below the root of the hierarchy.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// The cgroup's CPUs, a list.
    #[serde(default)]
    pub cpuset: Option<String>,
    /// The cgroup's CPUs are nobody else's: an isolated partition.
    #[serde(default)]
    pub isolated: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourSettings {
    /// The neighbours run in a cgroup on these CPUs, a list.
    #[serde(default)]
    pub cpuset: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// Arms with other boot arguments cannot share the boot; this says so to the reader.
    #[serde(default)]
    pub own_boot: bool,
    #[serde(default)]
    pub args: Vec<String>,
    /// The lab's kernel for this arm, a series; absent: the matrix's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

impl Arm {
    /// Reads the arm and fills in `{preferred}`. `{target}` stays: where the programs lie is no part
    /// of a comparison, and a plan must not carry the paths of one machine.
    pub fn read(file: &Path, preferred: &str) -> Result<Self, DataError> {
        let mut arm: Self = datafile::read(file)?;
        let Boot {
            own_boot,
            args,
            kernel,
        } = &arm.boot;
        if *own_boot != (!args.is_empty() || kernel.is_some()) {
            return Err(DataError::Usage(format!(
                "{}: boot: expected own_boot = true exactly when args or a kernel are given",
                file.display()
            )));
        }
        let is_empty = |command: &mut Vec<String>| command.is_empty();
        let mut scheduler = arm.scheduler.iter_mut();
        if scheduler.any(|scheduler| scheduler.commands().any(is_empty)) {
            return Err(DataError::Usage(format!(
                "{}: scheduler: expected commands of a program and its arguments, got an empty one",
                file.display()
            )));
        }
        if let Some(cgroup) = &arm.workload.cgroup
            && (cgroup.is_empty() || cgroup.contains('/') || cgroup.starts_with('.'))
        {
            return Err(DataError::Usage(format!(
                "{}: workload.cgroup: expected the name of one folder, got {cgroup:?}",
                file.display()
            )));
        }
        if (arm.workload.cpuset.is_some() || arm.workload.isolated)
            && (arm.workload.cgroup.is_none() || arm.workload.cpuset.is_none())
        {
            return Err(DataError::Usage(format!(
                "{}: workload.cpuset: expected with a workload.cgroup, and isolated with both",
                file.display()
            )));
        }
        arm.read_files(file.parent().unwrap_or(Path::new(".")))?;
        arm.replace("{preferred}", preferred);
        if let Ok(cpus) = cpus::parse_list(preferred) {
            arm.replace("{nr_preferred}", &cpus.len().to_string());
        }
        Ok(arm)
    }

    /// The arm with the programs of this machine.
    pub fn with_programs_in(&self, target_dir: &Path) -> Self {
        let mut arm = self.clone();
        arm.replace("{target}", &target_dir.to_string_lossy());
        for command in arm.scheduler.iter_mut().flat_map(Scheduler::commands) {
            if let Some(name) = command.first_mut().filter(|name| !name.contains('/'))
                && let Some(path) = program::find(name)
            {
                *name = path.to_string_lossy().into_owned();
            }
        }
        arm
    }

    /// The arm with `{others}` filled in: the CPUs that are not the launcher's.
    pub fn with_others(&self, others: &str) -> Self {
        let mut arm = self.clone();
        arm.replace("{others}", others);
        arm
    }

    /// Writes the files of the arm's commands into `folder`, and their paths into the commands.
    pub fn write_files(&mut self, folder: &Path) -> Result<()> {
        for (name, contents) in self.files.clone() {
            let base = Path::new(&name).file_name().unwrap_or_default();
            let path = folder.join(base);
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(&path, contents))
                .with_context(|| format!("cannot write {}", path.display()))?;
            self.replace(&format!("{{file:{name}}}"), &path.to_string_lossy());
        }
        Ok(())
    }

    fn read_files(&mut self, folder: &Path) -> Result<(), DataError> {
        let words = self.scheduler.iter_mut().flat_map(Scheduler::commands);
        let names: Vec<String> = words
            .flatten()
            .filter_map(|word| {
                let (_, rest) = word.split_once("{file:")?;
                Some(rest.split_once('}')?.0.to_owned())
            })
            .collect();
        for name in names {
            let file = folder.join(&name);
            let contents =
                fs::read_to_string(&file).map_err(|source| DataError::Read { file, source })?;
            self.files.insert(name, contents);
        }
        Ok(())
    }

    fn replace(&mut self, name: &str, value: &str) {
        let commands = self.scheduler.iter_mut().flat_map(Scheduler::commands);
        let words = self
            .workload
            .prefix
            .iter_mut()
            .chain(self.boot.args.iter_mut())
            .chain(self.workload.cpuset.iter_mut())
            .chain(self.neighbours.cpuset.iter_mut())
            .chain(self.files.values_mut())
            .chain(commands.flatten());
        for word in words {
            *word = word.replace(name, value);
        }
    }
}

impl Scheduler {
    fn commands(&mut self) -> impl Iterator<Item = &mut Vec<String>> {
        [&mut self.command]
            .into_iter()
            .chain(&mut self.marks)
            .chain(&mut self.companion)
            .chain(&mut self.settings)
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
        let excluded = shipped("cpuset-excluded").with_others("0-5");
        assert_eq!(excluded.neighbours.cpuset.as_deref(), Some("0-5"));
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
    fn files_beside_an_arm_travel_with_it() {
        let mut arm = shipped("scx_layered-protected");
        let [contents] = arm.files.values().collect::<Vec<_>>()[..] else {
            panic!("one file: {:?}", arm.files)
        };
        let layers: serde_json::Value = serde_json::from_str(contents).unwrap();
        assert_eq!(
            layers[0]["kind"]["Grouped"]["cpus_range"],
            serde_json::json!([2, 2])
        );
        let hints = [&layers[0], &layers[1]].map(|layer| &layer["matches"][0][0]["HintEquals"]);
        assert_eq!(hints, [1, 2], "what scx_gpuaware feed writes");

        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("arms/x");
        arm.write_files(&folder).unwrap();
        let command = arm.scheduler.unwrap().command;
        let named = format!("f:{}", folder.join("scx_layered-protected.json").display());
        assert!(command.contains(&named), "{command:?}");
        assert!(folder.join("scx_layered-protected.json").is_file());
    }

    #[test]
    fn every_shipped_arm_can_be_read_and_written() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scheds/arms");
        for name in datafile::names(&folder).unwrap() {
            let arm = shipped(&name);
            let text = serde_json::to_string(&arm).unwrap();
            let back: Arm = serde_json::from_str(&text).unwrap();
            assert_eq!(back.needs, arm.needs, "{name}");
            assert!(!text.contains("{nr_preferred}"), "{name}: {text}");
        }
    }

    #[test]
    fn says_which_needs_there_are_and_which_file_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.toml");
        let refusal = |text: &str| {
            fs::write(&file, text).unwrap();
            Arm::read(&file, "1").unwrap_err().to_string()
        };
        let error = refusal("description = \"x\"\nneeds = [\"luck\"]\n");
        assert!(
            error.contains("x.toml:2: needs: expected sched_ext"),
            "{error}"
        );
        let error = refusal(
            "description = \"x\"\n[scheduler]\nops = \"x\"\ncommand = [\"x\", \"{file:y.json}\"]\n",
        );
        assert!(error.contains("y.json: cannot read"), "{error}");
        let error = refusal("description = \"x\"\n[workload]\ncpuset = \"1\"\n");
        assert!(error.contains("expected with a workload.cgroup"), "{error}");
        let error = refusal("description = \"x\"\n[workload]\ncgroup = \"../x\"\n");
        assert!(error.contains("workload.cgroup: expected"), "{error}");
    }

    #[test]
    fn an_arm_may_have_a_kernel_of_its_own() {
        let cfs = shipped("cfs");
        assert!(cfs.boot.own_boot && cfs.needs == [Need::Cfs]);
        assert!(
            cfs.boot
                .kernel
                .is_some_and(|kernel| !crate::kernel_release::has_eevdf(&kernel))
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
