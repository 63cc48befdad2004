// SPDX-License-Identifier: GPL-2.0-only
//! The machine's CPUs from a sysfs root path, and the choice of preferred ones.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::policy::cpuset::CpuSet;

/// Where Linux mounts sysfs.
pub const SYSFS: &str = "/sys";

/// One online CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// Number as in `/sys/devices/system/cpu/cpuN`.
    pub id: u32,
    /// CPUs of the same core, itself included.
    pub core: CpuSet,
    /// Index of its last-level cache, 0 to [`Topology::nr_llcs`].
    pub llc: usize,
}

/// The online CPUs of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// By ascending number.
    pub cpus: Vec<Cpu>,
    /// One more than the largest possible CPU number.
    pub nr_cpu_ids: usize,
    /// Number of last-level caches.
    pub nr_llcs: usize,
}

impl Topology {
    /// Reads `root/devices/system/cpu`, where `root` is [`SYSFS`] or a recorded tree.
    ///
    /// # Errors
    /// Files that are missing or do not hold CPU lists, with their path.
    pub fn read(root: &Path) -> Result<Self> {
        let dir = root.join("devices/system/cpu");
        let online = read_list(&dir.join("online"))?;
        let possible = read_list(&dir.join("possible"))?;
        let nr_cpu_ids = possible.iter().last().map_or(0, |cpu| cpu as usize + 1);
        if online.is_empty() {
            bail!("{}: no CPU is online", dir.display());
        }
        let mut llcs = BTreeMap::new();
        let mut cpus = Vec::new();
        for id in online.iter() {
            let cpu = dir.join(format!("cpu{id}"));
            let core = read_list(&cpu.join("topology/thread_siblings_list"))?;
            let shared = last_level_cache(&cpu).unwrap_or_else(|| package(&cpu));
            let next = llcs.len();
            let llc = *llcs.entry(shared).or_insert(next);
            cpus.push(Cpu { id, core, llc });
        }
        Ok(Self {
            cpus,
            nr_cpu_ids,
            nr_llcs: llcs.len(),
        })
    }

    /// The online CPUs.
    pub fn online(&self) -> CpuSet {
        CpuSet::new(self.cpus.iter().map(|cpu| cpu.id))
    }

    /// Whole cores for launchers when nobody named any: at most a quarter of the machine but at
    /// least one core, from the highest-numbered down, so not CPU 0, where interrupts and the
    /// kernel's housekeeping gather.
    pub fn choose_preferred(&self) -> CpuSet {
        let mut cores: Vec<&CpuSet> = Vec::new();
        for cpu in self.cpus.iter().rev() {
            if !cores.contains(&&cpu.core) {
                cores.push(&cpu.core);
            }
        }
        if cores.len() > 1 {
            cores.retain(|core| !core.contains(0));
        }
        let budget = self.cpus.len() / 4;
        let mut chosen: Vec<u32> = Vec::new();
        for core in cores {
            if !chosen.is_empty() && chosen.len() + core.len() > budget {
                break;
            }
            chosen.extend(core.iter());
        }
        CpuSet::new(chosen)
    }
}

fn read_list(path: &Path) -> Result<CpuSet> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    if text.trim().is_empty() {
        return Ok(CpuSet::default());
    }
    text.parse().with_context(|| path.display().to_string())
}

/// The CPUs that share `cpu`'s largest cache, as sysfs prints them. `None`: no cache is described,
/// as in many virtual machines.
fn last_level_cache(cpu: &Path) -> Option<String> {
    let index = (0..8)
        .map(|index| cpu.join(format!("cache/index{index}")))
        .take_while(|dir| dir.exists())
        .max_by_key(|dir| {
            read_trimmed(&dir.join("level")).and_then(|level| level.parse::<u32>().ok())
        })?;
    read_trimmed(&index.join("shared_cpu_list"))
}

/// Stands in for the cache where none is described.
fn package(cpu: &Path) -> String {
    let id = read_trimmed(&cpu.join("topology/physical_package_id"));
    format!("package {}", id.as_deref().unwrap_or("0"))
}

fn read_trimmed(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs tree of `nr` CPUs with `threads` a core and `per_llc` a cache, Linux's usual
    /// numbering: siblings are half the machine apart.
    fn tree(nr: u32, threads: u32, per_llc: u32) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("devices/system/cpu");
        let cores = nr / threads;
        let write = |path: &str, text: String| {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("online", format!("0-{}\n", nr - 1));
        write("possible", format!("0-{}\n", nr - 1));
        for cpu in 0..nr {
            let siblings = CpuSet::new((0..threads).map(|thread| cpu % cores + thread * cores));
            write(
                &format!("cpu{cpu}/topology/thread_siblings_list"),
                siblings.to_string(),
            );
            let llc = cpu % cores / per_llc;
            write(&format!("cpu{cpu}/cache/index0/level"), "1".into());
            write(
                &format!("cpu{cpu}/cache/index0/shared_cpu_list"),
                siblings.to_string(),
            );
            write(&format!("cpu{cpu}/cache/index1/level"), "3".into());
            write(
                &format!("cpu{cpu}/cache/index1/shared_cpu_list"),
                format!("llc{llc}"),
            );
        }
        root
    }

    fn preferred(nr: u32, threads: u32) -> String {
        let root = tree(nr, threads, 4);
        Topology::read(root.path())
            .unwrap()
            .choose_preferred()
            .to_string()
    }

    #[test]
    fn reads_cores_and_last_level_caches() {
        let root = tree(16, 2, 4);
        let topology = Topology::read(root.path()).unwrap();
        assert_eq!(topology.nr_cpu_ids, 16);
        assert_eq!(topology.nr_llcs, 2);
        assert_eq!(topology.cpus[9].core, CpuSet::new([1, 9]));
        assert_eq!(topology.cpus[9].llc, topology.cpus[1].llc);
        assert_ne!(topology.cpus[7].llc, topology.cpus[0].llc);
    }

    #[test]
    fn prefers_whole_cores_up_to_a_quarter_and_not_cpu_0() {
        assert_eq!(preferred(2, 1), "1");
        assert_eq!(preferred(4, 2), "1,3");
        assert_eq!(preferred(8, 1), "6-7");
        assert_eq!(preferred(16, 2), "6-7,14-15");
        assert_eq!(preferred(24, 1), "18-23");
    }

    #[test]
    fn prefers_the_only_core_there_is() {
        assert_eq!(preferred(1, 1), "0");
        assert_eq!(preferred(2, 2), "0-1");
    }

    #[test]
    fn names_the_file_that_is_missing() {
        let root = tempfile::tempdir().unwrap();
        let error = Topology::read(root.path()).unwrap_err();
        assert!(format!("{error:#}").contains("cpu/online"), "{error:#}");
    }

    #[test]
    fn reads_this_machine() {
        let topology = Topology::read(Path::new(SYSFS)).unwrap();
        assert!(!topology.choose_preferred().is_empty());
    }
}
