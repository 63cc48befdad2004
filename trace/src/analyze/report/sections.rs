// SPDX-License-Identifier: GPL-2.0-only
//! Which tables there are, terminal and HTML alike: files beside one another, how far each can be
//! trusted.

use super::model::Report;
use super::table::Section;
use super::words::{bytes, count, count_or_estimate, estimate, fixed, or_none, ratio, time_us};
use super::{ours, study};
use crate::analyze::compare::{Comparison, DrawnFrom, Estimate, SCHED_PER_1K};
use crate::analyze::figures::Analysis;

/// All sections; `details`: those of each file too.
pub fn all(report: &Report, details: bool) -> Vec<Section> {
    let mut sections = vec![overview(report)];
    sections.extend(report.comparison.as_ref().map(comparison));
    sections.extend(report.comparison.as_ref().map(mitigation));
    for file in &report.files {
        sections.push(trust(file));
    }
    if details {
        for file in &report.files {
            sections.extend(of_file(file));
        }
    }
    sections
}

fn overview(report: &Report) -> Section {
    let slowdown = |file: &Analysis| {
        let comparison = report.comparison.as_ref()?;
        let mut arms = comparison.arms.iter();
        let at = arms.position(|arm| arm.label == file.source.label)?;
        comparison.slowdown_percent[at]
    };
    Section::of(
        "RQ3: what neighbours do, the studies' figures",
        &report.files,
        &[
            ("file", &|file| file.source.label.clone()),
            ("launches", &|Analysis { study, .. }| {
                count_or_estimate(study.launches, study.launches_estimate)
            }),
            ("Sched/1K", &|file| ratio(file.study.sched_per_1k)),
            ("Soft IRQ/1K", &|file| ratio(file.study.soft_irq_per_1k)),
            ("Hard IRQ/1K", &|file| ratio(file.study.hard_irq_per_1k)),
            ("IRQ time", &|file| {
                format!("{} ms", fixed(file.study.irq_time_ms, 2))
            }),
            ("runtime", &|file| {
                format!("{} s", fixed(file.source.duration_s, 2))
            }),
            ("tok/s", &|file| {
                or_none(file.ours.tokens_per_s, |rate| fixed(rate, 2))
            }),
            ("slowdown", &|file| percent_estimate(slowdown(file))),
        ],
    )
}

/// A percentage with its interval.
fn percent_estimate(estimate: Option<Estimate>) -> String {
    or_none(estimate, |Estimate { value, interval }| {
        let interval = interval.map_or_else(String::new, |[low, high]| {
            format!(" [{}, {}]", fixed(low, 1), fixed(high, 1))
        });
        format!("{} %{interval}", fixed(value, 1))
    })
}

fn trust(file: &Analysis) -> Section {
    let source = &file.source;
    let mut line = format!(
        "{}, {} events in {}",
        bytes(source.bytes),
        count(source.events),
        time_us(source.duration_s * 1e6)
    );
    for (what, name) in [
        ("scheduler", &source.scheduler),
        ("kernel", &source.kernel),
        ("of", &source.target),
    ] {
        if let Some(name) = name {
            line += &format!(", {what} {name}");
        }
    }
    let mut section = Section::new(&format!("{}: {}", source.label, source.file), &[]).note(line);
    section.notes.extend(source.remarks.iter().cloned());
    section
}

fn comparison(comparison: &Comparison) -> Section {
    let mut columns = vec![""];
    columns.extend(comparison.arms.iter().map(|arm| arm.label.as_str()));
    let mut section = Section::new("Beside one another", &columns).note(format!(
        "× {}: 95 % bootstrap intervals in brackets; = the interval leaves no difference shown",
        comparison.arms[0].label
    ));
    let mut arms = comparison.arms.iter();
    if arms.any(|arm| arm.drawn_from == DrawnFrom::Slices) {
        section = section.note(
            "fewer than 3 files of a label: its intervals are drawn from stretches of one run and say nothing about other runs",
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
    let sched = comparison.rows.iter().find(|row| row.name == SCHED_PER_1K);
    let reduction = |at: usize| {
        let times = sched?.arms[at]?.times_baseline?;
        Some(negated(&times, |times| (1.0 - times) * 100.0))
    };
    let improvement = |at: usize| {
        let slowdown = comparison.slowdown_percent[at]?;
        Some(negated(&slowdown, |percent| -percent))
    };
    Section::of(
        &format!("RQ4: what is won, if {baseline} is the noise without a measure against it"),
        1..comparison.arms.len(),
        &[
            ("", &|&at| comparison.arms[at].label.clone()),
            ("Sched/1K, reduction", &|&at| {
                percent_estimate(reduction(at))
            }),
            ("tok/s, improvement", &|&at| {
                percent_estimate(improvement(at))
            }),
        ],
    )
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
