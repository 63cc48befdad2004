// SPDX-License-Identifier: GPL-2.0-only
//! `/proc/irq` below an injected root: reads and writes affinities, decides nothing.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::ledger::{Line, Target};
use super::mask;
use crate::limits;
use crate::policy::cpuset::CpuSet;

/// The affinities of the machine.
#[derive(Debug)]
pub struct ProcIrq {
    dir: PathBuf,
}

impl ProcIrq {
    /// Below `root`, which is `/proc` or a copy of it.
    pub fn new(root: &Path) -> Self {
        Self {
            dir: root.join("irq"),
        }
    }

    /// Every affinity as it is now. An interrupt that vanishes while it is read is passed over.
    ///
    /// # Errors
    /// There are none, or too few descriptors are free to tell.
    pub fn read(&self) -> Result<Vec<Line>> {
        limits::expect_free_files()?;
        let entries =
            fs::read_dir(&self.dir).with_context(|| format!("reading {}", self.dir.display()))?;
        let irqs = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let mut targets: Vec<Target> = irqs.map(Target::Irq).chain([Target::Default]).collect();
        targets.sort();
        let lines = targets.into_iter().filter_map(|target| self.line(target));
        Ok(lines.collect())
    }

    /// One affinity. `None`: there is no such thing (any more).
    pub fn line(&self, target: Target) -> Option<Line> {
        let Target::Irq(irq) = target else {
            return self.default();
        };
        let folder = self.dir.join(irq.to_string());
        let affinity = read_list(&folder.join("smp_affinity_list"))?;
        // Absent on kernels that do not track where an interrupt really goes.
        let effective = read_list(&folder.join("effective_affinity_list"));
        Some(Line {
            target,
            name: handlers(&folder),
            effective: effective.unwrap_or_else(|| affinity.clone()),
            affinity,
        })
    }

    fn default(&self) -> Option<Line> {
        let text = fs::read_to_string(self.default_file()).ok()?;
        let affinity = mask::parse(&text).filter(|cpus| !cpus.is_empty())?;
        Some(Line {
            target: Target::Default,
            name: String::new(),
            effective: CpuSet::default(),
            affinity,
        })
    }

    /// # Errors
    /// The kernel's: `NotFound` if the interrupt is gone, EIO or EPERM if it cannot be moved.
    pub fn write(&self, target: Target, cpus: &CpuSet) -> io::Result<()> {
        match target {
            Target::Default => write_existing(&self.default_file(), &mask::format(cpus)),
            Target::Irq(irq) => {
                let file = self.dir.join(irq.to_string()).join("smp_affinity_list");
                write_existing(&file, &cpus.to_string())
            }
        }
    }

    fn default_file(&self) -> PathBuf {
        self.dir.join("default_smp_affinity")
    }
}

/// Does irqbalance run? Looked for by name among the processes below `root`.
pub fn irqbalance_runs(root: &Path) -> bool {
    let Ok(entries) = fs::read_dir(root) else {
        return false;
    };
    entries.flatten().any(|entry| {
        fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == "irqbalance")
    })
}

/// Who handles the interrupt: each handler is a folder of that name.
fn handlers(folder: &Path) -> String {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<_> = folders
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names.join(", ")
}

fn read_list(file: &Path) -> Option<CpuSet> {
    fs::read_to_string(file).ok()?.parse().ok()
}

/// One write to a file that must be there: the kernel takes an affinity whole or not at all.
fn write_existing(file: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(file)?;
    file.write_all(format!("{text}\n").as_bytes())
}
