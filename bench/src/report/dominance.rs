// SPDX-License-Identifier: GPL-2.0-only
//! Where other arms beat the subject: a table of every figure that one of them is ahead in, and sentences on who
//! dominates in speed, p99 and the neighbours' work.

use super::format::figure;
use super::model::Report;
use super::table::{Align, Table};
use crate::record::neighbour::Neighbour;
use crate::study::{Dominance, FALSE_RATE, Figure, Versus};

use Align::Left;

pub fn heading(report: &Report) -> String {
    format!("Where others beat {}", report.plan.matrix.subject)
}

/// What a reader must know to read the table.
pub fn explanation(report: &Report) -> String {
    let subject = &report.plan.matrix.subject;
    let compared: usize = report
        .summary
        .dominance
        .iter()
        .map(|row| row.compared)
        .sum();
    let rate = FALSE_RATE * 100.0;
    format!(
        "Each arm that is shown to be ahead, with {subject} over it (idle: {subject} minus it, in points). \
         Of {compared} comparisons together: {rate:.0} % of what is shown may be false, and where nothing differs {rate:.0} % of the runs would show anything (Benjamini and Hochberg's false discovery rate). \
         Speed is tokens/s where both arms ran on the same boots, else what each keeps of its own quiet tokens/s. Dominated: another arm is not shown to be \
         worse in speed, in a p99 or in the neighbours' work, and is shown to be better in one of them; without enough samples for a p99 the other two decide. Idle time is no verdict. \
         What differs by less than half a percent, idle time by half a point, counts as equal. Without a neighbour, arms with boots of their own are left out."
    )
}

/// A row for each workload and neighbour, a column for each figure that the run has; `None`: nothing was compared.
pub fn table(report: &Report) -> Option<Table> {
    let Report { summary, .. } = report;
    let has = |figure: &Figure| summary.versus.iter().any(|v| figure.of(v).is_some());
    let figures: Vec<Figure> = Figure::ALL.into_iter().filter(has).collect();
    let mut table = Table::new(&[
        ("workload", Left),
        ("neighbour", Left),
        ("dominated by", Left),
    ]);
    let names = figures
        .iter()
        .map(|&figure| (name(figure).to_owned(), Left));
    table.columns.extend(names);
    for row in &summary.dominance {
        let versus: Vec<&Versus> = summary
            .versus
            .iter()
            .filter(|v| v.workload == row.workload && v.neighbour == row.neighbour)
            .collect();
        let measured = |v: &&Versus| Figure::ALL.iter().any(|figure| figure.of(v).is_some());
        if !versus.iter().any(measured) {
            continue;
        }
        let starts = table.rows.last().is_none_or(|last| last[0] != row.workload);
        if starts {
            table.group_starts.push(table.rows.len());
        }
        let mut cells = vec![
            row.workload.clone(),
            row.neighbour.to_string(),
            dominated_by(row),
        ];
        cells.extend(figures.iter().map(|&figure| ahead(row, figure, &versus)));
        table.rows.push(cells);
    }
    (!table.rows.is_empty()).then_some(table)
}

pub fn name(figure: Figure) -> &'static str {
    match figure {
        Figure::Speed => "faster",
        Figure::TokenP99 => "shorter p99",
        Figure::TtftP99 => "shorter TTFT p99",
        Figure::TpotP99 => "shorter TPOT p99",
        Figure::Work => "neighbours get more",
        Figure::Idle => "leaves less idle",
    }
}

fn dominated_by(row: &Dominance) -> String {
    match &row.dominated_by {
        None if row.neighbour == Neighbour::None => "–".to_owned(),
        None => "too few boots".to_owned(),
        Some(arms) if arms.is_empty() => format!("none{}", without_p99(row)),
        Some(arms) => arms.join(", ") + &without_p99(row),
    }
}

/// Who was judged by two figures of three.
fn without_p99(row: &Dominance) -> String {
    if row.without_p99.is_empty() {
        return String::new();
    }
    format!(" (without p99: {})", row.without_p99.join(", "))
}

/// "scx_lavd 0.91 [0.88–0.95], …"; a dash where nobody is ahead.
fn ahead(row: &Dominance, which: Figure, versus: &[&Versus]) -> String {
    let decimals = if which == Figure::Idle { 1 } else { 2 };
    let arms = row.ahead.get(&which).into_iter().flatten();
    let shown: Vec<String> = arms
        .map(|arm| {
            let found = versus.iter().find(|v| v.other == *arm);
            let estimate = found.and_then(|v| which.of(v));
            format!("{arm} {}", figure(estimate, decimals, true))
        })
        .collect();
    if shown.is_empty() {
        return "–".to_owned();
    }
    shown.join(", ")
}

/// One sentence a workload: who dominates beside which neighbour.
pub fn sentences(report: &Report) -> Vec<String> {
    let workloads = report.plan.matrix.workloads.iter();
    workloads
        .filter_map(|workload| sentence(report, &workload.name))
        .collect()
}

