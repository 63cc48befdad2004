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

type Theirs = fn(&ReferenceRow) -> Option<f64>;
type Ours = fn(&Report, &Row) -> Option<Estimate>;

/// Two columns: theirs, and ours beside it.
struct Pair {
    name: String,
    theirs: Theirs,
    ours: Ours,
    decimals: usize,
    form: Form,
}

/// How a figure is compared.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Plain,
    /// Over that of their clean row; ours is such a ratio already.
    Ratio,
    Percent,
}

impl Pair {
    fn new(name: &str, theirs: Theirs, ours: Ours, decimals: usize, form: Form) -> Self {
        Self {
            name: name.to_owned(),
            theirs,
            ours,
            decimals,
            form,
        }
    }

    fn cells(&self, report: &Report, reference: &Reference, row: &Row) -> [String; 2] {
        let theirs = reference.row(row.neighbour, &row.arm).and_then(self.theirs);
        let theirs = match self.form {
            Form::Plain => theirs,
            _ => ratio(theirs, reference.clean().and_then(self.theirs)),
        };
        let scale = if self.form == Form::Percent {
            100.0
        } else {
            1.0
        };
        let ours = (self.ours)(report, row).map(|ours| ours.scaled(scale));
        let is_ratio = self.form != Form::Plain;
        [
            theirs_figure(theirs.map(|value| value * scale), self.decimals),
            figure(ours, self.decimals, is_ratio),
        ]
    }
}

fn pairs(report: &Report, reference: &Reference) -> Vec<Pair> {
    let mut pairs = speeds(report.unit(&reference.workload));
    pairs.extend(latencies());
    pairs.push(Pair::new(
        "sw/1k",
        |row| row.switches_per_1000_launches,
        |_, row| row.switches_per_1000_launches,
        1,
        Form::Plain,
    ));
    let rows = &reference.rows;
    pairs.retain(|pair| rows.iter().any(|row| (pair.theirs)(row).is_some()));
    pairs
}

fn speeds(unit: &str) -> Vec<Pair> {
    let theirs: Theirs = |row| Some(row.tokens_per_s);
    // Items are few a second.
    let decimals = if unit == "items/s" { 2 } else { 1 };
    let unit = unit.replace("tokens", "tok");
    let relative: Ours = |_, row| row.share_of_clean;
    vec![
        Pair::new(
            &unit,
            theirs,
            |_, row| row.tokens_per_s,
            decimals,
            Form::Plain,
        ),
        Pair::new("% of clean", theirs, relative, 1, Form::Percent),
    ]
}

fn latencies() -> Vec<Pair> {
    let tpot: Ours = |report, row| serving(report, row)?.tpot.mean_of_clean;
    let ttft: Ours = |report, row| serving(report, row)?.ttft.mean_of_clean;
    let p50: Ours = |_, row| row.token_p50_ms;
    let p99: Ours = |_, row| row.token_p99_ms;
    vec![
        Pair::new(
            "mean TPOT × clean",
            |row| row.tpot_mean_ms,
            tpot,
            2,
            Form::Ratio,
        ),
        Pair::new(
            "mean TTFT × clean",
            |row| row.ttft_mean_ms,
            ttft,
            2,
            Form::Ratio,
        ),
        Pair::new("p50 ms", |row| row.p50_ms, p50, 1, Form::Plain),
        Pair::new("p99 ms", |row| row.p99_ms, p99, 1, Form::Plain),
        Pair::new(
            "hand-over ms",
            |row| row.hand_over_ms,
            hand_over,
            2,
            Form::Plain,
        ),
    ]
}

/// The mean delay at the hand-over to whoever calls the server.
fn hand_over(report: &Report, row: &Row) -> Option<Estimate> {
    let parts = report.parts(row)?;
    let mut hand_overs = parts.hand_overs.iter();
    let to_caller = hand_overs.find(|h| parts.calls.contains_key(&h.to))?;
    to_caller.delay.mean_ms
}

fn table(report: &Report, reference: &Reference) -> Table {
    let pairs = pairs(report, reference);
    let mut table = Table::new(&[("neighbour", Left), ("arm", Left)]);
    for pair in &pairs {
        let names = [format!("{}, theirs", pair.name), "ours".to_owned()];
        table.columns.extend(names.map(|name| (name, Right)));
    }
    let rows = report.summary.rows.iter();
    let mut last = None;
    for row in rows.filter(|row| row.workload == reference.workload) {
        table.next_row(
            &mut last,
            row.neighbour,
            row.arm == report.plan.matrix.subject,
        );
        let mut cells = vec![row.neighbour.to_string(), row.arm.clone()];
        cells.extend(
            pairs
                .iter()
                .flat_map(|pair| pair.cells(report, reference, row)),
        );
        table.rows.push(cells);
    }
    table
}

fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    Some(above? / below?).filter(|ratio| ratio.is_finite())
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
