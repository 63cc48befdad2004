// SPDX-License-Identifier: GPL-2.0-only
//! The tables of a pipeline's parts: how long items wait at each hand-over and servers take to answer; what stages do
//! with batches.

use super::columns::{Column, Shown, by_arm};
use super::format::{Detail, figure, latency, percent};
use super::model::Report;
use super::table::Table;
use crate::study::{PartTimes, Parts, StageTimes};
use gpuaware_stats::Estimate;

fn rows_of<'a>(report: &'a Report, workload: &str) -> Vec<&'a Parts> {
    let rows = report.summary.pipelines.iter();
    rows.filter(|row| row.workload == workload).collect()
}

fn of_rows(report: &Report, rows: &[&Parts], columns: Vec<Column<Parts>>, detail: Detail) -> Table {
    by_arm(
        report,
        rows,
        |row| (row.neighbour, row.arm.as_str(), row.arm.clone()),
        columns,
        detail,
    )
}

/// `None`: it is no pipeline.
pub fn table(report: &Report, workload: &str, detail: Detail) -> Option<Table> {
    let rows = rows_of(report, workload);
    let first = *rows.first()?;
    let mut columns = Vec::new();
    for (place, hand_over) in first.hand_overs.iter().enumerate() {
        let name = format!("{} → {} ms", hand_over.from, hand_over.to);
        let of = move |row: &Parts| Some(row.hand_overs.get(place)?.delay.clone());
        // Between stages of its own there may be many.
        let shown = if first.calls.contains_key(&hand_over.to) {
            Shown::Always
        } else {
            Shown::IfItFits
        };
        if first.calls.contains_key(&hand_over.to) {
            let before = move |row: &Parts| Some(row.hand_overs.get(place)?.before.clone());
            let name = format!("before {} ms", hand_over.to);
            add(&mut columns, &rows, name, before, Shown::Full);
        }
        add(&mut columns, &rows, name, of, shown);
    }
    for stage in first.calls.keys() {
        let of = move |row: &Parts| row.calls.get(stage).cloned();
        let name = format!("{stage} calls ms");
        add(&mut columns, &rows, name, of, Shown::Always);
    }
    for (place, objective) in first.objectives.iter().enumerate() {
        let name = format!("over {} ms %", objective.ms);
        columns.push(Column::new(name, move |row: &Parts, detail| {
            let missed = row.objectives.get(place).and_then(|missed| missed.share);
            percent(missed, 1, detail == Detail::Full)
        }));
    }
    columns.push(Column::new("lost", |row: &Parts, _| {
        format!("{} of {}", row.failed + row.unfinished, row.offered)
    }));
    Some(of_rows(report, &rows, columns, detail))
}

/// Batches of each stage, the time of one, and what copying messages takes: where there is room for it. `None`: there is
/// none, or it is no pipeline.
pub fn of_stages(report: &Report, workload: &str, detail: Detail) -> Option<Table> {
    let rows = rows_of(report, workload);
    let first = *rows.first()?;
    if detail == Detail::Terminal || first.stages.is_empty() {
        return None;
    }
    let mut columns = vec![Column::full("end to end, mean ms", |row: &Parts| {
        latency(row.end_to_end.mean_ms, true)
    })];
    if rows.iter().any(|row| row.llc_misses_an_item.is_some()) {
        columns.push(Column::full("LLC load misses an item", |row: &Parts| {
            figure(row.llc_misses_an_item, 1, true)
        }));
    }
    for (place, stage) in first.stages.iter().enumerate() {
        let of = move |row: &Parts| row.stages.get(place).cloned();
        let batches = |row: &Parts| of(row).and_then(|stage: StageTimes| stage.batch);
        if rows.iter().any(|row| above_one(batches(row))) {
            let name = format!("{}: items in a batch", stage.name);
            columns.push(Column::full(name, move |row: &Parts| {
                figure(of(row).and_then(|stage| stage.batch), 1, true)
            }));
        }
        let name = format!("{} ms", stage.name);
        columns.push(Column::full(name, move |row: &Parts| {
            latency(of(row).and_then(|stage| stage.service.mean_ms), true)
        }));
    }
    for (place, hand_over) in first.hand_overs.iter().enumerate() {
        let of = move |row: &Parts| row.hand_overs.get(place)?.transfer.mean_ms;
        if rows.iter().any(|&row| of(row).is_some()) {
            let name = format!("{} → {}: copying ms", hand_over.from, hand_over.to);
            columns.push(Column::full(name, move |row| latency(of(row), true)));
        }
    }
    Some(of_rows(report, &rows, columns, detail))
}

