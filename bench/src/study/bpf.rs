// SPDX-License-Identifier: GPL-2.0-only
//! What the schedulers' BPF programs cost, an arm beside a neighbour.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cells::Cells;
use crate::bpf::Runs;
use crate::record::BpfCost;
use crate::record::neighbour::Neighbour;
use gpuaware_stats::{Estimate, Scale};

/// The operations that every wakeup and switch goes through.
pub const OPS: [&str; 3] = ["select_cpu", "enqueue", "dispatch"];

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bpf {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    /// Mean nanoseconds of a run, in the order of `OPS`.
    pub op_ns: [Option<Estimate>; OPS.len()],
    /// Their sum.
    pub sum_ns: Option<Estimate>,
    /// All programs of the scheduler, percent of one CPU's time.
    pub cpu_percent: Option<Estimate>,
    /// Each program: runs a second and mean nanoseconds a run, all rounds together.
    pub programs: BTreeMap<String, [f64; 2]>,
}

/// Mean nanoseconds of the operation `op`, whose program is named `<scheduler>_<op>`.
fn op_ns(cost: &BpfCost, op: &str) -> Option<f64> {
    let is_it = |name: &&String| {
        name.strip_suffix(op)
            .is_some_and(|rest| rest.ends_with('_'))
    };
    let name = cost.programs.keys().find(is_it)?;
    mean_ns(cost.programs[name])
}

fn mean_ns(runs: Runs) -> Option<f64> {
    (runs.runs > 0).then(|| runs.ns as f64 / runs.runs as f64)
}

fn sum_ns(cost: &BpfCost) -> Option<f64> {
    OPS.iter().map(|op| op_ns(cost, op)).sum()
}

fn cpu_percent(cost: &BpfCost) -> f64 {
    let ns: u64 = cost.programs.values().map(|runs| runs.ns).sum();
    ns as f64 / 1e7 / cost.seconds
}

fn programs(costs: &[&BpfCost]) -> BTreeMap<String, [f64; 2]> {
    let seconds: f64 = costs.iter().map(|cost| cost.seconds).sum();
    let mut sums: BTreeMap<&String, Runs> = BTreeMap::new();
    for (name, runs) in costs.iter().flat_map(|cost| &cost.programs) {
        let sum = sums.entry(name).or_default();
        sum.runs += runs.runs;
        sum.ns += runs.ns;
    }
    let figures = |sum: Runs| [sum.runs as f64 / seconds, mean_ns(sum).unwrap_or_default()];
    sums.into_iter()
        .map(|(name, sum)| (name.clone(), figures(sum)))
        .collect()
}

pub fn costs(cells: &Cells) -> Vec<Bpf> {
    cells
        .each_row()
        .filter_map(|(workload, neighbour, arm)| {
            let rounds = cells.rounds(workload, neighbour, arm);
            let by_round = rounds
                .iter()
                .filter_map(|(round, m)| Some((*round, m.bpf.as_ref()?)));
            let (rounds, costs): (Vec<u32>, Vec<&BpfCost>) = by_round.unzip();
            let mean = |figure: &dyn Fn(&BpfCost) -> Option<f64>| {
                let values = rounds.iter().zip(&costs);
                let values = values.filter_map(|(round, cost)| Some((*round, figure(cost)?)));
                cells.mean(values, Scale::Log)
            };
            (!costs.is_empty()).then(|| Bpf {
                workload: workload.to_owned(),
                neighbour,
                arm: arm.to_owned(),
                op_ns: OPS.map(|op| mean(&|cost| op_ns(cost, op))),
                sum_ns: mean(&sum_ns),
                cpu_percent: mean(&|cost| Some(cpu_percent(cost))),
                programs: programs(&costs),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_three_operations() {
        let runs = |runs, ns| Runs { runs, ns };
        let cost = BpfCost {
            seconds: 2.0,
            programs: BTreeMap::from([
                ("x_select_cpu".to_owned(), runs(10, 5_000)),
                ("x_enqueue".to_owned(), runs(5, 5_000)),
                ("x_dispatch".to_owned(), runs(4, 1_000)),
                ("irq_entry".to_owned(), runs(100, 9_000)),
            ]),
        };
        assert_eq!(
            OPS.map(|op| op_ns(&cost, op)),
            [Some(500.0), Some(1000.0), Some(250.0)]
        );
        assert_eq!(sum_ns(&cost), Some(1750.0));
        assert_eq!(cpu_percent(&cost), 20_000.0 / 2e9 * 100.0);
        assert_eq!(programs(&[&cost, &cost])["irq_entry"], [50.0, 90.0]);
        let without = BpfCost {
            seconds: 1.0,
            programs: BTreeMap::new(),
        };
        assert_eq!(sum_ns(&without), None);
    }
}
