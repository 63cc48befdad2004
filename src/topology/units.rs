// SPDX-License-Identifier: GPL-2.0-only
//! The CPUs that are taken together, and what they lose by each other's company. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::cpuset::CpuSet;

use super::score::{Grade, Grader};
use super::{Topology, intersection};

/// The most that being on a crowded node costs, while another one with a GPU is less so.
pub const MOST_FOR_NODE_SPREAD: f64 = 10.0;
/// The price of one unit a GPU more than on the least crowded node.
const NODE_SPREAD: f64 = 10.0;
/// The price of a full last-level cache beside an unused one.
const LLC_SPREAD: f64 = 6.0;
/// The price of the second launcher on a core, which slows both.
const STACKED: f64 = 15.0;

/// A core, or a single CPU where cores may be shared.
#[derive(Debug)]
pub struct Unit {
    /// Taken together.
    pub cpus: CpuSet,
    /// Score with the interrupts of now.
    pub score: i32,
    /// Score without.
    pub lasting_score: i32,
    /// The lowest CPU of its core stands for the core.
    core: Option<u32>,
    node: u32,
    llc: usize,
    /// GPUs near its node.
    gpus: usize,
}

impl Unit {
    /// Do interrupts take too much of one of its CPUs?
    pub fn is_heavy(&self) -> bool {
        self.score < self.lasting_score
    }

    /// Its score.
    pub fn worth_now(&self) -> f64 {
        f64::from(self.score)
    }

    /// Its score when interrupts are over.
    pub fn worth_for_good(&self) -> f64 {
        f64::from(self.lasting_score)
    }
}

/// The units of the allowed CPUs, the highest-numbered first: far from CPU 0.
pub fn units(topology: &Topology, grader: &Grader<'_>, whole_cores: bool) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut taken = BTreeSet::new();
    for cpu in topology.cpus.iter().rev() {
        if taken.contains(&cpu.id) || !topology.allowed.contains(cpu.id) {
            continue;
        }
        let cpus = if whole_cores {
            intersection(&cpu.core, &topology.allowed)
        } else {
            CpuSet::new([cpu.id])
        };
        taken.extend(cpus.iter());
        let grades: Vec<Grade> = cpus
            .iter()
            .filter_map(|id| topology.cpu(id))
            .map(|cpu| grader.grade(cpu))
            .collect();
        // A core is as good as the worst of its threads.
        let worst = |score: fn(&Grade) -> i32| grades.iter().map(score).min().unwrap_or(0);
        units.push(Unit {
            core: cpu.core.iter().next(),
            node: cpu.node,
            llc: cpu.llc,
            gpus: grader.gpus_on(cpu.node).len(),
            score: worst(Grade::score),
            lasting_score: worst(Grade::lasting_score),
            cpus,
        });
    }
    units
}

/// What the units that are in use leave to the others.
pub struct Company {
    /// Units in use on each core.
    cores: BTreeMap<Option<u32>, usize>,
    nodes: BTreeMap<u32, f64>,
    llcs: BTreeMap<usize, f64>,
}

impl Company {
    /// The company of the units in `used`.
    pub fn of(units: &[Unit], used: &[usize]) -> Self {
        let mut nodes = BTreeMap::new();
        let mut llcs = BTreeMap::new();
        let mut sizes: BTreeMap<usize, f64> = BTreeMap::new();
        for unit in units {
            if unit.gpus > 0 {
                nodes.insert(unit.node, 1.0 / unit.gpus as f64);
            }
            *sizes.entry(unit.llc).or_default() += 1.0;
        }
        for (&llc, size) in &sizes {
            llcs.insert(llc, 1.0 / size);
        }
        let mut cores: BTreeMap<_, usize> = BTreeMap::new();
        for unit in used.iter().map(|&index| &units[index]) {
            *cores.entry(unit.core).or_default() += 1;
            nodes
                .entry(unit.node)
                .and_modify(|load| *load += 1.0 / unit.gpus as f64);
            llcs.entry(unit.llc)
                .and_modify(|load| *load += 1.0 / sizes[&unit.llc]);
        }
        relative_to_the_least(&mut nodes);
        relative_to_the_least(&mut llcs);
        Self { cores, nodes, llcs }
    }

    /// What `unit`, which is not among them, would lose beside them.
    pub fn price(&self, unit: &Unit) -> f64 {
        self.price_with(unit, 0)
    }

    /// What `unit`, which is one of them, loses beside the others.
    pub fn price_of_member(&self, unit: &Unit) -> f64 {
        self.price_with(unit, 1)
    }

    fn price_with(&self, unit: &Unit, own: usize) -> f64 {
        let node = self.nodes.get(&unit.node).copied().unwrap_or(0.0);
        let llc = self.llcs.get(&unit.llc).copied().unwrap_or(0.0);
        let stacked = self.cores.get(&unit.core).is_some_and(|&used| used > own);
        (node * NODE_SPREAD).min(MOST_FOR_NODE_SPREAD)
            + llc * LLC_SPREAD
            + if stacked { STACKED } else { 0.0 }
    }
}

/// What one more unit would load each place with, less the same for the place that it would load least.
fn relative_to_the_least<K>(loads: &mut BTreeMap<K, f64>) {
    let least = loads.values().copied().fold(f64::INFINITY, f64::min);
    for load in loads.values_mut() {
        *load -= least;
    }
}
