// SPDX-License-Identifier: GPL-2.0-only
//! Where other arms beat the subject: on the plane of isolation and waste, and figure by figure. Only what [`Versus`]
//! shows counts, of all comparisons of a run together: with as many, some intervals miss by chance.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cells::Cells;
use super::versus::Versus;
use crate::plan::SHARED;
use crate::record::neighbour::Neighbour;
use crate::stats::{self, Estimate};

/// Ratios nearer to 1 than this are equal: two digits are what a report shows.
const RATIO_RESOLUTION: f64 = 0.005;
/// Idle time is counted in ticks of 10 ms: differences below this many percentage points are the counter's.
const IDLE_RESOLUTION: f64 = 0.5;

/// Of all that a run says of two arms, so much is expected to be wrong; and where nothing differs, so often a run says
/// anything at all. Not less: most of what is said here is where the subject is behind.
pub const FALSE_RATE: f64 = 0.05;

/// What a reader compares arms by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    ShareOfClean,
    TokenP99,
    TtftP99,
    TpotP99,
    Work,
    Idle,
}

impl Figure {
    pub const ALL: [Self; 6] = [
        Self::ShareOfClean,
        Self::TokenP99,
        Self::TtftP99,
        Self::TpotP99,
        Self::Work,
        Self::Idle,
    ];

    /// The subject over the other arm; of idle time the subject minus the other.
    pub fn of(self, versus: &Versus) -> Option<Estimate> {
        match self {
            Self::ShareOfClean => versus.share_of_clean,
            Self::TokenP99 => versus.token_p99,
            Self::TtftP99 => versus.ttft_p99,
            Self::TpotP99 => versus.tpot_p99,
            Self::Work => versus.work,
            Self::Idle => versus.idle_points,
        }
    }

