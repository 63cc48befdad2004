// SPDX-License-Identifier: GPL-2.0-only
//! A published study's figures beside ours.

use super::format::figure;
use super::model::Report;
use super::table::{Align, Table};
use crate::matrix::{Reference, ReferenceRow};
use crate::stats::Estimate;
use crate::study::{Row, Serving};

use Align::{Left, Right};

/// The heading, a sentence and the table; `None`: the matrix stands beside no study.
pub fn section(report: &Report) -> Option<(String, String, Table)> {
    let reference = report.plan.matrix.reference.as_ref()?;
    let sentence = format!(
        "Theirs: {}; measured on {}. Ours: this run, the workload {} here. \
         Tokens/s are those of different machines: compare what is relative to clean.",
        reference.source, reference.setting, reference.workload
    );
    let heading = format!("Beside the published study: {}", reference.workload);
    Some((heading, sentence, table(report, reference)))
}

fn table(report: &Report, reference: &Reference) -> Table {
    let latencies = reference.rows.iter().any(|row| row.tpot_mean_ms.is_some());
    let mut columns = vec![("neighbour", Left), ("arm", Left)];
    let mut both = |theirs, ours| columns.extend([(theirs, Right), (ours, Right)]);
    both("tok/s, theirs", "ours");
    both("% of clean, theirs", "ours");
    if latencies {
        both("mean TPOT × clean, theirs", "ours");
        both("mean TTFT × clean, theirs", "ours");
    }
    both("sw/1k, theirs", "ours");
    let mut table = Table::new(&columns);
    let rows = report.summary.rows.iter();
    let mut last = None;
    for row in rows.filter(|row| row.workload == reference.workload) {
        table.next_row(
            &mut last,
            row.neighbour,
            row.arm == report.plan.matrix.subject,
        );
        table.rows.push(cells(report, reference, row, latencies));
    }
    table
}

fn cells(report: &Report, reference: &Reference, row: &Row, latencies: bool) -> Vec<String> {
    let theirs = reference.row(row.neighbour, &row.arm);
    let clean = reference.clean();
    let relative = |value: fn(&ReferenceRow) -> Option<f64>| {
        Some(value(theirs?)? / value(clean?)?).filter(|ratio| ratio.is_finite())
    };
    let speed = |row: &ReferenceRow| Some(row.tokens_per_s);
    let mut cells = vec![
        row.neighbour.to_string(),
        row.arm.clone(),
        theirs_figure(theirs.and_then(speed), 1),
        figure(row.tokens_per_s, 1, false),
        theirs_figure(relative(speed).map(|share| share * 100.0), 1),
        figure(row.share_of_clean.map(|e| e.scaled(100.0)), 1, true),
    ];
    if latencies {
        let serving = serving(report, row);
        let ours = |latency: Option<Estimate>| figure(latency, 2, true);
        cells.extend([
            theirs_figure(relative(|row| row.tpot_mean_ms), 2),
            ours(serving.and_then(|s| s.tpot.mean_of_clean)),
            theirs_figure(relative(|row| row.ttft_mean_ms), 2),
            ours(serving.and_then(|s| s.ttft.mean_of_clean)),
        ]);
    }
    cells.extend([
        theirs_figure(theirs.and_then(|row| row.switches_per_1000_launches), 1),
        figure(row.switches_per_1000_launches, 1, false),
    ]);
    cells
}

/// A study's figures have no interval.
fn theirs_figure(value: Option<f64>, decimals: usize) -> String {
    let estimate = value.map(|value| Estimate::new(value, None));
    figure(estimate, decimals, false)
}

fn serving<'a>(report: &'a Report, row: &Row) -> Option<&'a Serving> {
    let same = |s: &&Serving| -> bool {
        (s.workload.as_str(), s.neighbour, s.arm.as_str())
            == (row.workload.as_str(), row.neighbour, row.arm.as_str())
    };
    report.summary.serving.iter().find(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::neighbour::Neighbour;
    use crate::report::samples;

    #[test]
    fn theirs_stand_beside_ours_where_they_have_any() {
        let mut report = samples::report();
        assert!(section(&report).is_none());
        let reference: Reference = toml::from_str(
            "source = \"a post\"\nsetting = \"a GPU\"\nworkload = \"qwen3\"\n\
             [[row]]\nneighbour = \"none\"\narm = \"eevdf\"\ntokens_per_s = 54.77\nswitches_per_1000_launches = 22.8\n\
             [[row]]\nneighbour = \"cpu\"\narm = \"eevdf\"\ntokens_per_s = 49.93\n",
        )
        .unwrap();
        report.plan.matrix.reference = Some(reference);
        let (_, sentence, table) = section(&report).unwrap();
        assert!(sentence.starts_with("Theirs: a post; measured on a GPU."));
        let row = |neighbour: Neighbour, arm: &str| {
            let name = neighbour.name();
            let found = table.rows.iter().find(|r| r[0] == name && r[1] == arm);
            found.unwrap()[2..].join(" | ")
        };
        assert_eq!(
            row(Neighbour::None, "eevdf"),
            "54.8 | 100.0 | 100.0 | 100.0 [100.0–100.0] | 22.8 | 110.0"
        );
        // 49.93 of 54.77.
        assert!(row(Neighbour::Cpu, "eevdf").starts_with("49.9 | 60.0 | 91.2 | 60.0"));
        assert!(row(Neighbour::Cpu, "gpuaware").starts_with("– | 98.0 | – | 98.0"));
    }
}
