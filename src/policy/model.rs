// SPDX-License-Identifier: GPL-2.0-only
//! A validated policy, and its defaults.

use std::time::Duration;

use super::affinity::CpuGroup;
use super::cpuset::CpuSet;
use super::glob::PathGlob;
use super::rule::Rule;

/// A validated policy.
#[derive(Debug, Clone)]
pub struct Policy {
    /// `[cpusets]`, and the groups that pins name without a label.
    pub groups: Vec<NamedGroup>,
    /// Which CPUs launchers prefer.
    pub preferred: Preferred,
    /// IRQ-heavy CPUs.
    pub irq: Irq,
    /// How launching threads are found.
    pub identify: Identify,
    /// Class LAUNCH.
    pub launch: Class,
    /// Class HANDOFF.
    pub handoff: Class,
    /// Class BACKGROUND.
    pub background: Background,
    /// Threads that stay on given CPUs; the first that matches a thread counts.
    pub pins: Vec<Pin>,
    /// Limits.
    pub guard: Guard,
}

/// `[preferred]`
#[derive(Debug, Clone)]
pub struct Preferred {
    /// The CPUs; `None` is "auto".
    pub cpus: Option<CpuSet>,
    /// How many CPUs "auto" takes at most.
    pub max: Max,
    /// What becomes of the second thread of a launcher's core.
    pub smt: Smt,
    /// May everybody else use preferred CPUs that nobody needs?
    pub lend: bool,
    /// For how long at a time a launch or handoff thread that waits by `sched_yield()` lends its CPU; zero: never;
    /// `None` is "auto", as the machine has it.
    pub lend_yields: Option<Duration>,
    /// How long a CPU is held idle for a launcher that sleeps.
    pub hold: Hold,
}

/// `preferred.hold_us`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hold {
    /// Longest hold; zero: never.
    pub cap: Duration,
    /// Part of all CPUs' time that may be idle in holds while background waits, 0 to 1.
    pub share: f64,
}

/// `preferred.max`
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Max {
    /// Part of the online CPUs, 0.01 to 1.
    Percent(f64),
    /// A number of CPUs.
    Count(u32),
}

/// `preferred.smt`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Smt {
    /// A launcher gets a core: its second thread stays idle while another core is free.
    WholeCore,
    /// Each hardware thread is a CPU like any other.
    Shared,
}

/// `[irq]`
#[derive(Debug, Clone)]
pub struct Irq {
    /// Keep preferred CPUs away from IRQ-heavy ones?
    pub avoid: bool,
    /// A CPU is IRQ-heavy above this part of its time, percent.
    pub heavy_percent: f64,
    /// Move movable IRQs off the preferred CPUs?
    pub steer: bool,
}

/// `[identify]`
#[derive(Debug, Clone)]
pub struct Identify {
    /// When launches are probed.
    pub probes: Arming,
    /// Where.
    pub entry_points: EntryPoints,
    /// How long one sweep probes.
    pub sweep: Duration,
    /// Longest pause between two sweeps while a thread could still be new.
    pub max_pause: Duration,
    /// What was observed is forgotten this long after the last sighting; zero: never.
    pub expire: Duration,
}

/// `identify.probes`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arming {
    /// While it finds something new.
    Auto,
    /// All the time.
    Always,
    /// Never.
    Off,
}

/// `identify.entry_points`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryPoints {
    /// Those of the driver, where every launch ends.
    Libcuda,
    /// Those of a shared runtime, where most begin.
    Libcudart,
    /// Both: a launch through the runtime is probed twice.
    Both,
}

impl EntryPoints {
    /// Those of the driver?
    pub fn libcuda(self) -> bool {
        self != Self::Libcudart
    }

    /// Those of the runtime?
    pub fn libcudart(self) -> bool {
        self != Self::Libcuda
    }
}

