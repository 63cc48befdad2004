// SPDX-License-Identifier: GPL-2.0-only
//! From raw cells to the figures of the report. Pure: no clock, no file; can be redone any time.

mod bpf;
pub mod compare;
mod distribution;
pub mod overlap;
mod rivals;
mod serving;
pub mod stats;
mod traced;
mod versus;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::neighbour::{Kind, Neighbour};
use crate::record::{Cell, Measurement};
use crate::run::plan::{Plan, SHARED};
pub use bpf::{Bpf, OPS};
pub use distribution::Distribution;
pub use rivals::{Figure, Rivals};
pub use serving::Serving;
use stats::{Estimate, P99_MIN_SAMPLES};
pub use traced::{TracedRow, TracerCost};
pub use versus::Versus;

/// Everything that the report shows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    pub schema: u32,
    pub rows: Vec<Row>,
    #[serde(default)]
    pub distributions: Vec<Distribution>,
    /// What the users of servers see; empty without a server.
    #[serde(default)]
    pub serving: Vec<Serving>,
    /// The subject against every other arm, in the same cells.
    pub versus: Vec<Versus>,
    /// Who beats the subject, in what.
    #[serde(default)]
    pub rivals: Vec<Rivals>,
    /// What an arm costs where nothing disturbs: its quiet tokens/s over the baseline's.
    pub overhead: Vec<Overhead>,
    pub marks: Vec<Marks>,
    /// What the schedulers' BPF programs cost; empty unless the matrix has it counted.
    #[serde(default)]
    pub bpf: Vec<Bpf>,
    /// What the tracer found of the launching threads; empty unless a workload is traced.
    #[serde(default)]
    pub traced: Vec<TracedRow>,
    /// What the tracer itself costs; empty without the same workload traced and untraced.
    #[serde(default)]
    pub tracer_costs: Vec<TracerCost>,
    /// Which scheduler each arm ran, by its own account.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    pub failed: Vec<FailedCell>,
    /// Cells during which the machine did something else as well, kept or measured again.
    #[serde(default)]
    pub disturbed: Vec<DisturbedCell>,
    /// Whether the run looked for such cells; older ones did not.
    #[serde(default)]
    pub watched: bool,
}

/// One arm beside one neighbour.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    /// Rounds that were measured, and rounds that failed.
    pub rounds: usize,
    pub failed: usize,
    /// Of the measured ones, those that stayed disturbed.
    #[serde(default)]
    pub disturbed: usize,
    pub tokens_per_s: Option<Estimate>,
    /// Tokens/s over those of the quiet reference on the same kind of boot, in the same round.
    pub share_of_clean: Option<Estimate>,
    pub token_p50_ms: Option<Estimate>,
    pub token_p99_ms: Option<Estimate>,
    /// Tokens of all rounds; below 459 there is no p99.
    pub token_samples: usize,
    pub switches_per_1000_launches: Option<Estimate>,
    /// Each neighbour's work over that under the baseline in the same round.
    pub work: BTreeMap<Kind, Estimate>,
    /// Their geometric mean.
    pub work_mean: Option<Estimate>,
    pub idle_percent: Option<Estimate>,
    pub cpu_s_per_1000_launches: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Overhead {
    pub workload: String,
    pub arm: String,
    pub ratio: Estimate,
}

/// Whether the scheduler found the launching threads by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    pub workload: String,
    pub arm: String,
    pub cells: usize,
    pub marked: usize,
    pub delay_ms_median: Option<f64>,
    pub delay_ms_max: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FailedCell {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    pub round: u32,
    pub reason: String,
    /// Something that the arm needs is not there.
    #[serde(default)]
    pub cannot_run: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DisturbedCell {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    pub round: u32,
    /// Of what is kept; empty: measured again until nothing disturbed it.
    pub reasons: Vec<String>,
    /// Measurements that were thrown away.
    pub discarded: usize,
}

/// The measured cells by what they are of.
struct Cells<'a> {
    plan: &'a Plan,
    by_row: BTreeMap<(&'a str, Neighbour, &'a str), BTreeMap<u32, &'a Measurement>>,
}

