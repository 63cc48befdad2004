// SPDX-License-Identifier: GPL-2.0-only
//! Who is recommended: on the held-out rounds of the proof alone, by the bench's own statistics. Pure.
//!
//! A gain must be worth a policy, and hold among all comparisons of the proof together (Benjamini and Hochberg); for a
//! loss the plain 95 % interval is enough. So the default stays where anything is in doubt.

use serde::{Deserialize, Serialize};

use super::candidate::DEFAULT;
use super::goal::Prefer;
use super::schedule::MIN_ROUNDS;
use crate::record::neighbour::Neighbour;
use crate::study::{FALSE_RATE, Figure, Summary, Versus};
use gpuaware_stats::{Estimate, discoveries};

/// Ratios nearer to 1 than this are equal: two digits are what a report shows.
const RESOLUTION: f64 = 0.005;
/// A smaller gain is no reason to keep a policy file up to date.
const WORTH: f64 = 0.02;
/// What is not preferred may lose so much at most, by the middle of its interval.
pub const MAY_LOSE: f64 = 0.1;

const FIGURES: [Figure; 5] = [
    Figure::Speed,
    Figure::TokenP99,
    Figure::TtftP99,
    Figure::TpotP99,
    Figure::Work,
];

/// What a candidate may leave more than the default: of the requests, and so many of few.
const MORE_UNANSWERED: f64 = 0.01;
const FEW: f64 = 2.0;

/// What is said of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    Better,
    Worse,
    Nothing,
}

/// One figure of a candidate beside one neighbour: the candidate over the default.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finding {
    pub neighbour: Neighbour,
    pub figure: Figure,
    pub ratio: Estimate,
    pub shown: Shown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Better in something, and worse in nothing but what the user gives up for it.
    Better,
    /// Nothing is shown that is better.
    Same,
    /// Worse in something.
    Worse,
    /// There is too little to judge.
    TooFewRounds,
    /// Some of its cells failed.
    Failed,
    /// More requests than under the default had no answer, and latencies are of those that had one.
    Unanswered,
}

/// What the proof says of a candidate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Judgement {
    pub candidate: String,
    pub verdict: Verdict,
    pub findings: Vec<Finding>,
}

/// Judges each of `candidates` by the cells of the proof, whose subject is the default.
pub fn judge(summary: &Summary, candidates: &[&str], prefer: Option<Prefer>) -> Vec<Judgement> {
    let mut findings: Vec<(&str, Finding, Option<f64>)> = summary
        .versus
        .iter()
        .filter(|row| row.subject == DEFAULT)
        .filter_map(|row| {
            let candidate = candidates.iter().find(|name| **name == row.other)?;
            Some((*candidate, row))
        })
        .flat_map(|(candidate, row)| {
            let found = FIGURES
                .into_iter()
                .filter_map(|figure| finding(row, figure));
            found.map(move |(finding, p)| (candidate, finding, p))
        })
        .collect();
    let tested: Vec<f64> = findings.iter().map(|(.., p)| p.unwrap_or(1.0)).collect();
    for ((_, finding, _), found) in findings.iter_mut().zip(discoveries(&tested, FALSE_RATE)) {
        finding.shown = shown(finding, found);
    }
    candidates
        .iter()
        .map(|candidate| {
            let own = findings.iter().filter(|(name, ..)| name == candidate);
            let findings: Vec<Finding> = own.map(|(_, finding, _)| finding.clone()).collect();
            Judgement {
                candidate: (*candidate).to_owned(),
                verdict: verdict(summary, candidate, &findings, prefer),
                findings,
            }
        })
        .collect()
}

/// With the chance to see such a gain where there is none.
fn finding(row: &Versus, figure: Figure) -> Option<(Finding, Option<f64>)> {
    // Nobody works beside nobody.
    if figure == Figure::Work && row.neighbour == Neighbour::None {
        return None;
    }
    let over = figure.of(row)?;
    // The default over the candidate: where more is better, the default has less.
    let p = match figure {
        Figure::Speed | Figure::Work => over.p_below(1.0 - WORTH),
        _ => over.p_above(1.0 + WORTH),
    };
    let interval = over.interval.map(|[low, high]| [1.0 / high, 1.0 / low]);
    let finding = Finding {
        neighbour: row.neighbour,
        figure,
        ratio: Estimate::new(1.0 / over.value, interval),
        shown: Shown::Nothing,
    };
    Some((finding, p))
}

