// SPDX-License-Identifier: GPL-2.0-only
//! What the CPUs did between two looks at /proc/stat, the threads of a process, and what /proc/PID/stat says of one.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::record::{CpuWindow, Switches};

/// USER_HZ, the unit of /proc/stat: 100 on every architecture that sched_ext runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Among the flags of a process, linux/sched.h.
const PF_KTHREAD: u64 = 0x0020_0000;

/// One look at /proc/stat.
#[derive(Debug, Clone)]
pub struct Snapshot {
    at: Instant,
    counters: Counters,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Counters {
    cpus: Vec<CpuTicks>,
    interrupts: u64,
    context_switches: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTicks {
    /// Idle and waiting for I/O: nobody ran.
    idle: u64,
    irq: u64,
    softirq: u64,
}

impl Snapshot {
    pub fn take() -> Result<Self> {
        let at = Instant::now();
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let counters = parse(&text).context("/proc/stat has no CPUs")?;
        Ok(Self { at, counters })
    }

    /// What happened from `self` until `end`. Idle time is set against the clock and not against
    /// the other columns, which are sampled at ticks while idle time is exact.
    pub fn until(&self, end: &Self) -> CpuWindow {
        let seconds = end.at.duration_since(self.at).as_secs_f64().max(1e-6);
        window(&self.counters, &end.counters, seconds)
    }
}

fn parse(text: &str) -> Option<Counters> {
    let mut cpus = Vec::new();
    let mut interrupts = 0;
    let mut context_switches = 0;
    for line in text.lines() {
        let mut fields = line.split_whitespace();
        let name = fields.next()?;
        let mut values = fields.map_while(|field| field.parse::<u64>().ok());
        if name.starts_with("cpu") && name != "cpu" {
            let columns: Vec<u64> = values.collect();
            let [_user, _nice, _system, idle, iowait, irq, softirq, ..] = columns[..] else {
                return None;
            };
            cpus.push(CpuTicks {
                idle: idle + iowait,
                irq,
                softirq,
            });
        } else if name == "intr" {
            interrupts = values.next()?;
        } else if name == "ctxt" {
            context_switches = values.next()?;
        }
    }
    (!cpus.is_empty()).then_some(Counters {
        cpus,
        interrupts,
        context_switches,
    })
}

fn window(begin: &Counters, end: &Counters, seconds: f64) -> CpuWindow {
    let percent = |column: fn(&CpuTicks) -> u64| -> Vec<f64> {
        begin
            .cpus
            .iter()
            .zip(&end.cpus)
            .map(|(before, after)| {
                // Idle time can step back a tick when iowait is folded in.
                let ticks = column(after).saturating_sub(column(before));
                (ticks as f64 / TICKS_PER_SECOND / seconds * 100.0).min(100.0)
            })
            .collect()
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let idle = percent(|cpu| cpu.idle);
    CpuWindow {
        seconds,
        idle_percent: mean(&idle),
        idle_percent_per_cpu: idle,
        softirq_percent: mean(&percent(|cpu| cpu.softirq)),
        irq_percent: mean(&percent(|cpu| cpu.irq)),
        interrupts: end.interrupts.saturating_sub(begin.interrupts),
        context_switches: end.context_switches.saturating_sub(begin.context_switches),
    }
}

/// The threads of a process and all its descendants, with their context switches.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    pids: Vec<i64>,
    /// By thread.
    switches: BTreeMap<i64, Switches>,
}

impl Tree {
    /// Whoever ends meanwhile is left out.
    pub fn of(pid: u32) -> Self {
        let mut tree = Self::default();
        let mut open = vec![i64::from(pid)];
        while let Some(pid) = open.pop() {
            tree.pids.push(pid);
            let tasks = fs::read_dir(format!("/proc/{pid}/task"));
            for task in tasks.into_iter().flatten().flatten() {
                let children = fs::read_to_string(task.path().join("children"));
                let children = children.unwrap_or_default();
                open.extend(
                    children
                        .split_whitespace()
                        .filter_map(|c| c.parse::<i64>().ok()),
                );
                // The name of a thread may have any bytes.
                let status = fs::read(task.path().join("status")).unwrap_or_default();
                let status = String::from_utf8_lossy(&status);
                let tid = task.file_name().to_str().and_then(|t| t.parse().ok());
                if let (Some(tid), Some(switches)) = (tid, switches(&status)) {
                    tree.switches.insert(tid, switches);
                }
            }
        }
        tree
    }

    /// All threads.
    pub fn tids(&self) -> impl Iterator<Item = i64> {
        self.switches.keys().copied()
    }

    pub fn pids(self) -> Vec<i64> {
        self.pids
    }
}

/// What a file below /proc says, with what is no UTF-8 replaced: names of threads may have any bytes. `None`: it is gone.
pub fn text(path: impl AsRef<Path>) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// CPU time of a process and its descendants, threads that have ended included. A process that cannot be read counts nothing.
pub fn cpu_s(pid: u32) -> f64 {
    let pids = Tree::of(pid).pids();
    let ticks = pids
        .iter()
        .filter_map(|pid| Some(ProcessStat::of(pid)?.own_ticks));
    ticks.sum::<u64>() as f64 / TICKS_PER_SECOND
}

/// What the kernel says of a process in one line, proc_pid_stat(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStat {
    /// `Z` and `X`: it is dead.
    pub state: char,
    pub parent: u32,
    /// The kernel's own: it has no program.
    pub is_kernel: bool,
    /// CPU time in clock ticks, of its threads that have ended as well.
    pub own_ticks: u64,
    /// CPU time in clock ticks of the children that it has waited for.
    pub reaped_ticks: u64,
}

impl ProcessStat {
    /// Of a process by its number. `None`: there is no such process any more.
    pub fn of(pid: impl Display) -> Option<Self> {
        Self::parse(&text(format!("/proc/{pid}/stat"))?)
    }

