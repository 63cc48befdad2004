// SPDX-License-Identifier: GPL-2.0-only
//! How well two runs of the same thing agree: how many of the intervals that their reports show overlap. Pure.

use super::model::{Row, Summary};
use super::serving::Serving;
use crate::record::neighbour::Neighbour;
use gpuaware_stats::Estimate;

/// Figures that both runs have an interval of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overlap {
    pub overlapping: usize,
    pub all: usize,
}

impl Overlap {
    pub fn percent(self) -> Option<f64> {
        (self.all > 0).then(|| self.overlapping as f64 * 100.0 / self.all as f64)
    }

    fn count(&mut self, a: Option<Estimate>, b: Option<Estimate>) {
        let interval = |estimate: Option<Estimate>| estimate?.interval;
        if let (Some([low, high]), Some([other_low, other_high])) = (interval(a), interval(b)) {
            self.all += 1;
            self.overlapping += usize::from(low <= other_high && other_low <= high);
        }
    }
}

/// Of the rows of `arms` that both reports have.
pub fn overlap(a: &Summary, b: &Summary, arms: &[String]) -> Overlap {
    let mut overlap = Overlap::default();
    for row in a.rows.iter().filter(|row| arms.contains(&row.arm)) {
        let same = |other: &&Row| {
            (&other.workload, other.neighbour, &other.arm)
                == (&row.workload, row.neighbour, &row.arm)
        };
        if let Some(other) = b.rows.iter().find(same) {
            for (a, b) in figures(row).into_iter().zip(figures(other)) {
                overlap.count(a, b);
            }
        }
    }
    for row in a.serving.iter().filter(|row| arms.contains(&row.arm)) {
        let same = |other: &&Serving| {
            (&other.workload, other.neighbour, &other.arm)
                == (&row.workload, row.neighbour, &row.arm)
        };
        if let Some(other) = b.serving.iter().find(same) {
            for (a, b) in latencies(row).into_iter().zip(latencies(other)) {
                overlap.count(a, b);
            }
        }
    }
    overlap
}

/// Without those that are 1 because an arm is set against itself.
fn figures(row: &Row) -> [Option<Estimate>; 6] {
    let against_itself = |e: &Estimate| e.interval == Some([1.0, 1.0]);
    let noisy = row.neighbour != Neighbour::None;
    [
        row.tokens_per_s,
        row.share_of_clean.filter(|e| noisy || !against_itself(e)),
        row.token_p50_ms,
        row.token_p99_ms,
        row.work_mean.filter(|e| !against_itself(e)),
        row.idle_percent,
    ]
}

fn latencies(row: &Serving) -> [Option<Estimate>; 5] {
    [
        row.good,
        row.ttft.p50_ms,
        row.ttft.p99_ms,
        row.tpot.p50_ms,
        row.tpot.p99_ms,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::plan;
    use crate::record::{Cell, samples};
    use crate::study::study;

    fn run(speeds: [f64; 3]) -> Summary {
        let cells: Vec<Cell> = (1..=3)
            .zip(speeds)
            .map(|(round, speed)| samples::cell(round, "eevdf", Neighbour::Cpu, speed))
            .collect();
        study(&plan(), &cells)
    }

    #[test]
    fn intervals_are_counted_by_hand() {
        let arms = ["eevdf".to_owned()];
        // Tokens/s, p50 and p99 (600 tokens), idle: no clean cells, no neighbour's work.
        let of = |a, b| overlap(&run(a), &run(b), &arms);
        // t(0.975; 2) is 4.3: the intervals reach 13 % and 0.3 % far.
        let all = of([90.0, 95.0, 100.0], [100.0, 105.0, 110.0]);
        assert_eq!((all.overlapping, all.all), (4, 4));
        let idle_only = of([90.0, 90.1, 90.2], [91.0, 91.1, 91.2]);
        assert_eq!((idle_only.overlapping, idle_only.all), (1, 4));
        assert_eq!(idle_only.percent(), Some(25.0));
        let none = overlap(&run([1.0; 3]), &run([1.0; 3]), &["gpuaware".to_owned()]);
        assert_eq!((none.all, none.percent()), (0, None));
    }
}