fn shown(finding: &Finding, gain_is_found: bool) -> Shown {
    let more_is_better = matches!(finding.figure, Figure::Speed | Figure::Work);
    let worse = finding.ratio.interval.is_some_and(|[low, high]| {
        if more_is_better {
            high < 1.0 && finding.ratio.value < 1.0 - RESOLUTION
        } else {
            low > 1.0 && finding.ratio.value > 1.0 + RESOLUTION
        }
    });
    match (gain_is_found, worse) {
        (true, _) => Shown::Better,
        (_, true) => Shown::Worse,
        _ => Shown::Nothing,
    }
}

impl Finding {
    /// Whether the user gives this up, and it is not too much.
    fn is_given_up(&self, prefer: Option<Prefer>) -> bool {
        let minor = match prefer {
            None => false,
            Some(Prefer::Isolation) => self.figure == Figure::Work,
            Some(Prefer::Work) => self.figure != Figure::Work,
        };
        // A p99 that has doubled lost as much as a speed that was halved.
        let loss = match self.figure {
            Figure::Speed | Figure::Work => 1.0 - self.ratio.value,
            _ => 1.0 - 1.0 / self.ratio.value,
        };
        minor && loss <= MAY_LOSE
    }

    /// Whether it is what the user wants more of.
    fn is_wanted(&self, prefer: Option<Prefer>) -> bool {
        match prefer {
            None => true,
            Some(Prefer::Isolation) => self.figure != Figure::Work,
            Some(Prefer::Work) => self.figure == Figure::Work,
        }
    }
}

/// By workload and neighbour: of how many requests to a server or a pipeline `arm` left how many without an answer.
fn unanswered<'s>(summary: &'s Summary, arm: &str) -> Vec<((&'s str, Neighbour), f64, f64)> {
    let servers = summary.serving.iter();
    let servers = servers.map(|row| {
        (
            &row.arm,
            &row.workload,
            row.neighbour,
            row.offered,
            row.failed,
        )
    });
    let pipelines = summary.pipelines.iter().map(|row| {
        let lost = row.failed + row.unfinished;
        (&row.arm, &row.workload, row.neighbour, row.offered, lost)
    });
    let its = servers.chain(pipelines).filter(|(of, ..)| *of == arm);
    its.filter(|(.., offered, _)| *offered > 0)
        .map(|(_, workload, neighbour, offered, lost)| {
            ((workload.as_str(), neighbour), offered as f64, lost as f64)
        })
        .collect()
}

fn leaves_requests(summary: &Summary, candidate: &str) -> bool {
    let default = unanswered(summary, DEFAULT);
    unanswered(summary, candidate)
        .into_iter()
        .any(|(place, offered, lost)| {
            let usual = default.iter().find(|(known, ..)| *known == place);
            usual
                .is_some_and(|(_, of, usual)| lost > (usual / of + MORE_UNANSWERED) * offered + FEW)
        })
}

fn verdict(
    summary: &Summary,
    candidate: &str,
    findings: &[Finding],
    prefer: Option<Prefer>,
) -> Verdict {
    let rows = || {
        summary
            .rows
            .iter()
            .filter(|row| row.arm == candidate || row.arm == DEFAULT)
    };
    if rows().any(|row| row.arm == candidate && row.failed > 0) {
        return Verdict::Failed;
    }
    if leaves_requests(summary, candidate) {
        return Verdict::Unanswered;
    }
    let rounds = rows().map(|row| row.rounds).min().unwrap_or(0);
    let has_speed = |finding: &Finding| finding.figure == Figure::Speed;
    let known = findings
        .iter()
        .all(|finding| finding.ratio.interval.is_some());
    if rounds < MIN_ROUNDS as usize || !findings.iter().any(has_speed) || !known {
        return Verdict::TooFewRounds;
    }
    let lost = |finding: &&Finding| finding.shown == Shown::Worse;
    let mut losses = findings.iter().filter(lost);
    let mut losses_given_up = findings.iter().filter(lost);
    let gains = |finding: &Finding| finding.shown == Shown::Better;
    let gained = findings.iter().any(gains);
    let wanted = findings
        .iter()
        .any(|finding| gains(finding) && finding.is_wanted(prefer));
    if losses.next().is_none() {
        return if gained {
            Verdict::Better
        } else {
            Verdict::Same
        };
    }
    if wanted && losses_given_up.all(|finding| finding.is_given_up(prefer)) {
        Verdict::Better
    } else {
        Verdict::Worse
    }
}

/// The recommended one, of those that are better the first by `ranking`; `None`: the default stays.
pub fn choose<'j>(judgements: &'j [Judgement], ranking: &[&str]) -> Option<&'j Judgement> {
    let better = judgements.iter().filter(|j| j.verdict == Verdict::Better);
    better.min_by_key(|judgement| {
        let place = ranking.iter().position(|name| *name == judgement.candidate);
        place.unwrap_or(usize::MAX)
    })
}

