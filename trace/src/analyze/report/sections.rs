// SPDX-License-Identifier: GPL-2.0-only
//! Which tables there are, terminal and HTML alike: files beside one another, how far each can be
//! trusted.

use super::model::Report;
use super::table::Section;
use super::words::{bytes, count, count_or_estimate, estimate, fixed, or_none, time_us};
use super::{ours, study};
use crate::analyze::compare::{Comparison, DrawnFrom, Estimate, SCHED_PER_1K};
use crate::analyze::figures::Analysis;

/// All sections; `details`: those of each file too.
pub fn all(report: &Report, details: bool) -> Vec<Section> {
    let mut sections = vec![overview(report)];
    sections.extend(report.comparison.as_ref().map(comparison));
    sections.extend(report.comparison.as_ref().map(mitigation));
    for file in &report.files {
        sections.extend(trust(file));
    }
    if details {
        for file in &report.files {
            sections.extend(of_file(file));
        }
    }
    sections
}

fn overview(report: &Report) -> Section {
    let mut section = Section::new(
        "RQ3: what neighbours do, the studies' figures",
        &[
            "file",
            "launches",
            "Sched/1K",
            "Soft IRQ/1K",
            "Hard IRQ/1K",
            "IRQ time",
            "runtime",
            "tok/s",
            "slowdown",
        ],
    );
    for file in &report.files {
        let study = &file.study;
        let slowdown = report.comparison.as_ref().and_then(|comparison| {
            let at = comparison
                .arms
                .iter()
                .position(|arm| arm.label == file.source.label)?;
            comparison.slowdown_percent[at]
        });
        let ratio = |value| or_none(value, |value| fixed(value, 1));
        section.row([
            file.source.label.clone(),
            count_or_estimate(study.launches, study.launches_estimate),
            ratio(study.sched_per_1k),
            ratio(study.soft_irq_per_1k),
            ratio(study.hard_irq_per_1k),
            format!("{} ms", fixed(study.irq_time_ms, 2)),
            format!("{} s", fixed(file.source.duration_s, 2)),
            or_none(file.ours.tokens_per_s, |rate| fixed(rate, 2)),
            or_none(slowdown, |slowdown| {
                let interval = bracketed(slowdown.interval);
                format!("{} %{interval}", fixed(slowdown.value, 1))
            }),
        ]);
    }
    section
}

fn bracketed(interval: Option<[f64; 2]>) -> String {
    interval.map_or_else(String::new, |[low, high]| {
        format!(" [{}, {}]", fixed(low, 1), fixed(high, 1))
    })
}

fn trust(file: &Analysis) -> Option<Section> {
    let source = &file.source;
    let mut section = Section::new(&format!("{}: {}", source.label, source.file), &[]);
    let made = [
        source
            .scheduler
            .as_ref()
            .map(|name| format!("scheduler {name}")),
        source.kernel.as_ref().map(|name| format!("kernel {name}")),
        source.target.as_ref().map(|name| format!("of {name}")),
    ];
    let mut line = format!(
        "{}, {} events in {}",
        bytes(source.bytes),
        count(source.events),
        time_us(source.duration_s * 1e6)
    );
    for part in made.into_iter().flatten() {
        line += &format!(", {part}");
    }
    section.notes.push(line);
    section.notes.extend(source.remarks.iter().cloned());
    Some(section)
}

fn comparison(comparison: &Comparison) -> Section {
    let mut columns = vec![""];
    columns.extend(comparison.arms.iter().map(|arm| arm.label.as_str()));
    let mut section = Section::new("Beside one another", &columns);
    section.notes.push(format!(
        "× {}: 95 % bootstrap intervals in brackets; = the interval leaves no difference shown",
        comparison.arms[0].label
    ));
    if comparison
        .arms
        .iter()
        .any(|arm| arm.drawn_from == DrawnFrom::Slices)
    {
        section.notes.push(
            "fewer than 3 files of a label: its intervals are drawn from stretches of one run and say nothing about other runs"
                .to_owned(),
        );
    }
    for row in &comparison.rows {
        let mut cells = vec![row.name.to_owned()];
        cells.extend(row.arms.iter().map(|cell| {
            or_none(cell.as_ref(), |cell| {
                let mut text = estimate(&cell.figure);
                if let Some(times) = &cell.times_baseline {
                    let same = if cell.differs == Some(false) { "=" } else { "" };
                    text += &format!(" ×{}{same}", estimate(times));
                }
                text
            })
        }));
        section.rows.push(cells);
    }
    section
}

/// The studies' question whether a measure helps: the first label is without it.
fn mitigation(comparison: &Comparison) -> Section {
    let baseline = &comparison.arms[0].label;
    let mut section = Section::new(
        &format!("RQ4: what is won, if {baseline} is the noise without a measure against it"),
        &["", "Sched/1K, reduction", "tok/s, improvement"],
    );
    let sched = comparison.rows.iter().find(|row| row.name == SCHED_PER_1K);
    for (at, arm) in comparison.arms.iter().enumerate().skip(1) {
        let times = sched.and_then(|row| row.arms[at]?.times_baseline);
        let reduction = times.map(|times| negated(&times, |times| (1.0 - times) * 100.0));
        let slowdown = comparison.slowdown_percent[at];
        let improvement = slowdown.map(|slowdown| negated(&slowdown, |percent| -percent));
        let cell = |change: Option<Estimate>| {
            or_none(change, |change| {
                format!("{} %{}", fixed(change.value, 1), bracketed(change.interval))
            })
        };
        section.row([arm.label.clone(), cell(reduction), cell(improvement)]);
    }
    section
}

/// `to` turns greater into smaller: the ends of the interval change places.
fn negated(estimate: &Estimate, to: fn(f64) -> f64) -> Estimate {
    Estimate {
        value: to(estimate.value),
        interval: estimate.interval.map(|[low, high]| [to(high), to(low)]),
    }
}

/// Everything about one file.
pub fn of_file(file: &Analysis) -> Vec<Section> {
    let mut sections = study::sections(file);
    sections.extend(ours::sections(file));
    sections
}
