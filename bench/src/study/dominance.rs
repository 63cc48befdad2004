// SPDX-License-Identifier: GPL-2.0-only
//! Where other arms beat the subject: figure by figure, and in speed, p99 and neighbours' work together. Only what
//! [`Versus`] shows counts, of all comparisons of a run together: with as many, some intervals miss by chance.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::versus::Versus;
use crate::record::neighbour::Neighbour;
use gpuaware_stats::{self as stats, Estimate};

/// Ratios nearer to 1 than this are equal: two digits are what a report shows.
const RATIO_RESOLUTION: f64 = 0.005;
/// Idle time is counted in ticks of 10 ms: differences below this many percentage points are the counter's.
const IDLE_RESOLUTION: f64 = 0.5;

/// False discovery rate of all comparisons of a run; where nothing differs, the rate of runs that say anything. Not
/// lower: most findings here are against the subject.
pub const FALSE_RATE: f64 = 0.05;

/// What a reader compares arms by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    Speed,
    TokenP99,
    TtftP99,
    TpotP99,
    Work,
    Idle,
}

impl Figure {
    const TAILS: [Self; 3] = [Self::TokenP99, Self::TtftP99, Self::TpotP99];
    pub const ALL: [Self; 6] = [
        Self::Speed,
        Self::TokenP99,
        Self::TtftP99,
        Self::TpotP99,
        Self::Work,
        Self::Idle,
    ];

    /// The subject over the other arm; of idle time the subject minus the other.
    pub fn of(self, versus: &Versus) -> Option<Estimate> {
        match self {
            Self::Speed => versus.speed(),
            Self::TokenP99 => versus.token_p99,
            Self::TtftP99 => versus.ttft_p99,
            Self::TpotP99 => versus.tpot_p99,
            Self::Work => versus.work,
            Self::Idle => versus.idle_points,
        }
    }

    /// The p-value of a difference that counts, and the arm that its middle favours; `None`: too few boots.
    fn test(self, versus: &Versus) -> Option<(f64, Better)> {
        let estimate = self.of(versus)?;
        let (least, most) = match self {
            Self::Idle => (-IDLE_RESOLUTION, IDLE_RESOLUTION),
            _ => (1.0 - RATIO_RESOLUTION, 1.0 + RATIO_RESOLUTION),
        };
        let (above, below) = (estimate.p_above(most)?, estimate.p_below(least)?);
        let more_is_better = matches!(self, Self::Speed | Self::Work);
        let better = if (above < below) == more_is_better {
            Better::Subject
        } else {
            Better::Other
        };
        // Either side would have been one.
        Some(((2.0 * above.min(below)).min(1.0), better))
    }

    /// Idle time is no waste where nobody would use it.
    fn counts(self, versus: &Versus) -> bool {
        versus.neighbour != Neighbour::None || self != Self::Idle
    }
}

/// Who has the better of each figure of a comparison of two arms, as all comparisons together allow to say.
type Verdicts = BTreeMap<Figure, Better>;

/// One map a comparison; figures that cannot be judged are left out.
fn verdicts(versus: &[&Versus], rate: f64) -> Vec<Verdicts> {
    let tests: Vec<(usize, Figure, f64, Better)> = versus
        .iter()
        .enumerate()
        .flat_map(|(at, row)| {
            let figures = Figure::ALL.into_iter().filter(|figure| figure.counts(row));
            figures.filter_map(move |figure| {
                let (p, better) = figure.test(row)?;
                Some((at, figure, p, better))
            })
        })
        .collect();
    let p_values: Vec<f64> = tests.iter().map(|(_, _, p, _)| *p).collect();
    let shown = stats::discoveries(&p_values, rate);
    let mut verdicts = vec![Verdicts::new(); versus.len()];
    for ((at, figure, _, better), shown) in tests.into_iter().zip(shown) {
        let better = if shown { better } else { Better::NotShown };
        verdicts[at].insert(figure, better);
    }
    verdicts
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Better {
    Subject,
    Other,
    NotShown,
}

/// The arms that beat the subject beside one neighbour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dominance {
    pub workload: String,
    pub neighbour: Neighbour,
    pub subject: String,
    /// Figures of arms that were compared with the subject's.
    #[serde(default)]
    pub compared: usize,
    /// Arms that are not shown to be worse in speed, in any p99 or in the neighbours' work, and are shown to be better
    /// in one of them. Absent: too few boots to say, or no neighbour, beside which there is no work.
    pub dominated_by: Option<Vec<String>>,
    /// Arms that were judged by speed and work alone: one side has too few samples for a p99.
    #[serde(default)]
    pub without_p99: Vec<String>,
    /// Arms that are ahead in a figure; figures in which nobody is are left out.
    pub ahead: BTreeMap<Figure, Vec<String>>,
}

