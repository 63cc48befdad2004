// SPDX-License-Identifier: GPL-2.0-only
//! A choice and its reasons in words: why a CPU is preferred, and why not. Pure.

use std::collections::BTreeMap;

use crate::policy::cpuset::CpuSet;

use super::capacity::Kind;
use super::score::{Flaw, Grade, Grader};
use super::units::Unit;
use super::{Cpu, Topology};

/// The outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The preferred CPUs; never empty.
    pub cpus: CpuSet,
    /// The same, the best first, and the first threads of all cores before the second ones.
    pub ranked: Vec<u32>,
    /// What they would be without interrupts: the next choice's `previous`.
    pub home: CpuSet,
    /// How many and why, in words.
    pub reason: String,
    /// Every online CPU, by ascending number.
    pub rows: Vec<Row>,
}

/// One online CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its number.
    pub cpu: u32,
    /// In [`Choice::cpus`].
    pub preferred: bool,
    /// What it is worth to a launcher, at most 100.
    pub score: i32,
    /// Why it is preferred, or why not, in words.
    pub reason: String,
}

/// What was chosen, units by index.
pub struct Picked<'a> {
    pub topology: &'a Topology,
    pub grader: &'a Grader<'a>,
    pub units: &'a [Unit],
    /// Units that the demand asks for.
    pub wanted: usize,
    pub home: Vec<usize>,
    /// Stand-ins by the unit that they stand in for.
    pub stand_ins: BTreeMap<usize, usize>,
    /// The home set is smaller than the demand.
    pub limited: bool,
}

impl Picked<'_> {
    /// The choice with its reasons.
    pub fn choice(&self) -> Choice {
        let chosen: Vec<usize> = self
            .home
            .iter()
            .map(|unit| self.stand_ins.get(unit).copied().unwrap_or(*unit))
            .collect();
        let cpus = self.cpus_of(&chosen);
        let row = |cpu: &Cpu| {
            let grade = self.grader.grade(cpu);
            Row {
                cpu: cpu.id,
                preferred: cpus.contains(cpu.id),
                score: grade.score(),
                reason: self.reason(cpu, &grade, &chosen),
            }
        };
        Choice {
            rows: self.topology.cpus.iter().map(row).collect(),
            reason: self.summary(&cpus),
            ranked: self.ranked(&chosen),
            home: self.cpus_of(&self.home),
            cpus,
        }
    }

    fn cpus_of(&self, units: &[usize]) -> CpuSet {
        CpuSet::new(units.iter().flat_map(|&unit| self.units[unit].cpus.iter()))
    }

    fn ranked(&self, units: &[usize]) -> Vec<u32> {
        let mut units: Vec<&Unit> = units.iter().map(|&unit| &self.units[unit]).collect();
        units.sort_by_key(|unit| std::cmp::Reverse(unit.score));
        let threads = units.iter().map(|unit| unit.cpus.len()).max().unwrap_or(0);
        let nth_of_all = |thread: usize| {
            units
                .iter()
                .filter_map(move |unit| unit.cpus.iter().nth(thread))
        };
        (0..threads).flat_map(nth_of_all).collect()
    }

    fn summary(&self, cpus: &CpuSet) -> String {
        let chosen = format!("{} for {}", count(cpus.len(), "CPU"), self.threads());
        if self.limited {
            format!("{chosen}: preferred.max allows no more")
        } else {
            chosen
        }
    }

    fn threads(&self) -> String {
        count(self.wanted, "thread")
    }

    fn reason(&self, cpu: &Cpu, grade: &Grade, chosen: &[usize]) -> String {
        let unit = self
            .units
            .iter()
            .position(|unit| unit.cpus.contains(cpu.id));
        let Some(unit) = unit else {
            return "not among the CPUs that this process may use".to_owned();
        };
        let flaws = self.flaws(cpu, grade, &self.units[unit]);
        if chosen.contains(&unit) {
            let merits = join(&self.merits(cpu, unit));
            return if flaws.is_empty() {
                merits
            } else {
                format!("{merits}; although: {}", join(&flaws))
            };
        }
        if let Some(&stand_in) = self.stand_ins.get(&unit) {
            let other = &self.units[stand_in].cpus;
            return format!("{}; CPU {other} stands in until that is over", join(&flaws));
        }
        if !flaws.is_empty() {
            return join(&flaws);
        }
        if self.limited {
            return "as good, but preferred.max allows no more".to_owned();
        }
        format!("as good, but not needed for {}", self.threads())
    }

    fn merits(&self, cpu: &Cpu, unit: usize) -> Vec<String> {
        let stands_in = self.stand_ins.iter().find(|(_, it)| **it == unit);
        let cpus = &self.units[unit].cpus;
        let mut merits = Vec::new();
        if let Some((&heavy, _)) = stands_in {
            merits.push(format!("stands in for CPU {}", self.units[heavy].cpus));
        }
        match self.grader.gpus_on(cpu.node) {
            [] => {}
            [gpu] => merits.push(format!("near GPU {} on node {}", gpu.address, cpu.node)),
            gpus => merits.push(format!("near {} GPUs on node {}", gpus.len(), cpu.node)),
        }
        let kind = if self.has_efficiency_cores() && cpu.kind == Kind::Performance {
            "performance core"
        } else {
            "core"
        };
        if cpus.len() > 1 {
            merits.push(format!("whole {kind} {cpus}"));
        } else if kind != "core" {
            merits.push(kind.to_owned());
        }
        if merits.is_empty() {
            merits.push("nothing speaks against it".to_owned());
        }
        merits
    }

    fn has_efficiency_cores(&self) -> bool {
        let mut cpus = self.topology.cpus.iter();
        cpus.any(|cpu| cpu.kind == Kind::Efficiency)
    }

    /// The CPU's flaws; if it has none, those of the rest of its unit.
    fn flaws(&self, cpu: &Cpu, grade: &Grade, unit: &Unit) -> Vec<String> {
        let own: Vec<String> = grade.flaws.iter().map(Flaw::to_string).collect();
        if !own.is_empty() {
            return own;
        }
        let others = unit.cpus.iter().filter(|&id| id != cpu.id);
        others
            .filter_map(|id| self.topology.cpu(id))
            .flat_map(|other| {
                let flaws = self.grader.grade(other).flaws;
                flaws
                    .into_iter()
                    .map(|flaw| format!("CPU {} of its core: {flaw}", other.id))
            })
            .collect()
    }
}

/// The choice where the operator made it.
pub fn named(topology: &Topology, grader: &Grader<'_>, named: &CpuSet) -> Choice {
    let row = |cpu: &Cpu| {
        let grade = grader.grade(cpu);
        let preferred = named.contains(cpu.id);
        let flaws: Vec<String> = grade.flaws.iter().map(Flaw::to_string).collect();
        let reason = match (preferred, flaws.is_empty()) {
            (true, true) => "named by the operator".to_owned(),
            (true, false) => format!("named by the operator; although: {}", join(&flaws)),
            (false, _) => format!("the operator named {named}"),
        };
        Row {
            cpu: cpu.id,
            preferred,
            score: grade.score(),
            reason,
        }
    };
    Choice {
        cpus: named.clone(),
        ranked: named.iter().collect(),
        home: named.clone(),
        reason: "named by the operator".to_owned(),
        rows: topology.cpus.iter().map(row).collect(),
    }
}

fn join(words: &[String]) -> String {
    words.join("; ")
}

fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