/// Studies the cells of a run.
pub fn study(plan: &Plan, cells: &[Cell]) -> Summary {
    let measured = measured(plan, cells);
    let failed: Vec<FailedCell> = cells.iter().filter_map(failed_cell).collect();
    let disturbed: Vec<DisturbedCell> = cells.iter().filter_map(disturbed_cell).collect();
    let versus = versus::versus(&measured);
    Summary {
        schema: 1,
        rows: rows(&measured, &failed, &disturbed),
        distributions: distribution::distributions(&measured),
        serving: serving::serving(&measured),
        rivals: rivals::rivals(&measured, &versus),
        versus,
        overhead: overheads(&measured),
        marks: marks(&measured),
        bpf: bpf::costs(&measured),
        traced: traced::rows(&measured),
        tracer_costs: traced::costs(&measured),
        versions: cells.iter().filter_map(version).collect(),
        failed,
        disturbed,
        watched: cells
            .iter()
            .filter_map(|c| c.measurement.as_ref())
            .any(watched),
    }
}

fn watched(m: &Measurement) -> bool {
    m.surroundings.here.is_some() || m.surroundings.host.is_some()
}

fn measured<'a>(plan: &'a Plan, cells: &'a [Cell]) -> Cells<'a> {
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

fn version(cell: &Cell) -> Option<(String, String)> {
    let scheduler = cell.measurement.as_ref()?.scheduler.as_ref()?;
    Some((cell.key.arm.clone(), scheduler.version.clone()?))
}

fn failed_cell(cell: &Cell) -> Option<FailedCell> {
    cell.measurement.is_none().then(|| FailedCell {
        workload: cell.key.workload.clone(),
        neighbour: cell.key.neighbour,
        arm: cell.key.arm.clone(),
        round: cell.key.round,
        cannot_run: cell.cannot_run,
        reason: cell.failure.clone().unwrap_or_else(|| "unknown".to_owned()),
    })
}

fn disturbed_cell(cell: &Cell) -> Option<DisturbedCell> {
    let quiet = cell.disturbed.is_empty() && cell.discarded.is_empty();
    (!quiet).then(|| DisturbedCell {
        workload: cell.key.workload.clone(),
        neighbour: cell.key.neighbour,
        arm: cell.key.arm.clone(),
        round: cell.key.round,
        reasons: cell.disturbed.clone(),
        discarded: cell.discarded.len(),
    })
}

impl<'a> Cells<'a> {
    fn rounds(
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
    fn pairs<'b>(
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
    fn reference(&self, workload: &str, arm: &str) -> BTreeMap<u32, &'a Measurement> {
        let shared = self.plan.group(arm) == SHARED;
        let reference = if shared {
            self.plan.matrix.baseline.as_str()
        } else {
            arm
        };
        self.rounds(workload, Neighbour::None, reference)
    }

    /// Share of clean, a value a round.
    fn shares(&self, workload: &str, neighbour: Neighbour, arm: &str) -> BTreeMap<u32, f64> {
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
    fn each_row(&self) -> impl Iterator<Item = (&'a str, Neighbour, &'a str)> {
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

    fn each_workload_and_arm(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
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
fn work_ratios(pairs: &[(&Measurement, &Measurement)]) -> Vec<BTreeMap<Kind, f64>> {
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
fn mean_work(ratios: &[BTreeMap<Kind, f64>]) -> Option<Estimate> {
    let means: Vec<f64> = ratios
        .iter()
        .filter_map(|round| stats::geometric_mean(&round.values().copied().collect::<Vec<_>>()))
        .collect();
    stats::median_of_rounds(&means)
}

fn token_ms(rounds: &BTreeMap<u32, &Measurement>) -> Vec<Vec<f64>> {
    rounds.values().map(|m| m.workload.token_ms()).collect()
}

fn rows(cells: &Cells, failed: &[FailedCell], disturbed: &[DisturbedCell]) -> Vec<Row> {
    cells
        .each_row()
        .map(|(workload, neighbour, arm)| {
            let failed = failed
                .iter()
                .filter(|f| {
                    (f.workload.as_str(), f.neighbour, f.arm.as_str()) == (workload, neighbour, arm)
                })
                .count();
            let disturbed = disturbed
                .iter()
                .filter(|d| !d.reasons.is_empty())
                .filter(|d| {
                    (d.workload.as_str(), d.neighbour, d.arm.as_str()) == (workload, neighbour, arm)
                })
                .count();
            Row {
                failed,
                disturbed,
                ..row(cells, workload, neighbour, arm)
            }
        })
        .collect()
}

fn row(cells: &Cells, workload: &str, neighbour: Neighbour, arm: &str) -> Row {
    let rounds = cells.rounds(workload, neighbour, arm);
    let each = |figure: fn(&Measurement) -> Option<f64>| -> Option<Estimate> {
        stats::median_of_rounds(
            &rounds
                .values()
                .filter_map(|m| figure(m))
                .collect::<Vec<_>>(),
        )
    };
    let tokens = token_ms(&rounds);
    let tokens: Vec<&[f64]> = tokens.iter().map(Vec::as_slice).collect();
    let token_samples = tokens.iter().map(|round| round.len()).sum();
    let baseline = cells.rounds(workload, neighbour, &cells.plan.matrix.baseline);
    let work = work_ratios(&Cells::pairs(&rounds, &baseline));
    let kinds = neighbour.kinds().iter().filter_map(|kind| {
        let values: Vec<f64> = work
            .iter()
            .filter_map(|round| round.get(kind).copied())
            .collect();
        Some((*kind, stats::median_of_rounds(&values)?))
    });
    let shares: Vec<f64> = cells
        .shares(workload, neighbour, arm)
        .into_values()
        .collect();
    Row {
        workload: workload.to_owned(),
        neighbour,
        arm: arm.to_owned(),
        rounds: rounds.len(),
        failed: 0,
        disturbed: 0,
        tokens_per_s: each(|m| Some(m.workload.tokens_per_s())),
        share_of_clean: stats::median_of_rounds(&shares),
        token_p50_ms: stats::pooled_percentile(&tokens, 50.0),
        token_p99_ms: (token_samples >= P99_MIN_SAMPLES)
            .then(|| stats::pooled_percentile(&tokens, 99.0))
            .flatten(),
        token_samples,
        switches_per_1000_launches: each(switches_per_1000_launches),
        work: kinds.collect(),
        work_mean: mean_work(&work),
        idle_percent: each(|m| Some(m.cpu.idle_percent)),
        cpu_s_per_1000_launches: each(cpu_s_per_1000_launches).map(|estimate| estimate.value),
    }
}

fn switches_per_1000_launches(m: &Measurement) -> Option<f64> {
    let switches = m.workload.context_switches();
    let sum = (switches.voluntary + switches.involuntary) as f64;
    let launches = m.workload.launches();
    (launches > 0).then(|| sum * 1e3 / launches as f64)
}

fn cpu_s_per_1000_launches(m: &Measurement) -> Option<f64> {
    let launches = m.workload.launches();
    let seconds = m.workload.cpu_s()?;
    (launches > 0).then(|| seconds * 1e3 / launches as f64)
}

fn overheads(cells: &Cells) -> Vec<Overhead> {
    cells
        .each_workload_and_arm()
        .filter(|(_, arm)| *arm != cells.plan.matrix.baseline && cells.plan.group(arm) == SHARED)
        .filter_map(|(workload, arm)| {
            let shares: Vec<f64> = cells
                .shares(workload, Neighbour::None, arm)
                .into_values()
                .collect();
            Some(Overhead {
                workload: workload.to_owned(),
                arm: arm.to_owned(),
                ratio: stats::median_of_rounds(&shares)?,
            })
        })
        .collect()
}

fn marks(cells: &Cells) -> Vec<Marks> {
    cells
        .each_workload_and_arm()
        .filter_map(|(workload, arm)| {
            let seen: Vec<_> = cells
                .plan
                .matrix
                .neighbours
                .iter()
                .flat_map(|&neighbour| cells.rounds(workload, neighbour, arm).into_values())
                .filter_map(|m| m.marks.as_ref())
                .collect();
            let delays: Vec<f64> = seen.iter().filter_map(|marks| marks.delay_ms).collect();
            (!seen.is_empty()).then(|| Marks {
                workload: workload.to_owned(),
                arm: arm.to_owned(),
                cells: seen.len(),
                marked: seen.iter().filter(|marks| marks.marked).count(),
                delay_ms_median: stats::median(&delays),
                delay_ms_max: delays.iter().copied().reduce(f64::max),
            })
        })
        .collect()
}

#[cfg(test)]
mod same;
#[cfg(test)]
mod tests;
