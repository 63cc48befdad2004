// SPDX-License-Identifier: GPL-2.0-only
//! What makes a CPU slow to answer: its clock, its idle states, interrupts that it cannot give away.

use std::collections::BTreeMap;
use std::path::Path;

use crate::policy::cpuset::CpuSet;
use crate::printable::printable;
use crate::proc::numbers_in;
use crate::topology::choose::{PreferredRules, choose};
use crate::topology::demand::Demand;
use crate::topology::irq_load::IrqVerdicts;
use crate::topology::pci::Devices;
use crate::topology::{Topology, sysfs};

use super::finding::{Judgement, listed, ok, warning};

/// An idle CPU that needs longer to wake makes a launcher late by what matters beside a token, microseconds.
const SLOW_TO_WAKE_US: u32 = 50;

/// How fast CPUs answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waking {
    /// CPUs by frequency governor, with the preference of those whose hardware chooses: `powersave (power)`.
    pub governors: BTreeMap<String, CpuSet>,
    /// The enabled idle state that takes longest to leave, and for how long, microseconds.
    pub deepest: Option<(String, u32)>,
    /// Interrupts whose CPUs the kernel alone chooses, on CPUs that the default policy would prefer.
    pub managed: Vec<String>,
}

/// Of the host below `root`, whose CPUs are `topology`.
pub fn gather(root: &Path, topology: Option<&Topology>, devices: &Devices) -> Waking {
    let Some(topology) = topology else {
        return Waking::default();
    };
    let folder = |cpu: u32| root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
    let mut governors: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for cpu in topology.online().iter() {
        if let Some(governor) = governor(&folder(cpu).join("cpufreq")) {
            governors.entry(governor).or_default().push(cpu);
        }
    }
    let online = topology.online();
    let deepest = (online.iter()).filter_map(|cpu| deepest(&folder(cpu).join("cpuidle")));
    let launchers = Demand {
        launch: u32::try_from(devices.gpus.len()).unwrap_or(1).max(1),
        handoff: 0,
    };
    let choice = choose(
        topology,
        devices,
        &IrqVerdicts::default(),
        launchers,
        &PreferredRules::default(),
        None,
    );
    Waking {
        governors: (governors.into_iter())
            .map(|(governor, cpus)| (governor, CpuSet::new(cpus)))
            .collect(),
        deepest: deepest.max_by_key(|(_, us)| *us),
        managed: managed(root, &choice.cpus),
    }
}

/// `performance`; with what the hardware prefers, where it chooses: `powersave (balance_performance)`.
fn governor(cpufreq: &Path) -> Option<String> {
    let governor = sysfs::text(&cpufreq.join("scaling_governor"))?;
    match sysfs::text(&cpufreq.join("energy_performance_preference")) {
        Some(preference) => Some(format!("{governor} ({preference})")),
        None => Some(governor),
    }
}

/// Of one CPU's idle states that are not switched off.
fn deepest(cpuidle: &Path) -> Option<(String, u32)> {
    let states = sysfs::entries(cpuidle).into_iter().filter_map(|state| {
        let state = cpuidle.join(state);
        let is_off = sysfs::number::<u32>(&state.join("disable")) == Some(1);
        let name = sysfs::text(&state.join("name"))?;
        (!is_off).then_some((name, sysfs::number(&state.join("latency"))?))
    });
    states.max_by_key(|(_, us)| *us)
}

/// `nvme0q3 (CPU 3)` of every interrupt that is managed and is delivered to one of `preferred`. The kernel says which
/// are managed in debugfs only.
fn managed(root: &Path, preferred: &CpuSet) -> Vec<String> {
    let mut numbers: Vec<u32> = numbers_in(&root.join("proc/irq"));
    numbers.sort_unstable();
    let named = |number: u32| {
        let text = std::fs::read(root.join(format!("sys/kernel/debug/irq/irqs/{number}"))).ok()?;
        if !String::from_utf8_lossy(&text).contains("IRQD_AFFINITY_MANAGED") {
            return None;
        }
        let folder = root.join(format!("proc/irq/{number}"));
        let cpus = sysfs::list(&folder.join("effective_affinity_list")).ok()?;
        let cpus = cpus.intersection(preferred);
        let name = sysfs::text(&root.join(format!("sys/kernel/irq/{number}/actions")));
        let name = name.filter(|name| !name.is_empty())?;
        (!cpus.is_empty()).then(|| format!("{} (CPU {cpus})", printable(&name)))
    };
    numbers.into_iter().filter_map(named).collect()
}

