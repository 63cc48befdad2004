// SPDX-License-Identifier: GPL-2.0-only
//! Several files beside one another: each figure with a bootstrap interval, and how many times the
//! baseline it is. Seeded: the same files give the same intervals.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

use super::event::{IrqKind, OffReason};
use super::figures::Analysis;
use super::ratios::{per_1k, slowdown_percent, times};
use super::tally::{Cause, Tallies};

const RESAMPLES: usize = 2000;
const SEED: u64 = 0x6770_7561;
/// Below this many an interval would be a pretence.
const MIN_FILES: usize = 3;
const MIN_SLICES: usize = 16;

/// A figure, and its 95 % interval where there is enough to draw one from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// From the 2.5th to the 97.5th percentile of the draws.
    pub interval: Option<[f64; 2]>,
}

/// Files of one label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arm {
    /// The label.
    pub label: String,
    /// How many files.
    pub files: usize,
    /// What intervals are drawn from.
    pub drawn_from: DrawnFrom,
}

/// What intervals are drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DrawnFrom {
    /// Repeats: how runs differ.
    Files,
    /// Stretches of time of too few runs: how steady these were, not how others would differ.
    Slices,
}

/// One figure of every arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub name: &'static str,
    /// One an arm, in their order; none where it cannot be told.
    pub arms: Vec<Option<Cell>>,
}

/// One figure of one arm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// The figure.
    pub figure: Estimate,
    /// How many times the baseline's.
    pub times_baseline: Option<Estimate>,
    /// Whether the interval of that leaves out 1; without an interval nobody knows.
    pub differs: Option<bool>,
}

/// Files beside one another. The first arm is the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// In the order in which they were named.
    pub arms: Vec<Arm>,
    /// Figures.
    pub rows: Vec<Row>,
    /// Slowdown against the baseline, percent, an arm; from tokens a second.
    pub slowdown_percent: Vec<Option<Estimate>>,
}

/// The row that the fourth question of the studies is about.
pub const SCHED_PER_1K: &str = "Sched/1K";

type OfTallies = fn(&Tallies) -> Option<f64>;
type OfFile = fn(&Analysis) -> Option<f64>;

const WAITS: [Cause; 2] = [Cause::Preempted, Cause::Waiting];
const IRQS: [Cause; 3] = [Cause::HardIrq, Cause::SoftIrq, Cause::VectorIrq];

/// Figures that are ratios of sums: drawn from files or slices.
const RATIOS: [(&str, OfTallies); 9] = [
    (SCHED_PER_1K, |t| {
        per_1k(t.windows.switches, t.windows.launches())
    }),
    ("Soft IRQ/1K", |t| of_irqs(t, IrqKind::Soft)),
    ("Hard IRQ/1K", |t| of_irqs(t, IrqKind::Hard)),
    ("IRQ time, ms/s", |t| ms_per_s(t, t.all.handler_ns())),
    ("stolen by IRQs, ms/s", |t| {
        ms_per_s(t, t.all.lost_ns.sum(&IRQS))
    }),
    ("launches/s", |t| {
        per_s(t.windows.unique_launches(), t.windows.duration_ns)
    }),
    ("switches/s", |t| per_s(t.all.all_offs(), t.all.duration_ns)),
    ("preemptions/s", |t| {
        tells_why(t)?;
        per_s(t.all.offs[OffReason::Preempted as usize], t.all.duration_ns)
    }),
    ("runnable but waiting, ms/s", |t| {
        tells_why(t)?;
        ms_per_s(t, t.all.lost_ns.sum(&WAITS))
    }),
];

/// Figures of a whole file: only repeats give an interval.
const OF_FILES: [(&str, OfFile); 8] = [
    ("switches per token", |file| {
        Some(file.ours.per_token?.switches)
    }),
    ("preemptions per token", |file| {
        file.ours.per_token?.preemptions
    }),
    ("runnable but waiting per token, µs", |file| {
        file.ours.per_token?.waiting_us
    }),
    ("penalty, ms", |file| {
        Some(file.study.busiest.as_ref()?.pairs.penalty_us? / 1e3)
    }),
    ("impact, %", |file| {
        file.study.busiest.as_ref()?.pairs.impact_percent
    }),
    ("run-queue latency p99, µs", |file| {
        Some(file.ours.run_queue_latency?.p99_us)
    }),
    ("scheduling could give back, % of lost", |file| {
        file.ours.give_back.by_scheduling_percent
    }),
    ("tokens/s", |file| file.ours.tokens_per_s),
];

