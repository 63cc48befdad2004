// SPDX-License-Identifier: GPL-2.0-only
//! A machine's files of sysfs: read as they were recorded, and written for a program that reads a machine from there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path};

use anyhow::{Context, Result, bail, ensure};

use crate::machine::{Machine, MachineCpu};

/// CPUs of a list; Linux stops there as well.
const MAX_LISTED: usize = 8192;
/// Bus 0 has none.
const GPUS_IN_A_DOMAIN: usize = 255;

/// Their texts by path, below the folder that stands for `/sys`.
pub struct Tree(BTreeMap<String, String>);

impl Tree {
    /// What `tests/data/sysfs/record.sh` has written.
    pub fn parse(text: &str) -> Result<Self> {
        let mut files = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((path, value)) = line.split_once('=') else {
                bail!("line {}: expected PATH = TEXT", at + 1);
            };
            let (path, value) = (path.trim(), value.trim());
            match path.split_once('{').zip(path.split_once('}')) {
                Some(((head, rest), (_, tail))) => {
                    let numbers = rest.split('}').next().unwrap_or_default();
                    let numbers =
                        list(numbers).with_context(|| format!("line {}: {path}", at + 1))?;
                    files.extend(
                        numbers
                            .iter()
                            .map(|cpu| (format!("{head}{cpu}{tail}"), value.to_owned())),
                    );
                }
                None => {
                    files.insert(path.to_owned(), value.to_owned());
                }
            }
        }
        Ok(Self(files))
    }

    /// The machine. Only one whose CPUs that are online have numbers from 0 without a gap: the model has no others.
    pub fn machine(&self) -> Result<Machine> {
        let online = list(self.get("devices/system/cpu/online")?)?;
        ensure!(
            online.iter().enumerate().all(|(at, &cpu)| at == cpu),
            "some CPUs are offline, before others that are not, which the model does not have"
        );
        let (mut llcs, mut cpus) = (BTreeMap::new(), Vec::new());
        for &cpu in &online {
            let next = llcs.len();
            let shared = self.last_level_cache(cpu)?;
            cpus.push(MachineCpu {
                llc: *llcs.entry(shared).or_insert(next),
                node: self.node_of(cpu)?,
                core: list(self.core_of(cpu)?)?,
            });
        }
        Machine {
            cpus,
            nr_llcs: llcs.len(),
            gpus: self.gpus(),
        }
        .checked()
    }

    /// Of a machine that nobody recorded, as far as it is modelled.
    pub fn of(machine: &Machine) -> Self {
        let mut files = BTreeMap::new();
        let mut put = |path: String, text: String| files.insert(path, text);
        let all = format!("0-{}", machine.nr_cpus() - 1);
        for name in ["online", "possible", "present"] {
            put(format!("devices/system/cpu/{name}"), all.clone());
        }
        let mut llcs = BTreeMap::<usize, Vec<usize>>::new();
        let mut nodes = BTreeMap::<usize, Vec<usize>>::new();
        for (at, cpu) in machine.cpus.iter().enumerate() {
            llcs.entry(cpu.llc).or_default().push(at);
            nodes.entry(cpu.node).or_default().push(at);
        }
        for (at, cpu) in machine.cpus.iter().enumerate() {
            let folder = format!("devices/system/cpu/cpu{at}");
            put(
                format!("{folder}/topology/core_cpus_list"),
                listed(&cpu.core),
            );
            put(format!("{folder}/cache/index0/level"), "3".to_owned());
            put(
                format!("{folder}/cache/index0/shared_cpu_list"),
                listed(&llcs[&cpu.llc]),
            );
        }
        for (node, cpus) in &nodes {
            put(
                format!("devices/system/node/node{node}/cpulist"),
                listed(cpus),
            );
        }
        for (at, node) in machine.gpus.iter().enumerate() {
            let (domain, bus) = (at / GPUS_IN_A_DOMAIN, at % GPUS_IN_A_DOMAIN + 1);
            let folder = format!("bus/pci/devices/{domain:04x}:{bus:02x}:00.0");
            put(format!("{folder}/class"), "0x030200".to_owned());
            put(format!("{folder}/vendor"), "0x10de".to_owned());
            put(format!("{folder}/numa_node"), node.to_string());
            let local = nodes.get(node).map(|cpus| listed(cpus));
            put(
                format!("{folder}/local_cpulist"),
                local.unwrap_or(all.clone()),
            );
        }
        Self(files)
    }

    /// Writes them below `folder`, which must not exist.
    ///
    /// # Errors
    /// It exists, cannot be written, or a path leads out of it.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for path in self.0.keys() {
            let mut parts = Path::new(path).components();
            ensure!(
                parts.all(|part| matches!(part, Component::Normal(_))),
                "{path}: expected a path below /sys, without its first slash"
            );
        }
        fs::create_dir(folder).with_context(|| format!("making {}", folder.display()))?;
        for (path, text) in &self.0 {
            let file = folder.join(path);
            let above = file.parent().unwrap_or(folder);
            fs::create_dir_all(above)
                .and_then(|()| fs::write(&file, format!("{text}\n")))
                .with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }

    fn get(&self, path: &str) -> Result<&str> {
        let text = self.0.get(path).map(String::as_str);
        text.with_context(|| format!("the tree has no {path}"))
    }

    /// Who shares the cache of the highest level of `cpu`; without caches, its core.
    fn last_level_cache(&self, cpu: usize) -> Result<&str> {
        let folder = format!("devices/system/cpu/cpu{cpu}/cache/index");
        let levels = (0..10).filter_map(|index| {
            let level = self.0.get(&format!("{folder}{index}/level"))?;
            let shared = self.0.get(&format!("{folder}{index}/shared_cpu_list"))?;
            Some((level.parse::<u32>().ok()?, shared.as_str()))
        });
        match levels.max_by_key(|(level, _)| *level) {
            Some((_, shared)) => Ok(shared),
            None => self.core_of(cpu),
        }
    }

    /// Threads of the core of `cpu`, by its name before and after Linux 5.3.
    fn core_of(&self, cpu: usize) -> Result<&str> {
        let topology = format!("devices/system/cpu/cpu{cpu}/topology");
        let new = self.get(&format!("{topology}/core_cpus_list"));
        new.or_else(|_| self.get(&format!("{topology}/thread_siblings_list")))
    }

    /// Nodes of NVIDIA's GPUs. One whose node is not known counts as near the first.
    fn gpus(&self) -> Vec<usize> {
        let devices = self.0.iter().filter_map(|(path, class)| {
            let device = path.strip_suffix("/class")?;
            device.strip_prefix("bus/pci/devices/")?;
            let is_gpu = class.starts_with("0x03")
                && self.get(&format!("{device}/vendor")).ok()? == "0x10de";
            let node = self.get(&format!("{device}/numa_node"));
            is_gpu.then(|| node.ok().and_then(|node| node.parse().ok()).unwrap_or(0))
        });
        devices.collect()
    }

    fn node_of(&self, cpu: usize) -> Result<usize> {
        for (path, text) in &self.0 {
            let node = path.strip_prefix("devices/system/node/node");
            let node = node.and_then(|rest| rest.strip_suffix("/cpulist"));
            if let Some(node) = node
                && list(text)?.contains(&cpu)
            {
                return node
                    .parse()
                    .with_context(|| format!("{path}: not a number"));
            }
        }
        Ok(0)
    }
}