fn above_one(batch: Option<Estimate>) -> bool {
    batch.is_some_and(|items| items.value > 1.0)
}

/// The mean, and the p99 where anybody has one and there is room.
fn add<'a>(
    columns: &mut Vec<Column<'a, Parts>>,
    rows: &[&Parts],
    name: String,
    of: impl Fn(&Parts) -> Option<PartTimes> + Copy + 'a,
    shown: Shown,
) {
    let mean = Column::new(name, move |row: &Parts, detail| {
        let mean = of(row).and_then(|times| times.mean_ms);
        latency(mean, detail == Detail::Full)
    });
    columns.push(mean.shown(shown));
    let p99 = move |row: &Parts| of(row)?.p99_ms;
    if rows.iter().any(|&row| p99(row).is_some()) {
        columns.push(Column::full("p99", move |row| latency(p99(row), true)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::neighbour::Neighbour;
    use crate::report::samples;
    use crate::report::table::TERMINAL_COLUMNS;
    use crate::study::{HandOver, Missed};

    /// Six stages, of which one calls a server.
    fn report() -> Report {
        let mut report = samples::report();
        let times = |ms: f64| PartTimes {
            mean_ms: Some(Estimate::new(ms, Some([ms / 2.0, ms * 2.0]))),
            p99_ms: None,
        };
        let stages = [
            "source",
            "filter",
            "transform",
            "format",
            "handoff",
            "response",
        ];
        let hand_overs = stages.windows(2).map(|pair| HandOver {
            from: pair[0].to_owned(),
            to: pair[1].to_owned(),
            before: times(9.0),
            delay: times(0.5),
            transfer: times(0.25),
        });
        let stage = |name: &str, batch: f64| StageTimes {
            name: name.to_owned(),
            service: times(3.0),
            batch: Some(Estimate::new(batch, None)),
        };
        report.summary.pipelines = vec![Parts {
            workload: "qwen3".to_owned(),
            neighbour: Neighbour::Cpu,
            arm: "gpuaware".to_owned(),
            offered: 20,
            failed: 2,
            unfinished: 4,
            hand_overs: hand_overs.collect(),
            calls: [("handoff".to_owned(), times(80.0))].into(),
            objectives: vec![Missed {
                ms: 200.0,
                share: Some(Estimate::new(0.125, None)),
            }],
            stages: vec![stage("filter", 1.0), stage("handoff", 4.0)],
            end_to_end: times(100.0),
            llc_misses_an_item: None,
            llc_misses_error: None,
            course: Vec::new(),
        }];
        report
    }

    fn names(columns: &[(String, crate::report::table::Align)]) -> String {
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        names.join("|")
    }

    #[test]
    fn a_terminal_shows_the_hand_over_to_who_calls_and_what_fits_of_the_others() {
        let report = report();
        let shown = table(&report, "qwen3", Detail::Terminal).unwrap();
        assert!(shown.width() <= TERMINAL_COLUMNS, "{}", shown.to_text());
        let expected = "neighbour|arm|source → filter ms|format → handoff ms|handoff calls ms|over 200 ms %|lost";
        assert_eq!(names(&shown.columns), expected);
        assert_eq!(shown.rows[0][3..].join(" "), "0.50 80.0 12.5 6 of 20");
        let full = table(&report, "qwen3", Detail::Full).unwrap();
        assert_eq!(full.columns.len(), 2 + 1 + 6 + 1 + 1);
        assert_eq!(full.rows[0][2], "0.50 [0.25–1.00]");
    }

    #[test]
    fn where_there_is_room_stages_have_their_batches_and_times() {
        let report = report();
        assert!(of_stages(&report, "qwen3", Detail::Terminal).is_none());
        let parts = of_stages(&report, "qwen3", Detail::Full).unwrap();
        let expected = "end to end, mean ms|filter ms|handoff: items in a batch|handoff ms";
        assert_eq!(names(&parts.columns[2..6]), expected);
        assert_eq!(parts.columns.len(), 2 + 4 + 5);
        assert_eq!(parts.rows[0][4], "4.0");
    }
}