#[cfg(test)]
pub mod samples {
    use super::*;
    use crate::plan::samples::plan;
    use crate::record::facts::Facts;
    use crate::record::neighbour::Kind;
    use crate::record::samples::cell;
    use crate::record::{Cell, WorkloadReport};
    use crate::report::Report;
    use crate::study::samples::with_work;
    use crate::study::study;

    /// Beside cpu noise.
    #[derive(Clone, Copy)]
    pub struct Sample {
        pub tokens_per_s: f64,
        pub p99_ms: f64,
        pub work: f64,
    }

    pub const SAME: Sample = Sample {
        tokens_per_s: 95.0,
        p99_ms: 12.0,
        work: 80.0,
    };

    fn sample_cell(arm: &str, round: u32, sample: &Sample) -> Cell {
        // Rounds differ, arms of a round by a little of their own.
        let own = f64::from(arm.bytes().map(u32::from).sum::<u32>() * round % 7) * 1e-4;
        let drift = 1.0 + f64::from(round) * 0.01 + own;
        let cell = cell(round, arm, Neighbour::Cpu, sample.tokens_per_s * drift);
        let mut cell = with_work(cell, &[(Kind::StressNg, sample.work * drift)]);
        let measurement = cell.measurement.as_mut().unwrap();
        if let WorkloadReport::GpuLaunch(launch) = &mut measurement.workload {
            let us = |at: usize| {
                if at.is_multiple_of(20) {
                    sample.p99_ms * drift * 1e3
                } else {
                    1e4
                }
            };
            launch.token_us = (0..200).map(us).collect();
        }
        cell
    }