pub(super) fn dominance(versus: &[Versus], rate: f64) -> Vec<Dominance> {
    // Quiet cells on boots of their own have no reference but themselves.
    let comparable = |row: &&Versus| row.neighbour != Neighbour::None || row.one_boot;
    let compared: Vec<&Versus> = versus.iter().filter(comparable).collect();
    let mut verdicts = verdicts(&compared, rate).into_iter();
    let mut all: Vec<Dominance> = Vec::new();
    for row in versus {
        let same =
            |known: &Dominance| known.workload == row.workload && known.neighbour == row.neighbour;
        if !all.last().is_some_and(same) {
            all.push(Dominance {
                workload: row.workload.clone(),
                neighbour: row.neighbour,
                subject: row.subject.clone(),
                compared: 0,
                dominated_by: None,
                without_p99: Vec::new(),
                ahead: BTreeMap::new(),
            });
        }
        let verdicts = comparable(&row).then(|| verdicts.next()).flatten();
        if let (Some(dominance), Some(verdicts)) = (all.last_mut(), verdicts) {
            dominance.judge(row, &verdicts);
        }
    }
    all
}

impl Dominance {
    fn judge(&mut self, row: &Versus, verdicts: &Verdicts) {
        self.compared += verdicts.len();
        for (figure, better) in verdicts {
            if *better == Better::Other {
                let arms = self.ahead.entry(*figure).or_default();
                arms.push(row.other.clone());
            }
        }
        let of = |figure| verdicts.get(&figure).copied();
        let noisy = self.neighbour != Neighbour::None;
        let (true, Some((speed, work))) = (noisy, of(Figure::Speed).zip(of(Figure::Work))) else {
            return;
        };
        let tails = Figure::TAILS.map(of);
        if tails == [None; 3] {
            self.without_p99.push(row.other.clone());
        }
        let mut verdicts = tails.into_iter().flatten().chain([speed, work]);
        let dominating = self.dominated_by.get_or_insert_default();
        let not_worse = verdicts.clone().all(|better| better != Better::Subject);
        if not_worse && verdicts.any(|better| better == Better::Other) {
            dominating.push(row.other.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::plan;
    use crate::record::neighbour::Kind;
    use crate::record::samples::cell;
    use crate::record::{Cell, WorkloadReport};
    use crate::study::samples::with_work;
    use crate::study::study;

    /// An arm in three rounds beside cpu noise.
    #[derive(Clone, Copy)]
    struct Sample {
        arm: &'static str,
        tokens_per_s: [f64; 3],
        p99_ms: f64,
        work: [f64; 3],
        idle: f64,
    }

    const SUBJECT: Sample = Sample {
        arm: "gpuaware",
        tokens_per_s: [95.0; 3],
        p99_ms: 12.0,
        work: [80.0; 3],
        idle: 5.0,
    };
    const OTHER: Sample = Sample {
        arm: "other",
        ..SUBJECT
    };

    impl Sample {
        /// `tokens` a round, one in twenty of them as long as the p99.
        fn cell(&self, round: u32, tokens: usize) -> Cell {
            let at = round as usize - 1;
            let cell = cell(round, self.arm, Neighbour::Cpu, self.tokens_per_s[at]);
            let mut cell = with_work(cell, &[(Kind::StressNg, self.work[at])]);
            let measurement = cell.measurement.as_mut().unwrap();
            measurement.cpu.idle_percent = self.idle;
            if let WorkloadReport::GpuLaunch(launch) = &mut measurement.workload {
                let slow = |at: usize| at.is_multiple_of(20);
                let us = |at| if slow(at) { self.p99_ms * 1e3 } else { 1e4 };
                launch.token_us = (0..tokens).map(us).collect();
            }
            cell
        }
    }

    /// Of the subject, which is the first, and the others.
    fn dominance_of(arms: &[Sample], tokens: usize) -> Dominance {
        let mut plan = plan();
        plan.matrix.arms = vec!["eevdf".to_owned()];
        plan.matrix.subject = arms[0].arm.to_owned();
        let names = arms.iter().map(|sample| sample.arm.to_owned());
        plan.matrix.arms.extend(names);
        let cells: Vec<Cell> = (1..=3)
            .flat_map(|round| arms.iter().map(move |sample| sample.cell(round, tokens)))
            .collect();
        let mut all = study(&plan, &cells).dominance.into_iter();
        all.find(|r| r.workload == "qwen3" && r.neighbour == Neighbour::Cpu)
            .unwrap()
    }

    fn dominated_by(other: Sample) -> bool {
        let dominance = dominance_of(&[SUBJECT, other], 200);
        assert!(dominance.without_p99.is_empty());
        dominance.dominated_by.unwrap() == ["other"]
    }

    #[test]
    fn who_is_better_in_one_of_three_and_worse_in_none_dominates() {
        assert!(!dominated_by(OTHER), "the same");
        let faster = [96.9, 97.0, 97.1];
        assert!(dominated_by(Sample {
            tokens_per_s: faster,
            ..OTHER
        }));
        assert!(dominated_by(Sample {
            p99_ms: 11.0,
            ..OTHER
        }));
        assert!(dominated_by(Sample {
            work: [84.9, 85.0, 85.1],
            ..OTHER
        }));
        assert!(
            dominated_by(Sample {
                tokens_per_s: faster,
                work: [60.0, 80.0, 90.0],
                ..OTHER
            }),
            "less work is not shown"
        );
        assert!(
            dominated_by(Sample {
                tokens_per_s: faster,
                idle: 40.0,
                ..OTHER
            }),
            "idle time is no verdict"
        );
        assert!(
            !dominated_by(Sample {
                tokens_per_s: [95.1, 95.2, 95.3],
                idle: 0.0,
                ..OTHER
            }),
            "no more than is shown"
        );
    }

    #[test]
    fn who_is_worse_in_one_of_three_does_not_dominate() {
        let better = Sample {
            tokens_per_s: [97.0; 3],
            p99_ms: 11.0,
            work: [90.0; 3],
            ..OTHER
        };
        assert!(dominated_by(better));
        for worse in [
            Sample {
                tokens_per_s: [93.0; 3],
                ..better
            },
            Sample {
                p99_ms: 13.0,
                ..better
            },
            Sample {
                work: [71.9, 72.0, 72.1],
                ..better
            },
        ] {
            assert!(!dominated_by(worse));
        }
    }

    #[test]
    fn without_a_p99_speed_and_work_decide_and_that_is_said() {
        let longer = Sample {
            tokens_per_s: [97.0; 3],
            p99_ms: 40.0,
            ..OTHER
        };
        assert!(!dominated_by(longer));
        // 450 tokens are fewer than 459.
        let dominance = dominance_of(&[SUBJECT, longer], 150);
        assert_eq!(dominance.dominated_by.unwrap(), ["other"]);
        assert_eq!(dominance.without_p99, ["other"]);
    }

    #[test]
    fn nobody_is_judged_without_the_neighbours_work() {
        let mut plan = plan();
        plan.matrix.arms = ["eevdf", "gpuaware"].map(str::to_owned).to_vec();
        let cells: Vec<Cell> = (1..=3)
            .flat_map(|round| {
                [("eevdf", 99.0), ("gpuaware", 9.0)]
                    .map(|(arm, speed)| cell(round, arm, Neighbour::Cpu, speed))
            })
            .collect();
        let dominance = &study(&plan, &cells).dominance[1];
        assert_eq!(dominance.dominated_by, None);
        assert_eq!(dominance.ahead[&Figure::Speed], ["eevdf"]);
    }

    #[test]
    fn figures_are_won_by_whoever_is_shown_to_be_ahead() {
        let faster = Sample {
            arm: "faster",
            tokens_per_s: [97.1, 97.0, 96.9],
            p99_ms: 11.0,
            idle: 25.0,
            ..SUBJECT
        };
        let leaner = Sample {
            arm: "leaner",
            tokens_per_s: [60.0, 61.0, 62.0],
            work: [99.0; 3],
            idle: 0.0,
            ..SUBJECT
        };
        let as_fast = Sample {
            arm: "as fast",
            tokens_per_s: [94.0, 95.0, 96.0],
            ..SUBJECT
        };
        let dominance = dominance_of(&[SUBJECT, faster, leaner, as_fast], 200);
        let one = |arm: &str| vec![arm.to_owned()];
        let expected = BTreeMap::from([
            (Figure::Speed, one("faster")),
            (Figure::TokenP99, one("faster")),
            (Figure::Work, one("leaner")),
            (Figure::Idle, one("leaner")),
        ]);
        assert_eq!(dominance.ahead, expected);
        assert_eq!(dominance.dominated_by, Some(one("faster")));
    }

    #[test]
    fn quiet_cells_have_no_work_and_boots_of_their_own_no_reference() {
        let plan = plan();
        let cells: Vec<Cell> = (1..=3)
            .flat_map(|round| {
                [("eevdf", 100.0), ("isolcpus", 120.0), ("gpuaware", 98.0)]
                    .map(|(arm, speed)| cell(round, arm, Neighbour::None, speed))
            })
            .collect();
        let dominance = &study(&plan, &cells).dominance[0];
        assert_eq!(dominance.neighbour, Neighbour::None);
        assert_eq!(dominance.dominated_by, None);
        assert_eq!(dominance.ahead[&Figure::Speed], ["eevdf"]);
    }

    #[test]
    fn two_rounds_say_nothing() {
        let cells: Vec<Cell> = (1..=2)
            .flat_map(|round| {
                ["eevdf", "gpuaware"].map(|arm| cell(round, arm, Neighbour::Cpu, 9.0))
            })
            .collect();
        let summary = study(&plan(), &cells);
        for dominance in &summary.dominance {
            assert!(dominance.dominated_by.is_none() && dominance.ahead.is_empty());
        }
    }
}
