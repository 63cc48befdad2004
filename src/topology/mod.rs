// SPDX-License-Identifier: GPL-2.0-only
//! The machine from a sysfs root path: CPUs, cores, caches, nodes here, PCI devices in [`pci`]; how
//! much of each CPU goes to interrupts ([`irq_load`], pure); and which CPUs launchers and handoff
//! threads prefer ([`choose`], pure). Loads nothing and changes nothing.

pub mod capacity;
pub mod choose;
pub mod demand;
mod explain;
pub mod irq_load;
pub mod pci;
pub mod proc_stat;
pub mod score;
pub(crate) mod sysfs;
mod units;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use crate::policy::cpuset::CpuSet;

use capacity::Kind;

/// Where Linux mounts sysfs.
pub const SYSFS: &str = "/sys";

/// ACPI's distance of a node to itself, and the usual one to another where none is given.
const LOCAL_DISTANCE: u32 = 10;
const REMOTE_DISTANCE: u32 = 20;

/// One online CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// Number as in `/sys/devices/system/cpu/cpuN`.
    pub id: u32,
    /// Online CPUs of the same core, itself included.
    pub core: CpuSet,
    /// Index of its last-level cache, 0 to [`Topology::nr_llcs`].
    pub llc: usize,
    /// Its NUMA node; 0 where the machine describes none.
    pub node: u32,
    /// Speed in 1/1024 of the fastest CPU.
    pub capacity: u32,
    /// Performance or efficiency core.
    pub kind: Kind,
}

/// The CPUs of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The online ones, by ascending number.
    pub cpus: Vec<Cpu>,
    /// Present, but offline.
    pub offline: CpuSet,
    /// The online CPUs that preferred ones are chosen from: all, unless [`Topology::within`].
    pub allowed: CpuSet,
    /// One more than the largest possible CPU number.
    pub nr_cpu_ids: usize,
    /// Number of last-level caches.
    pub nr_llcs: usize,
    distances: BTreeMap<(u32, u32), u32>,
}

/// How often a machine whose CPUs come and go meanwhile is read again.
const MAX_ROUNDS: usize = 8;

/// What `read` makes of the CPUs that are online. The files of one that goes offline go while they are read: then
/// those that are left are read.
fn while_it_lasts<T>(
    list: impl Fn() -> Result<CpuSet>,
    read: impl Fn(CpuSet) -> Result<T>,
) -> Result<T> {
    let mut online = list()?;
    for _ in 1..MAX_ROUNDS {
        let found = read(online.clone());
        let now = list()?;
        if now == online {
            return found;
        }
        online = now;
    }
    read(online)
}

impl Topology {
    /// Reads `root/devices/system`, where `root` is [`SYSFS`] or a recorded tree.
    ///
    /// # Errors
    /// Files that are missing or do not hold CPU lists, with their path.
    pub fn read(root: &Path) -> Result<Self> {
        let list = || sysfs::list(&root.join("devices/system/cpu/online"));
        while_it_lasts(list, |online| Self::of(root, online))
    }

    fn of(root: &Path, online: CpuSet) -> Result<Self> {
        let dir = root.join("devices/system/cpu");
        let possible = sysfs::list(&dir.join("possible"))?;
        let present = sysfs::list(&dir.join("present")).unwrap_or_else(|_| online.clone());
        let nr_cpu_ids = possible.iter().last().map_or(0, |cpu| cpu as usize + 1);
        if online.is_empty() {
            bail!("{}: no CPU is online", dir.display());
        }
        let nodes = nodes(root);
        let capacities = capacity::read(root, &online);
        let mut llcs = BTreeMap::new();
        let mut cpus = Vec::new();
        for (id, (capacity, kind)) in online.iter().zip(capacities) {
            let cpu = dir.join(format!("cpu{id}"));
            let core = siblings(&cpu)?;
            let shared = last_level_cache(&cpu).unwrap_or_else(|| package(&cpu));
            let next = llcs.len();
            cpus.push(Cpu {
                id,
                core: intersection(&core, &online),
                llc: *llcs.entry(shared).or_insert(next),
                node: node_of(&nodes, id),
                capacity,
                kind,
            });
        }
        Ok(Self {
            cpus,
            offline: present.difference(&online),
            allowed: online,
            nr_cpu_ids,
            nr_llcs: llcs.len(),
            distances: distances(root, &nodes),
        })
    }

