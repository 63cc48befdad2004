// SPDX-License-Identifier: GPL-2.0-only
//! What a report says of its own figures: whether they can be true.

use super::format::percent;
use super::model::Report;
use crate::study::Impossible;

/// What may have happened to a row above the limit.
const CAUSES: &str = "Possible causes: the launcher or the neighbours did not run in the whole window; other programs \
                      took CPU time under the baseline; the neighbours sleep, so CPU time is not what limits them; or the same CPU time got \
                      more done, with fewer switches or a warmer cache.";

/// Nothing was found.
pub fn passed(report: &Report) -> bool {
    report.summary.impossible.is_empty()
}

pub fn sentences(report: &Report) -> Vec<String> {
    let rows = &report.summary.rows;
    if rows.iter().all(|row| row.work_mean.is_none()) {
        return vec!["No neighbour's work was measured: there is nothing to check.".to_owned()];
    }
    if rows.iter().all(|row| row.work_of_possible.is_none()) {
        return vec![
            "Whether the neighbours got more done than was possible is not known: the CPU time that the launcher used in \
             the window was not recorded."
                .to_owned(),
        ];
    }
    if passed(report) {
        return vec![
            "Nobody's neighbours got more done than was possible, beyond the interval.".to_owned(),
        ];
    }
    let mut lines: Vec<String> = report.summary.impossible.iter().map(line).collect();
    lines.push(CAUSES.to_owned());
    lines
}

fn line(row: &Impossible) -> String {
    format!(
        "Impossible: beside {}, {}: the neighbours of {} got {} % of what was possible.",
        row.neighbour,
        row.workload,
        row.arm,
        percent(Some(row.work_of_possible), 0, true)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::neighbour::{Kind, Neighbour};
    use crate::record::samples::cell;
    use crate::report::samples;
    use crate::study::samples::{with_launcher_cpus, with_work};
    use crate::study::study;

    #[test]
    fn a_row_above_the_limit_is_named_with_what_may_be_the_cause() {
        let mut report = samples::report();
        assert!(passed(&report));
        assert_eq!(
            sentences(&report),
            ["Nobody's neighbours got more done than was possible, beyond the interval."]
        );
        // 1.5 CPUs were left, then 1.2: 80 % is possible, 88 % of the work is 110 % of that.
        let cells: Vec<_> = (1..=3)
            .flat_map(|round| {
                [("eevdf", 0.5, 100.0), ("gpuaware", 0.8, 88.0)].map(|(arm, cpus, rate)| {
                    let cell = cell(round, arm, Neighbour::Cpu, 100.0);
                    with_work(with_launcher_cpus(cell, cpus), &[(Kind::StressNg, rate)])
                })
            })
            .collect();
        report.summary = study(&report.plan, &cells);
        assert!(!passed(&report));
        let lines = sentences(&report);
        assert_eq!(
            lines[0],
            "Impossible: beside cpu, qwen3: the neighbours of gpuaware got 110 [110–110] % of what was possible."
        );
        assert!(lines.len() == 2 && lines[1].starts_with("Possible causes: "));
    }

    #[test]
    fn says_when_there_is_nothing_to_check() {
        let mut report = samples::report();
        for row in &mut report.summary.rows {
            row.work_of_possible = None;
        }
        assert!(sentences(&report)[0].ends_with("in the window was not recorded."));
        for row in &mut report.summary.rows {
            row.work_mean = None;
        }
        assert!(sentences(&report)[0].starts_with("No neighbour's work"));
    }
}
