// SPDX-License-Identifier: GPL-2.0-only
//! How far a swept parameter can go while an objective is kept: of offered load, what an arm can be given.

use super::model::Report;
use super::table::{Align, Table};
use crate::matrix::Sweep;
use crate::record::neighbour::Neighbour;

use Align::{Left, Right};

/// Share of the requests that may miss it, in percent.
const MAY_MISS_PERCENT: f64 = 1.0;

/// A heading and a table for each sweep of pipelines that have objectives.
pub fn tables(report: &Report) -> Vec<(String, Table)> {
    let sweeps = report.plan.matrix.sweeps.iter();
    let all = sweeps.filter_map(|sweep| {
        let heading = format!(
            "Up to which value at most {MAY_MISS_PERCENT} % missed an objective, there and at all below: {}",
            sweep.label
        );
        Some((heading, table(report, sweep)?))
    });
    all.collect()
}

fn table(report: &Report, sweep: &Sweep) -> Option<Table> {
    let objectives = objectives(report, sweep);
    if objectives.is_empty() {
        return None;
    }
    let matrix = &report.plan.matrix;
    let mut table = Table::new(&[("workload", Left), ("neighbour", Left), ("arm", Left)]);
    let names = objectives.iter().map(|ms| format!("{ms} ms"));
    table.columns.extend(names.map(|name| (name, Right)));
    let mut last = None;
    for workload in &sweep.workloads {
        for &neighbour in &matrix.neighbours {
            for arm in &matrix.arms {
                let shares = |at| shares(report, sweep, workload, neighbour, arm, at);
                if shares(0).is_empty() {
                    continue;
                }
                table.next_row(&mut last, (workload, neighbour), *arm == matrix.subject);
                let mut cells = vec![workload.clone(), neighbour.to_string(), arm.clone()];
                cells.extend((0..objectives.len()).map(|at| kept(&shares(at))));
                table.rows.push(cells);
            }
        }
    }
    Some(table)
}

/// The same for all values of a sweep, in ms.
fn objectives(report: &Report, sweep: &Sweep) -> Vec<f64> {
    let of_sweep = |workload: &str| {
        let mut names = sweep.workloads.iter();
        names.any(|name| {
            sweep
                .values
                .iter()
                .any(|&value| Sweep::name(name, value) == workload)
        })
    };
    let mut parts = report.summary.pipelines.iter();
    let parts = parts.find(|parts| of_sweep(&parts.workload));
    let objectives = parts.map(|parts| parts.objectives.iter().map(|objective| objective.ms));
    objectives.into_iter().flatten().collect()
}

/// What missed the objective `at`, in percent, by value; without those that were not measured.
fn shares(
    report: &Report,
    sweep: &Sweep,
    workload: &str,
    neighbour: Neighbour,
    arm: &str,
    at: usize,
) -> Vec<(f64, f64)> {
    let share = |value: f64| {
        let name = Sweep::name(workload, value);
        let mut parts = report.summary.pipelines.iter();
        let parts = parts.find(|parts| {
            (parts.workload.as_str(), parts.neighbour, parts.arm.as_str())
                == (&name, neighbour, arm)
        })?;
        Some(parts.objectives.get(at)?.share?.value * 100.0)
    };
    let values = sweep.values.iter();
    values
        .filter_map(|&value| Some((value, share(value)?)))
        .collect()
}

fn kept(shares: &[(f64, f64)]) -> String {
    let good = shares
        .iter()
        .take_while(|(_, missed)| *missed <= MAY_MISS_PERCENT);
    match (good.last(), shares.first()) {
        (Some((value, _)), _) => value.to_string(),
        (None, Some((least, _))) => format!("below {least}"),
        (None, None) => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_is_kept_up_to_the_first_value_that_misses_it() {
        assert_eq!(
            kept(&[(10.0, 0.0), (20.0, 1.0), (30.0, 40.0), (40.0, 0.5)]),
            "20"
        );
        assert_eq!(kept(&[(10.0, 2.0), (20.0, 0.0)]), "below 10");
        assert_eq!(kept(&[(10.0, 0.0)]), "10");
    }
}