fn of_irqs(tallies: &Tallies, kind: IrqKind) -> Option<f64> {
    per_1k(
        tallies.windows.irqs[kind as usize],
        tallies.windows.launches(),
    )
}

fn per_s(count: u64, duration_ns: u64) -> Option<f64> {
    times(count as f64 * 1e9, duration_ns as f64)
}

fn ms_per_s(tallies: &Tallies, ns: u64) -> Option<f64> {
    Some(per_s(ns, tallies.all.duration_ns)? / 1e6)
}

/// A trace that does not say why a thread was off its CPU has only causes unknown.
fn tells_why(tallies: &Tallies) -> Option<()> {
    let unknown = tallies.all.offs[OffReason::Unknown as usize];
    (unknown == 0 || unknown < tallies.all.all_offs()).then_some(())
}

/// Compares arms; files with the same label are one arm. None with one arm only.
pub fn compare(files: &[Analysis]) -> Option<Comparison> {
    let mut arms: Vec<(Arm, Vec<&Analysis>)> = Vec::new();
    for file in files {
        let label = &file.source.label;
        match arms.iter_mut().find(|(arm, _)| arm.label == *label) {
            Some((_, of_arm)) => of_arm.push(file),
            None => {
                let arm = Arm {
                    label: label.clone(),
                    files: 0,
                    drawn_from: DrawnFrom::Slices,
                };
                arms.push((arm, vec![file]));
            }
        }
    }
    for (arm, of_arm) in &mut arms {
        arm.files = of_arm.len();
        if arm.files >= MIN_FILES {
            arm.drawn_from = DrawnFrom::Files;
        }
    }
    if arms.len() < 2 {
        return None;
    }
    let by_ratio: Vec<Vec<Drawn>> = arms.iter().enumerate().map(draw_ratios).collect();
    let by_file: Vec<Vec<Drawn>> = arms.iter().enumerate().map(draw_files).collect();
    let mut rows = Vec::new();
    let names = RATIOS.iter().map(|(name, _)| *name);
    rows.extend(names.enumerate().map(|(at, name)| row(name, at, &by_ratio)));
    let names = OF_FILES.iter().map(|(name, _)| *name);
    rows.extend(names.enumerate().map(|(at, name)| row(name, at, &by_file)));
    rows.retain(|row| row.arms.iter().any(Option::is_some));
    Some(Comparison {
        slowdown_percent: slowdowns(&by_file),
        arms: arms.into_iter().map(|(arm, _)| arm).collect(),
        rows,
    })
}

/// A figure of the whole arm, and of each draw.
#[derive(Debug, Clone, Default)]
struct Drawn {
    value: Option<f64>,
    draws: Vec<f64>,
}

/// `statistic` gives the figures of some units; draws are with replacement.
fn draw<T>(
    seed: u64,
    units: &[T],
    enough: usize,
    statistic: impl Fn(&[&T]) -> Vec<Option<f64>>,
) -> Vec<Drawn> {
    let whole = statistic(&units.iter().collect::<Vec<_>>());
    let mut drawn: Vec<Drawn> = whole
        .into_iter()
        .map(|value| Drawn {
            value,
            draws: Vec::new(),
        })
        .collect();
    if units.len() < enough {
        return drawn;
    }
    let mut rng = Pcg64Mcg::seed_from_u64(SEED ^ seed);
    for _ in 0..RESAMPLES {
        let sample: Vec<&T> = (0..units.len())
            .map(|_| &units[rng.random_range(0..units.len())])
            .collect();
        for (figure, value) in drawn.iter_mut().zip(statistic(&sample)) {
            figure.draws.extend(value);
        }
    }
    drawn
}

fn draw_ratios((seed, (arm, files)): (usize, &(Arm, Vec<&Analysis>))) -> Vec<Drawn> {
    let sum = |tallies: &mut dyn Iterator<Item = &Tallies>| {
        let mut total = Tallies::default();
        tallies.for_each(|one| total.merge(one));
        total
    };
    let (units, enough): (Vec<Tallies>, usize) = match arm.drawn_from {
        DrawnFrom::Files => {
            let whole = files.iter().map(|file| sum(&mut file.slices.iter()));
            (whole.collect(), MIN_FILES)
        }
        DrawnFrom::Slices => {
            let all = files.iter().flat_map(|file| &file.slices);
            (all.copied().collect(), MIN_SLICES)
        }
    };
    draw(seed as u64, &units, enough, |sample| {
        let total = sum(&mut sample.iter().copied());
        RATIOS.iter().map(|(_, ratio)| ratio(&total)).collect()
    })
}

