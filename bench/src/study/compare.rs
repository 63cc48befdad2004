// SPDX-License-Identifier: GPL-2.0-only
//! Two runs of the same cells against each other, before and after a change. Pure.
//!
//! The boots of one run are no pairs of the other's, hours or weeks later: the interval is Welch's over the
//! logarithms of what the boots of either run have in the mean, widened by Bonferroni for the number of comparisons
//! made. It needs boots: what all rounds of a boot share cannot be told from a change.

use std::collections::{BTreeMap, BTreeSet};

use super::cells::{Cells, measured};
pub use super::change::{Change, Figure, Latency, Verdict};
use crate::plan::{Plan, Where};
use crate::record::Cell;
use crate::record::Measurement;
use crate::record::neighbour::Neighbour;
use gpuaware_stats::{self as stats, Estimate, P99_MIN_SAMPLES};

/// The chance that any of all verdicts is wrong when nothing has changed, unless another is asked for. Not 5 %: a
/// gate that runs with every change would cry wolf once in twenty.
pub const GATE: f64 = 0.01;
/// Fewer boots tell nothing about their own spread.
const MIN_BOOTS: usize = 3;
/// Percentiles, and the samples that each needs in every boot: with fewer, the chance is above 1 % that not one
/// lies beyond the true one (0.99^459, 0.95^90, 0.9^44 < 0.01).
const TAILS: [(u32, usize); 3] = [(99, P99_MIN_SAMPLES), (95, 90), (90, 44)];

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
    let mut rows: Vec<(Change, Option<Estimate>)> = Vec::new();
    let mut failures = Vec::new();
    for (workload, neighbour, arm) in b
        .each_row()
        .filter(|(.., arm)| arms.iter().any(|a| a == arm))
    {
        let row = (workload, neighbour, arm);
        for figure in figures(&a, &b, row) {
            let sides = [&a, &b].map(|cells| values(cells, row, figure));
            let count = sides
                .each_ref()
                .map(|side| boots(side))
                .into_iter()
                .min()
                .unwrap_or(0);
            let [before, after] = sides;
            let ratio = stats::welch(&after, &before);
            let row = Change {
                workload: workload.to_owned(),
                neighbour,
                arm: arm.to_owned(),
                figure,
                count,
                ratio: None,
                interval: None,
                verdict: Verdict::TooFewBoots,
            };
            rows.push((row, ratio));
        }
        failures.extend(more_failures(before, after, row));
    }
    let comparisons = rows
        .iter()
        .filter(|(row, _)| row.count >= MIN_BOOTS)
        .count();
    rows.into_iter()
        .map(|(row, ratio)| judge(row, ratio, gate / comparisons.max(1) as f64))
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
        count: after,
        ratio: None,
        interval: None,
        verdict: Verdict::Worse,
    })
}

fn judge(mut row: Change, ratio: Option<Estimate>, error: f64) -> Change {
    row.ratio = ratio.map(|ratio| ratio.value);
    let interval = ratio.and_then(|ratio| ratio.interval_at(1.0 - error));
    let (Some(ratio), Some([low, high])) = (row.ratio, interval) else {
        return row;
    };
    if row.count < MIN_BOOTS {
        return row;
    }
    row.interval = interval;
    row.verdict = if low <= 1.0 && high >= 1.0 {
        Verdict::NoDifference
    } else if row.figure.is_better(ratio) {
        Verdict::Better
    } else {
        Verdict::Worse
    };
    row
}

type RowOf<'a> = (&'a str, Neighbour, &'a str);

/// What can be compared of a row: its speed, and the tails of what its workload reports.
fn figures(a: &Cells, b: &Cells, row: RowOf) -> Vec<Figure> {
    let boots: Vec<Vec<&Measurement>> = [a, b]
        .into_iter()
        .flat_map(|cells| by_boot(cells, row).into_values())
        .collect();
    let is_server = |m: &&Measurement| m.workload.client().is_some();
    let requests = boots.iter().flatten().any(is_server);
    let mut figures = vec![Figure::Speed];
    if requests {
        figures.push(Figure::Answered);
    }
    for latency in [Latency::Token, Latency::Ttft, Latency::Tpot] {
        let counts = boots.iter().map(|boot| latency.samples(boot).len());
        let fewest = counts.min().unwrap_or(0);
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
    /// Of one boot; the unit does not matter.
    fn samples(self, boot: &[&Measurement]) -> Vec<f64> {
        let samples = |m: &Measurement| {
            let client = m.workload.client();
            match self {
                Self::Token => m.workload.token_ms(),
                Self::Ttft => client.map_or_else(Vec::new, |client| client.ttfts.clone()),
                Self::Tpot => client.map_or_else(Vec::new, |client| client.tpots.clone()),
            }
        };
        boot.iter().flat_map(|m| samples(m)).collect()
    }

    /// `None`: the boot has too few samples for it.
    fn percentile(self, boot: &[&Measurement], percent: u32) -> Option<f64> {
        let mut samples = self.samples(boot);
        let (_, least) = TAILS.iter().find(|(known, _)| *known == percent)?;
        (samples.len() >= *least)
            .then(|| stats::percentile(&mut samples, f64::from(percent)))
            .flatten()
    }
}

/// On a host each round counts as a boot. Of the lab's boots one is one: another run's is another.
fn boot_of(plan: &Plan, round: u32) -> u32 {
    match (plan.on, plan.boots()) {
        (Where::Lab, 1) => 0,
        _ => plan.boot_of(round),
    }
}

fn by_boot<'a>(
    cells: &Cells<'a>,
    (workload, neighbour, arm): RowOf,
) -> BTreeMap<u32, Vec<&'a Measurement>> {
    let mut boots: BTreeMap<u32, Vec<&Measurement>> = BTreeMap::new();
    for (round, m) in cells.rounds(workload, neighbour, arm) {
        let boot = boots.entry(boot_of(cells.plan, round)).or_default();
        boot.push(m);
    }
    boots
}

