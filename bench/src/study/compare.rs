// SPDX-License-Identifier: GPL-2.0-only
//! Two runs of the same cells against each other, before and after a change. Pure.
//!
//! Rounds are paired by their number, as far as both runs have it: they stand at the same place between
//! the boots. The interval is Student's over the logarithms of the ratios, which unlike a bootstrap of
//! five rounds can keep a small error; it is widened by Bonferroni for the number of comparisons made.

use std::collections::BTreeMap;

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::cells::{Cells, measured};
use crate::plan::Plan;
use crate::record::Cell;
use crate::record::Measurement;
use crate::record::neighbour::Neighbour;
use crate::stats::{self, P99_MIN_SAMPLES};

/// The chance that any of all verdicts is wrong when nothing has changed, unless another is asked for. Not 5 %: a
/// gate that runs with every change would cry wolf once in twenty.
pub const GATE: f64 = 0.01;
/// Fewer rounds tell nothing about their own spread.
const MIN_ROUNDS: usize = 3;
/// Percentiles, and the samples that each needs in every round: with fewer, the chance is above 1 % that not one
/// lies beyond the true one (0.99^459, 0.95^90, 0.9^44 < 0.01).
const TAILS: [(u32, usize); 3] = [(99, P99_MIN_SAMPLES), (95, 90), (90, 44)];

/// Which figure is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Tokens/s; beside a neighbour the share of clean, which forgives a host that became slower.
    Speed,
    /// The highest percentile that the rounds of both runs have the samples for.
    Tail(Latency, u32),
    /// Of a server's requests offered, how many were answered.
    Answered,
    /// Cells that failed: one more than before is worse, without any statistics.
    Failures,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latency {
    /// A token's; of a server the time since the one before (ITL).
    Token,
    /// Of a server's requests.
    Ttft,
    Tpot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Better,
    Worse,
    /// The interval covers no change.
    NoDifference,
    TooFewRounds,
}

/// One figure of one row: the second run over the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    pub figure: Figure,
    pub rounds: usize,
    pub ratio: Option<f64>,
    /// At the corrected level.
    pub interval: Option<[f64; 2]>,
    pub verdict: Verdict,
}

impl Figure {
    pub fn name(self) -> String {
        let (latency, percent) = match self {
            Self::Speed => return "tokens/s".to_owned(),
            Self::Answered => return "answered".to_owned(),
            Self::Failures => return "failed cells".to_owned(),
            Self::Tail(latency, percent) => (latency, percent),
        };
        let of = match latency {
            Latency::Token => "latency",
            Latency::Ttft => "TTFT",
            Latency::Tpot => "TPOT",
        };
        format!("p{percent} {of}")
    }

    fn is_better(self, ratio: f64) -> bool {
        match self {
            Self::Speed | Self::Answered => ratio > 1.0,
            Self::Tail(..) | Self::Failures => ratio < 1.0,
        }
    }
}

/// A run as it was read.
pub struct Run<'a> {
    pub plan: &'a Plan,
    pub cells: &'a [Cell],
}

/// Compares the rows of `arms` that both runs have. `gate` is the chance of any wrong verdict, of all comparisons
/// together, when nothing has changed.
pub fn compare(gate: f64, before: &Run, after: &Run, arms: &[String]) -> Vec<Change> {
    let (a, b) = (
        measured(before.plan, before.cells),
        measured(after.plan, after.cells),
    );
    let mut rows: Vec<(Change, Vec<f64>)> = Vec::new();
    let mut failures = Vec::new();
    for (workload, neighbour, arm) in b
        .each_row()
        .filter(|(.., arm)| arms.iter().any(|a| a == arm))
    {
        let row = (workload, neighbour, arm);
        for figure in figures(&a, &b, row) {
            let ratios = ratios(&a, &b, row, figure);
            let row = Change {
                workload: workload.to_owned(),
                neighbour,
                arm: arm.to_owned(),
                figure,
                rounds: ratios.len(),
                ratio: None,
                interval: None,
                verdict: Verdict::TooFewRounds,
            };
            rows.push((row, ratios));
        }
        failures.extend(more_failures(before, after, row));
    }
    let comparisons = rows.iter().filter(|(_, r)| r.len() >= MIN_ROUNDS).count();
    rows.into_iter()
        .map(|(row, ratios)| judge(row, &ratios, gate / comparisons.max(1) as f64))
        .chain(failures)
        .collect()
}

