// SPDX-License-Identifier: GPL-2.0-only
//! The tables of what BPF programs cost.

use super::format::figure;
use super::model::Report;
use super::table::{Align, Table};
use crate::study::{Bpf, OPS};

use Align::{Left, Right};

/// Headings and tables; none unless the matrix had it counted.
pub fn tables(report: &Report) -> Vec<(String, Table)> {
    let costs = &report.summary.bpf;
    if costs.is_empty() {
        return Vec::new();
    }
    let subject = &report.plan.matrix.subject;
    vec![
        (
            "What the BPF operations cost, mean ns a run".to_owned(),
            operations(costs, subject),
        ),
        (
            format!("The BPF programs of {subject}"),
            programs(costs, subject),
        ),
    ]
}

fn operations(costs: &[Bpf], subject: &str) -> Table {
    let mut table = Table::new(&[("workload", Left), ("neighbour", Left), ("arm", Left)]);
    table.columns.extend(OPS.map(|op| (op.to_owned(), Right)));
    table.columns.push(("sum".to_owned(), Right));
    table
        .columns
        .push(("all programs, % of a CPU".to_owned(), Right));
    let mut last = None;
    for cost in costs {
        table.next_row(
            &mut last,
            (&cost.workload, cost.neighbour),
            cost.arm == subject,
        );
        let mut row = vec![
            cost.workload.clone(),
            cost.neighbour.to_string(),
            cost.arm.clone(),
        ];
        row.extend(cost.op_ns.map(|ns| figure(ns, 0, true)));
        row.push(figure(cost.sum_ns, 0, true));
        row.push(figure(cost.cpu_percent, 2, true));
        table.rows.push(row);
    }
    table
}

fn programs(costs: &[Bpf], subject: &str) -> Table {
    let mut table = Table::new(&[
        ("workload", Left),
        ("neighbour", Left),
        ("program", Left),
        ("runs/s", Right),
        ("mean ns", Right),
    ]);
    for cost in costs.iter().filter(|cost| cost.arm == subject) {
        table.group_starts.push(table.rows.len());
        for (name, [per_second, ns]) in &cost.programs {
            table.rows.push(vec![
                cost.workload.clone(),
                cost.neighbour.to_string(),
                name.clone(),
                format!("{per_second:.0}"),
                format!("{ns:.0}"),
            ]);
        }
    }
    table
}
