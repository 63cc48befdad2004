// SPDX-License-Identifier: GPL-2.0-only
//! Progress lines on stderr, with the time that is left.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::plan::Plan;
use crate::record::neighbour::Neighbour;
use crate::record::{Cell, CellKey, RunDir};
use crate::words::in_words;

/// What a boot with its warm-up costs.
pub const GUESSED_BOOT: Duration = Duration::from_secs(15);

/// How far a run is.
#[derive(Debug)]
pub struct Progress {
    total: usize,
    done: usize,
    /// Cells still to come, by neighbour: noisy cells take longer.
    left: BTreeMap<Neighbour, u32>,
    boots_left: u32,
    /// Of the longest arm's name.
    arm_width: usize,
    guess: Duration,
    spent: BTreeMap<Neighbour, (Duration, u32)>,
}

impl Progress {
    /// From the plan and what is there already; `block` is the one that runs now.
    pub fn new(plan: &Plan, run: &RunDir, block: usize) -> Self {
        let left_keys: Vec<CellKey> = plan.keys().filter(|key| !run.has(key)).collect();
        let mut left = BTreeMap::new();
        for key in &left_keys {
            *left.entry(key.neighbour).or_insert(0) += 1;
        }
        let total = plan.matrix.cells();
        let arms = plan.matrix.arms.iter();
        Self {
            total,
            done: total - left_keys.len(),
            left,
            boots_left: plan.blocks.len().saturating_sub(block + 1) as u32,
            arm_width: arms.map(String::len).max().unwrap_or(0),
            // Until this run has shown it.
            guess: plan.matrix.about() / total.max(1) as u32,
            spent: BTreeMap::new(),
        }
    }

    /// Counts a cell and returns the line for it; `again`: it was disturbed and will be repeated.
    pub fn line(&mut self, cell: &Cell, took: Duration, again: bool) -> String {
        self.done += usize::from(!again);
        let CellKey {
            round,
            arm,
            neighbour,
            workload,
        } = &cell.key;
        if let Some(left) = self.left.get_mut(neighbour).filter(|_| !again) {
            *left = left.saturating_sub(1);
        }
        let (time, count) = self.spent.entry(*neighbour).or_default();
        *time += took;
        *count += 1;
        let result = match (&cell.measurement, &cell.failure) {
            (Some(seen), _) => format!(
                "{:7.1} {}, {:4.1} % idle{}",
                seen.workload.tokens_per_s(),
                match seen.workload.pipeline() {
                    Some(_) => "items/s",
                    None => "tok/s",
                },
                seen.cpu.idle_percent,
                match seen.marks.as_ref().map(|marks| marks.marked) {
                    Some(false) => ", NOT MARKED",
                    _ => "",
                }
            ),
            (None, Some(failure)) if cell.cannot_run => format!("not run: {failure}"),
            (None, Some(failure)) => format!("FAILED: {failure}"),
            (None, None) => "FAILED".to_owned(),
        };
        let disturbed = match (cell.disturbed.as_slice(), again) {
            ([], _) => String::new(),
            (reasons, true) => format!(", DISTURBED, once more: {}", reasons.join("; ")),
            (reasons, false) => format!(", DISTURBED: {}", reasons.join("; ")),
        };
        let width = self.total.to_string().len();
        let arm_width = self.arm_width;
        format!(
            "[{:width$}/{}] round {round} {arm:<arm_width$} {neighbour:<5} {workload:<8} {result}{disturbed} ({:.1} s) · {} left",
            self.done,
            self.total,
            took.as_secs_f64(),
            in_words(self.time_left())
        )
    }

    /// Counts a cell that was there as one to come.
    pub fn reopen(&mut self, key: &CellKey) {
        self.done = self.done.saturating_sub(1);
        *self.left.entry(key.neighbour).or_insert(0) += 1;
    }

    fn time_left(&self) -> Duration {
        let cells: Duration = self
            .left
            .iter()
            .map(|(neighbour, &count)| {
                let each = match self.spent.get(neighbour) {
                    Some((time, seen)) => *time / *seen,
                    None => self.guess,
                };
                each * count
            })
            .sum();
        cells + GUESSED_BOOT * self.boots_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::plan;
    use crate::record::samples;

    #[test]
    fn counts_down() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        let mut progress = Progress::new(&plan(), &run, 0);
        // 90 cells of 5 s and nine more boots of 15 s.
        assert_eq!(progress.time_left(), Duration::from_secs(585));
        let cell = samples::cell(1, "eevdf", Neighbour::None, 123.4);
        let disturbed = Cell {
            disturbed: vec!["a compiler".to_owned()],
            ..cell.clone()
        };
        let line = progress.line(&disturbed, Duration::from_secs(3), true);
        assert!(line.starts_with("[ 0/90]") && line.contains("DISTURBED, once more: a compiler"));
        let line = progress.line(&cell, Duration::from_secs(3), false);
        // 29 quiet cells of 3 s now.
        assert_eq!(
            line,
            "[ 1/90] round 1 eevdf    none  qwen3      123.4 tok/s,  5.0 % idle (3.0 s) · 8 min 42 s left"
        );
        let failed = Cell {
            measurement: None,
            failure: Some("no disk".into()),
            ..cell
        };
        assert!(
            progress
                .line(&failed, Duration::from_secs(3), false)
                .contains("FAILED: no disk")
        );
    }
}
