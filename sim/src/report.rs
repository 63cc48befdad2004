// SPDX-License-Identifier: GPL-2.0-only
//! What came of a simulation, for people. Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::machine::Machine;
use crate::scenario::{FIRST_PID, Scenario};
use crate::simulation::Outcome;
use crate::state::START_NS;

/// The value below which `share` of `sorted` lie.
pub fn quantile(sorted: &[u64], share: f64) -> u64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted
        .get(at.saturating_sub(1))
        .or(sorted.last())
        .copied()
        .unwrap_or(0)
}

/// A row for each kind of task.
pub fn table(outcome: &Outcome) -> String {
    let mut kinds: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, task) in outcome.tasks.iter().enumerate() {
        kinds.entry(task.name).or_default().push(at);
    }
    let seconds = outcome.length_ns as f64 / 1e9;
    let mut text = format!(
        "{:<10} {:>6} {:>8} {:>10} {:>10} {:>9} {:>9} {:>9}\n",
        "tasks", "number", "CPUs", "done/s", "switches/s", "p50 µs", "p99 µs", "max µs"
    );
    for (name, tasks) in kinds {
        let tasks: Vec<_> = tasks.iter().map(|&at| &outcome.tasks[at]).collect();
        let sum = |of: &dyn Fn(usize) -> u64| (0..tasks.len()).map(of).sum::<u64>() as f64;
        let mut waits: Vec<u64> = tasks
            .iter()
            .flat_map(|task| &task.waits_ns)
            .copied()
            .collect();
        waits.sort_unstable();
        let us = |share: f64| quantile(&waits, share) as f64 / 1e3;
        let _ = writeln!(
            text,
            "{name:<10} {:>6} {:>8.2} {:>10.0} {:>10.0} {:>9.1} {:>9.1} {:>9.1}",
            tasks.len(),
            sum(&|at| tasks[at].cpu_ns) / 1e9 / seconds,
            sum(&|at| tasks[at].done) / seconds,
            sum(&|at| tasks[at].switches) / seconds,
            us(0.5),
            us(0.99),
            us(1.0)
        );
    }
    let _ = writeln!(
        text,
        "idle       {:>6} {:>8.2}",
        "",
        outcome.idle_ns as f64 / 1e9 / seconds
    );
    text
}

/// What scx_gpuaware counted, without zeros.
pub fn counters(outcome: &Outcome) -> String {
    let counted = outcome.stats.iter().filter(|(_, count)| *count > 0);
    let counted: Vec<String> = counted
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    counted.join(", ")
}

/// What a scenario is made of, a line each.
pub fn specs(scenario: &Scenario) -> String {
    let mut text = format!("{:?}\n{:?}\n", scenario.policy, scenario.costs);
    for (at, cgroup) in scenario.cgroups.iter().enumerate() {
        let _ = writeln!(text, "cgroup {at}: {cgroup:?}");
    }
    for (at_ns, change) in &scenario.changes {
        let _ = writeln!(text, "{:.6} s: {change:?}", *at_ns as f64 / 1e9);
    }
    for above in &scenario.above {
        let _ = writeln!(text, "{above:?}");
    }
    for device in &scenario.interrupts {
        let _ = writeln!(text, "{device:?}");
    }
    for (at, task) in scenario.tasks.iter().enumerate() {
        let _ = writeln!(text, "{}: {task:?}", at as i32 + FIRST_PID);
    }
    text
}

/// What happened last, a line each.
pub fn recent(outcome: &Outcome) -> String {
    let mut text = String::new();
    for recent in &outcome.recent {
        let at_s = (recent.at_ns - START_NS) as f64 / 1e9;
        let within = "  ".repeat(recent.depth);
        let _ = writeln!(text, "{at_s:.6} s: {within}{:?}", recent.event);
    }
    for (at, task) in outcome.tasks.iter().enumerate() {
        let (pid, name, place) = (at as i32 + FIRST_PID, task.name, task.place);
        let _ = writeln!(text, "{pid} {name}: CPU {}, {place:x?}", task.cpu);
    }
    text
}

/// A machine in a few words.
pub fn machine(machine: &Machine) -> String {
    format!(
        "{} CPUs, {} caches{}",
        machine.nr_cpus(),
        machine.nr_llcs,
        if machine.has_smt() { ", SMT" } else { "" }
    )
}

/// A scenario in a line.
pub fn headline(scenario: &Scenario) -> String {
    format!(
        "{:?}: {}, {} tasks, {} cgroups, {:.2} s, preferred {:?}{}",
        scenario.scheduler,
        machine(&scenario.machine),
        scenario.tasks.len(),
        scenario.cgroups.len(),
        scenario.length_ns as f64 / 1e9,
        scenario.policy.preferred,
        if scenario.policy.lend {
            ""
        } else {
            " not lent"
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_there() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!(quantile(&sorted, 0.5), 50);
        assert_eq!(quantile(&sorted, 0.99), 99);
        assert_eq!(quantile(&sorted, 1.0), 100);
        assert_eq!(quantile(&[], 0.99), 0);
    }
}