    /// The chance to see such a difference where there is none that counts, and who has the better of it by the
    /// middle; `None`: too few boots to say.
    fn test(self, versus: &Versus) -> Option<(f64, Better)> {
        let estimate = self.of(versus)?;
        let (least, most) = match self {
            Self::Idle => (-IDLE_RESOLUTION, IDLE_RESOLUTION),
            _ => (1.0 - RATIO_RESOLUTION, 1.0 + RATIO_RESOLUTION),
        };
        let (above, below) = (estimate.p_above(most)?, estimate.p_below(least)?);
        let more_is_better = matches!(self, Self::ShareOfClean | Self::Work);
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
pub struct Rivals {
    pub workload: String,
    pub neighbour: Neighbour,
    pub subject: String,
    /// Figures of arms that were compared with the subject's.
    #[serde(default)]
    pub compared: usize,
    /// Arms that keep more of the clean speed and are not shown to waste more, or that waste less and are not shown to
    /// keep less. Absent: too few boots to say, or no neighbour, beside which idle time is no waste.
    pub dominated_by: Option<Vec<String>>,
    /// Arms that are ahead in a figure; figures in which nobody is are left out.
    pub ahead: BTreeMap<Figure, Vec<String>>,
}

pub(super) fn rivals(cells: &Cells, versus: &[Versus], rate: f64) -> Vec<Rivals> {
    // Quiet cells on boots of their own have no clean reference but themselves.
    let comparable = |row: &&Versus| {
        row.neighbour != Neighbour::None
            || [&row.subject, &row.other].map(|arm| cells.plan.group(arm)) == [SHARED, SHARED]
    };
    let compared: Vec<&Versus> = versus.iter().filter(comparable).collect();
    let mut verdicts = verdicts(&compared, rate).into_iter();
    let mut all: Vec<Rivals> = Vec::new();
    for row in versus {
        let same =
            |known: &Rivals| known.workload == row.workload && known.neighbour == row.neighbour;
        if !all.last().is_some_and(same) {
            all.push(Rivals {
                workload: row.workload.clone(),
                neighbour: row.neighbour,
                subject: row.subject.clone(),
                compared: 0,
                dominated_by: None,
                ahead: BTreeMap::new(),
            });
        }
        let verdicts = comparable(&row).then(|| verdicts.next()).flatten();
        if let (Some(rivals), Some(verdicts)) = (all.last_mut(), verdicts) {
            rivals.judge(row, &verdicts);
        }
    }
    all
}

impl Rivals {
    fn judge(&mut self, row: &Versus, verdicts: &Verdicts) {
        self.compared += verdicts.len();
        for (figure, better) in verdicts {
            if *better == Better::Other {
                let arms = self.ahead.entry(*figure).or_default();
                arms.push(row.other.clone());
            }
        }
        let of = |figure| verdicts.get(&figure).copied();
        let plane = (of(Figure::ShareOfClean), of(Figure::Idle));
        let (Some(isolation), Some(waste)) = plane else {
            return;
        };
        let dominating = self.dominated_by.get_or_insert_default();
        let not_worse = isolation != Better::Subject && waste != Better::Subject;
        if not_worse && (isolation == Better::Other || waste == Better::Other) {
            dominating.push(row.other.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::plan;
    use crate::record::Cell;
    use crate::record::samples;
    use crate::study::study;

    /// Three rounds beside cpu noise of arms by name, tokens/s and idle CPU time in percent; the clean speed is 100.
    fn rivals_of(arms: &[(&str, [f64; 3], f64)]) -> Rivals {
        let mut plan = plan();
        plan.matrix.arms = vec!["eevdf".to_owned()];
        plan.matrix.subject = arms[0].0.to_owned();
        let mut cells: Vec<Cell> = Vec::new();
        for round in 1..=3 {
            cells.push(samples::cell(round, "eevdf", Neighbour::None, 100.0));
            for (arm, speeds, idle) in arms {
                let speed = speeds[round as usize - 1];
                let mut cell = samples::cell(round, arm, Neighbour::Cpu, speed);
                cell.measurement.as_mut().unwrap().cpu.idle_percent = *idle;
                cells.push(cell);
            }
        }
        let names = arms.iter().map(|(arm, ..)| (*arm).to_owned());
        plan.matrix.arms.extend(names);
        let summary = study(&plan, &cells);
        let found = summary
            .rivals
            .into_iter()
            .find(|r| r.workload == "qwen3" && r.neighbour == Neighbour::Cpu);
        found.unwrap()
    }

    const SUBJECT: (&str, [f64; 3], f64) = ("gpuaware", [95.0, 95.0, 95.0], 5.0);

    fn dominated_by(other: [f64; 3], idle: f64) -> bool {
        let rivals = rivals_of(&[SUBJECT, ("other", other, idle)]);
        rivals.dominated_by.unwrap() == ["other"]
    }

    #[test]
    fn who_keeps_more_for_no_more_waste_dominates() {
        assert!(dominated_by([96.9, 97.0, 97.1], 5.0));
        assert!(dominated_by([96.9, 97.0, 97.1], 0.0));
        assert!(!dominated_by([96.9, 97.0, 97.1], 20.0), "for more waste");
        assert!(!dominated_by([94.0, 97.0, 98.0], 5.0), "covers no change");
        assert!(
            !dominated_by([95.1, 95.2, 95.3], 5.0),
            "no more than is shown"
        );
    }

    #[test]
    fn who_wastes_less_and_keeps_as_much_dominates() {
        assert!(dominated_by([94.0, 95.0, 96.0], 0.0));
        assert!(!dominated_by([92.9, 93.0, 93.1], 0.0), "keeps less");
        assert!(!dominated_by([94.0, 95.0, 96.0], 4.6), "a tick's worth");
        assert!(!dominated_by([95.0, 95.0, 95.0], 5.0), "the same");
    }

    #[test]
    fn figures_are_won_by_whoever_is_shown_to_be_ahead() {
        let rivals = rivals_of(&[
            SUBJECT,
            ("faster", [97.1, 97.0, 96.9], 25.0),
            ("leaner", [60.0, 61.0, 62.0], 0.0),
            ("as fast", [94.0, 95.0, 96.0], 5.0),
        ]);
        let one = |arm: &str| vec![arm.to_owned()];
        let expected = BTreeMap::from([
            (Figure::ShareOfClean, one("faster")),
            // Tokens all take the same time here: the faster arm's p99 is shorter.
            (Figure::TokenP99, one("faster")),
            (Figure::Idle, one("leaner")),
        ]);
        assert_eq!(rivals.ahead, expected);
        assert_eq!(rivals.dominated_by, Some(Vec::new()));
    }

    #[test]
    fn quiet_cells_have_no_waste_and_boots_of_their_own_no_reference() {
        let plan = plan();
        let cells: Vec<Cell> = (1..=3)
            .flat_map(|round| {
                [("eevdf", 100.0), ("isolcpus", 120.0), ("gpuaware", 98.0)]
                    .map(|(arm, speed)| samples::cell(round, arm, Neighbour::None, speed))
            })
            .collect();
        let rivals = &study(&plan, &cells).rivals[0];
        assert_eq!(rivals.neighbour, Neighbour::None);
        assert_eq!(rivals.dominated_by, None);
        assert_eq!(rivals.ahead[&Figure::ShareOfClean], ["eevdf"]);
    }

    #[test]
    fn two_rounds_say_nothing() {
        let cells: Vec<Cell> = (1..=2)
            .flat_map(|round| {
                ["eevdf", "gpuaware"].map(|arm| samples::cell(round, arm, Neighbour::Cpu, 9.0))
            })
            .collect();
        let summary = study(&plan(), &cells);
        for rivals in &summary.rivals {
            assert!(rivals.dominated_by.is_none() && rivals.ahead.is_empty());
        }
    }
}
