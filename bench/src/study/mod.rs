// SPDX-License-Identifier: GPL-2.0-only
//! From raw cells to the figures of the report. Pure: no clock, no file; can be redone any time.

mod bpf;
mod cells;
mod change;
pub mod compare;
mod course;
mod distribution;
mod dominance;
mod limit;
mod model;
mod over;
pub mod overlap;
mod pipeline;
pub mod pool;
mod possible;
mod serving;
mod softirqs;
pub mod ticks;
mod traced;
mod versus;

use std::collections::BTreeMap;

use crate::plan::{Plan, SHARED};
use crate::record::neighbour::Neighbour;
use crate::record::{Cell, Measurement};
pub use bpf::{Bpf, OPS};
use cells::{Cells, measured, token_ms, work_ratios};
pub use distribution::Distribution;
pub use dominance::{Dominance, FALSE_RATE, Figure};
use gpuaware_stats::{self as stats, Estimate, Scale};
pub use model::{DisturbedCell, FailedCell, Impossible, Marks, Overhead, Row, Summary};
use over::Yardsticks;
#[cfg(test)]
pub use pipeline::{HandOver, Missed};
pub use pipeline::{PartTimes, Parts, StageTimes};
use possible::Possible;
pub use serving::{Latency, Serving};
pub use softirqs::SoftIrqRow;
pub use ticks::Ticks;
pub use traced::{TracedRow, TracerCost};

pub use versus::Versus;

/// Studies the cells of a run.
pub fn study(plan: &Plan, cells: &[Cell]) -> Summary {
    let measured = measured(plan, cells);
    let failed: Vec<FailedCell> = cells.iter().filter_map(failed_cell).collect();
    let disturbed: Vec<DisturbedCell> = cells.iter().filter_map(disturbed_cell).collect();
    let versus = versus::versus(&measured);
    let rows = rows(&measured, &failed, &disturbed);
    Summary {
        schema: 1,
        impossible: limit::impossible(&rows),
        rows,
        distributions: distribution::distributions(&measured),
        serving: serving::serving(&measured),
        dominance: dominance::dominance(&versus, FALSE_RATE),
        pipelines: pipeline::parts(&measured),
        versus,
        overhead: overheads(&measured),
        marks: marks(&measured),
        bpf: bpf::costs(&measured),
        traced: traced::rows(&measured),
        tracer_costs: traced::costs(&measured),
        soft_irqs: softirqs::rows(&measured),
        ticks: Vec::new(),
        versions: cells.iter().filter_map(version).collect(),
        failed,
        disturbed,
        watched: cells
            .iter()
            .filter_map(|c| c.measurement.as_ref())
            .any(watched),
        stolen_percent: stolen_percent(cells),
    }
}

fn stolen_percent(cells: &[Cell]) -> BTreeMap<Neighbour, f64> {
    let mut shares: BTreeMap<Neighbour, Vec<f64>> = BTreeMap::new();
    for cell in cells {
        let surroundings = cell.measurement.as_ref().map(|m| &m.surroundings);
        let load = surroundings.and_then(|seen| seen.host.as_ref().or(seen.here.as_ref()));
        if let Some(load) = load {
            let share = load.steal_cpus / load.cpus as f64;
            let of_all = shares.entry(cell.key.neighbour).or_default();
            of_all.push(share * 100.0);
        }
    }
    let medians = shares.into_iter();
    medians
        .filter_map(|(neighbour, shares)| Some((neighbour, stats::median(&shares)?)))
        .collect()
}

fn watched(m: &Measurement) -> bool {
    m.surroundings.here.is_some() || m.surroundings.host.is_some()
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
    let each = |scale: Scale, figure: fn(&Measurement) -> Option<f64>| -> Option<Estimate> {
        let values = rounds.iter();
        let values = values.filter_map(|(round, m)| Some((*round, figure(m)?)));
        cells.mean(values, scale)
    };
    let tokens = token_ms(&rounds);
    let baseline = cells.rounds(workload, neighbour, &cells.plan.matrix.baseline);
    let work = work_ratios(&Cells::pairs(&rounds, &baseline));
    let kinds = neighbour.kinds().iter().filter_map(|kind| {
        let values = work
            .iter()
            .filter_map(|(round, kinds)| Some((*round, *kinds.get(kind)?)));
        Some((*kind, cells.mean(values, Scale::Log)?))
    });
    let yardsticks = Yardsticks::of(cells, workload, neighbour, arm);
    let p99_over = |below| {
        let pairs = Cells::pairs(&rounds, below);
        cells.p99_ratio(&pairs, |m| Some(m.workload.token_ms()))
    };
    let possible = Possible::of(cells, workload, neighbour, arm);
    let mean = |values: BTreeMap<u32, f64>| cells.mean(values, Scale::Log);
    Row {
        workload: workload.to_owned(),
        neighbour,
        arm: arm.to_owned(),
        rounds: rounds.len(),
        failed: 0,
        disturbed: 0,
        tokens_per_s: each(Scale::Log, |m| Some(m.workload.tokens_per_s())),
        share_of_clean: mean(cells.shares(workload, neighbour, arm)),
        over_own_quiet: mean(over::speed(&rounds, &yardsticks.own_quiet)),
        over_isolcpus: mean(over::speed(&rounds, &yardsticks.reserved)),
        token_p50_ms: cells.percentile(&tokens, 50.0),
        token_p99_ms: cells.p99(&tokens),
        p99_over_own_quiet: p99_over(&yardsticks.own_quiet),
        p99_over_isolcpus: p99_over(&yardsticks.reserved),
        token_samples: tokens.values().map(Vec::len).sum(),
        switches_per_1000_launches: each(Scale::Plain, switches_per_1000_launches)
            .map(|switches| switches.within(0.0, f64::INFINITY)),
        work: kinds.collect(),
        work_mean: cells.mean_work(&work),
        launcher_cpus: mean(possible.launcher_cpus),
        possible: mean(possible.possible),
        work_of_possible: mean(possible.work_of_possible),
        idle_percent: each(Scale::Plain, |m| Some(m.cpu.idle_percent))
            .map(|percent| percent.within(0.0, 100.0)),
        cpu_s_per_1000_launches: each(Scale::Log, cpu_s_per_1000_launches)
            .map(|estimate| estimate.value),
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
            let shares = cells.shares(workload, Neighbour::None, arm);
            Some(Overhead {
                workload: workload.to_owned(),
                arm: arm.to_owned(),
                ratio: cells.mean(shares, Scale::Log)?,
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
                .filter_map(|m| Some((m.workload.threads_to_find().0, m.marks.as_ref()?)))
                .collect();
            let (class, _) = seen.first()?;
            let delays: Vec<f64> = seen
                .iter()
                .filter_map(|(_, marks)| marks.delay_ms)
                .collect();
            Some(Marks {
                workload: workload.to_owned(),
                arm: arm.to_owned(),
                class: (*class).to_owned(),
                cells: seen.len(),
                marked: seen.iter().filter(|(_, marks)| marks.marked).count(),
                delay_ms_median: stats::median(&delays),
                delay_ms_max: delays.iter().copied().reduce(f64::max),
            })
        })
        .collect()
}

#[cfg(test)]
mod coverage;
#[cfg(test)]
mod same;
#[cfg(test)]
pub mod samples;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