    /// The same machine for a process that may use `allowed` only, as in a container with a cpuset.
    /// A set without any online CPU is ignored: something has to be chosen.
    pub fn within(mut self, allowed: &CpuSet) -> Self {
        self.confine(allowed);
        self
    }

    /// The same of a process whose cpuset has changed since.
    pub fn confine(&mut self, allowed: &CpuSet) {
        let usable = intersection(&self.online(), allowed);
        if !usable.is_empty() {
            self.allowed = usable;
        }
    }

    /// The online CPUs.
    pub fn online(&self) -> CpuSet {
        CpuSet::new(self.cpus.iter().map(|cpu| cpu.id))
    }

    /// The online CPU with number `id`.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        let index = self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok()?;
        self.cpus.get(index)
    }

    /// Distance between two NUMA nodes as firmware gives it: 10 is the same node.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let usual = if from == to {
            LOCAL_DISTANCE
        } else {
            REMOTE_DISTANCE
        };
        self.distances.get(&(from, to)).copied().unwrap_or(usual)
    }
}

/// The CPUs that are in both.
pub fn intersection(a: &CpuSet, b: &CpuSet) -> CpuSet {
    CpuSet::new(a.iter().filter(|&cpu| b.contains(cpu)))
}

/// The core's CPUs under its old name, which every kernel has, or the new one.
fn siblings(cpu: &Path) -> Result<CpuSet> {
    let topology = cpu.join("topology");
    let new = sysfs::list(&topology.join("core_cpus_list"));
    new.or_else(|_| sysfs::list(&topology.join("thread_siblings_list")))
}

/// The CPUs that share `cpu`'s largest cache, as sysfs prints them. `None`: no cache is described,
/// as in many virtual machines.
fn last_level_cache(cpu: &Path) -> Option<String> {
    let index = (0..8)
        .map(|index| cpu.join(format!("cache/index{index}")))
        .take_while(|dir| dir.exists())
        .max_by_key(|dir| sysfs::number::<u32>(&dir.join("level")))?;
    sysfs::text(&index.join("shared_cpu_list"))
}

/// Stands in for the cache where none is described.
fn package(cpu: &Path) -> String {
    let id = sysfs::text(&cpu.join("topology/physical_package_id"));
    format!("package {}", id.as_deref().unwrap_or("0"))
}

/// The online NUMA nodes and their CPUs, by ascending number.
fn nodes(root: &Path) -> BTreeMap<u32, CpuSet> {
    let dir = root.join("devices/system/node");
    let number = |name: &String| name.strip_prefix("node")?.parse::<u32>().ok();
    let cpus = |id: u32| sysfs::list(&dir.join(format!("node{id}/cpulist"))).ok();
    sysfs::entries(&dir)
        .iter()
        .filter_map(|name| number(name).and_then(|id| Some((id, cpus(id)?))))
        .collect()
}

fn node_of(nodes: &BTreeMap<u32, CpuSet>, cpu: u32) -> u32 {
    nodes
        .iter()
        .find(|(_, cpus)| cpus.contains(cpu))
        .map_or(0, |(&id, _)| id)
}

