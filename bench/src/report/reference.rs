// SPDX-License-Identifier: GPL-2.0-only
//! A published study's figures beside ours.

use super::format::figure;
use super::model::Report;
use super::table::{Align, Table};
use crate::matrix::{Reference, ReferenceRow};
use crate::record::neighbour::Neighbour;
use crate::study::{Row, Serving, TracedRow, TracerCost};
use gpuaware_stats::Estimate;

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
type Ours = fn(&Report, &Reference, &Row) -> Option<Estimate>;

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
        let ours = (self.ours)(report, reference, row).map(|ours| ours.scaled(scale));
        let is_ratio = self.form != Form::Plain;
        [
            theirs_figure(theirs.map(|value| value * scale), self.decimals),
            figure(ours, self.decimals, is_ratio),
        ]
    }
}

fn pairs(reference: &Reference) -> Vec<Pair> {
    let mut pairs = speeds();
    pairs.extend(latencies());
    pairs.push(Pair::new(
        "sw/1k",
        |row| row.switches_per_1000_launches,
        |_, _, row| row.switches_per_1000_launches,
        1,
        Form::Plain,
    ));
    if reference.traced_workload.is_some() {
        pairs.extend(by_tracer());
    }
    let rows = &reference.rows;
    pairs.retain(|pair| rows.iter().any(|row| (pair.theirs)(row).is_some()));
    pairs
}

fn speeds() -> Vec<Pair> {
    let theirs: Theirs = |row| Some(row.tokens_per_s);
    let relative: Ours = |_, _, row| row.share_of_clean;
    let speed: Ours = |_, _, row| row.tokens_per_s;
    vec![
        Pair::new("tok/s", theirs, speed, 1, Form::Plain),
        Pair::new("% of clean", theirs, relative, 1, Form::Percent),
    ]
}

fn latencies() -> Vec<Pair> {
    let tpot: Ours = |report, of, row| serving(report, &of.workload, row)?.tpot.mean_of_clean;
    let ttft: Ours = |report, of, row| serving(report, &of.workload, row)?.ttft.mean_of_clean;
    let tpot_p99: Ours = |report, of, row| many(report, of, row)?.tpot.p99_of_clean;
    let ttft_p99: Ours = |report, of, row| many(report, of, row)?.ttft.p99_of_clean;
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
        Pair::new(
            "p99 TPOT × clean",
            |row| row.tpot_p99_ms,
            tpot_p99,
            2,
            Form::Ratio,
        ),
        Pair::new(
            "p99 TTFT × clean",
            |row| row.ttft_p99_ms,
            ttft_p99,
            2,
            Form::Ratio,
        ),
    ]
}

/// Of the traced workload; the studies' tracer counts a switch off and a switch on as two, as ours does.
fn by_tracer() -> Vec<Pair> {
    let sched: Ours = |report, of, row| traced(report, of, row)?.sched_per_1000;
    let soft: Ours = |report, of, row| traced(report, of, row)?.soft_irqs_per_1000;
    let hard: Ours = |report, of, row| traced(report, of, row)?.hard_irqs_per_1000;
    let cost: Ours = |report, of, row| {
        let share = tracer_cost(report, of, row)?.tokens_per_s?;
        let lost = |share: f64| (1.0 - share) * 100.0;
        let interval = share.interval.map(|[low, high]| [lost(high), lost(low)]);
        Some(Estimate::new(lost(share.value), interval))
    };
    let switches: Theirs = |row| row.switches_per_1000_launches;
    let soft_irqs: Theirs = |row| row.soft_irqs_per_1000_launches;
    let hard_irqs: Theirs = |row| row.hard_irqs_per_1000_launches;
    let theirs: Theirs = |row| row.tracer_cost_percent;
    vec![
        Pair::new("Sched/1K", switches, sched, 1, Form::Plain),
        Pair::new("soft IRQ/1K", soft_irqs, soft, 1, Form::Plain),
        Pair::new("hard IRQ/1K", hard_irqs, hard, 1, Form::Plain),
        Pair::new("tracer's cost %", theirs, cost, 1, Form::Plain),
    ]
}

fn table(report: &Report, reference: &Reference) -> Table {
    let pairs = pairs(reference);
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
pub(super) fn theirs_figure(value: Option<f64>, decimals: usize) -> String {
    let estimate = value.map(|value| Estimate::new(value, None));
    figure(estimate, decimals, false)
}

fn serving<'a>(report: &'a Report, workload: &str, row: &Row) -> Option<&'a Serving> {
    let mut rows = report.summary.serving.iter();
    rows.find(|s| is_of(&s.workload, s.neighbour, &s.arm, workload, row))
}

/// Where there are enough requests.
fn many<'a>(report: &'a Report, of: &Reference, row: &Row) -> Option<&'a Serving> {
    serving(
        report,
        of.p99_workload.as_ref().unwrap_or(&of.workload),
        row,
    )
}

fn traced<'a>(report: &'a Report, of: &Reference, row: &Row) -> Option<&'a TracedRow> {
    let workload = of.traced_workload.as_ref()?;
    let mut rows = report.summary.traced.iter();
    rows.find(|t| is_of(&t.workload, t.neighbour, &t.arm, workload, row))
}

fn tracer_cost<'a>(report: &'a Report, of: &Reference, row: &Row) -> Option<&'a TracerCost> {
    let workload = of.traced_workload.as_ref()?;
    let mut rows = report.summary.tracer_costs.iter();
    rows.find(|t| is_of(&t.workload, t.neighbour, &t.arm, workload, row))
}

/// Whether this is of that workload, beside the neighbour and under the arm of `row`.
fn is_of(own: &str, neighbour: Neighbour, arm: &str, workload: &str, row: &Row) -> bool {
    (own, neighbour, arm) == (workload, row.neighbour, row.arm.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn what_a_tracer_finds_and_costs_is_of_the_traced_workload() {
        let mut report = samples::report();
        let text = "source = \"a post\"\nsetting = \"a GPU\"\nworkload = \"qwen3\"\n\
             [[row]]\nneighbour = \"none\"\narm = \"eevdf\"\ntokens_per_s = 54.77\nswitches_per_1000_launches = 22.8\n\
             soft_irqs_per_1000_launches = 5.8\ntracer_cost_percent = 0.1\n";
        let traced = text.replacen("[[row]]", "traced_workload = \"traced\"\n[[row]]", 1);
        let value = |value| Some(Estimate::new(value, None));
        let key = || ("traced".to_owned(), Neighbour::None, "eevdf".to_owned());
        let (workload, neighbour, arm) = key();
        report.summary.traced.push(TracedRow {
            workload,
            neighbour,
            arm,
            sched_per_1000: value(30.0),
            soft_irqs_per_1000: value(7.0),
            ..TracedRow::default()
        });
        let (workload, neighbour, arm) = key();
        report.summary.tracer_costs.push(TracerCost {
            workload,
            neighbour,
            arm,
            tokens_per_s: Some(Estimate::new(0.98, Some([0.97, 0.99]))),
            ..TracerCost::default()
        });
        let mut row = |text: &str| {
            report.plan.matrix.reference = Some(toml::from_str(text).unwrap());
            let (.., table) = section(&report).unwrap();
            table.rows[0][6..].join(" | ")
        };
        assert_eq!(row(text), "22.8 | 110.0", "nobody traced");
        assert_eq!(
            row(&traced),
            "22.8 | 110.0 | 22.8 | 30.0 | 5.8 | 7.0 | 0.1 | 2.0"
        );
    }
}
