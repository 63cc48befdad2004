// SPDX-License-Identifier: GPL-2.0-only
//! The tables of figures, once for all forms of the report: what the launcher gets, what a server's users see, what
//! is left for the neighbours, and the subject against every other arm.

use super::columns::{Column, Shown, by_arm};
use super::format::{Detail, figure, latency, percent, times};
use super::model::Report;
use super::table::{Align, Table};
use crate::record::neighbour::{Kind, Neighbour};
use crate::study::{Latency, Row, Serving, Versus};
use gpuaware_stats::{Estimate, P99_MIN_SAMPLES};

use Align::{Left, Right};

type Of = fn(&Row) -> Option<Estimate>;

/// A share in percent: whole ones in a terminal, which has no room for more.
fn share(name: impl Into<String>, of: Of) -> Column<'static, Row> {
    Column::new(name, move |row: &Row, detail| {
        percent(of(row), usize::from(detail == Detail::Full), true)
    })
}

/// A figure with its interval where there is room for it.
fn roomy(name: &str, of: Of) -> Column<'static, Row> {
    Column::new(name, move |row: &Row, detail| {
        figure(of(row), 1, detail == Detail::Full)
    })
}

/// How many times as long.
fn tail(name: impl Into<String>, of: Of) -> Column<'static, Row> {
    Column::full(name, move |row: &Row| times(of(row), true))
}

/// What the neighbours got done, and what was possible.
fn work_columns() -> [Column<'static, Row>; 3] {
    let whole = |name: &str, of: Of| {
        Column::new(name, move |row: &Row, detail| {
            percent(of(row), 0, detail == Detail::Full)
        })
    };
    [
        whole("work %", |row| row.work_mean),
        whole("possible %", |row| row.possible).short("poss. %"),
        Column::new("of possible %", |row: &Row, _| {
            percent(row.work_of_possible, 0, true)
        })
        .short("of poss. %"),
    ]
}

/// The headline table of one workload.
pub fn headline(report: &Report, workload: &str, detail: Detail) -> Table {
    let reserved = report.plan.matrix.reserved_arm();
    let mut columns = vec![
        roomy(&report.unit(workload).replace("tokens", "tok"), |row| {
            row.tokens_per_s
        }),
        share("own quiet %", |row| row.over_own_quiet),
    ];
    columns.extend(reserved.map(|arm| share(format!("{arm} %"), |row| row.over_isolcpus)));
    columns.extend([
        Column::full("% of clean", |row: &Row| {
            percent(row.share_of_clean, 1, true)
        }),
        Column::new("p50 ms", |row: &Row, detail| {
            latency(row.token_p50_ms, detail == Detail::Full)
        })
        // Few items have no p99.
        .shown(match report.unit(workload) {
            "items/s" => Shown::IfItFits,
            _ => Shown::Full,
        }),
        Column::new("p99 ms", p99),
        tail("p99 × own quiet", |row| row.p99_over_own_quiet),
    ]);
    columns.extend(reserved.map(|arm| tail(format!("p99 × {arm}"), |row| row.p99_over_isolcpus)));
    columns.push(Column::full("sw/1k", |row: &Row| {
        figure(row.switches_per_1000_launches, 1, true)
    }));
    columns.extend(work_columns());
    columns.push(roomy("idle %", |row| row.idle_percent).shown(Shown::IfItFits));
    let rows = report.summary.rows.iter();
    let rows: Vec<&Row> = rows.filter(|row| row.workload == workload).collect();
    by_arm(
        report,
        &rows,
        |row| (row.neighbour, row.arm.as_str(), arm_name(row)),
        columns,
        detail,
    )
}

fn arm_name(row: &Row) -> String {
    let mut notes = Vec::new();
    if row.failed > 0 {
        notes.push(format!("{} of {}", row.rounds, row.rounds + row.failed));
    }
    if row.disturbed > 0 {
        notes.push(format!("{} disturbed", row.disturbed));
    }
    if notes.is_empty() {
        return row.arm.clone();
    }
    format!("{} ({})", row.arm, notes.join(", "))
}

fn p99(row: &Row, detail: Detail) -> String {
    if row.token_samples > 0 && row.token_p99_ms.is_none() {
        return format!("{} < {P99_MIN_SAMPLES}", row.token_samples);
    }
    latency(row.token_p99_ms, detail == Detail::Full)
}

/// What stands below the headline table: of servers and of pipelines.
pub fn of_parts(report: &Report, workload: &str, detail: Detail) -> Vec<Table> {
    [
        serving,
        super::pipelines::table,
        super::pipelines::of_stages,
    ]
    .iter()
    .filter_map(|table| table(report, workload, detail))
    .collect()
}

type LatencyOf = fn(&Serving) -> &Latency;

