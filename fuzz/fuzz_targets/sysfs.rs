// SPDX-License-Identifier: GPL-2.0-only
//! Machines as `/sys` and `/proc` show them, in the form of `tests/data/sysfs`: read, chosen from, examined.
#![no_main]

use std::fs;
use std::path::{Component, Path};

use libfuzzer_sys::{Corpus, fuzz_target};
use scx_gpuaware::doctor;
use scx_gpuaware::policy::cpuset::CpuSet;
use scx_gpuaware::topology::Topology;
use scx_gpuaware::topology::choose::{PreferredRules, choose};
use scx_gpuaware::topology::demand::Demand;
use scx_gpuaware::topology::irq_load::IrqVerdicts;
use scx_gpuaware::topology::pci::Devices;

/// More would only be slow.
const MOST_FILES: usize = 300;

/// Writes `content` to `path` below `root`, unless that leads out of it or is a folder already.
fn write(root: &Path, path: &str, content: &str) {
    let path = Path::new(path);
    let stays = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if stays && !path.as_os_str().is_empty() && !path.as_os_str().as_encoded_bytes().contains(&0) {
        let path = root.join(path);
        let _ = path.parent().map(fs::create_dir_all);
        let _ = fs::write(path, format!("{content}\n"));
    }
}

/// `PATH = TEXT` a line, `{LIST}` in PATH stands for each number of a CPU list. Below `sys`, unless PATH begins with
/// `proc/`, `boot/` or `etc/`.
fn unfold(root: &Path, text: &str) {
    let mut nr_files = 0;
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
    {
        let Some((path, content)) = line.split_once(" =") else {
            continue;
        };
        let elsewhere = ["proc/", "boot/", "etc/"]
            .iter()
            .any(|top| path.starts_with(top));
        let path = if elsewhere {
            path.to_owned()
        } else {
            format!("sys/{path}")
        };
        let list = path.split_once('{').and_then(|(before, rest)| {
            let (list, after) = rest.split_once('}')?;
            Some((before, list.parse::<CpuSet>().ok()?, after))
        });
        let paths: Vec<_> = match list {
            Some((before, cpus, after)) => cpus
                .iter()
                .take(64)
                .map(|cpu| format!("{before}{cpu}{after}"))
                .collect(),
            None => vec![path],
        };
        for path in paths {
            write(root, &path, content.trim());
            nr_files += 1;
        }
        if nr_files > MOST_FILES {
            break;
        }
    }
}

fuzz_target!(|text: &str| -> Corpus {
    let Ok(root) = tempfile::tempdir() else {
        return Corpus::Reject;
    };
    unfold(root.path(), text);
    let findings = doctor::examine(&doctor::gather(root.path()));
    assert!(!findings.is_empty());
    let sysfs = root.path().join("sys");
    if let Ok(topology) = Topology::read(&sysfs) {
        let (devices, irq) = (Devices::read(&sysfs), IrqVerdicts::default());
        for launch in [0, 1, 100] {
            let demand = Demand { launch, handoff: 1 };
            let choice = choose(
                &topology,
                &devices,
                &irq,
                demand,
                &PreferredRules::default(),
                None,
            );
            assert!(choice.cpus.difference(&topology.online()).is_empty());
        }
    }
    Corpus::Keep
});