/// Cells of a row that failed after the change and did not before it. Who got through is no measure of a change
/// after which others do not.
fn more_failures(before: &Run, after: &Run, row: RowOf) -> Option<Change> {
    let (workload, neighbour, arm) = row;
    let failed = |run: &Run| {
        let of_row = |cell: &&Cell| {
            cell.key.workload == workload
                && cell.key.neighbour == neighbour
                && cell.key.arm == arm
                && cell.measurement.is_none()
                && !cell.cannot_run
        };
        run.cells.iter().filter(of_row).count()
    };
    let (before, after) = (failed(before), failed(after));
    (after > before).then(|| Change {
        workload: workload.to_owned(),
        neighbour,
        arm: arm.to_owned(),
        figure: Figure::Failures,
        rounds: after,
        ratio: None,
        interval: None,
        verdict: Verdict::Worse,
    })
}

fn judge(mut row: Change, ratios: &[f64], error: f64) -> Change {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let count = logs.len() as f64;
    if logs.is_empty() {
        return row;
    }
    let mean = logs.iter().sum::<f64>() / count;
    row.ratio = Some(mean.exp());
    if logs.len() < MIN_ROUNDS {
        return row;
    }
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let Ok(student) = StudentsT::new(0.0, 1.0, count - 1.0) else {
        return row;
    };
    let half = student.inverse_cdf(1.0 - error / 2.0) * (variance / count).sqrt();
    let (low, high) = ((mean - half).exp(), (mean + half).exp());
    row.interval = Some([low, high]);
    row.verdict = if low <= 1.0 && high >= 1.0 {
        Verdict::NoDifference
    } else if row.figure.is_better(mean.exp()) {
        Verdict::Better
    } else {
        Verdict::Worse
    };
    row
}

type RowOf<'a> = (&'a str, Neighbour, &'a str);

/// What can be compared of a row: its speed, and the tails of what its workload reports.
fn figures(a: &Cells, b: &Cells, row: RowOf) -> Vec<Figure> {
    let (workload, neighbour, arm) = row;
    let rounds = [a, b].map(|cells| cells.rounds(workload, neighbour, arm));
    let both: Vec<&Measurement> = rounds.iter().flat_map(|r| r.values().copied()).collect();
    let mut figures = vec![Figure::Speed];
    if both.iter().any(|m| m.workload.client().is_some()) {
        figures.push(Figure::Answered);
    }
    for latency in [Latency::Token, Latency::Ttft, Latency::Tpot] {
        let counts = both.iter().map(|m| latency.samples(m).len());
        let fewest = counts.min().unwrap_or(0);
        let requests = both.iter().any(|m| m.workload.client().is_some());
        if latency == Latency::Token || requests {
            let percent = TAILS.iter().find(|(_, least)| fewest >= *least);
            figures.push(Figure::Tail(
                latency,
                percent.map_or(90, |(percent, _)| *percent),
            ));
        }
    }
    figures
}

impl Latency {
    /// Of one cell; the unit does not matter.
    fn samples(self, m: &Measurement) -> Vec<f64> {
        let client = m.workload.client();
        match self {
            Self::Token => m.workload.token_ms(),
            Self::Ttft => client.map_or_else(Vec::new, |client| client.ttfts.clone()),
            Self::Tpot => client.map_or_else(Vec::new, |client| client.tpots.clone()),
        }
    }

    /// `None`: the cell has too few samples for it.
    fn percentile(self, m: &Measurement, percent: u32) -> Option<f64> {
        let mut samples = self.samples(m);
        let (_, least) = TAILS.iter().find(|(known, _)| *known == percent)?;
        (samples.len() >= *least)
            .then(|| stats::percentile(&mut samples, f64::from(percent)))
            .flatten()
    }
}

