// SPDX-License-Identifier: GPL-2.0-only
//! In how many rows of a run somebody dominates the subject: as the study's intervals show it, and by the values alone,
//! which is what a reader sees where the intervals are too wide to show anything. Pure.

use crate::record::neighbour::Neighbour;
use crate::report::Report;
use crate::study::{Figure, Versus};

/// What differs by less is equal, as in the study.
const RESOLUTION: f64 = 0.005;
const JUDGED: [Figure; 5] = [
    Figure::Speed,
    Figure::TokenP99,
    Figure::TtftP99,
    Figure::TpotP99,
    Figure::Work,
];

/// Rows beside noise, and those in which somebody dominates.
#[derive(Debug, PartialEq, Eq)]
pub struct Dominated {
    pub rows: usize,
    pub shown: Vec<Row>,
    pub by_value: Vec<Row>,
}

/// A row and who dominates in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub workload: String,
    pub neighbour: Neighbour,
    pub by: Vec<String>,
}

impl Dominated {
    pub fn of(report: &Report) -> Self {
        let mut found = Self {
            rows: 0,
            shown: Vec::new(),
            by_value: Vec::new(),
        };
        for dominance in &report.summary.dominance {
            if dominance.neighbour == Neighbour::None {
                continue;
            }
            let versus = report.summary.versus.iter();
            let here = versus.filter(|v| {
                v.workload == dominance.workload
                    && v.neighbour == dominance.neighbour
                    && compared(v)
            });
            let others: Vec<&Versus> = here.collect();
            if others.is_empty() {
                continue;
            }
            found.rows += 1;
            let row = |by: Vec<String>| {
                (!by.is_empty()).then(|| Row {
                    workload: dominance.workload.clone(),
                    neighbour: dominance.neighbour,
                    by,
                })
            };
            let dominating = others.into_iter().filter(|v| dominates(v));
            let by_value = dominating.map(|v| v.other.clone()).collect();
            found.by_value.extend(row(by_value));
            found
                .shown
                .extend(row(dominance.dominated_by.clone().unwrap_or_default()));
        }
        found
    }
}

fn compared(versus: &Versus) -> bool {
    Figure::Speed.of(versus).is_some() && Figure::Work.of(versus).is_some()
}

/// The other arm is nowhere behind and somewhere ahead.
fn dominates(versus: &Versus) -> bool {
    let leads = JUDGED.iter().filter_map(|figure| {
        // The subject over the other.
        let ratio = figure.of(versus)?.value;
        let more_is_better = matches!(figure, Figure::Speed | Figure::Work);
        Some(if more_is_better {
            1.0 - ratio
        } else {
            ratio - 1.0
        })
    });
    let leads: Vec<f64> = leads.collect();
    leads.iter().all(|lead| *lead > -RESOLUTION) && leads.iter().any(|lead| *lead > RESOLUTION)
}

/// "qwen3 beside network and disk, eager beside heavy".
pub fn places(rows: &[Row]) -> String {
    let mut workloads: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        let name = row.neighbour.name();
        match workloads
            .iter_mut()
            .find(|(known, _)| *known == row.workload)
        {
            Some((_, neighbours)) => neighbours.push(name),
            None => workloads.push((&row.workload, vec![name])),
        }
    }
    let said = workloads
        .into_iter()
        .map(|(workload, neighbours)| format!("{workload} beside {}", neighbours.join(", ")));
    said.collect::<Vec<_>>().join("; ")
}

/// Everybody who dominates somewhere, each once, the most frequent first.
pub fn by_whom(rows: &[Row]) -> String {
    let mut arms: Vec<(&str, usize)> = Vec::new();
    for arm in rows.iter().flat_map(|row| &row.by) {
        match arms.iter_mut().find(|(known, _)| known == arm) {
            Some((_, count)) => *count += 1,
            None => arms.push((arm, 1)),
        }
    }
    arms.sort_by_key(|(arm, count)| (std::cmp::Reverse(*count), *arm));
    let said = arms
        .into_iter()
        .map(|(arm, count)| format!("{arm} in {count}"));
    said.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::neighbour::Kind;
    use crate::record::samples::cell;
    use crate::report::samples;
    use crate::study::samples::with_work;
    use crate::study::study;

    /// Tokens/s beside cpu noise and the neighbours' work of the subject and of another arm.
    fn dominated(subject: (f64, f64), other: (f64, f64)) -> Dominated {
        let mut report = samples::report();
        let cells: Vec<_> = (1..=5)
            .flat_map(|round| {
                [
                    ("eevdf", (60.0, 100.0)),
                    ("gpuaware", subject),
                    ("isolcpus", other),
                ]
                .into_iter()
                .flat_map(move |(arm, (speed, work))| {
                    let beside = cell(round, arm, Neighbour::Cpu, speed);
                    [
                        cell(round, arm, Neighbour::None, 100.0),
                        with_work(beside, &[(Kind::StressNg, work)]),
                    ]
                })
            })
            .collect();
        report.summary = study(&report.plan, &cells);
        Dominated::of(&report)
    }

    #[test]
    fn who_is_nowhere_behind_and_somewhere_ahead_dominates_by_value() {
        let by_value = |subject, other| dominated(subject, other).by_value.len();
        assert_eq!(by_value((90.0, 50.0), (95.0, 50.0)), 1, "faster");
        assert_eq!(by_value((90.0, 50.0), (90.0, 60.0)), 1, "more work");
        assert_eq!(by_value((90.0, 50.0), (95.0, 40.0)), 0, "for less work");
        assert_eq!(
            by_value((90.0, 50.0), (90.1, 50.1)),
            0,
            "no more than is shown"
        );
        assert_eq!(dominated((90.0, 50.0), (95.0, 50.0)).rows, 1);
    }

    #[test]
    fn places_and_arms_are_said_once() {
        let row = |workload: &str, neighbour, by: &[&str]| Row {
            workload: workload.to_owned(),
            neighbour,
            by: by.iter().map(|&arm| arm.to_owned()).collect(),
        };
        let rows = [
            row("qwen3", Neighbour::Network, &["nice"]),
            row("qwen3", Neighbour::Disk, &["a", "nice"]),
            row("eager", Neighbour::Heavy, &["b"]),
        ];
        assert_eq!(
            places(&rows),
            "qwen3 beside network, disk; eager beside heavy"
        );
        assert_eq!(by_whom(&rows), "nice in 2, a in 1, b in 1");
    }
}