/// `nodeN/distance` has one number for each online node, in ascending order.
fn distances(root: &Path, nodes: &BTreeMap<u32, CpuSet>) -> BTreeMap<(u32, u32), u32> {
    let mut distances = BTreeMap::new();
    for &from in nodes.keys() {
        let file = root.join(format!("devices/system/node/node{from}/distance"));
        let line = sysfs::text(&file).unwrap_or_default();
        for (&to, value) in nodes.keys().zip(line.split_whitespace()) {
            if let Ok(distance) = value.parse() {
                distances.insert((from, to), distance);
            }
        }
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_file_that_is_missing() {
        let root = tempfile::tempdir().unwrap();
        let error = Topology::read(root.path()).unwrap_err();
        assert!(format!("{error:#}").contains("cpu/online"), "{error:#}");
    }

    #[test]
    fn a_cpu_that_goes_while_it_is_read_is_no_error_and_one_that_stays_is() {
        let read = |lists: &[&str]| {
            let lists = std::cell::RefCell::new(lists.iter().rev().collect::<Vec<_>>());
            let list = || -> Result<CpuSet> {
                let mut lists = lists.borrow_mut();
                let next = if lists.len() > 1 {
                    lists.pop()
                } else {
                    lists.last().copied()
                };
                Ok(next.unwrap().parse()?)
            };
            while_it_lasts(list, |online| {
                anyhow::ensure!(!online.contains(1), "CPU 1 has no files");
                Ok(online.len())
            })
        };
        assert_eq!(read(&["0-1", "0"]).unwrap(), 1);
        assert_eq!(read(&["0-1", "0,2", "0"]).unwrap(), 1);
        assert!(read(&["0-1"]).is_err());
        assert!(
            read(&[
                "0-1", "0-2", "0-1", "0-2", "0-1", "0-2", "0-1", "0-2", "0-1"
            ])
            .is_err()
        );
    }

    #[test]
    fn reads_this_machine() {
        let topology = Topology::read(Path::new(SYSFS)).unwrap();
        assert_eq!(topology.allowed, topology.online());
        assert!(topology.cpus.iter().all(|cpu| cpu.core.contains(cpu.id)));
    }

    #[test]
    fn holes_nodes_of_memory_alone_and_no_caches_are_taken_as_they_are() {
        let siblings = [0, 1, 4, 5].map(|cpu| {
            let file = format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            (file, format!("{cpu}\n"))
        });
        let mut files = vec![
            ("devices/system/cpu/online", "0-1,4-5\n"),
            ("devices/system/cpu/possible", "0-7\n"),
            ("devices/system/node/node0/cpulist", "0-1\n"),
            ("devices/system/node/node0/distance", "10 20 40\n"),
            ("devices/system/node/node1/cpulist", "\n"),
            ("devices/system/node/node1/distance", "20 10 40\n"),
            ("devices/system/node/node2/cpulist", "4-5\n"),
            ("devices/system/node/node2/distance", "40 40 10\n"),
        ];
        files.extend(
            siblings
                .iter()
                .map(|(file, cpu)| (file.as_str(), cpu.as_str())),
        );
        let root = crate::proc::tests::host(&files);
        let topology = Topology::read(root.path()).unwrap();
        assert_eq!(topology.online().to_string(), "0-1,4-5");
        assert_eq!((topology.nr_cpu_ids, topology.nr_llcs), (8, 1));
        let node = |cpu| topology.cpu(cpu).unwrap().node;
        assert_eq!((node(1), node(5)), (0, 2));
        assert_eq!((topology.distance(0, 1), topology.distance(0, 2)), (20, 40));
    }

    #[test]
    fn an_allowed_set_without_online_cpus_is_ignored() {
        let topology = Topology::read(Path::new(SYSFS)).unwrap();
        let online = topology.online();
        let mut topology = topology.within(&CpuSet::new([1023]));
        assert_eq!(topology.allowed, online);
        let last = CpuSet::new(online.iter().last());
        topology.confine(&last);
        assert_eq!(topology.allowed, last);
        topology.confine(&online);
        assert_eq!(topology.allowed, online, "a cpuset may grow again");
    }
}
