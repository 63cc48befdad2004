// SPDX-License-Identifier: GPL-2.0-only
//! The neighbours by name, what each consists of, and what they got done. `crate::neighbour` runs them.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What shares the machine with the workload during a cell.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbour {
    #[default]
    None,
    Cpu,
    Network,
    Disk,
    Irq,
    Hackbench,
    Memory,
    Heavy,
    Recorded,
}

/// One noisy program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    #[serde(rename = "stress-ng")]
    StressNg,
    #[serde(rename = "iperf3")]
    Iperf3,
    #[serde(rename = "fio")]
    Fio,
    #[serde(rename = "hackbench")]
    Hackbench,
    /// stress-ng's workers that take memory bandwidth.
    #[serde(rename = "stream")]
    Stream,
    /// stress-ng's workers that take the shared cache.
    #[serde(rename = "cache")]
    Cache,
    /// Simulated only.
    #[serde(rename = "recorded")]
    Recorded,
}

/// What one noisy program got done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub kind: Kind,
    /// Work a second in the measured window: the program's own total, of which the window gets the
    /// part that the kernel's counter saw in it. A program's life also covers the start of the
    /// others and the warm-up, which last longer under some arms than under others.
    pub rate: f64,
    pub unit: String,
    /// The program's own account of its whole life in the cell.
    pub own_total: f64,
    pub own_seconds: f64,
    /// The kernel's account: `evidence_unit` in the measured window, and in all.
    pub window_evidence: u64,
    pub total_evidence: u64,
    pub evidence_unit: String,
}

impl Neighbour {
    /// The programs, in the order in which they are started: the slow starter first, while it is
    /// quiet (fio takes several times as long to start beside the others).
    pub fn kinds(self) -> &'static [Kind] {
        match self {
            Self::None => &[],
            Self::Cpu => &[Kind::StressNg],
            Self::Network | Self::Irq => &[Kind::Iperf3],
            Self::Disk => &[Kind::Fio],
            Self::Hackbench => &[Kind::Hackbench],
            Self::Memory => &[Kind::Stream, Kind::Cache],
            Self::Heavy => &[Kind::Fio, Kind::Iperf3, Kind::StressNg],
            Self::Recorded => &[Kind::Recorded],
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Cpu => "cpu",
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Irq => "irq",
            Self::Hackbench => "hackbench",
            Self::Memory => "memory",
            Self::Heavy => "heavy",
            Self::Recorded => "recorded",
        }
    }

    pub fn description(self, stress_ng: &StressNg) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::None => "nothing else runs",
            Self::Cpu => return Cow::Owned(stress_ng.describe()),
            Self::Network => "iperf3 -P 10 over loopback",
            Self::Disk => "fio randwrite 4k, 4 jobs, depth 32, direct I/O",
            Self::Irq => {
                "network, its packets received by interrupts and softirqs on the launcher's CPUs"
            }
            Self::Hackbench => "hackbench: 40 threads that send each other short messages",
            Self::Memory => {
                "stress-ng --stream and --cache, one worker of each per CPU: memory bandwidth and the shared cache"
            }
            Self::Heavy => {
                "cpu, and iperf3 -P 10 over loopback, and fio randwrite 4k, 4 jobs, depth 32, direct I/O"
            }
            Self::Recorded => "the other threads of the recorded host",
        })
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Kind {
    pub const ALL: [Self; 7] = [
        Self::StressNg,
        Self::Iperf3,
        Self::Fio,
        Self::Hackbench,
        Self::Stream,
        Self::Cache,
        Self::Recorded,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::StressNg => "stress-ng",
            Self::Iperf3 => "iperf3",
            Self::Fio => "fio",
            Self::Hackbench => "hackbench",
            Self::Stream => "stream",
            Self::Cache => "cache",
            Self::Recorded => "recorded",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::StressNg | Self::Stream | Self::Cache => "bogo-ops/s",
            Self::Iperf3 => "bits/s",
            Self::Fio => "IOPS",
            Self::Hackbench => "messages/s",
            Self::Recorded => "CPUs",
        }
    }

    pub fn evidence_unit(self) -> &'static str {
        match self {
            Self::StressNg | Self::Hackbench | Self::Stream | Self::Cache => {
                "clock ticks of CPU time"
            }
            Self::Iperf3 => "bytes over lo",
            Self::Fio => "writes completed by the disk",
            Self::Recorded => "simulated ns of CPU time",
        }
    }
}

/// What the workers of stress-ng do, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StressNg {
    /// One of `stress-ng --cpu-method which`.
    pub method: String,
    /// 0: one a CPU.
    pub workers: u32,
}

impl Default for StressNg {
    fn default() -> Self {
        Self {
            method: "fft".to_owned(),
            workers: 0,
        }
    }
}

impl StressNg {
    fn describe(&self) -> String {
        let workers = match self.workers {
            0 => "one busy worker per CPU".to_owned(),
            1 => "one busy worker".to_owned(),
            workers => format!("{workers} busy workers"),
        };
        let Self { method, workers: n } = self;
        format!("stress-ng --cpu {n} --cpu-method {method}: {workers}")
    }
}