    fn parse(line: &str) -> Option<Self> {
        // The name, in brackets, may hold blanks and brackets: fields are counted from the last one.
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: u32::try_from(number(1)?).ok()?,
            is_kernel: number(6)? & PF_KTHREAD != 0,
            own_ticks: number(11)? + number(12)?,
            reaped_ticks: number(13)? + number(14)?,
        })
    }
}

/// Of all threads together; a thread that is new counts with all that it has.
pub fn switches_between(before: Option<&Tree>, after: Option<&Tree>) -> Switches {
    let (Some(before), Some(after)) = (before, after) else {
        return Switches::default();
    };
    let mut sum = Switches::default();
    for (tid, now) in &after.switches {
        let then = before.switches.get(tid).copied().unwrap_or_default();
        sum.voluntary += now.voluntary.saturating_sub(then.voluntary);
        sum.involuntary += now.involuntary.saturating_sub(then.involuntary);
    }
    sum
}

fn switches(status: &str) -> Option<Switches> {
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(Switches {
        voluntary: value("voluntary_ctxt_switches:")?,
        involuntary: value("nonvoluntary_ctxt_switches:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(idle0: u64, idle1: u64) -> Counters {
        parse(&format!(
            "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 5 0 7 {idle0} 10 0 30 0 0 0\ncpu1 5 0 7 {idle1} 0 2 0 0 0 0\nintr 900 1 2\nctxt 77\n"
        ))
        .unwrap()
    }

    #[test]
    fn idle_is_a_share_of_the_clock() {
        let begin = counters(100, 100);
        let end = counters(300, 150);
        // 2 s and 0.5 s idle of 4 s: 50 % and 12.5 %, together 31.25 %.
        let window = window(&begin, &end, 4.0);
        assert_eq!(window.idle_percent_per_cpu, [50.0, 12.5]);
        assert_eq!(window.idle_percent, 31.25);
        assert_eq!(window.interrupts, 0);
    }

    #[test]
    fn reads_this_machine() {
        let begin = Snapshot::take().unwrap();
        let window = begin.until(&Snapshot::take().unwrap());
        assert!((0.0..=100.0).contains(&window.idle_percent));
    }

    #[test]
    fn switches_of_new_threads_count_in_full() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n";
        let seen = switches(status).unwrap();
        assert_eq!((seen.voluntary, seen.involuntary), (7, 3));
        let tree = |threads: &[(i64, u64)]| Tree {
            pids: vec![1],
            switches: threads
                .iter()
                .map(|&(tid, voluntary)| {
                    (
                        tid,
                        Switches {
                            voluntary,
                            involuntary: 1,
                        },
                    )
                })
                .collect(),
        };
        let sum = switches_between(
            Some(&tree(&[(1, 5), (2, 9)])),
            Some(&tree(&[(1, 8), (3, 4)])),
        );
        assert_eq!((sum.voluntary, sum.involuntary), (7, 1));
        assert_eq!(switches_between(None, None), Switches::default());
    }

    #[test]
    fn cpu_time_is_read_behind_any_name() {
        let stat = "7 (a (b) 1 2) S 1 7 7 0 -1 4194560 100 0 5 0 12 34 99 99 20 0 1 0 5 6 7";
        let expected = ProcessStat {
            state: 'S',
            parent: 1,
            is_kernel: false,
            own_ticks: 46,
            reaped_ticks: 198,
        };
        assert_eq!(ProcessStat::parse(stat), Some(expected));
        let kernel = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 12 0 0 20 0 1 0 5 0 0";
        assert!(ProcessStat::parse(kernel).unwrap().is_kernel);
        assert_eq!(ProcessStat::parse("7 (a"), None);
        assert_eq!(ProcessStat::parse("7 (a) S 1 7 7 0 -1"), None);
    }

    #[test]
    fn a_tree_holds_this_process() {
        let tree = Tree::of(std::process::id());
        assert!(!tree.switches.is_empty());
        assert!(tree.pids().contains(&i64::from(std::process::id())));
    }
}
