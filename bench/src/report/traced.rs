// SPDX-License-Identifier: GPL-2.0-only
//! The tables of what the tracer found, and of what it costs.

use super::format::{Detail, figure};
use super::model::Report;
use super::softirqs;
use super::table::{Align, Table};
use crate::study::TracedRow;
use gpuaware_stats::Estimate;

use Align::{Left, Right};

/// Headings and tables; none unless the matrix traces a workload.
pub fn tables(report: &Report, detail: Detail) -> Vec<(&'static str, Table)> {
    let soft_irqs = match detail {
        Detail::Full => softirqs::table(report),
        Detail::Terminal => table(&[]),
    };
    let all = [
        (
            "What the launching threads' time went to, by the tracer",
            found(report, detail),
        ),
        (
            "What the tracer costs: traced over untraced in the same round, %",
            costs(report),
        ),
        ("Softirqs on top of the traced threads, by kind", soft_irqs),
    ];
    all.into_iter()
        .filter(|(_, table)| !table.rows.is_empty())
        .collect()
}

/// A figure of a row: its name, its decimals, and whether a terminal has room for it.
type Found = (
    &'static str,
    usize,
    bool,
    fn(&TracedRow) -> Option<Estimate>,
);

const FOUND: [Found; 14] = [
    ("Sched/1K", 1, true, |row| row.sched_per_1000),
    ("soft IRQ/1K", 1, false, |row| row.soft_irqs_per_1000),
    ("hard IRQ/1K", 1, false, |row| row.hard_irqs_per_1000),
    ("on CPU %", 1, true, |row| row.on_cpu_percent),
    ("preempted %", 2, true, |row| row.preempted_percent),
    ("yielded %", 2, true, |row| row.yielded_percent),
    ("waiting %", 2, true, |row| row.waiting_percent),
    ("asleep %", 1, true, |row| row.asleep_percent),
    ("interrupts %", 2, true, |row| row.irq_percent),
    ("pairs with a switch %", 2, false, |row| {
        row.pairs_switched_percent
    }),
    ("pair without µs", 1, false, |row| row.pair_calm_us),
    ("with µs", 1, false, |row| row.pair_switched_us),
    ("launches a burst", 1, false, |row| row.burst_launches),
    ("bursts with a switch %", 2, false, |row| {
        row.bursts_switched_percent
    }),
];

fn found(report: &Report, detail: Detail) -> Table {
    let full = detail == Detail::Full;
    let shown = || FOUND.iter().filter(|(_, _, always, _)| full || *always);
    let names: Vec<&str> = shown().map(|(name, ..)| *name).chain(["lost"]).collect();
    let mut table = table(&names);
    for row in &report.summary.traced {
        let cells = shown().map(|(_, decimals, _, of)| figure(of(row), *decimals, full));
        push(
            &mut table,
            report,
            [&row.workload, row.neighbour.name(), &row.arm],
            cells.chain([row.lost.to_string()]).collect(),
        );
    }
    table
}

fn costs(report: &Report) -> Table {
    let mut table = table(&["tok/s", "TPOT p50", "TPOT p99", "events/s", "MiB/s", "lost"]);
    for row in &report.summary.tracer_costs {
        let percent = |ratio: Option<Estimate>| figure(ratio.map(|e| e.scaled(100.0)), 1, true);
        let cells = vec![
            percent(row.tokens_per_s),
            percent(row.token_p50),
            percent(row.token_p99),
            figure(row.events_per_s, 0, false),
            figure(row.mib_per_s, 2, false),
            match row.lost {
                0 => "0".to_owned(),
                lost => format!("{lost} of {}", row.counted),
            },
        ];
        push(
            &mut table,
            report,
            [&row.workload, row.neighbour.name(), &row.arm],
            cells,
        );
    }
    table
}

fn table(columns: &[&str]) -> Table {
    let mut table = Table::new(&[("workload", Left), ("neighbour", Left), ("arm", Left)]);
    let columns = columns.iter().map(|name| ((*name).to_owned(), Right));
    table.columns.extend(columns);
    table
}

/// A row of [workload, neighbour, arm], the subject's in bold where there are other arms.
fn push(table: &mut Table, report: &Report, names: [&str; 3], cells: Vec<String>) {
    let at = table.rows.len();
    let [workload, neighbour, arm] = names;
    if table
        .rows
        .last()
        .is_none_or(|row| row[..2] != [workload, neighbour])
    {
        table.group_starts.push(at);
    }
    let matrix = &report.plan.matrix;
    if arm == matrix.subject && matrix.arms.len() > 1 {
        table.strong.push(at);
    }
    let names = names.map(str::to_owned).into_iter();
    table.rows.push(names.chain(cells).collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::neighbour::Neighbour;
    use crate::report::table::TERMINAL_COLUMNS;
    use crate::report::{html, markdown, samples};
    use crate::study::TracerCost;

    #[test]
    fn every_form_has_the_tables_where_something_was_traced() {
        let mut report = samples::report();
        assert!(tables(&report, Detail::Full).is_empty());
        let figure = |value| Some(Estimate::new(value, None));
        report.summary.traced.push(TracedRow {
            workload: "summary".to_owned(),
            neighbour: Neighbour::Cpu,
            arm: "gpuaware".to_owned(),
            sched_per_1000: figure(2.84),
            on_cpu_percent: figure(30.0),
            preempted_percent: figure(14.55),
            yielded_percent: figure(0.0),
            waiting_percent: figure(7.5),
            asleep_percent: figure(47.7),
            irq_percent: None,
            lost: 3,
            ..TracedRow::default()
        });
        report.summary.tracer_costs.push(TracerCost {
            workload: "summary".to_owned(),
            untraced: "qwen3".to_owned(),
            neighbour: Neighbour::Cpu,
            arm: "gpuaware".to_owned(),
            tokens_per_s: figure(0.995),
            token_p50: figure(1.0),
            token_p99: None,
            events_per_s: figure(1166.0),
            mib_per_s: figure(0.1),
            counted: 1000,
            lost: 3,
        });
        let (_, in_a_terminal) = &tables(&report, Detail::Terminal)[0];
        assert!(in_a_terminal.width() <= TERMINAL_COLUMNS);
        let (page, text) = (html::render(&report).unwrap(), markdown::render(&report));
        for part in ["2.8", "14.55", "99.5", "3 of 1000", "What the tracer costs"] {
            assert!(page.contains(part) && text.contains(part), "{part}");
        }
    }
}
