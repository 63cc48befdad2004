// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduler's BPF programs cost, by the kernel's own statistics
//! (`kernel.bpf_stats_enabled`), which bpftool reads. Counting costs two clock reads a run, so it is
//! on only where a matrix asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::watchdog::{Cleanup, Guarded};

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Runs of a program in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    pub runs: u64,
    pub ns: u64,
}

/// A scheduler's programs by name.
pub type Programs = BTreeMap<String, Runs>;

/// Has the kernel count while it lives; afterwards the switch is as it was.
#[derive(Debug)]
pub struct Counting {
    before: String,
    _guard: Guarded,
}

impl Counting {
    pub fn start() -> Result<Self> {
        let before = fs::read_to_string(SWITCH).with_context(|| format!("cannot read {SWITCH}"))?;
        let guard = Guarded::new(Cleanup::File {
            path: SWITCH.into(),
            text: before.trim().to_owned(),
        });
        fs::write(SWITCH, "1").with_context(|| format!("cannot switch on {SWITCH}"))?;
        Ok(Self {
            before,
            _guard: guard,
        })
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(SWITCH, self.before.trim()) {
            eprintln!("gpuaware-bench: warning: cannot restore {SWITCH}: {error}");
        }
    }
}

#[derive(Deserialize)]
struct Listed {
    id: u32,
    #[serde(default)]
    name: String,
    #[serde(default)]
    run_time_ns: u64,
    #[serde(default)]
    run_cnt: u64,
}

/// What the programs that process `pid` holds have cost since they were loaded.
pub fn programs_of(pid: u32) -> Result<Programs> {
    let output = Command::new("bpftool")
        .args(["--json", "prog", "show"])
        .output()
        .context("cannot start bpftool: make setup installs it")?;
    if !output.status.success() {
        bail!(
            "bpftool failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let programs = parse(&String::from_utf8_lossy(&output.stdout), &held_by(pid)?)?;
    if programs.is_empty() {
        bail!("bpftool shows no BPF program of process {pid}");
    }
    Ok(programs)
}

/// The numbers of the programs that a process holds: not every bpftool tells.
fn held_by(pid: u32) -> Result<BTreeSet<u32>> {
    let folder = format!("/proc/{pid}/fdinfo");
    let files = fs::read_dir(&folder).with_context(|| format!("cannot list {folder}"))?;
    let prog_id = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("prog_id:"));
        line?.trim().parse().ok()
    };
    Ok(files
        // A descriptor may be closed meanwhile.
        .filter_map(|file| fs::read_to_string(file.ok()?.path()).ok())
        .filter_map(prog_id)
        .collect())
}

fn parse(json: &str, held: &BTreeSet<u32>) -> Result<Programs> {
    let listed: Vec<Listed> = serde_json::from_str(json)
        .context("bpftool's list of programs is not what it should be")?;
    let mut programs = Programs::new();
    for program in listed {
        if held.contains(&program.id) {
            let entry = programs.entry(program.name).or_default();
            entry.runs += program.run_cnt;
            entry.ns += program.run_time_ns;
        }
    }
    Ok(programs)
}

/// What ran between two readings; programs that did not run are left out.
pub fn between(begin: &Programs, end: &Programs) -> Programs {
    end.iter()
        .map(|(name, end)| {
            let begin = begin.get(name).copied().unwrap_or_default();
            let runs = Runs {
                runs: end.runs.saturating_sub(begin.runs),
                ns: end.ns.saturating_sub(begin.ns),
            };
            (name.clone(), runs)
        })
        .filter(|(_, runs)| runs.runs > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"[
        {"id":3,"type":"struct_ops","name":"x_enqueue","run_time_ns":500,"run_cnt":5},
        {"id":4,"type":"cgroup_device","name":"sd_devices"},
        {"id":5,"type":"tracing","name":"idle"},
        {"id":6,"type":"tracing","name":"nobodys"}]"#;

    #[test]
    fn a_process_has_the_programs_that_it_holds() {
        let programs = parse(LIST, &BTreeSet::from([3, 5])).unwrap();
        assert_eq!(programs.keys().collect::<Vec<_>>(), ["idle", "x_enqueue"]);
        assert_eq!(programs["x_enqueue"], Runs { runs: 5, ns: 500 });
        assert!(parse("{}", &BTreeSet::new()).is_err());
    }

    #[test]
    fn a_window_has_what_ran_in_it() {
        let begin = parse(LIST, &BTreeSet::from([3, 5])).unwrap();
        let mut end = begin.clone();
        end.insert("x_enqueue".into(), Runs { runs: 9, ns: 1300 });
        let window = between(&begin, &end);
        assert_eq!(window.len(), 1, "{window:?}");
        assert_eq!(window["x_enqueue"], Runs { runs: 4, ns: 800 });
    }
}
