// SPDX-License-Identifier: GPL-2.0-only
//! A settled arm: what its file and those that it includes say, and how its placeholders are filled in.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::thread::ThreadSettings;
use crate::cpus;
use crate::datafile::DataError;
use crate::need::Need;
use crate::program;

/// The default of the kernel: an arm that says nothing of a weight has this one.
const DEFAULT_WEIGHT: u32 = 100;
/// Of a workload whose matrix wants it apart and whose arm names none.
const WORKLOAD_CGROUP: &str = "gpuaware-bench-workload";
const ARGS: &str = "{args}";

/// An arm. Nothing is required of a single file: one that it includes may say it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Arm {
    /// The stem of a file in the same folder, or a path from there. What this file says replaces what that one
    /// says, key by key. Of a settled arm there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include: Option<String>,
    pub description: String,
    /// Absent: the kernel's own scheduler.
    pub scheduler: Option<Scheduler>,
    pub workload: WorkloadSettings,
    pub neighbours: NeighbourSettings,
    pub boot: Boot,
    /// What must be there; what is missing becomes the reason in the arm's rows.
    pub needs: Vec<Need>,
    /// What `{file:NAME}` in a command stands for, by name. In an arm file it is left out: the files
    /// lie beside it. A plan carries them, so that a run says all of what was compared.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

/// A sched_ext scheduler that runs beside the cells of its arm.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scheduler {
    /// Program and arguments. A program without a path is one of `make peers`, or on the PATH.
    pub command: Vec<String>,
    /// What the word `{args}` in commands stands for: where arms that include this one differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The name that /sys/kernel/sched_ext/root/ops shows once it has attached.
    pub ops: String,
    /// A line on its stderr that contains this says that it has attached; absent: ops is enough.
    pub attached_line: Option<String>,
    /// Prints which threads it protects, as JSON, near the end of each cell.
    pub marks: Option<Vec<String>>,
    /// Prints the settings in effect: kept beside the logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Vec<String>>,
    /// A program that runs beside it: program and arguments, started once it has attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub companion: Option<Vec<String>>,
    /// A line on the companion's stderr that contains this says that it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub companion_line: Option<String>,
    /// BPF objects that it leaves pinned: removed before it starts and after it has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadSettings {
    /// Put before the workload's command; it must exec, not fork.
    pub prefix: Vec<String>,
    /// What is done to threads of the workload once they are there, by their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadSettings>,
    /// The workload runs in this cgroup, a folder below the root of the hierarchy.
    pub cgroup: Option<String>,
    /// The cgroup's CPUs, a list.
    pub cpuset: Option<String>,
    /// The cgroup's CPUs are an isolated partition: no other cgroup may use them.
    pub isolated: bool,
    /// The cgroup's `cpu.weight`; absent: it has no cpu controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// With a cpuset, `idle` or a weight the neighbours run in a cgroup of their own.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NeighbourSettings {
    /// Put before the command of each program; it must exec, not fork.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prefix: Vec<String>,
    /// The cgroup's CPUs, a list.
    pub cpuset: Option<String>,
    /// The cgroup's `cpu.idle` is 1: it runs when nobody else wants to.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// The cgroup's `cpu.weight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Boot {
    /// Arms with other boot arguments cannot share the boot; this says so to the reader.
    pub own_boot: bool,
    pub args: Vec<String>,
    /// The lab's kernel for this arm, a series; absent: the matrix's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

impl Arm {
    /// Fills in the launcher's CPUs and the others. `{target}` stays: where the programs lie is no part
    /// of a comparison, and a plan must not carry the paths of one machine.
    pub fn with_cpus(mut self, preferred: &str, others: &str) -> Self {
        self.replace("{preferred}", preferred);
        self.replace("{others}", others);
        if let Ok(cpus) = cpus::parse_list(preferred) {
            self.replace("{nr_preferred}", &cpus.len().to_string());
        }
        self
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

    /// The workload and the neighbours in cgroups of their own with a share of the CPUs each, as services of a
    /// production host are. Cgroups that the arm names stay, and so do weights that it sets.
    pub fn in_separate_cgroups(mut self) -> Self {
        let workload = &mut self.workload;
        workload
            .cgroup
            .get_or_insert_with(|| WORKLOAD_CGROUP.to_owned());
        workload.weight.get_or_insert(DEFAULT_WEIGHT);
        if !self.neighbours.idle {
            self.neighbours.weight.get_or_insert(DEFAULT_WEIGHT);
        }
        self
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

    /// Reads the files that its commands name and that lie beside it.
    pub(super) fn read_files(&mut self, folder: &Path) -> Result<(), DataError> {
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
                fs::read_to_string(&file).map_err(|why| DataError::Read { file, why })?;
            self.files.insert(name, contents);
        }
        Ok(())
    }

    fn replace(&mut self, name: &str, value: &str) {
        let commands = self.scheduler.iter_mut().flat_map(Scheduler::commands);
        let threads = self.workload.threads.iter_mut();
        let words = self
            .workload
            .prefix
            .iter_mut()
            .chain(self.boot.args.iter_mut())
            .chain(self.workload.cpuset.iter_mut())
            .chain(threads.filter_map(|thread| thread.cpus.as_mut()))
            .chain(self.neighbours.prefix.iter_mut())
            .chain(self.neighbours.cpuset.iter_mut())
            .chain(self.files.values_mut())
            .chain(commands.flatten());
        for word in words {
            *word = word.replace(name, value);
        }
    }
}

impl NeighbourSettings {
    /// Whether they run in a cgroup of their own.
    pub fn confined(&self) -> bool {
        self.cpuset.is_some() || self.idle || self.weight.is_some()
    }
}

impl Scheduler {
    /// Puts the arguments where the commands want them.
    pub(super) fn place_args(&mut self) {
        let args = std::mem::take(&mut self.args);
        for command in self.commands() {
            let words = command.drain(..);
            let placed: Vec<String> = words
                .flat_map(|word| match word.as_str() {
                    ARGS => args.clone(),
                    _ => vec![word],
                })
                .collect();
            *command = placed;
        }
    }

    pub(super) fn commands(&mut self) -> impl Iterator<Item = &mut Vec<String>> {
        [&mut self.command]
            .into_iter()
            .chain(&mut self.marks)
            .chain(&mut self.companion)
            .chain(&mut self.settings)
    }
}