/// The check of clocks.
pub fn judge_governor(waking: &Waking) -> Judgement {
    let slow: Vec<_> = (waking.governors.iter())
        .filter(|(governor, _)| !is_fast(governor))
        .map(|(governor, cpus)| format!("{governor} on CPUs {cpus}"))
        .collect();
    if waking.governors.is_empty() {
        return ok("the system chooses no CPU frequencies (no cpufreq)");
    }
    if slow.is_empty() {
        return ok("CPUs run at full speed when they have work");
    }
    warning(
        format!(
            "frequency governor {}: a launcher that wakes starts on a slow clock",
            listed(&slow)
        ),
        "cpupower frequency-set -g performance",
    )
}

fn is_fast(governor: &str) -> bool {
    governor == "performance"
        || governor.starts_with("performance (")
        || governor == "powersave (performance)"
        || governor == "powersave (balance_performance)"
}

/// The check of idle states.
pub fn judge_idle(waking: &Waking) -> Judgement {
    match &waking.deepest {
        None => ok("the system chooses no idle states (no cpuidle)"),
        Some((name, us)) if *us <= SLOW_TO_WAKE_US => ok(format!(
            "the deepest idle state, {}, is left within {us} us",
            printable(name)
        )),
        Some((name, us)) => warning(
            format!(
                "an idle CPU needs up to {us} us to leave {}: each launcher that wakes there is late by that",
                printable(name)
            ),
            format!("cpupower idle-set -D {SLOW_TO_WAKE_US}, which costs power"),
        ),
    }
}

/// The check of interrupts.
pub fn judge_managed(waking: &Waking) -> Judgement {
    if waking.managed.is_empty() {
        return ok("no managed interrupt is known on CPUs that would be preferred");
    }
    warning(
        format!(
            "managed interrupts, which nobody can move, on CPUs that would be preferred: {}",
            listed(&waking.managed)
        ),
        "name other CPUs as preferred.cpus, or boot with isolcpus=managed_irq,LIST for these",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use crate::proc::tests::host;

    #[test]
    fn the_slowest_idle_state_that_is_on_counts() {
        let root = host(&[
            ("state0/name", "POLL\n"),
            ("state0/latency", "0\n"),
            ("state1/name", "C1\n"),
            ("state1/latency", "2\n"),
            ("state1/disable", "0\n"),
            ("state2/name", "C6\n"),
            ("state2/latency", "133\n"),
            ("state2/disable", "1\n"),
        ]);
        assert_eq!(deepest(root.path()), Some(("C1".to_owned(), 2)));
        std::fs::write(root.path().join("state2/disable"), "0\n").unwrap();
        let deep = Waking {
            deepest: deepest(root.path()),
            ..Waking::default()
        };
        let (verdict, found, remedy) = judge_idle(&deep);
        assert_eq!(verdict, Verdict::Warning);
        assert!(found.contains("133 us to leave C6"), "{found}");
        assert!(remedy.unwrap().contains("idle-set -D 50"));
    }

    #[test]
    fn hardware_that_prefers_performance_is_fast_and_what_saves_power_is_not() {
        let judged = |governor: &str| {
            let governors = BTreeMap::from([(governor.to_owned(), CpuSet::new([0, 1]))]);
            judge_governor(&Waking {
                governors,
                ..Waking::default()
            })
        };
        for fast in [
            "performance",
            "performance (performance)",
            "powersave (balance_performance)",
        ] {
            assert_eq!(judged(fast).0, Verdict::Ok, "{fast}");
        }
        for slow in [
            "powersave",
            "schedutil",
            "ondemand",
            "powersave (balance_power)",
        ] {
            let (verdict, found, _) = judged(slow);
            assert_eq!(verdict, Verdict::Warning, "{slow}");
            assert!(found.contains(&format!("{slow} on CPUs 0-1")), "{found}");
        }
    }

    #[test]
    fn a_managed_interrupt_is_named_where_its_cpu_would_be_preferred() {
        let managed_one = "handler: handle_edge_irq\ndstate: 0x37408200\n  IRQD_AFFINITY_MANAGED\n";
        let root = host(&[
            ("proc/irq/31/effective_affinity_list", "3\n"),
            ("proc/irq/32/effective_affinity_list", "2\n"),
            ("proc/irq/33/effective_affinity_list", "3\n"),
            ("sys/kernel/debug/irq/irqs/31", managed_one),
            ("sys/kernel/debug/irq/irqs/32", managed_one),
            ("sys/kernel/debug/irq/irqs/33", "dstate: 0x1\n"),
            ("sys/kernel/irq/31/actions", "nvme0q4\n"),
            ("sys/kernel/irq/32/actions", "nvme0q3\n"),
            ("sys/kernel/irq/33/actions", "eth0\n"),
        ]);
        let found = managed(root.path(), &CpuSet::new([3]));
        assert_eq!(found, ["nvme0q4 (CPU 3)"]);
        let waking = Waking {
            managed: found,
            ..Waking::default()
        };
        assert_eq!(judge_managed(&waking).0, Verdict::Warning);
        assert_eq!(judge_managed(&Waking::default()).0, Verdict::Ok);
    }
}
