// SPDX-License-Identifier: GPL-2.0-only
//! Softirqs on top of the traced threads by kind, a published study's beside ours.

use super::format::figure;
use super::model::Report;
use super::reference::theirs_figure;
use super::table::{Align, Table};
use crate::matrix::ReferenceSoftIrq;
use crate::study::SoftIrqRow;

use Align::{Left, Right};

/// Kinds that take less of a row's time are left out.
const LEAST_PERCENT: f64 = 0.5;

/// Empty unless the matrix traces a workload.
pub fn table(report: &Report) -> Table {
    let mut table = Table::new(&[
        ("workload", Left),
        ("neighbour", Left),
        ("arm", Left),
        ("softirq", Left),
        ("a second", Right),
        ("mean µs", Right),
        ("% of their time", Right),
    ]);
    let theirs = theirs(report);
    if !theirs.is_empty() {
        let names = ["theirs, in all", "mean µs", "% of their time"];
        table
            .columns
            .extend(names.map(|name| (name.to_owned(), Right)));
    }
    for row in &report.summary.soft_irqs {
        let published = theirs.iter().find(|its| stands_beside(report, its, row));
        let is_small = row
            .time_percent
            .is_none_or(|percent| percent.value < LEAST_PERCENT);
        if is_small && published.is_none() {
            continue;
        }
        let mut cells = vec![
            row.workload.clone(),
            row.neighbour.to_string(),
            row.arm.clone(),
            row.kind.clone(),
            figure(row.per_s, 1, true),
            figure(row.mean_us, 2, true),
            figure(row.time_percent, 1, true),
        ];
        if !theirs.is_empty() {
            cells.extend(published_cells(theirs, published));
        }
        table.rows.push(cells);
    }
    for its in theirs {
        add_unseen(&mut table, theirs, its);
    }
    let groups = table.rows.chunk_by(|one, next| one[..3] == next[..3]);
    let starts = groups.scan(0, |at, group| {
        Some(std::mem::replace(at, *at + group.len()))
    });
    table.group_starts = starts.collect();
    table
}

/// A kind of theirs that ours lacks, below those that it has in the same scenario, if that was traced.
fn add_unseen(table: &mut Table, theirs: &[ReferenceSoftIrq], its: &ReferenceSoftIrq) {
    let is_there = |row: &&Vec<String>| row[1] == its.neighbour.name() && row[2] == its.arm;
    if table
        .rows
        .iter()
        .filter(is_there)
        .any(|row| row[3] == its.kind)
    {
        return;
    }
    let Some(last) = table.rows.iter().rposition(|row| is_there(&row)) else {
        return;
    };
    let mut cells = table.rows[last][..3].to_vec();
    cells.push(its.kind.clone());
    cells.extend(["–"; 3].map(str::to_owned));
    cells.extend(published_cells(theirs, Some(its)));
    table.rows.insert(last + 1, cells);
}

fn theirs(report: &Report) -> &[ReferenceSoftIrq] {
    let reference = report.plan.matrix.reference.as_ref();
    reference.map_or(&[], |reference| &reference.soft_irqs)
}

fn stands_beside(report: &Report, its: &ReferenceSoftIrq, row: &SoftIrqRow) -> bool {
    let reference = report.plan.matrix.reference.as_ref();
    let traced = reference.and_then(|reference| reference.traced_workload.as_ref());
    traced == Some(&row.workload)
        && (its.neighbour, &its.arm, &its.kind) == (row.neighbour, &row.arm, &row.kind)
}

fn published_cells(all: &[ReferenceSoftIrq], its: Option<&ReferenceSoftIrq>) -> [String; 3] {
    let figures = its.map(|its| {
        let same = all
            .iter()
            .filter(|other| (other.neighbour, &other.arm) == (its.neighbour, &its.arm));
        let whole: f64 = same.map(|other| other.total_us).sum();
        let percent = its.total_us * 100.0 / whole;
        (its.count as f64, its.total_us / its.count as f64, percent)
    });
    [
        theirs_figure(figures.map(|(count, ..)| count), 0),
        theirs_figure(figures.map(|(_, mean, _)| mean), 2),
        theirs_figure(figures.map(|(.., percent)| percent), 1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::neighbour::Neighbour;
    use crate::report::samples;
    use gpuaware_stats::Estimate;

    #[test]
    fn theirs_stand_beside_ours_of_the_traced_workload() {
        let mut report = samples::report();
        assert!(table(&report).rows.is_empty());
        let row = |kind: &str, percent| SoftIrqRow {
            workload: "traced".to_owned(),
            neighbour: Neighbour::Heavy,
            arm: "eevdf".to_owned(),
            kind: kind.to_owned(),
            per_s: Some(Estimate::new(12.0, None)),
            mean_us: Some(Estimate::new(3.0, None)),
            time_percent: Some(Estimate::new(percent, None)),
        };
        report.summary.soft_irqs = vec![row("RCU", 99.4), row("SCHED", 0.4), row("HI", 0.2)];
        assert_eq!(
            table(&report).rows,
            [["traced", "heavy", "eevdf", "RCU", "12.0", "3.00", "99.4"]]
        );
        let reference = "source = \"a post\"\nsetting = \"a GPU\"\nworkload = \"qwen3\"\ntraced_workload = \"traced\"\n\
             [[row]]\nneighbour = \"none\"\narm = \"eevdf\"\ntokens_per_s = 54.77\n\
             [[soft_irq]]\nneighbour = \"heavy\"\narm = \"eevdf\"\nkind = \"RCU\"\ncount = 200\ntotal_us = 300\n\
             [[soft_irq]]\nneighbour = \"heavy\"\narm = \"eevdf\"\nkind = \"SCHED\"\ncount = 10\ntotal_us = 100\n";
        report.plan.matrix.reference = Some(toml::from_str(reference).unwrap());
        let table = table(&report);
        let theirs: Vec<&[String]> = table.rows.iter().map(|row| &row[7..]).collect();
        assert_eq!(theirs, [["200", "1.50", "75.0"], ["10", "10.00", "25.0"]]);
        assert_eq!(table.group_starts, [0]);
        report.summary.soft_irqs.truncate(1);
        let table = super::table(&report);
        let unseen = [
            "traced", "heavy", "eevdf", "SCHED", "–", "–", "–", "10", "10.00", "25.0",
        ];
        assert_eq!(table.rows[1], unseen, "what they saw and we did not");
    }
}