/// What the users of one workload's server see; `None`: it is no server.
fn serving(report: &Report, workload: &str, detail: Detail) -> Option<Table> {
    let mut columns: Vec<Column<Serving>> = Vec::new();
    let of: [(&str, LatencyOf); 2] = [("TTFT", |row| &row.ttft), ("TPOT", |row| &row.tpot)];
    for (name, of) in of {
        columns.extend([
            Column::full(format!("{name} p50"), move |row: &Serving| {
                latency(of(row).p50_ms, false)
            }),
            Column::new(format!("{name} p99"), move |row: &Serving, _| {
                let Latency {
                    p99_ms, samples, ..
                } = of(row);
                match p99_ms {
                    None => format!("{samples} < {P99_MIN_SAMPLES}"),
                    p99 => latency(*p99, false),
                }
            }),
            Column::new("× own quiet", move |row: &Serving, detail| {
                times(of(row).p99_over_own_quiet, detail == Detail::Full)
            })
            .short("× own"),
        ]);
        let reserved = report.plan.matrix.reserved_arm();
        columns.extend(reserved.map(|reserved| {
            Column::new(format!("× {reserved}"), move |row: &Serving, detail| {
                times(of(row).p99_over_isolcpus, detail == Detail::Full)
            })
        }));
    }
    let beside = |row: &Serving| {
        let mut rows = report.summary.rows.iter();
        rows.find(|r| {
            (&r.workload, r.neighbour, &r.arm) == (&row.workload, row.neighbour, &row.arm)
        })
    };
    // The headline table has them, too.
    let work = work_columns().map(|column| column.of(beside).shown(Shown::IfItFits));
    columns.extend(work);
    columns.extend([
        Column::new("good %", |row: &Serving, _| percent(row.good, 1, false)),
        Column::full("failed", |row: &Serving| {
            format!("{} of {}", row.failed, row.offered)
        }),
    ]);
    let rows = report.summary.serving.iter();
    let rows: Vec<&Serving> = rows.filter(|row| row.workload == workload).collect();
    let table = by_arm(
        report,
        &rows,
        |row| (row.neighbour, row.arm.as_str(), row.arm.clone()),
        columns,
        detail,
    );
    (!table.rows.is_empty()).then_some(table)
}

/// What each neighbour got done, relative to the baseline.
pub fn work(report: &Report) -> Table {
    let neighbours = &report.plan.matrix.neighbours;
    let runs = |kind: &Kind| neighbours.iter().any(|n| n.kinds().contains(kind));
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(runs).collect();
    let mut table = Table::new(&[("workload", Left), ("neighbour", Left), ("arm", Left)]);
    let names = kinds.iter().map(|kind| kind.name());
    let figures = ["mean", "launcher's CPUs", "possible", "of possible, %"];
    table
        .columns
        .extend(names.chain(figures).map(|name| (name.to_owned(), Right)));
    let noisy =
        report.summary.rows.iter().filter(|row| {
            row.neighbour != Neighbour::None && row.arm != report.plan.matrix.baseline
        });
    let mut last = None;
    for row in noisy {
        let is_subject = row.arm == report.plan.matrix.subject;
        table.next_row(&mut last, (&row.workload, row.neighbour), is_subject);
        let mut cells = vec![
            row.workload.clone(),
            row.neighbour.to_string(),
            row.arm.clone(),
        ];
        cells.extend(
            kinds
                .iter()
                .map(|kind| percent(row.work.get(kind).copied(), 0, true)),
        );
        cells.extend([
            percent(row.work_mean, 0, true),
            figure(row.launcher_cpus, 2, true),
            percent(row.possible, 0, true),
            percent(row.work_of_possible, 0, true),
        ]);
        table.rows.push(cells);
    }
    table
}

/// The subject against every other arm.
pub fn versus(report: &Report) -> Table {
    let mut table = Table::new(&[
        ("workload", Left),
        ("neighbour", Left),
        ("against", Left),
        ("tok/s ×", Right),
        ("of own quiet ×", Right),
        ("p99 latency ×", Right),
        ("neighbours' work ×", Right),
        ("work of possible ×", Right),
        ("idle, points", Right),
    ]);
    let mut last = None;
    let noisy = |row: &&Versus| row.neighbour != Neighbour::None;
    for row in report.summary.versus.iter().filter(noisy) {
        table.next_row(&mut last, (&row.workload, row.neighbour), false);
        table.rows.push(vec![
            row.workload.clone(),
            row.neighbour.to_string(),
            row.other.clone(),
            figure(row.tokens_per_s, 2, true),
            figure(row.over_own_quiet, 2, true),
            figure(row.token_p99, 2, true),
            figure(row.work, 2, true),
            figure(row.work_of_possible, 2, true),
            figure(row.idle_points, 1, true),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    fn line(table: &Table, neighbour: &str, arm: &str) -> Vec<String> {
        let found = table.rows.iter().find(|r| r[0] == neighbour && r[1] == arm);
        found.unwrap().clone()
    }

    #[test]
    fn work_stands_beside_what_is_possible_and_speed_beside_both_references() {
        let report = samples::report();
        let table = headline(&report, "qwen3", Detail::Full);
        let names: Vec<&str> = table
            .columns
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let expected = "neighbour|arm|tok/s|own quiet %|isolcpus %|% of clean|p50 ms|p99 ms|p99 × own quiet|\
                        p99 × isolcpus|sw/1k|work %|possible %|of possible %|idle %";
        assert_eq!(names.join("|"), expected);
        let row = line(&table, "cpu", "gpuaware");
        // 98 of 100 when quiet, beside 99; 60 of EEVDF's 100, and 75 left of 150.
        assert_eq!(row[3], "98.0 [98.0–98.0]");
        assert_eq!(row[4], "99.0 [99.0–99.0]");
        assert_eq!(row[11..14].join(" "), "60 [60–60] 80 [80–80] 75 [75–75]");
        let itself = line(&table, "cpu", "isolcpus");
        assert_eq!(itself[4], "100.0", "nothing is gained from itself");
    }

    #[test]
    fn who_reserves_nothing_has_no_column_for_it() {
        let mut report = samples::report();
        report.plan.matrix.arms.retain(|arm| arm != "isolcpus");
        let table = headline(&report, "qwen3", Detail::Full);
        assert!(
            table
                .columns
                .iter()
                .all(|(name, _)| !name.contains("isolcpus"))
        );
        assert_eq!(table.columns.len(), 13);
    }
}
