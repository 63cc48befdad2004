// SPDX-License-Identifier: GPL-2.0-only
//! What an arm costs where nothing disturbs, pooled over runs: one run of five rounds cannot see what all together
//! show. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::measured;
use super::compare::Run;
use crate::record::Measurement;
use crate::record::neighbour::Neighbour;
use gpuaware_stats::{self as stats, Estimate, P99_MIN_SAMPLES, Scale};

/// The arm's quiet cells over the baseline's, in one workload of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub run: String,
    pub workload: String,
    pub baseline: String,
    pub rounds: usize,
    /// The geometric mean of the ratios of the rounds.
    pub ratio: f64,
    #[serde(skip)]
    logs: BTreeMap<u32, f64>,
}

/// A figure in all runs together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pool {
    pub figure: &'static str,
    /// Absent: there are fewer than two runs, or all have one round.
    pub ratio: Option<Estimate>,
    /// By how much runs differ, a standard deviation; as a share.
    pub tau: Option<f64>,
    /// The smallest difference that would have been found four times in five; as a share.
    pub detectable: Option<f64>,
    pub runs: usize,
    pub below: usize,
    pub median: Option<f64>,
    pub comparisons: Vec<Comparison>,
}

/// A run by its name.
pub type Named<'a> = (&'a str, Run<'a>);

type Value = fn(&Measurement) -> Option<f64>;

/// Tokens/s and the p99 of a token, of all runs that have quiet cells of `arm` and their baseline; of one workload, if
/// one is asked for.
pub fn pool(runs: &[Named], arm: &str, workload: Option<&str>) -> Vec<Pool> {
    let figures: [(&str, usize, Value); 2] = [
        ("tokens/s", 1, |m| Some(m.workload.tokens_per_s())),
        ("p99", P99_MIN_SAMPLES, |m| {
            stats::percentile(&mut m.workload.token_ms(), 99.0)
        }),
    ];
    let pool = |(figure, samples, value)| {
        let compared = runs
            .iter()
            .flat_map(|run| comparisons(run, arm, workload, samples, value));
        pooled(figure, compared.collect())
    };
    figures.into_iter().map(pool).collect()
}

fn comparisons(
    (name, run): &Named,
    arm: &str,
    workload: Option<&str>,
    least_samples: usize,
    value: Value,
) -> Vec<Comparison> {
    let cells = measured(run.plan, run.cells);
    let matrix = &run.plan.matrix;
    let asked = |name: &&str| workload.is_none_or(|workload| workload == *name);
    let workloads = matrix.workloads.iter().map(|w| w.name.as_str());
    let compare = |workload: &str| {
        let rounds = |arm| cells.rounds(workload, Neighbour::None, arm);
        let pairs: Vec<(u32, [&Measurement; 2])> = rounds(arm)
            .into_iter()
            .filter_map(|(round, m)| Some((round, [m, *rounds(&matrix.baseline).get(&round)?])))
            .collect();
        let samples = |side: usize| -> usize {
            let of = |(_, pair): &(u32, [&Measurement; 2])| pair[side].workload.token_ms().len();
            pairs.iter().map(of).sum()
        };
        let logs: BTreeMap<u32, f64> = pairs
            .iter()
            .filter_map(|(round, [above, below])| {
                let log = (value(above)? / value(below)?).ln();
                log.is_finite().then_some((*round, log))
            })
            .collect();
        let enough = samples(0).min(samples(1)) >= least_samples && !logs.is_empty();
        enough.then(|| Comparison {
            run: (*name).to_owned(),
            workload: workload.to_owned(),
            baseline: matrix.baseline.clone(),
            rounds: logs.len(),
            ratio: (logs.values().sum::<f64>() / logs.len() as f64).exp(),
            logs,
        })
    };
    if arm == matrix.baseline {
        return Vec::new();
    }
    workloads.filter(asked).filter_map(compare).collect()
}

