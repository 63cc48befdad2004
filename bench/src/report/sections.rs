// SPDX-License-Identifier: GPL-2.0-only
//! What the report says, once, for all its forms: tables and sentences from the study's figures.

use super::format::{Detail, SHOWN, figure, latency};
use super::model::Report;
use crate::record::facts::Facts;
use crate::record::neighbour::{Kind, Neighbour};
use crate::report::table::{Align, Table};
use crate::stats::{Difference, Estimate, P99_MIN_SAMPLES, SPEED_MARGIN};
use crate::study::{Row, Summary, Versus};

use Align::{Left, Right};

/// The sentence above the tables.
pub fn setting(report: &Report) -> String {
    let matrix = &report.plan.matrix;
    let guest = |name: &str| report.guest.get(name).map_or("unknown", String::as_str);
    let known = |name: &str, words: &str| {
        let fact = report.guest.get(name);
        fact.map(|fact| format!("{words} {fact}"))
    };
    let kernel: Vec<String> = [
        Some(guest("kernel").to_owned()),
        known("HZ", "HZ"),
        known("preemption", "preemption"),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!(
        "{} rounds of {} s a cell; {} CPUs, launcher's CPUs {}; kernel {}; {}",
        matrix.rounds,
        matrix.seconds,
        report.plan.cpus,
        report.plan.preferred,
        kernel.join(", "),
        guest("virtualisation"),
    )
}

/// The headline table of one workload.
pub fn headline(report: &Report, workload: &str, detail: Detail) -> Table {
    let mut table = Table::new(&[
        ("neighbour", Left),
        ("arm", Left),
        ("tok/s", Right),
        ("% of clean", Right),
        ("p50 ms", Right),
        ("p99 ms", Right),
        ("sw/1k", Right),
        ("work %", Right),
        ("idle %", Right),
    ]);
    let full = detail == Detail::Full;
    let mut last = None;
    for row in report
        .summary
        .rows
        .iter()
        .filter(|row| row.workload == workload)
    {
        let is_subject = row.arm == report.plan.matrix.subject;
        let first = table.next_row(&mut last, row.neighbour, is_subject);
        table.rows.push(vec![
            if first || full {
                row.neighbour.name().to_owned()
            } else {
                String::new()
            },
            arm_name(row),
            figure(row.tokens_per_s, 1, full),
            figure(row.share_of_clean.map(|e| e.scaled(100.0)), 1, true),
            latency(row.token_p50_ms, full),
            p99(row),
            figure(row.switches_per_1000_launches, 1, full),
            figure(row.work_mean.map(|e| e.scaled(100.0)), 0, true),
            figure(row.idle_percent, 1, true),
        ]);
    }
    table
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

fn p99(row: &Row) -> String {
    if row.token_samples > 0 && row.token_p99_ms.is_none() {
        return format!("{} < {P99_MIN_SAMPLES} tokens", row.token_samples);
    }
    latency(row.token_p99_ms, true)
}

/// What the users of one workload's server see; `None`: it is no server.
pub fn serving(report: &Report, workload: &str) -> Option<Table> {
    let mut table = Table::new(&[
        ("neighbour", Left),
        ("arm", Left),
        ("TTFT p50", Right),
        ("TTFT p99", Right),
        ("× clean", Right),
        ("TPOT p50", Right),
        ("TPOT p99", Right),
        ("× clean", Right),
        ("good %", Right),
        ("failed", Right),
    ]);
    let mut last = None;
    let rows = report.summary.serving.iter();
    for row in rows.filter(|row| row.workload == workload) {
        table.next_row(
            &mut last,
            row.neighbour,
            row.arm == report.plan.matrix.subject,
        );
        let mut cells = vec![row.neighbour.to_string(), row.arm.clone()];
        for latency in [&row.ttft, &row.tpot] {
            cells.push(self::latency(latency.p50_ms, false));
            cells.push(match latency.p99_ms {
                None => format!("{} < {P99_MIN_SAMPLES}", latency.samples),
                p99 => self::latency(p99, false),
            });
            cells.push(figure(latency.p99_of_clean, 2, true));
        }
        cells.push(figure(row.good.map(|e| e.scaled(100.0)), 1, false));
        cells.push(format!("{} of {}", row.failed, row.offered));
        table.rows.push(cells);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// What each neighbour got done, relative to the baseline.
pub fn work(report: &Report) -> Table {
    let neighbours = &report.plan.matrix.neighbours;
    let runs = |kind: &Kind| neighbours.iter().any(|n| n.kinds().contains(kind));
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(runs).collect();
    let mut table = Table::new(&[("workload", Left), ("neighbour", Left), ("arm", Left)]);
    table
        .columns
        .extend(kinds.iter().map(|kind| (kind.name().to_owned(), Right)));
    table.columns.push(("mean".to_owned(), Right));
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
        let percent =
            |estimate: Option<Estimate>| figure(estimate.map(|e| e.scaled(100.0)), 0, true);
        cells.extend(
            kinds
                .iter()
                .map(|kind| percent(row.work.get(kind).copied())),
        );
        cells.push(percent(row.work_mean));
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
        ("share of clean ×", Right),
        ("p99 latency ×", Right),
        ("neighbours' work ×", Right),
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
            figure(row.share_of_clean, 2, true),
            figure(row.token_p99, 2, true),
            figure(row.work, 2, true),
            figure(row.idle_points, 1, true),
        ]);
    }
    table
}

/// What stands beside the tables: overhead, marks, failed cells.
pub fn sentences(report: &Report) -> Vec<String> {
    let Summary {
        overhead,
        marks,
        failed,
        ..
    } = &report.summary;
    let mut lines = Vec::new();
    for overhead in overhead
        .iter()
        .filter(|o| o.arm == report.plan.matrix.subject)
    {
        let verdict = match overhead.ratio.difference(SPEED_MARGIN) {
            Difference::Unknown => "too few boots for an interval".to_owned(),
            Difference::Less => "it costs something".to_owned(),
            Difference::More => "it is faster".to_owned(),
            Difference::SameWithin(margin) => format!("the same within {:.0} %", margin * 100.0),
            Difference::UpTo(share) => no_difference_shown(share),
        };
        lines.push(format!(
            "Clean, {}: {} reaches {} % of {}'s tokens/s: {verdict}.",
            overhead.workload,
            overhead.arm,
            figure(Some(overhead.ratio.scaled(100.0)), 1, true),
            report.plan.matrix.baseline
        ));
    }
    for marks in marks {
        let delay = match (marks.delay_ms_median, marks.delay_ms_max) {
            (Some(median), Some(max)) => {
                format!(
                    "; from first launch to mark {median:.0} ms in the median, {max:.0} ms at most"
                )
            }
            _ => String::new(),
        };
        lines.push(format!(
            "Found by itself, {}: {} marked all launching threads in {} of {} cells{delay}.",
            marks.workload, marks.arm, marks.marked, marks.cells
        ));
    }
    lines.extend(super::rivals::sentences(report));
    lines.extend(super::ticks::sentences(report));
    lines.extend(failures(failed));
    lines.extend(super::quiet::sentences(report));
    lines
}

/// That nothing was found does not say that nothing is there.
fn no_difference_shown(share: f64) -> String {
    let percent = (share * 100.0).ceil();
    format!("no difference shown, one of up to {percent:.0} % could not be seen")
}

/// Cells without figures, those with the same reason in one line.
fn failures(failed: &[crate::study::FailedCell]) -> Vec<String> {
    let mut reasons: Vec<(&str, bool, Vec<String>)> = Vec::new();
    for cell in failed {
        let name = format!(
            "{} {} {} round {}",
            cell.arm, cell.neighbour, cell.workload, cell.round
        );
        match reasons
            .iter_mut()
            .find(|(reason, ..)| *reason == cell.reason)
        {
            Some((.., cells)) => cells.push(name),
            None => reasons.push((&cell.reason, cell.cannot_run, vec![name])),
        }
    }
    reasons
        .into_iter()
        .map(|(reason, cannot_run, cells)| {
            let what = if cannot_run { "Not run" } else { "Failed" };
            let more = if cells.len() > SHOWN {
                format!(" and {} more", cells.len() - SHOWN)
            } else {
                String::new()
            };
            let shown: Vec<&str> = cells.iter().take(SHOWN).map(String::as_str).collect();
            format!(
                "{what}, {} of the cells: {reason} ({}{more}).",
                cells.len(),
                shown.join("; ")
            )
        })
        .collect()
}

/// The arms, for the reader who does not know them.
pub fn arms(report: &Report) -> Table {
    let mut table = Table::new(&[("arm", Left), ("what it is", Left), ("version", Left)]);
    for name in &report.plan.matrix.arms {
        let description = report
            .plan
            .arms
            .get(name)
            .map_or("", |arm| arm.description.as_str());
        let version = report.summary.versions.get(name).cloned();
        table.rows.push(vec![
            name.clone(),
            description.to_owned(),
            version.unwrap_or_default(),
        ]);
    }
    table
}

/// Both machines, side by side.
pub fn facts(report: &Report) -> Table {
    let mut table = Table::new(&[
        ("fact", Left),
        ("where the cells ran", Left),
        ("its host", Left),
    ]);
    let mut names: Vec<&String> = report.guest.keys().chain(report.host.keys()).collect();
    names.sort();
    names.dedup();
    let value = |facts: &Facts, name: &String| facts.get(name).cloned().unwrap_or_default();
    for name in names {
        table.rows.push(vec![
            name.clone(),
            value(&report.guest, name),
            value(&report.host, name),
        ]);
    }
    table
}

/// How to read the columns.
pub const LEGEND: &[&str] = &[
    "% of clean: tokens/s over those of the quiet cells of the same kind of boot in the same round (the baseline's; an arm with a boot of its own has its own).",
    "p50, p99: latency of a token; no p99 below 459 tokens. sw/1k: context switches of the launching threads per 1,000 launches.",
    "work %: what the neighbours got done by their own account over what they got done under the baseline, geometric mean of its programs. idle %: CPU time nobody used in the measured window: waste beside cpu and heavy, whose busy loops would use it, not beside neighbours that sleep.",
    "A server's tok/s is what one stream gets (1 / mean TPOT), its p50 and p99 are of the time between tokens (ITL). TTFT, TPOT in ms as vllm bench serve defines them; × clean: p99 over that of the quiet cells; good %: requests that kept the objectives, of those offered.",
    "Sched/1K: switches off and on of the launching threads per 1,000 launches, by the tracer. The shares are of these threads' time, warm-up included: preempted, yielded, waiting (woken, or new, and not yet running), asleep; interrupts are on top of whatever ran.",
    "n disturbed: rounds during which the machine did something else as well (other processes, a hypervisor, heat) and which stayed so when measured again.",
    "Figures are means over boots, geometric ones but of shares of time; of p50 and p99, each boot's. [a–b]: 95 % interval, Student's over boots (over rounds where there is one boot, as on a host: it holds for that boot). A ratio is paired by round within a boot, and by boot between arms with boots of their own.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_carry_their_interval() {
        let estimate = Some(Estimate::new(98.34, Some([97.5, 99.14])));
        assert_eq!(figure(estimate, 1, true), "98.3 [97.5–99.1]");
        assert_eq!(figure(estimate, 0, false), "98");
        assert_eq!(figure(Some(Estimate::new(2.0, None)), 1, true), "2.0");
        assert_eq!(figure(None, 1, true), "–");
    }

    #[test]
    fn failures_with_the_same_reason_share_a_line() {
        let cell = |round| crate::study::FailedCell {
            workload: "qwen3".into(),
            neighbour: Neighbour::Cpu,
            arm: "gpuaware".into(),
            round,
            reason: "no sched_ext".into(),
            cannot_run: true,
        };
        let lines = failures(&[cell(1), cell(2), cell(3), cell(4)]);
        assert_eq!(
            lines,
            [
                "Not run, 4 of the cells: no sched_ext (gpuaware cpu qwen3 round 1; gpuaware cpu qwen3 round 2; gpuaware cpu qwen3 round 3 and 1 more)."
            ]
        );
    }
}