fn ratios(a: &Cells, b: &Cells, row: RowOf, figure: Figure) -> Vec<f64> {
    let (before, after) = (values(a, row, figure), values(b, row, figure));
    after
        .iter()
        .filter_map(|(round, value)| Some(value / before.get(round)?))
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .collect()
}

fn values(cells: &Cells, (workload, neighbour, arm): RowOf, figure: Figure) -> BTreeMap<u32, f64> {
    let each = |value: &dyn Fn(&Measurement) -> Option<f64>| {
        let rounds = cells.rounds(workload, neighbour, arm);
        let values = rounds.into_iter();
        values
            .filter_map(|(round, m)| Some((round, value(m)?)))
            .collect()
    };
    match figure {
        Figure::Speed if neighbour == Neighbour::None => each(&|m| Some(m.workload.tokens_per_s())),
        Figure::Speed => cells.shares(workload, neighbour, arm),
        Figure::Tail(latency, percent) => each(&|m| latency.percentile(m, percent)),
        Figure::Answered => each(&|m| {
            let client = m.workload.client()?;
            Some(client.completed as f64 / client.offered as f64)
        }),
        // Counted, not compared.
        Figure::Failures => BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::plan::samples::plan;
    use crate::record::samples;

    /// Five rounds with a spread of about 3 %; the subject beside noise is `factor` as fast.
    fn run(seed: u64, factor: f64) -> Vec<Cell> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut cells = Vec::new();
        for round in 1..=5 {
            for arm in ["eevdf", "gpuaware"] {
                for neighbour in [Neighbour::None, Neighbour::Cpu, Neighbour::Heavy] {
                    // The sum of uniform draws is nearly normal.
                    let noise: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
                    let subject = arm == "gpuaware" && neighbour != Neighbour::None;
                    let speed = if subject { 100.0 * factor } else { 100.0 };
                    cells.push(samples::cell(
                        round,
                        arm,
                        neighbour,
                        speed * (noise * 0.03).exp(),
                    ));
                }
            }
        }
        cells
    }

    fn changes(before: &[Cell], after: &[Cell], arm: &str) -> Vec<Change> {
        let plan = plan();
        let run = |cells| Run { plan: &plan, cells };
        compare(GATE, &run(before), &run(after), &[arm.to_owned()])
    }

    #[test]
    fn twice_the_same_gives_no_verdict() {
        let verdicts = (0..20).flat_map(|at| {
            changes(&run(2 * at, 1.0), &run(2 * at + 1, 1.0), "eevdf")
                .into_iter()
                .filter(|change| change.rounds > 0)
        });
        for change in verdicts {
            assert_eq!(change.verdict, Verdict::NoDifference, "{change:?}");
        }
    }

    #[test]
    fn a_third_slower_is_worse_and_faster_is_better() {
        for (factor, expected) in [(0.66, Verdict::Worse), (1.5, Verdict::Better)] {
            let changes = changes(&run(1, 1.0), &run(2, factor), "gpuaware");
            let noisy = |c: &&Change| c.neighbour != Neighbour::None && c.rounds > 0;
            let noisy: Vec<&Change> = changes.iter().filter(noisy).collect();
            assert_eq!(noisy.len(), 4);
            assert!(noisy.iter().all(|c| c.verdict == expected), "{noisy:?}");
        }
    }

    /// Three rounds of requests, TTFT and TPOT by hand; the second run's are `factor` as long.
    fn served(requests: usize, factor: f64) -> Vec<Cell> {
        let seconds = |base: f64| vec![base * factor; requests];
        let report = serde_json::json!({"workload": "llm_serving",
            "client": {"offered": requests, "completed": requests, "failed": 0, "good": null,
                "ttfts": seconds(0.1), "tpots": seconds(0.01), "e2els": seconds(1.0),
                "itls": vec![vec![0.01]; requests], "errors": []},
            "server": {"launches": 9, "context_switches": {"voluntary": 1, "involuntary": 0},
                "threads_detail": []}});
        let cell = |round| {
            let mut cell = samples::cell(round, "gpuaware", Neighbour::None, 100.0);
            cell.measurement.as_mut().unwrap().workload =
                serde_json::from_value(report.clone()).unwrap();
            cell
        };
        (1..=3).map(cell).collect()
    }

    #[test]
    fn requests_are_compared_by_the_highest_percentile_that_both_runs_support() {
        for (requests, percent) in [(459, 99), (458, 95), (90, 95), (89, 90), (44, 90)] {
            let changes = changes(&served(requests, 1.0), &served(500, 2.0), "gpuaware");
            let of = |latency| {
                let figure = Figure::Tail(latency, percent);
                let found = changes.iter().find(|c| c.figure == figure && c.rounds == 3);
                found.unwrap_or_else(|| panic!("{latency:?} of {requests}: {changes:?}"))
            };
            assert_eq!(of(Latency::Ttft).verdict, Verdict::Worse);
            assert_eq!(of(Latency::Tpot).verdict, Verdict::Worse);
            assert_eq!(of(Latency::Token).verdict, Verdict::NoDifference);
        }
        let changes = changes(&served(43, 1.0), &served(500, 2.0), "gpuaware");
        let ttft = changes
            .iter()
            .find(|c| c.figure == Figure::Tail(Latency::Ttft, 90));
        assert_eq!(ttft.unwrap().verdict, Verdict::TooFewRounds);
        assert_eq!(Figure::Tail(Latency::Ttft, 99).name(), "p99 TTFT");
    }

    #[test]
    fn requests_that_are_not_answered_any_more_are_worse() {
        let mut half = served(500, 1.0);
        for cell in &mut half {
            let measurement = cell.measurement.as_mut().unwrap();
            let mut report = serde_json::to_value(&measurement.workload).unwrap();
            report["client"]["completed"] = 250.into();
            measurement.workload = serde_json::from_value(report).unwrap();
        }
        let changes = changes(&served(500, 1.0), &half, "gpuaware");
        let answered = changes.iter().find(|c| c.figure == Figure::Answered);
        let answered = answered.filter(|c| c.rounds == 3).unwrap();
        assert_eq!(
            (answered.verdict, answered.ratio),
            (Verdict::Worse, Some(0.5))
        );
    }

    #[test]
    fn cells_that_fail_now_are_worse_whatever_the_others_do() {
        let (before, mut after) = (run(1, 1.0), run(2, 1.0));
        let failed = after.iter_mut().find(|cell| cell.key.arm == "gpuaware");
        let failed = failed.unwrap();
        (failed.measurement, failed.failure) = (None, Some("thrown out".to_owned()));
        let worse = |before: &[Cell], after: &[Cell]| {
            let changes = changes(before, after, "gpuaware");
            let worse = changes.iter().filter(|c| c.verdict == Verdict::Worse);
            worse.map(|c| (c.figure, c.rounds)).collect::<Vec<_>>()
        };
        assert_eq!(worse(&before, &after), [(Figure::Failures, 1)]);
        assert_eq!(worse(&after, &before), [], "repaired");
    }

    #[test]
    fn an_interval_by_hand_and_too_few_rounds() {
        let row = Change {
            workload: String::new(),
            neighbour: Neighbour::Cpu,
            arm: String::new(),
            figure: Figure::Speed,
            rounds: 3,
            ratio: None,
            interval: None,
            verdict: Verdict::TooFewRounds,
        };
        // Logs -0.1, 0, 0.1: mean 0, deviation 0.1, t(0.975; 2) = 4.302653: 0.1 x 4.302653 / sqrt 3.
        let logs = [-0.1_f64, 0.0, 0.1].map(f64::exp);
        let judged = judge(row.clone(), &logs, 0.05);
        let half = (0.1 * 4.302_653 / 3.0_f64.sqrt()).exp();
        let [low, high] = judged.interval.unwrap();
        assert!(
            (high - half).abs() < 1e-4 && (low - 1.0 / half).abs() < 1e-4,
            "{judged:?}"
        );
        assert_eq!(judged.verdict, Verdict::NoDifference);
        assert_eq!(judge(row, &[1.5, 1.5], 0.05).verdict, Verdict::TooFewRounds);
    }
}
