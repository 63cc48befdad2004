// SPDX-License-Identifier: GPL-2.0-only
//! The measured cells of a run by what they are of: rows, pairs of rows by round, and what their shares refer to.

use std::collections::BTreeMap;

use crate::plan::{Plan, SHARED};
use crate::record::neighbour::{Kind, Neighbour};
use crate::record::{Cell, Measurement};
use crate::stats::{self, Estimate};

/// The measured cells by what they are of.
pub struct Cells<'a> {
    pub plan: &'a Plan,
    pub by_row: BTreeMap<(&'a str, Neighbour, &'a str), BTreeMap<u32, &'a Measurement>>,
}

pub fn measured<'a>(plan: &'a Plan, cells: &'a [Cell]) -> Cells<'a> {
    let mut by_row: BTreeMap<_, BTreeMap<u32, &Measurement>> = BTreeMap::new();
    for cell in cells {
        if let Some(measurement) = &cell.measurement {
            let key = (
                cell.key.workload.as_str(),
                cell.key.neighbour,
                cell.key.arm.as_str(),
            );
            by_row
                .entry(key)
                .or_default()
                .insert(cell.key.round, measurement);
        }
    }
    Cells { plan, by_row }
}

impl<'a> Cells<'a> {
    pub fn rounds(
        &self,
        workload: &str,
        neighbour: Neighbour,
        arm: &str,
    ) -> BTreeMap<u32, &'a Measurement> {
        self.by_row
            .get(&(workload, neighbour, arm))
            .cloned()
            .unwrap_or_default()
    }

    /// The same figure of two rows, paired by round.
    pub fn pairs<'b>(
        above: &BTreeMap<u32, &'b Measurement>,
        below: &BTreeMap<u32, &'b Measurement>,
    ) -> Vec<(&'b Measurement, &'b Measurement)> {
        above
            .iter()
            .filter_map(|(round, m)| Some((*m, *below.get(round)?)))
            .collect()
    }

    /// The quiet cells that an arm's shares refer to: on the shared boot the baseline's, on a
    /// boot of its own the arm's own.
    pub fn reference(&self, workload: &str, arm: &str) -> BTreeMap<u32, &'a Measurement> {
        let shared = self.plan.group(arm) == SHARED;
        let reference = if shared {
            self.plan.matrix.baseline.as_str()
        } else {
            arm
        };
        self.rounds(workload, Neighbour::None, reference)
    }

    /// Share of clean, a value a round.
    pub fn shares(&self, workload: &str, neighbour: Neighbour, arm: &str) -> BTreeMap<u32, f64> {
        let reference = self.reference(workload, arm);
        self.rounds(workload, neighbour, arm)
            .into_iter()
            .filter_map(|(round, m)| {
                let clean = reference.get(&round)?.workload.tokens_per_s();
                (clean > 0.0).then(|| (round, m.workload.tokens_per_s() / clean))
            })
            .collect()
    }

    /// Every (workload, neighbour, arm) of the matrix, in the report's order.
    pub fn each_row(&self) -> impl Iterator<Item = (&'a str, Neighbour, &'a str)> {
        let matrix = &self.plan.matrix;
        matrix.workloads.iter().flat_map(move |workload| {
            matrix.neighbours.iter().flat_map(move |&neighbour| {
                matrix
                    .arms
                    .iter()
                    .map(move |arm| (workload.name.as_str(), neighbour, arm.as_str()))
            })
        })
    }

    pub fn each_workload_and_arm(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let matrix = &self.plan.matrix;
        matrix.workloads.iter().flat_map(move |workload| {
            matrix
                .arms
                .iter()
                .map(move |arm| (workload.name.as_str(), arm.as_str()))
        })
    }
}

/// The ratio of two arms' work a round, by kind.
pub fn work_ratios(pairs: &[(&Measurement, &Measurement)]) -> Vec<BTreeMap<Kind, f64>> {
    pairs
        .iter()
        .map(|(above, below)| {
            let ratio = |kind: Kind, rate: f64| {
                let other = below.neighbours.iter().find(|work| work.kind == kind)?;
                (other.rate > 0.0).then(|| (kind, rate / other.rate))
            };
            above
                .neighbours
                .iter()
                .filter_map(|work| ratio(work.kind, work.rate))
                .collect()
        })
        .collect()
}

/// The median of the geometric means over the kinds of work.
pub fn mean_work(ratios: &[BTreeMap<Kind, f64>]) -> Option<Estimate> {
    let means: Vec<f64> = ratios
        .iter()
        .filter_map(|round| stats::geometric_mean(&round.values().copied().collect::<Vec<_>>()))
        .collect();
    stats::median_of_rounds(&means)
}

pub fn token_ms(rounds: &BTreeMap<u32, &Measurement>) -> Vec<Vec<f64>> {
    rounds.values().map(|m| m.workload.token_ms()).collect()
}
