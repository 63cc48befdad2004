// SPDX-License-Identifier: GPL-2.0-only
//! What takes CPU time away from a comparison on one machine: other processes, the hypervisor, heat.
//! Reads the kernel's own counters; whether a cell was disturbed is decided elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::procstat::ProcessStat;
use crate::record::Load;

/// USER_HZ: /proc counts in it.
const TICKS_PER_SECOND: f64 = 100.0;
/// Below this a difference of ticks says nothing.
const MIN_WINDOW_MS: u64 = 300;
const CPUS: &str = "/sys/devices/system/cpu";

/// One look at a machine's counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub at_ms: u64,
    /// CPU time of all processes that are not this one's nor the kernel's.
    pub outside_ticks: u64,
    pub cpus: u64,
    pub steal_ticks: u64,
    /// Times that the CPUs throttled themselves because of heat.
    pub throttles: u64,
    /// The sum of the limits that the CPUs' clocks have now; 0: not known.
    pub clock_limit_khz: u64,
    /// Pieces of work of two kinds that were done to see how fast the machine is, and the CPU time of those in registers
    /// and of those that load from memory; 0: there were none.
    pub pieces: u64,
    pub pieces_ns: u64,
    pub loads_ns: u64,
}

impl Sample {
    /// Looks at this machine; processes that this one started, and theirs, are no load from outside.
    pub fn take() -> Result<Self> {
        Self::take_beside(&[])
    }

    /// The same; nor are those of `others`, and what they started.
    pub fn take_beside(others: &[u32]) -> Result<Self> {
        let own = [&[std::process::id()][..], others].concat();
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let (cpus, steal_ticks) = steal(&stat).context("/proc/stat has no CPUs")?;
        Ok(Self {
            at_ms: monotonic_ms()?,
            outside_ticks: outside(&processes()?, &own),
            cpus,
            steal_ticks,
            throttles: sum_of(&["core_throttle_count", "package_throttle_count"], |cpu| {
                cpu.join("thermal_throttle")
            }),
            clock_limit_khz: sum_of(&["scaling_max_freq"], |cpu| cpu.join("cpufreq")),
            pieces: 0,
            pieces_ns: 0,
            loads_ns: 0,
        })
    }

    /// What happened from `self` until `end`; `None`: too little time for counters in ticks.
    pub fn until(&self, end: &Self) -> Option<Load> {
        let ms = end.at_ms.checked_sub(self.at_ms)?;
        if ms < MIN_WINDOW_MS {
            return None;
        }
        let seconds = ms as f64 / 1e3;
        let busy = |ticks: u64| ticks as f64 / TICKS_PER_SECOND / seconds;
        let pieces = end.pieces.saturating_sub(self.pieces);
        let a_piece_us = |before, after: u64| {
            let ns = after.saturating_sub(before) as f64;
            (pieces > 0).then(|| ns / pieces as f64 / 1e3)
        };
        let known = self.clock_limit_khz > 0 && end.clock_limit_khz > 0;
        Some(Load {
            seconds,
            cpus: end.cpus,
            outside_cpus: busy(end.outside_ticks.saturating_sub(self.outside_ticks)),
            steal_cpus: busy(end.steal_ticks.saturating_sub(self.steal_ticks)),
            throttles: end.throttles.saturating_sub(self.throttles),
            clock_limit: known.then(|| end.clock_limit_khz as f64 / self.clock_limit_khz as f64),
            piece_us: a_piece_us(self.pieces_ns, end.pieces_ns),
            loads_us: a_piece_us(self.loads_ns, end.loads_ns),
        })
    }
}

/// A process's place in the tree and its CPU time, that of its reaped children included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    is_kernel: bool,
    ticks: u64,
}

/// CPU time of all but the trees of `own` and of the kernel's threads, whatever their numbers: in a container process 2
/// is like any other. What a process has used moves to
/// its parent when it is reaped, so the sum loses nobody who came and went between two looks.
fn outside(processes: &[Process], own: &[u32]) -> u64 {
    let by_pid: BTreeMap<u32, &Process> = processes.iter().map(|p| (p.pid, p)).collect();
    let is_outside = |process: &&Process| {
        let mut seen = BTreeSet::new();
        let mut at = process.pid;
        // The tree was read while it changed: a ring in it must not hold this up.
        while seen.insert(at) {
            if own.contains(&at) {
                return false;
            }
            match by_pid.get(&at) {
                Some(process) if process.is_kernel => return false,
                Some(process) => at = process.parent,
                None => break,
            }
        }
        true
    };
    processes.iter().filter(is_outside).map(|p| p.ticks).sum()
}