fn draw_files((seed, (_, files)): (usize, &(Arm, Vec<&Analysis>))) -> Vec<Drawn> {
    draw(seed as u64, files, MIN_FILES, |sample| {
        let of = |(_, figure): &(&str, OfFile)| {
            let values: Vec<f64> = sample.iter().filter_map(|file| figure(file)).collect();
            // A figure that some repeats lack would be of other runs in each draw.
            (values.len() == sample.len())
                .then(|| median(values))
                .flatten()
        };
        OF_FILES.iter().map(of).collect()
    })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

fn interval(mut draws: Vec<f64>) -> Option<[f64; 2]> {
    // Some draws may have no launch at all; most must have one.
    if draws.len() < RESAMPLES / 2 {
        return None;
    }
    draws.sort_by(f64::total_cmp);
    let at = |share: f64| draws[((draws.len() - 1) as f64 * share).round() as usize];
    // Where nothing happened no draw can show how rare it is.
    let [low, high] = [at(0.025), at(0.975)];
    (high > 0.0 || low < 0.0).then_some([low, high])
}

/// What `combine` makes of an arm's figure and the baseline's. The two are drawn on their own.
fn against(
    arm: &Drawn,
    baseline: &Drawn,
    combine: fn(f64, f64) -> Option<f64>,
) -> Option<Estimate> {
    let draws = arm.draws.iter().zip(&baseline.draws);
    Some(Estimate {
        value: combine(arm.value?, baseline.value?)?,
        interval: interval(draws.filter_map(|(&a, &b)| combine(a, b)).collect()),
    })
}

fn row(name: &'static str, at: usize, arms: &[Vec<Drawn>]) -> Row {
    let cell = |(number, arm): (usize, &Vec<Drawn>)| {
        let drawn = &arm[at];
        let times_baseline = (number > 0)
            .then(|| against(drawn, &arms[0][at], times))
            .flatten();
        Some(Cell {
            figure: Estimate {
                value: drawn.value?,
                interval: interval(drawn.draws.clone()),
            },
            differs: times_baseline
                .and_then(|times| times.interval)
                .map(|[low, high]| low > 1.0 || high < 1.0),
            times_baseline,
        })
    };
    Row {
        name,
        arms: arms.iter().enumerate().map(cell).collect(),
    }
}

fn slowdowns(by_file: &[Vec<Drawn>]) -> Vec<Option<Estimate>> {
    let tokens = OF_FILES.len() - 1;
    let baseline = &by_file[0][tokens];
    let of = |arm: &Vec<Drawn>| {
        against(&arm[tokens], baseline, |scenario, baseline| {
            slowdown_percent(baseline, scenario)
        })
    };
    std::iter::once(None)
        .chain(by_file[1..].iter().map(of))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_of_a_constant_has_no_width_and_too_few_units_give_none() {
        let mean = |sample: &[&f64]| {
            vec![Some(
                sample.iter().copied().sum::<f64>() / sample.len() as f64,
            )]
        };
        let constant = draw(1, &[7.0; 20], MIN_SLICES, mean);
        assert_eq!(interval(constant[0].draws.clone()), Some([7.0, 7.0]));
        let nothing = draw(1, &[0.0; 20], MIN_SLICES, mean);
        assert_eq!(interval(nothing[0].draws.clone()), None);
        let few = draw(1, &[7.0; 15], MIN_SLICES, mean);
        assert_eq!(
            (few[0].value, interval(few[0].draws.clone())),
            (Some(7.0), None)
        );
    }

    #[test]
    fn interval_of_a_mean_is_as_wide_as_theory_says() {
        // 100 values 0 and 1 in turn: the mean is 0.5, its standard error 0.05.
        let values: Vec<f64> = (0..100).map(|at| f64::from(at % 2)).collect();
        let drawn = draw(1, &values, MIN_SLICES, |sample| {
            vec![Some(sample.iter().copied().sum::<f64>() / 100.0)]
        });
        let [low, high] = interval(drawn[0].draws.clone()).unwrap();
        assert!((low - 0.402).abs() < 0.02, "{low}");
        assert!((high - 0.598).abs() < 0.02, "{high}");
    }

    #[test]
    fn draws_repeat_exactly() {
        let units: Vec<f64> = (0..50).map(f64::from).collect();
        let sum = |sample: &[&f64]| vec![Some(sample.iter().copied().sum())];
        let draws = |seed| draw(seed, &units, MIN_SLICES, sum)[0].draws.clone();
        assert_eq!(draws(3), draws(3));
        assert_ne!(draws(3), draws(4));
    }
}
