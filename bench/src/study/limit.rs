// SPDX-License-Identifier: GPL-2.0-only
//! Rows above the limit of what is possible: neighbours that got more done than the launcher left them CPU time for.

use super::model::{Impossible, Row};

/// Above 1 by less than this is 1: whole percent are what a report shows.
const RESOLUTION: f64 = 0.005;

/// The rows above the limit.
pub(super) fn impossible(rows: &[Row]) -> Vec<Impossible> {
    rows.iter()
        .filter_map(|row| {
            let work_of_possible = row.work_of_possible?;
            let [low, _] = work_of_possible.interval?;
            (low > 1.0 + RESOLUTION).then(|| Impossible {
                workload: row.workload.clone(),
                neighbour: row.neighbour,
                arm: row.arm.clone(),
                work_of_possible,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::plan;
    use crate::record::neighbour::Kind;
    use crate::record::neighbour::Neighbour;
    use crate::record::samples::cell;
    use crate::record::{Cell, WorkloadReport};
    use crate::study::samples::{with_launcher_cpus, with_work};
    use crate::study::study;
    use gpuaware_stats::Estimate;

    /// Three rounds of 2 CPUs beside cpu noise: CPUs that the launcher uses and the neighbours' rate under the
    /// baseline and under the subject.
    fn row_of(base: [(f64, f64); 3], subject: [(f64, f64); 3]) -> (Row, Vec<Impossible>) {
        let cells: Vec<Cell> = (1..=3)
            .zip(base.into_iter().zip(subject))
            .flat_map(|(round, (base, subject))| {
                [("eevdf", base), ("gpuaware", subject)].map(|(arm, (cpus, rate))| {
                    let cell = cell(round, arm, Neighbour::Cpu, 100.0);
                    with_work(with_launcher_cpus(cell, cpus), &[(Kind::StressNg, rate)])
                })
            })
            .collect();
        let summary = study(&plan(), &cells);
        let is_it = |row: &Row| row.arm == "gpuaware" && row.neighbour == Neighbour::Cpu;
        let row = summary.rows.into_iter().find(is_it).unwrap();
        (row, summary.impossible)
    }

    fn close(estimate: Option<Estimate>, value: f64) {
        let found = estimate.unwrap().value;
        assert!((found - value).abs() < 1e-9, "{found}, not {value}");
    }

    #[test]
    fn the_launchers_own_cpu_time_is_no_loss_of_its_neighbours() {
        // Left: 1.5 of 2 CPUs under the baseline, 1.2 under the subject: 80 % is possible, and 72 % is 90 % of it.
        let (row, impossible) = row_of([(0.5, 100.0); 3], [(0.8, 72.0); 3]);
        close(row.launcher_cpus, 0.8);
        close(row.possible, 0.8);
        close(row.work_mean, 0.72);
        close(row.work_of_possible, 0.9);
        assert!(impossible.is_empty());
    }

    #[test]
    fn work_and_what_is_possible_are_paired_by_round() {
        // Possible: 0.8, 0.5, 1.0; work: 0.8, 0.25, 0.5; of possible: 1, 0.5, 0.5. Means are geometric.
        let base = [(0.5, 100.0), (0.0, 200.0), (1.0, 100.0)];
        let (row, _) = row_of(base, [(0.8, 80.0), (1.0, 50.0), (1.0, 50.0)]);
        close(row.possible, 0.4_f64.cbrt());
        close(row.work_of_possible, 0.25_f64.cbrt());
    }

    #[test]
    fn a_row_above_the_limit_beyond_its_interval_is_impossible() {
        let base = [(0.5, 100.0); 3];
        let (row, impossible) = row_of(base, [(0.8, 87.0), (0.8, 88.0), (0.8, 89.0)]);
        let expected = Impossible {
            workload: "qwen3".to_owned(),
            neighbour: Neighbour::Cpu,
            arm: "gpuaware".to_owned(),
            work_of_possible: row.work_of_possible.unwrap(),
        };
        assert_eq!(impossible, [expected]);
        let (_, covers) = row_of(base, [(0.8, 79.0), (0.8, 88.0), (0.8, 96.0)]);
        assert!(covers.is_empty(), "its interval covers the limit");
        let (_, rounds_to_it) = row_of(base, [(0.8, 80.3); 3]);
        assert!(rounds_to_it.is_empty(), "100 % as it is shown");
    }

    #[test]
    fn nothing_is_known_where_the_cpu_time_in_the_window_is_not() {
        let mut cells = Vec::new();
        for arm in ["eevdf", "gpuaware"] {
            let cell = cell(1, arm, Neighbour::Cpu, 100.0);
            cells.push(with_work(cell, &[(Kind::StressNg, 1.0)]));
        }
        let row = |cells: &[Cell]| {
            let rows = study(&plan(), cells).rows;
            rows.into_iter()
                .find(|row| row.arm == "gpuaware" && row.neighbour == Neighbour::Cpu)
                .unwrap()
        };
        let unknown = row(&cells);
        assert!(unknown.launcher_cpus.is_none() && unknown.possible.is_none());
        assert!(unknown.work_of_possible.is_none() && unknown.work_mean.is_some());
        // A server's CPU time in its whole life is not that of the window; what the runner saw is.
        for (cell, cpus) in cells.iter_mut().zip([0.5, 0.8]) {
            let report = serde_json::json!({"workload": "llm_serving",
                "client": {"offered": 1, "completed": 1, "failed": 0, "good": null, "ttfts": [0.1], "tpots": [0.01],
                    "e2els": [1.0], "itls": [[0.01]], "errors": []},
                "server": {"launches": 9, "context_switches": {"voluntary": 1, "involuntary": 0},
                    "threads_detail": [], "cpu_s": {"user": 9.0, "sys": 9.0}, "window_cpus": cpus}});
            let report: WorkloadReport = serde_json::from_value(report).unwrap();
            cell.measurement.as_mut().unwrap().workload = report;
        }
        close(row(&cells).possible, 0.8);
        close(row(&cells).work_of_possible, 1.25);
    }
}