fn sentence(report: &Report, workload: &str) -> Option<String> {
    let subject = &report.plan.matrix.subject;
    let mut nobody = Vec::new();
    let mut parts = Vec::new();
    let rows = report.summary.dominance.iter();
    for row in rows.filter(|row| row.workload == workload) {
        match &row.dominated_by {
            None => {}
            Some(arms) if arms.is_empty() => {
                nobody.push(format!("{}{}", row.neighbour, without_p99(row)));
            }
            Some(arms) => {
                let arms: Vec<String> = arms
                    .iter()
                    .map(|arm| by_how_much(report, row, arm))
                    .collect();
                parts.push(format!(
                    "beside {}{} it is dominated by {}",
                    row.neighbour,
                    without_p99(row),
                    arms.join(", ")
                ));
            }
        }
    }
    if !nobody.is_empty() {
        let text = format!(
            "no other arm dominates {subject} beside {}",
            nobody.join(", ")
        );
        parts.insert(0, text);
    } else if let Some(first) = parts.first_mut() {
        *first = first.replacen(" it is", &format!(" {subject} is"), 1);
    }
    (!parts.is_empty()).then(|| {
        format!(
            "Speed, p99 and neighbours' work together, {workload}: {}.",
            parts.join("; ")
        )
    })
}

/// The arm, and the subject over it in all that was judged.
fn by_how_much(report: &Report, row: &Dominance, arm: &str) -> String {
    let is_it = |v: &&Versus| {
        (v.workload.as_str(), v.neighbour, v.other.as_str())
            == (row.workload.as_str(), row.neighbour, arm)
    };
    let Some(versus) = report.summary.versus.iter().find(is_it) else {
        return arm.to_owned();
    };
    let judged = [
        ("speed", Figure::Speed),
        ("p99", Figure::TokenP99),
        ("TTFT p99", Figure::TtftP99),
        ("TPOT p99", Figure::TpotP99),
        ("work", Figure::Work),
    ];
    let figures: Vec<String> = judged
        .into_iter()
        .filter_map(|(name, which)| {
            let estimate = which.of(versus)?;
            Some(format!("{name} ×{}", figure(Some(estimate), 2, true)))
        })
        .collect();
    format!("{arm} ({})", figures.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::neighbour::Kind;
    use crate::record::samples::cell;
    use crate::report::samples;
    use crate::study::samples::with_work;
    use crate::study::study;

    /// isolcpus keeps more in every round, and its neighbours get as much done; EEVDF keeps less.
    fn report() -> Report {
        let mut report = samples::report();
        let cells: Vec<_> = (1..=5)
            .flat_map(|round| {
                [
                    ("eevdf", 60.0, 5.0),
                    ("isolcpus", 99.0, 0.0),
                    ("gpuaware", 90.0, 5.0),
                ]
                .into_iter()
                .flat_map(move |(arm, noisy, idle)| {
                    let beside = cell(round, arm, Neighbour::Cpu, noisy);
                    let mut beside = with_work(beside, &[(Kind::StressNg, 80.0)]);
                    beside.measurement.as_mut().unwrap().cpu.idle_percent = idle;
                    [cell(round, arm, Neighbour::None, 100.0), beside]
                })
            })
            .collect();
        report.summary = study(&report.plan, &cells);
        report
    }

    #[test]
    fn names_who_is_ahead_with_the_interval_and_who_dominates() {
        let report = report();
        let text = table(&report).unwrap().to_markdown();
        assert!(
            text.contains("| qwen3 | cpu | isolcpus | isolcpus 0.91 [0.91–0.91] | isolcpus 1.10 [1.10–1.10] | – | isolcpus 5.0 [5.0–5.0] |"),
            "{text}"
        );
        assert!(text.contains("| qwen3 | none | – | – |"), "{text}");
        assert!(
            !text.contains("heavy"),
            "nothing was measured there: {text}"
        );
        assert_eq!(
            sentences(&report),
            [
                "Speed, p99 and neighbours' work together, qwen3: beside cpu gpuaware is dominated by isolcpus \
              (speed ×0.91 [0.91–0.91], p99 ×1.10 [1.10–1.10], work ×1.00 [1.00–1.00])."
            ]
        );
    }

    #[test]
    fn says_where_nobody_dominates_and_who_was_judged_without_a_p99() {
        let mut report = report();
        report.summary.dominance[1].dominated_by = Some(Vec::new());
        let [sentence] = &sentences(&report)[..] else {
            panic!("one sentence")
        };
        assert!(sentence.ends_with("no other arm dominates gpuaware beside cpu."));
        report.summary.dominance[1].without_p99 = vec!["c".into()];
        report.summary.dominance[2].dominated_by = Some(vec!["a".into(), "b".into()]);
        assert!(
            sentences(&report)[0]
                .contains("beside cpu (without p99: c); beside heavy it is dominated by a"),
            "{:?}",
            sentences(&report)
        );
        assert_eq!(
            dominated_by(&report.summary.dominance[1]),
            "none (without p99: c)"
        );
    }
}