/// `[class.launch]` and `[class.handoff]`
#[derive(Debug, Clone)]
pub struct Class {
    /// How long a thread runs before another one of its class.
    pub slice: Duration,
    /// Who belongs to the class: any rule suffices.
    pub rules: Vec<Rule>,
}

/// `[class.background]`
#[derive(Debug, Clone)]
pub struct Background {
    /// How long a background task runs while others wait.
    pub slice: Duration,
    /// Part of a CPU that background gets where launchers would leave nothing, 0.001 to 0.5.
    pub min_share: f64,
    /// Who stays background whatever is observed: any rule suffices.
    pub rules: Vec<Rule>,
}

/// `[guard]`
#[derive(Debug, Clone)]
pub struct Guard {
    /// Users whose observed marks count; `None`: everybody's.
    pub trust_uids: Option<Vec<u32>>,
    /// A launch counts where its process has one of these devices open; `None`: whatever it has open.
    pub trust_devices: Option<Vec<PathGlob>>,
    /// Group whose members may hint what their threads do; `None`: only root.
    pub hint_gid: Option<u32>,
    /// Part of all CPUs that launch and handoff together get while others wait, 0.01 to 1.
    pub max_share: f64,
}

/// `lend_yields_us = "auto"`, where anything is lent: who waits for the GPU asleep runs 94 µs after it is done
/// (docs/gpu-check.md), and who yields instead is not to run much later. Measured in docs/decisions/spinners.md.
pub const AUTO_LEND: Duration = Duration::from_micros(100);

/// `hold_us = "auto"`: what a CPU could do for others in a longer sleep is worth more than the launcher's
/// warm cache. Measured in docs/decisions/hold-length.md.
pub const AUTO_HOLD: Hold = Hold {
    cap: Duration::from_micros(500),
    share: 0.06,
};

impl Default for Policy {
    fn default() -> Self {
        let cuda_launch = Rule {
            cuda_launch: true,
            ..Rule::default()
        };
        Self {
            groups: Vec::new(),
            preferred: Preferred {
                cpus: None,
                max: Max::Percent(0.25),
                smt: Smt::WholeCore,
                lend: true,
                lend_yields: None,
                hold: AUTO_HOLD,
            },
            irq: Irq {
                avoid: true,
                heavy_percent: 5.0,
                steer: false,
            },
            identify: Identify {
                probes: Arming::Auto,
                entry_points: EntryPoints::Libcuda,
                sweep: Duration::from_millis(10),
                max_pause: Duration::from_secs(5),
                expire: Duration::from_secs(600),
            },
            launch: Class {
                slice: Duration::from_micros(20_000),
                rules: vec![cuda_launch],
            },
            handoff: Class {
                slice: Duration::from_micros(3_000),
                rules: Vec::new(),
            },
            background: Background {
                slice: Duration::from_micros(4_000),
                min_share: 0.05,
                rules: Vec::new(),
            },
            pins: Vec::new(),
            guard: Guard {
                trust_uids: None,
                trust_devices: None,
                hint_gid: None,
                max_share: 0.5,
            },
        }
    }
}

/// A group of CPUs that pins and `preferred.cpus` use.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedGroup {
    /// Its label; `None`: written where it is used.
    pub label: Option<String>,
    /// Its CPUs.
    pub cpus: CpuGroup,
}

/// `[[pin]]`
#[derive(Debug, Clone, PartialEq)]
pub struct Pin {
    /// Whom: any rule suffices.
    pub rules: Vec<Rule>,
    /// Where: indices of [`Policy::groups`], which threads take in turn.
    pub groups: Vec<usize>,
}

impl Max {
    /// The most CPUs that are preferred of `online`, at least one.
    pub fn cpus(self, online: usize) -> usize {
        match self {
            // 29 % of 100 is 28.999… in binary.
            Self::Percent(share) => ((online as f64 * share + 1e-6) as usize).max(1),
            Self::Count(count) => (count as usize).min(online).max(1),
        }
    }
}