fn processes() -> Result<Vec<Process>> {
    let entries = fs::read_dir("/proc").context("cannot list /proc")?;
    let stats = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let stat = ProcessStat::of(pid)?;
        Some(Process {
            pid,
            parent: stat.parent,
            is_kernel: stat.is_kernel,
            ticks: stat.own_ticks + stat.reaped_ticks,
        })
    });
    Ok(stats.collect())
}

/// CPUs, and what the hypervisor took of their time.
fn steal(stat: &str) -> Option<(u64, u64)> {
    let cpus = stat
        .lines()
        .filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "))
        .count();
    let all = stat.lines().find(|line| line.starts_with("cpu "))?;
    // A kernel without the column has no hypervisor either.
    let steal = all.split_whitespace().nth(8);
    Some((
        cpus as u64,
        steal.map_or(Some(0), |ticks| ticks.parse().ok())?,
    ))
}

/// The sum over all CPUs of what these files say, where they are.
fn sum_of(names: &[&str], folder: impl Fn(&Path) -> std::path::PathBuf) -> u64 {
    let cpus = fs::read_dir(CPUS).into_iter().flatten().flatten();
    cpus.flat_map(|cpu| {
        let folder = folder(&cpu.path());
        names.iter().filter_map(move |name| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            text.trim().parse::<u64>().ok()
        })
    })
    .sum()
}

fn monotonic_ms() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).context("cannot read the clock")?;
    Ok(now.tv_sec().cast_unsigned() * 1000 + now.tv_nsec().cast_unsigned() / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_processes_and_kernel_threads_are_no_load_from_outside() {
        let process = |(pid, parent, ticks)| Process {
            pid,
            parent,
            is_kernel: [2, 20].contains(&pid),
            ticks,
        };
        // init, its shell; kthreadd, a worker; the runner, its neighbour and that one's worker.
        let tree = [
            (1, 0, 1),
            (10, 1, 20),
            (2, 0, 400),
            (20, 2, 800),
            (30, 10, 1600),
            (31, 30, 3200),
            (32, 31, 6400),
        ];
        assert_eq!(outside(&tree.map(process), &[30]), 21);
        // An endpoint that runs in the shell's place.
        assert_eq!(outside(&tree.map(process), &[30, 10]), 1);
        // A program that the kernel started, such as modprobe.
        let helper = [(2, 0, 1), (20, 2, 2), (21, 20, 4), (1, 0, 8)];
        assert_eq!(outside(&helper.map(process), &[30]), 8);
        // In a PID namespace nobody is the kernel's, whatever his number.
        let contained = [(1, 0, 1), (2, 1, 2), (20, 2, 4), (30, 2, 8)];
        let contained = contained.map(|one| Process {
            is_kernel: false,
            ..process(one)
        });
        assert_eq!(outside(&contained, &[30]), 7);
        // A ring, which a tree that changes may show.
        let ring = [(5, 6, 1), (6, 5, 2)];
        assert_eq!(outside(&ring.map(process), &[30]), 3);
    }

    #[test]
    fn rates_are_over_the_time_between_the_samples() {
        let begin = Sample {
            at_ms: 1000,
            outside_ticks: 50,
            cpus: 2,
            steal_ticks: 10,
            throttles: 3,
            clock_limit_khz: 4000,
            pieces: 10,
            pieces_ns: 400_000,
            loads_ns: 300_000,
        };
        let end = Sample {
            at_ms: 3000,
            outside_ticks: 150,
            steal_ticks: 14,
            throttles: 5,
            clock_limit_khz: 3000,
            pieces: 14,
            pieces_ns: 580_000,
            loads_ns: 540_000,
            ..begin.clone()
        };
        let load = begin.until(&end).unwrap();
        assert_eq!((load.outside_cpus, load.steal_cpus), (0.5, 0.02));
        assert_eq!((load.throttles, load.clock_limit), (2, Some(0.75)));
        assert_eq!((load.piece_us, load.loads_us), (Some(45.0), Some(60.0)));
        let unknown = Sample {
            pieces: 10,
            ..end.clone()
        };
        let load = begin.until(&unknown).unwrap();
        assert_eq!((load.piece_us, load.loads_us), (None, None));
        assert_eq!(end.until(&begin), None);
        assert_eq!(begin.until(&begin), None);
    }

    #[test]
    fn looks_at_this_machine() {
        let sample = Sample::take().unwrap();
        assert!(sample.cpus > 0 && sample.at_ms > 0);
        let stat = "cpu  1 2 3 4 5 6 7 80 9 10\ncpu0 1\ncpu1 1\nintr 5\n";
        assert_eq!(steal(stat), Some((2, 80)));
    }
}