/// `0-3,8` as numbers.
fn list(text: &str) -> Result<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let number = text.trim().parse::<usize>().ok();
            number.with_context(|| format!("{text:?} is no CPU number"))
        };
        let (first, last) = (number(first)?, number(last)?);
        ensure!(
            last < MAX_LISTED,
            "{part:?}: at most {MAX_LISTED} CPUs, which have numbers from 0"
        );
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

/// Numbers as a list that `list` reads.
fn listed(numbers: &[usize]) -> String {
    let texts: Vec<String> = numbers.iter().map(usize::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(name: &str) -> Result<Machine> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/sysfs");
        let text = fs::read_to_string(format!("{folder}/{name}.txt")).unwrap();
        Tree::parse(&text).unwrap().machine()
    }

    #[test]
    fn recorded_machines_are_read() {
        let machine = recorded("desktop-24c-1gpu").unwrap();
        assert_eq!((machine.nr_cpus(), machine.nr_llcs), (48, 8));
        assert_eq!(machine.cpus[5].core, [5, 29]);
        let server = recorded("server-128t-8gpu-4nic").unwrap();
        assert_eq!(server.nr_cpus(), 128);
        let nodes: Vec<usize> = server.cpus.iter().map(|cpu| cpu.node).collect();
        assert!(nodes.contains(&0) && nodes.contains(&1));
        assert_eq!(server.gpus, [0, 0, 0, 0, 1, 1, 1, 1]);
        let chiplets = recorded("chiplet-2s-16llc").unwrap();
        assert_eq!((chiplets.nr_cpus(), chiplets.nr_llcs), (96, 16));
        // Those that are offline come after all others.
        assert_eq!(recorded("container-cpuset-0-5").unwrap().nr_cpus(), 32);
    }

    #[test]
    fn a_machine_with_cpus_that_are_offline_is_refused() {
        let error = recorded("offline-cpu0-node0").unwrap_err();
        assert!(error.to_string().contains("offline"), "{error}");
    }

    #[test]
    fn a_list_of_more_cpus_than_any_machine_has_is_refused() {
        let tree = format!("devices/system/cpu/online = 0-{}\n", usize::MAX);
        let error = Tree::parse(&tree).unwrap().machine().unwrap_err();
        assert!(
            format!("{error:#}").contains("at most 8192 CPUs"),
            "{error:#}"
        );
    }

    #[test]
    fn a_machine_that_was_generated_is_the_same_once_it_is_read_back() {
        for shape in ["2", "16x4x2x2x3", "128x16x2x1x8", "512x64x8x2x300"] {
            let machine = Machine::parse(shape).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().join("sys");
            Tree::of(&machine).write(&root).unwrap();
            let mut files = BTreeMap::new();
            let mut folders = vec![root.clone()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap() {
                    let path = entry.unwrap().path();
                    if path.is_dir() {
                        folders.push(path);
                        continue;
                    }
                    let text = fs::read_to_string(&path).unwrap();
                    let name = path.strip_prefix(&root).unwrap().display().to_string();
                    files.insert(name, text.trim().to_owned());
                }
            }
            assert_eq!(Tree(files).machine().unwrap(), machine, "{shape}");
        }
    }

    #[test]
    fn nothing_is_written_outside_the_folder_nor_over_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("sys");
        for path in ["../out", "/etc/out", "devices/../../out"] {
            let tree = Tree::parse(&format!("{path} = x\n")).unwrap();
            let error = tree.write(&root).unwrap_err().to_string();
            assert!(error.contains("below /sys"), "{path}: {error}");
            assert!(!root.exists());
        }
        let tree = Tree::parse("devices/system/cpu/online = 0\n").unwrap();
        tree.write(&root).unwrap();
        assert!(tree.write(&root).is_err());
    }
}