    /// The proof of a candidate, `new`.
    pub fn report(rounds: u32, candidate: &Sample) -> Report {
        let mut plan = plan();
        plan.matrix.arms = ["eevdf", DEFAULT, "new"].map(str::to_owned).to_vec();
        plan.matrix.rounds = rounds;
        plan.matrix.workloads.truncate(1);
        plan.matrix.neighbours = vec![Neighbour::Cpu];
        plan.matrix.subject = DEFAULT.to_owned();
        plan.on = crate::plan::Where::Host;
        let cells: Vec<Cell> = (1..=rounds)
            .flat_map(|round| {
                [("eevdf", &SAME), (DEFAULT, &SAME), ("new", candidate)]
                    .map(|(arm, sample)| sample_cell(arm, round, sample))
            })
            .collect();
        Report {
            summary: study(&plan, &cells),
            plan,
            guest: Facts::new(),
            host: Facts::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{SAME, Sample, report};
    use super::*;

    fn summary(rounds: u32, candidate: &Sample) -> Summary {
        report(rounds, candidate).summary
    }

    fn verdict_of(candidate: Sample, prefer: Option<Prefer>) -> Verdict {
        let judgements = judge(&summary(6, &candidate), &["new"], prefer);
        let chosen = choose(&judgements, &["new"]).is_some();
        assert_eq!(chosen, judgements[0].verdict == Verdict::Better);
        judgements[0].verdict
    }

    #[test]
    fn who_answers_fewer_requests_is_not_better_for_those_that_he_answers() {
        let faster = Sample {
            tokens_per_s: 98.0,
            ..SAME
        };
        let mut summary = summary(6, &faster);
        let verdict = |summary: &Summary| judge(summary, &["new"], None)[0].verdict;
        let none = || serde_json::json!({"samples": 0, "p50_ms": null, "p99_ms": null, "p99_of_clean": null});
        let serving = |arm: &str, failed: u64| {
            let row = serde_json::json!({"workload": "chat", "neighbour": "cpu", "arm": arm, "offered": 200,
                "failed": failed, "good": null, "ttft": none(), "tpot": none(), "e2el": none()});
            serde_json::from_value(row).unwrap()
        };
        summary.serving = vec![serving(DEFAULT, 1), serving("new", 2)];
        assert_eq!(verdict(&summary), Verdict::Better);
        summary.serving = vec![serving(DEFAULT, 1), serving("new", 40)];
        assert_eq!(verdict(&summary), Verdict::Unanswered);
    }

    const PREFERENCES: [Option<Prefer>; 3] = [None, Some(Prefer::Isolation), Some(Prefer::Work)];

    #[test]
    fn who_is_better_and_worse_in_nothing_is_taken() {
        for prefer in PREFERENCES {
            let faster = Sample {
                tokens_per_s: 98.0,
                ..SAME
            };
            assert_eq!(verdict_of(faster, prefer), Verdict::Better, "{prefer:?}");
            let steadier = Sample {
                p99_ms: 11.0,
                ..SAME
            };
            assert_eq!(verdict_of(steadier, prefer), Verdict::Better, "{prefer:?}");
        }
    }

    #[test]
    fn a_gain_of_a_percent_is_worth_no_policy() {
        let mut gains = [SAME; 3];
        gains[0].tokens_per_s = 96.0;
        gains[1].p99_ms = 11.9;
        gains[2].work = 81.0;
        assert_eq!(gains.map(|gain| verdict_of(gain, None)), [Verdict::Same; 3]);
    }

    #[test]
    fn the_default_stays_where_nothing_differs() {
        for prefer in PREFERENCES {
            assert_eq!(verdict_of(SAME, prefer), Verdict::Same, "{prefer:?}");
        }
    }

    #[test]
    fn who_is_worse_in_p99_only_is_refused() {
        for prefer in PREFERENCES {
            let worse = Sample {
                p99_ms: 13.0,
                ..SAME
            };
            assert_eq!(verdict_of(worse, prefer), Verdict::Worse, "{prefer:?}");
        }
        let faster = Sample {
            tokens_per_s: 98.0,
            p99_ms: 13.0,
            ..SAME
        };
        for prefer in [None, Some(Prefer::Isolation)] {
            assert_eq!(verdict_of(faster, prefer), Verdict::Worse, "{prefer:?}");
        }
    }

    #[test]
    fn work_is_given_up_only_for_isolation_and_only_so_much() {
        let traded = Sample {
            tokens_per_s: 98.0,
            work: 76.0,
            ..SAME
        };
        assert_eq!(verdict_of(traded, None), Verdict::Worse);
        assert_eq!(verdict_of(traded, Some(Prefer::Work)), Verdict::Worse);
        assert_eq!(verdict_of(traded, Some(Prefer::Isolation)), Verdict::Better);
        let too_much = Sample {
            work: 60.0,
            ..traded
        };
        assert_eq!(
            verdict_of(too_much, Some(Prefer::Isolation)),
            Verdict::Worse
        );
        let for_nothing = Sample { work: 76.0, ..SAME };
        for prefer in PREFERENCES {
            assert_eq!(
                verdict_of(for_nothing, prefer),
                Verdict::Worse,
                "{prefer:?}"
            );
        }
    }

    #[test]
    fn isolation_is_given_up_only_for_work() {
        let traded = Sample {
            tokens_per_s: 92.0,
            work: 88.0,
            ..SAME
        };
        assert_eq!(verdict_of(traded, None), Verdict::Worse);
        assert_eq!(verdict_of(traded, Some(Prefer::Isolation)), Verdict::Worse);
        assert_eq!(verdict_of(traded, Some(Prefer::Work)), Verdict::Better);
    }

    #[test]
    fn too_few_rounds_and_failed_cells_decide_nothing() {
        let faster = Sample {
            tokens_per_s: 120.0,
            ..SAME
        };
        let few = judge(&summary(MIN_ROUNDS - 1, &faster), &["new"], None);
        assert_eq!(few[0].verdict, Verdict::TooFewRounds);
        assert!(choose(&few, &["new"]).is_none());
        let mut failed = summary(6, &faster);
        failed
            .rows
            .iter_mut()
            .filter(|row| row.arm == "new")
            .for_each(|row| row.failed = 1);
        assert_eq!(judge(&failed, &["new"], None)[0].verdict, Verdict::Failed);
    }

    #[test]
    fn of_several_the_first_by_rank_is_taken() {
        let judgement = |name: &str, verdict| Judgement {
            candidate: name.to_owned(),
            verdict,
            findings: Vec::new(),
        };
        let all = [
            judgement("a", Verdict::Better),
            judgement("b", Verdict::Worse),
            judgement("c", Verdict::Better),
        ];
        assert_eq!(choose(&all, &["b", "c", "a"]).unwrap().candidate, "c");
    }
}
