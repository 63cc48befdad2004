// SPDX-License-Identifier: GPL-2.0-only
//! Recorded sysfs trees, unfolded. Their form: `PATH = TEXT` a line, where `{LIST}` in PATH stands for
//! each number of a CPU list; `#` begins a comment. `tests/data/sysfs/record.sh` writes it.

use std::path::{Path, PathBuf};

use scx_gpuaware::policy::cpuset::CpuSet;
use tempfile::TempDir;

use crate::process::repository;

/// The machine `tests/data/sysfs/NAME.txt`.
pub fn machine(name: &str) -> TempDir {
    let file = repository().join(format!("tests/data/sysfs/{name}.txt"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    unfold(&text)
}

/// A tree from its text.
pub fn unfold(text: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (path, content) = line.split_once(" =").expect("PATH = TEXT");
        for path in paths(root.path(), path) {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{}\n", content.trim())).unwrap();
        }
    }
    root
}

fn paths(root: &Path, path: &str) -> Vec<PathBuf> {
    let Some((before, rest)) = path.split_once('{') else {
        return vec![root.join(path)];
    };
    let (list, after) = rest.split_once('}').expect("a closing brace");
    let cpus: CpuSet = list.parse().unwrap();
    cpus.iter()
        .map(|cpu| root.join(format!("{before}{cpu}{after}")))
        .collect()
}