fn pooled(figure: &'static str, comparisons: Vec<Comparison>) -> Pool {
    let mut runs: BTreeMap<&str, BTreeMap<u32, Vec<f64>>> = BTreeMap::new();
    for comparison in &comparisons {
        let rounds = runs.entry(&comparison.run).or_default();
        for (round, log) in &comparison.logs {
            rounds.entry(*round).or_default().push(*log);
        }
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let runs: Vec<Vec<f64>> = runs
        .into_values()
        .map(|rounds| rounds.into_values().map(|logs| mean(&logs)).collect())
        .collect();
    let pooled = stats::random_effects(&effects(&runs));
    let ratio = pooled.and_then(|p| Estimate::student(Scale::Log, p.mean, p.error, p.freedom));
    let ratios: Vec<f64> = comparisons.iter().map(|c| c.ratio).collect();
    Pool {
        figure,
        ratio,
        tau: pooled.map(|p| p.tau.exp_m1()),
        detectable: pooled
            .and_then(|p| p.detectable())
            .map(|effect| effect.exp_m1()),
        runs: runs.len(),
        below: ratios.iter().filter(|ratio| **ratio < 1.0).count(),
        median: stats::median(&ratios),
        comparisons,
    }
}

/// A run's effect is the mean over its rounds, and its variance that of a round, which all runs tell together, over how
/// many it has. What boots and hours add is between runs.
fn effects(runs: &[Vec<f64>]) -> Vec<(f64, f64)> {
    let mean = |rounds: &[f64]| rounds.iter().sum::<f64>() / rounds.len() as f64;
    let squares: f64 = runs
        .iter()
        .flat_map(|rounds| {
            let mean = mean(rounds);
            rounds.iter().map(move |log| (log - mean).powi(2))
        })
        .sum();
    let freedom: usize = runs.iter().map(|rounds| rounds.len() - 1).sum();
    let variance = squares / freedom as f64;
    let effect = |rounds: &Vec<f64>| (mean(rounds), variance / rounds.len() as f64);
    runs.iter().map(effect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::plan;
    use crate::record::{Cell, samples};

    /// Quiet cells of rounds: tokens/s of the baseline and of the arm.
    fn cells(rounds: &[(f64, f64)]) -> Vec<Cell> {
        let numbered = (1..).zip(rounds);
        numbered
            .flat_map(|(round, (below, above))| {
                [("eevdf", *below), ("gpuaware", *above)]
                    .map(|(arm, speed)| samples::cell(round, arm, Neighbour::None, speed))
            })
            .collect()
    }

    #[test]
    fn runs_are_pooled_by_hand() {
        let plan = plan();
        let e = |log: f64| 100.0 * log.exp();
        // Logs -0.01 and -0.03; 0.00 and 0.02: means -0.02 and 0.01, the variance of a round 2e-4.
        let a = cells(&[(100.0, e(-0.01)), (100.0, e(-0.03))]);
        let b = cells(&[(100.0, 100.0), (100.0, e(0.02))]);
        let run = |cells| Run { plan: &plan, cells };
        let runs = [("a", run(&a)), ("b", run(&b))];
        let pools = pool(&runs, "gpuaware", None);
        let speed = &pools[0];
        assert_eq!(
            (speed.runs, speed.comparisons.len(), speed.below),
            (2, 2, 1)
        );
        // Weights 1e4: Q = 1e4 x 2 x 0.015^2 = 4.5, tau squared = 3.5 / 1e4.
        let tau = (3.5e-4_f64.sqrt()).exp_m1();
        assert!((speed.tau.unwrap() - tau).abs() < 1e-9);
        let ratio = speed.ratio.unwrap();
        assert!((ratio.value.ln() + 0.005).abs() < 1e-9);
        // The error is 0.015 either way: Q over its freedom is 1. t(0.975; 1) = 12.7062.
        let [low, _] = ratio.interval.unwrap();
        assert!((low.ln() + 0.005 + 12.7062 * 0.015).abs() < 1e-5);
        // 400 tokens a side are no p99.
        assert_eq!((pools[1].runs, pools[1].ratio), (0, None));
    }

    #[test]
    fn a_run_counts_once_however_many_workloads_it_has() {
        let plan = plan();
        let mut both = cells(&[(100.0, 90.0), (100.0, 92.0)]);
        let other = both.clone().into_iter().map(|mut cell| {
            cell.key.workload = "eager".to_owned();
            cell
        });
        both.extend(other);
        let quiet = cells(&[(100.0, 101.0), (100.0, 101.0)]);
        let run = |cells| Run { plan: &plan, cells };
        let runs = [("a", run(&both)), ("b", run(&quiet))];
        let speed = &pool(&runs, "gpuaware", None)[0];
        assert_eq!(
            (speed.runs, speed.comparisons.len(), speed.below),
            (2, 3, 2)
        );
        assert!((speed.median.unwrap() - (0.9_f64 * 0.92).sqrt()).abs() < 1e-12);
        let one = &pool(&runs, "gpuaware", Some("eager"))[0];
        assert_eq!((one.runs, one.comparisons.len(), one.ratio), (1, 1, None));
        assert_eq!(pool(&runs, "eevdf", None)[0].runs, 0, "the baseline itself");
    }
}
