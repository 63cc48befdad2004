// SPDX-License-Identifier: GPL-2.0-only
//! What the tracer found in a cell.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// From the workload's start to its end, warm-up included.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceSeen {
    /// From the tracer's first moment to its last.
    pub seconds: f64,
    /// Events that the kernel side met, those of them that its file or its counters lack, and those
    /// that it passed over without knowing their kind.
    pub counted: u64,
    pub lost: u64,
    pub missed: u64,
    /// The last by why.
    #[serde(default)]
    pub missed_by: BTreeMap<String, u64>,
    /// Size of the tracer's file.
    pub bytes: u64,
    /// The launching threads together; a summary has them if any was seen to launch, events do not.
    pub launchers: Option<Launchers>,
    /// Softirqs on top of all its threads by the kernel's name of the kind; a summary has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub soft_irqs: BTreeMap<String, SoftIrqs>,
}

/// Softirqs of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftIrqs {
    pub count: u64,
    /// Without what is nested in them.
    pub self_ns: u64,
}

/// Counters of launching threads, in the words of docs/tracing.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launchers {
    #[serde(default)]
    pub traced_ns: u64,
    pub on_cpu_ns: u64,
    pub preempted_ns: u64,
    pub yielded_ns: u64,
    pub asleep_ns: u64,
    pub wakeup_wait_ns: u64,
    pub hard_irq_ns: u64,
    pub soft_irq_ns: u64,
    pub vector_irq_ns: u64,
    #[serde(default)]
    pub hard_irqs: u64,
    #[serde(default)]
    pub soft_irqs: u64,
    /// Switches away.
    pub preempted: u64,
    pub yielded: u64,
    pub blocked: u64,
    /// In the tracer's windows: switches away, and what was launched meanwhile.
    #[serde(default)]
    pub window_switches: u64,
    #[serde(default)]
    pub launches: u64,
    #[serde(default)]
    pub graph_launches: u64,
    /// In the windows, too: launches that follow one another without a switch in between, and with one.
    #[serde(default)]
    pub intervals_calm: u64,
    #[serde(default)]
    pub intervals_calm_ns: u64,
    #[serde(default)]
    pub intervals_disturbed: u64,
    #[serde(default)]
    pub intervals_disturbed_ns: u64,
    /// Three launches or more, each less than 100 µs after the one before; and those with a switch inside.
    #[serde(default)]
    pub bursts: u64,
    #[serde(default)]
    pub burst_launches: u64,
    #[serde(default)]
    pub bursts_disturbed: u64,
}

impl Launchers {
    pub fn switches(&self) -> u64 {
        self.preempted + self.yielded + self.blocked
    }

    pub fn all_launches(&self) -> u64 {
        self.launches + self.graph_launches
    }

    pub fn irq_ns(&self) -> u64 {
        self.hard_irq_ns + self.soft_irq_ns + self.vector_irq_ns
    }
}

impl AddAssign for Launchers {
    fn add_assign(&mut self, other: Self) {
        self.traced_ns += other.traced_ns;
        self.on_cpu_ns += other.on_cpu_ns;
        self.preempted_ns += other.preempted_ns;
        self.yielded_ns += other.yielded_ns;
        self.asleep_ns += other.asleep_ns;
        self.wakeup_wait_ns += other.wakeup_wait_ns;
        self.hard_irq_ns += other.hard_irq_ns;
        self.soft_irq_ns += other.soft_irq_ns;
        self.vector_irq_ns += other.vector_irq_ns;
        self.hard_irqs += other.hard_irqs;
        self.soft_irqs += other.soft_irqs;
        self.preempted += other.preempted;
        self.yielded += other.yielded;
        self.blocked += other.blocked;
        self.window_switches += other.window_switches;
        self.launches += other.launches;
        self.graph_launches += other.graph_launches;
        self.intervals_calm += other.intervals_calm;
        self.intervals_calm_ns += other.intervals_calm_ns;
        self.intervals_disturbed += other.intervals_disturbed;
        self.intervals_disturbed_ns += other.intervals_disturbed_ns;
        self.bursts += other.bursts;
        self.burst_launches += other.burst_launches;
        self.bursts_disturbed += other.bursts_disturbed;
    }
}