fn boots(values: &[(u32, f64)]) -> usize {
    let boots: BTreeSet<u32> = values.iter().map(|(boot, _)| *boot).collect();
    boots.len()
}

/// Values of a figure, each with its boot.
fn values(cells: &Cells, row: RowOf, figure: Figure) -> Vec<(u32, f64)> {
    let (workload, neighbour, arm) = row;
    let each = |value: &dyn Fn(&Measurement) -> Option<f64>| -> Vec<(u32, f64)> {
        let rounds = cells.rounds(workload, neighbour, arm).into_iter();
        let values = rounds.filter_map(|(round, m)| Some((round, value(m)?)));
        values
            .map(|(round, value)| (boot_of(cells.plan, round), value))
            .collect()
    };
    let values: Vec<(u32, f64)> = match figure {
        Figure::Speed if neighbour == Neighbour::None => each(&|m| Some(m.workload.tokens_per_s())),
        Figure::Speed => {
            let shares = cells.shares(workload, neighbour, arm).into_iter();
            shares
                .map(|(round, share)| (boot_of(cells.plan, round), share))
                .collect()
        }
        Figure::Tail(latency, percent) => {
            let boots = by_boot(cells, row).into_iter();
            boots
                .filter_map(|(boot, m)| Some((boot, latency.percentile(&m, percent)?)))
                .collect()
        }
        Figure::Answered => each(&|m| {
            let client = m.workload.client()?;
            Some(client.completed as f64 / client.offered as f64)
        }),
        // Counted, not compared.
        Figure::Failures => Vec::new(),
    };
    let finite = values.into_iter();
    finite
        .filter(|(_, value)| value.is_finite() && *value > 0.0)
        .collect()
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::plan::samples::plan;
    use crate::record::samples;
    use gpuaware_stats::Difference;

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
                .filter(|change| change.count > 0)
        });
        for change in verdicts {
            assert_eq!(change.verdict, Verdict::NoDifference, "{change:?}");
        }
    }

    #[test]
    fn a_third_slower_is_worse_and_faster_is_better() {
        for (factor, expected) in [(0.66, Verdict::Worse), (1.5, Verdict::Better)] {
            let changes = changes(&run(1, 1.0), &run(2, factor), "gpuaware");
            let noisy = |c: &&Change| c.neighbour != Neighbour::None && c.count > 0;
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
                let found = changes.iter().find(|c| c.figure == figure && c.count == 3);
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
        assert_eq!(ttft.unwrap().verdict, Verdict::TooFewBoots);
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
        let answered = answered.filter(|c| c.count == 3).unwrap();
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
            worse.map(|c| (c.figure, c.count)).collect::<Vec<_>>()
        };
        assert_eq!(worse(&before, &after), [(Figure::Failures, 1)]);
        assert_eq!(worse(&after, &before), [], "repaired");
    }

    #[test]
    fn rounds_of_one_boot_are_no_boots() {
        let mut plan = plan();
        plan.matrix.boots = 1;
        plan.blocks = crate::plan::blocks(&plan.matrix, &plan.arms, 7);
        let (before, after) = (run(1, 1.0), run(2, 0.5));
        let verdicts = |plan: &Plan| {
            let run = |cells| Run { plan, cells };
            let arms = ["gpuaware".to_owned()];
            let changes = compare(GATE, &run(&before), &run(&after), &arms);
            let judged = changes.iter().map(|change| change.verdict);
            judged
                .filter(|v| *v != Verdict::TooFewBoots)
                .collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&plan), []);
        plan.on = Where::Host;
        assert!(
            verdicts(&plan).contains(&Verdict::Worse),
            "a host has one boot"
        );
    }

    #[test]
    fn the_interval_is_widened_for_the_comparisons_and_three_boots_are_needed() {
        let row = Change {
            workload: String::new(),
            neighbour: Neighbour::Cpu,
            arm: String::new(),
            figure: Figure::Speed,
            count: 3,
            ratio: None,
            interval: None,
            verdict: Verdict::TooFewBoots,
        };
        let boots = |logs: [f64; 3]| -> Vec<(u32, f64)> { (0..).zip(logs.map(f64::exp)).collect() };
        let (before, after) = (boots([-0.1, 0.0, 0.1]), boots([0.2, 0.3, 0.4]));
        let ratio = stats::welch(&after, &before);
        // t(0.975; 4) = 2.776445 and t(0.9975; 4) = 5.597568, the error 0.1 x sqrt(2 / 3).
        let error = 0.1 * (2.0_f64 / 3.0).sqrt();
        for (gate, t, verdict) in [
            (0.05, 2.776_445, Verdict::Better),
            (0.005, 5.597_568, Verdict::NoDifference),
        ] {
            let judged = judge(row.clone(), ratio, gate);
            let [low, high] = judged.interval.unwrap();
            assert!(
                (low.ln() - (0.3 - t * error)).abs() < 1e-5
                    && (high.ln() - (0.3 + t * error)).abs() < 1e-5,
                "{judged:?}"
            );
            assert_eq!(judged.verdict, verdict);
            let unsure = matches!(judged.difference(), Difference::UpTo(_));
            assert_eq!(unsure, verdict == Verdict::NoDifference);
        }
        let thin = Change { count: 2, ..row };
        assert_eq!(judge(thin, ratio, 0.05).verdict, Verdict::TooFewBoots);
    }
}
