// SPDX-License-Identifier: GPL-2.0-only
//! The measured cells of a run by what they are of: rows, pairs of rows by round, and what their shares refer to.

use std::collections::BTreeMap;

use crate::plan::{Plan, SHARED};
use crate::record::neighbour::{Kind, Neighbour};
use crate::record::{Cell, Measurement};
use gpuaware_stats::{self as stats, Estimate, P99_MIN_SAMPLES, Scale};

/// The measured cells of a row by round, and those of two rows.
pub type Rounds<'a> = BTreeMap<u32, &'a Measurement>;
pub type Pairs<'a> = BTreeMap<u32, (&'a Measurement, &'a Measurement)>;

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

    /// The cells of two rows by round. Rounds of arms with boots of their own are no pairs; the boots that they are on
    /// follow one another, and it is boots that an interval counts.
    pub fn pairs<'b>(above: &Rounds<'b>, below: &Rounds<'b>) -> Pairs<'b> {
        above
            .iter()
            .filter_map(|(round, m)| Some((*round, (*m, *below.get(round)?))))
            .collect()
    }

    /// The mean over boots of values by round, and its interval.
    pub fn mean(
        &self,
        values: impl IntoIterator<Item = (u32, f64)>,
        scale: Scale,
    ) -> Option<Estimate> {
        let values = values.into_iter();
        let by_boot: Vec<(u32, f64)> = values
            .map(|(round, value)| (self.plan.boot_of(round), value))
            .collect();
        stats::over_boots(&by_boot, scale)
    }

    /// The mean over boots of percentiles of samples by round.
    pub fn percentile(&self, rounds: &BTreeMap<u32, Vec<f64>>, percent: f64) -> Option<Estimate> {
        let by_boot: Vec<(u32, &[f64])> = rounds
            .iter()
            .map(|(round, samples)| (self.plan.boot_of(*round), samples.as_slice()))
            .collect();
        stats::percentile_over_boots(&by_boot, percent)
    }

    /// The same of p99, which needs samples.
    pub fn p99(&self, rounds: &BTreeMap<u32, Vec<f64>>) -> Option<Estimate> {
        let samples: usize = rounds.values().map(Vec::len).sum();
        (samples >= P99_MIN_SAMPLES)
            .then(|| self.percentile(rounds, 99.0))
            .flatten()
    }

    /// The ratio of two p99 over the rounds that both have; `None` with too few samples on either side.
    pub fn p99_ratio(
        &self,
        pairs: &Pairs,
        samples: impl Fn(&Measurement) -> Option<Vec<f64>>,
    ) -> Option<Estimate> {
        let rounds: Vec<(u32, Vec<f64>, Vec<f64>)> = pairs
            .iter()
            .filter_map(|(round, (above, below))| {
                Some((self.plan.boot_of(*round), samples(above)?, samples(below)?))
            })
            .collect();
        let above: usize = rounds.iter().map(|(_, above, _)| above.len()).sum();
        let below: usize = rounds.iter().map(|(.., below)| below.len()).sum();
        if above.min(below) < P99_MIN_SAMPLES {
            return None;
        }
        let rounds: Vec<(u32, &[f64], &[f64])> = rounds
            .iter()
            .map(|(boot, above, below)| (*boot, above.as_slice(), below.as_slice()))
            .collect();
        stats::percentile_ratio_over_boots(&rounds, 99.0)
    }

    /// The mean over boots of the geometric means over the kinds of work.
    pub fn mean_work(&self, ratios: &BTreeMap<u32, BTreeMap<Kind, f64>>) -> Option<Estimate> {
        let means = ratios
            .iter()
            .filter_map(|(round, kinds)| Some((*round, mean_ratio(kinds)?)));
        self.mean(means, Scale::Log)
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
        self.plan.matrix.each_row()
    }

    pub fn each_workload_and_arm(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let quiet = self
            .each_row()
            .filter(|(_, beside, _)| *beside == Neighbour::None);
        quiet.map(|(workload, _, arm)| (workload, arm))
    }
}

/// The ratio of two cells' work, by kind.
pub fn work_ratio(above: &Measurement, below: &Measurement) -> BTreeMap<Kind, f64> {
    let ratio = |kind: Kind, rate: f64| {
        let other = below.neighbours.iter().find(|work| work.kind == kind)?;
        (other.rate > 0.0).then(|| (kind, rate / other.rate))
    };
    above
        .neighbours
        .iter()
        .filter_map(|work| ratio(work.kind, work.rate))
        .collect()
}

/// Of two arms, a round.
pub fn work_ratios(pairs: &Pairs) -> BTreeMap<u32, BTreeMap<Kind, f64>> {
    pairs
        .iter()
        .map(|(round, (above, below))| (*round, work_ratio(above, below)))
        .collect()
}

/// The geometric mean over the kinds of work.
pub fn mean_ratio(ratios: &BTreeMap<Kind, f64>) -> Option<f64> {
    stats::geometric_mean(&ratios.values().copied().collect::<Vec<_>>())
}

/// A figure's ratio of two rows, a value a round.
pub fn quotient(above: &BTreeMap<u32, f64>, below: &BTreeMap<u32, f64>) -> BTreeMap<u32, f64> {
    above
        .iter()
        .filter_map(|(round, value)| Some((*round, value / below.get(round)?)))
        .collect()
}

pub fn token_ms(rounds: &Rounds) -> BTreeMap<u32, Vec<f64>> {
    let rounds = rounds.iter();
    rounds
        .map(|(round, m)| (*round, m.workload.token_ms()))
        .collect()
}
