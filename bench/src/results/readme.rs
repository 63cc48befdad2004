// SPDX-License-Identifier: GPL-2.0-only
//! The generated part of README.md: the table, what it costs, where others are better, the strip's figures. Pure.

use anyhow::{Context, Result};

use super::cost;
use super::index::{HeadlineRow, Index};
use super::loaded::Loaded;
use super::markers::COLUMNS;
use super::strip::Strip;
use super::verdicts::{self, Dominated};
use crate::report::Report;
use crate::report::dominance;
use crate::report::format::{percent, times};
use crate::report::table::{Align, Table};
use crate::study::Row;
use crate::words::wrap;

use Align::{Left, Right};

/// More are no table for one minute.
const MAX_ROWS: usize = 8;
/// With fewer, intervals are wide.
const ENOUGH_BOOTS: usize = 5;

/// # Errors
/// The index asks for a row that no run has.
pub fn block(index: &Index, loaded: &Loaded, strips: &[Strip]) -> Result<String> {
    let picked = picked(index, loaded)?;
    let mut paragraphs = vec![table(&picked).to_markdown()];
    let subject = picked.iter().find(|picked| picked.is_subject());
    let subject = subject.context("the index shows no arm that is its run's subject in README")?;
    paragraphs.push(wrap(&how(index, &picked, subject), COLUMNS, ""));
    paragraphs.push(wrap(&costs(index, loaded, subject), COLUMNS, ""));
    paragraphs.push(wrap(&others(index, loaded, subject), COLUMNS, ""));
    paragraphs.push(pictures(index, strips));
    Ok(paragraphs.join("\n"))
}

/// An arm that README's table shows.
struct Picked<'a> {
    label: String,
    of: &'a HeadlineRow,
    report: &'a Report,
    row: &'a Row,
}

impl Picked<'_> {
    fn is_subject(&self) -> bool {
        self.row.arm == self.report.plan.matrix.subject
    }
}

fn picked<'a>(index: &'a Index, loaded: &'a Loaded) -> Result<Vec<Picked<'a>>> {
    let headline = &index.readme;
    let pick = |of: &'a HeadlineRow| -> Result<Picked<'a>> {
        let report = &loaded.reports[&of.run];
        let rows = report.summary.rows.iter().filter(|row| {
            (row.workload.as_str(), row.neighbour) == (&headline.workload, headline.neighbour)
                && of.arms.contains(&row.arm)
                && row.over_isolcpus.is_some()
        });
        let speed = |row: &&Row| row.over_isolcpus.map_or(f64::NAN, |over| over.value);
        let row = rows.max_by(|a, b| speed(a).total_cmp(&speed(b)));
        let row = row.with_context(|| {
            format!(
                "{}: no arm of {:?} in {} has a speed over the arm that reserves CPUs",
                super::index::FILE,
                of.arms,
                of.run
            )
        })?;
        let label = if of.arms.len() > 1 {
            format!("{}: {}", of.label, row.arm)
        } else {
            of.label.clone()
        };
        Ok(Picked {
            label,
            of,
            report,
            row,
        })
    };
    headline.rows.iter().take(MAX_ROWS - 1).map(pick).collect()
}

fn table(picked: &[Picked]) -> Table {
    let mut table = Table::new(&[
        ("", Left),
        ("speed", Right),
        ("p99 latency", Right),
        ("neighbours' work, % of possible", Right),
    ]);
    for (at, picked) in picked.iter().enumerate() {
        if picked.is_subject() {
            table.strong.push(at);
        }
        table.rows.push(vec![
            picked.label.clone(),
            times(picked.row.over_isolcpus, true),
            times(picked.row.p99_over_isolcpus, true),
            percent(picked.row.work_of_possible, 0, true),
        ]);
    }
    let possible = ["what is possible", "1.00", "1.00", "100"];
    table.rows.push(possible.map(str::to_owned).to_vec());
    table
}

/// What the table is of.
fn how(index: &Index, picked: &[Picked], main: &Picked) -> String {
    let headline = &index.readme;
    let reserved = |picked: &Picked| {
        let arm = picked.report.plan.matrix.reserved_arm();
        arm.unwrap_or("nobody").to_owned()
    };
    let plan = &main.report.plan;
    let kernel = main.report.guest.get("kernel");
    let boots = plan.boots();
    let mut text = format!(
        "Launcher *{}*, {}, beside *{}*: {}. Speed and p99 are over {}'s; in brackets 95 % intervals over boots{}. {}; \
         Linux {}, {} CPUs, {} rounds in {boots} boots",
        headline.workload,
        headline.shape,
        headline.neighbour,
        headline.noise,
        reserved(main),
        if boots < ENOUGH_BOOTS {
            ", wide because these are few"
        } else {
            ""
        },
        made(index, main),
        kernel.map_or("unknown", String::as_str),
        plan.cpus,
        plan.matrix.rounds,
    );
    for other in picked.iter().filter(|picked| picked.of.run != main.of.run) {
        text += &format!(
            "; {}: {}, over {}",
            other.of.label,
            made(index, other),
            reserved(other)
        );
    }
    text + "."
}

fn made(index: &Index, picked: &Picked) -> String {
    let revision = index
        .kept(&picked.of.run)
        .map_or("?", |kept| &kept.revision);
    format!("`{}` at {revision}", picked.report.plan.command_line)
}

fn costs(index: &Index, loaded: &Loaded, subject: &Picked) -> String {
    let quiet = loaded
        .pool
        .iter()
        .map(cost::sentence)
        .collect::<Vec<_>>()
        .join("; ");
    let runs = loaded.pool.first().map_or(0, |pool| pool.runs);
    let mut text = format!(
        "**What it costs.** On a quiet machine, pooled over {runs} runs \
         ([command](docs/results.md#what-it-costs-where-nothing-disturbs)): {quiet}. Beside *{}* the neighbours get {} % of what they do under EEVDF, where {} % is possible.",
        index.readme.neighbour,
        percent(subject.row.work_mean, 0, true),
        percent(subject.row.possible, 0, true),
    );
    for workload in &index.readme.also {
        let rows = &subject.report.summary.rows;
        let found = rows.iter().find(|row| {
            (&row.workload, row.neighbour, &row.arm)
                == (workload, index.readme.neighbour, &subject.row.arm)
        });
        if let Some(row) = found {
            text += &format!(
                " For *{workload}*: speed {}, p99 {}, work {} % of possible.",
                times(row.over_isolcpus, true),
                times(row.p99_over_isolcpus, true),
                percent(row.work_of_possible, 0, true)
            );
        }
    }
    text
}

fn others(index: &Index, loaded: &Loaded, subject: &Picked) -> String {
    let mut text = format!(
        "**Where others beat it.** In the table's row {}. An arm *dominates* if it is not shown to be worse in speed, p99 \
         and the neighbours' work, and is shown to be better in one.",
        ahead(index, subject)
    );
    for run in &index.readme.verdicts {
        let Some(report) = loaded.reports.get(run) else {
            continue;
        };
        text += &format!(" {}", verdict(report, &Dominated::of(report)));
    }
    text
}

/// Who is shown to be ahead of the subject in README's row, in what.
fn ahead(index: &Index, subject: &Picked) -> String {
    let headline = &index.readme;
    let mut dominance = subject.report.summary.dominance.iter();
    let here = dominance.find(|row| {
        (row.workload.as_str(), row.neighbour) == (&headline.workload, headline.neighbour)
    });
    let said: Vec<String> = here
        .into_iter()
        .flat_map(|row| &row.ahead)
        .map(|(figure, arms)| format!("{}: {}", dominance::name(*figure), arms.join(", ")))
        .collect();
    if said.is_empty() {
        return "nobody is shown to be ahead of it in any figure".to_owned();
    }
    format!("others are shown to be ahead of it ({})", said.join("; "))
}

/// In how many rows, where and by whom.
fn verdict(report: &Report, found: &Dominated) -> String {
    let name = &report.plan.name;
    let rows = found.rows;
    let shown = match &found.shown[..] {
        [] => format!("In *{name}* nobody is shown to dominate it in any of {rows} rows"),
        some => format!(
            "In *{name}* somebody dominates it in {} of {rows} rows ({}: {})",
            some.len(),
            verdicts::places(some),
            verdicts::by_whom(some)
        ),
    };
    let more = found.by_value.len();
    if more == 0 || found.by_value == found.shown {
        return shown + ".";
    }
    format!(
        "{shown}; by the values alone, without their intervals, in {more} ({}: {}).",
        verdicts::places(&found.by_value),
        verdicts::by_whom(&found.by_value)
    )
}

/// The strip and the scatter, and what the strip shows in figures.
fn pictures(index: &Index, strips: &[Strip]) -> String {
    let said: Vec<String> = strips.iter().map(Strip::in_words).collect();
    let what = format!(
        "40 ms beside *{}* by our own tracer, at {}: {}",
        index.readme.neighbour,
        index.strip.revision,
        said.join("; ")
    );
    format!(
        "{}\n![Who runs on two CPUs for 40 ms, under EEVDF and under scx_gpuaware](docs/pictures/strip.svg)\n\
         ![Speed against the neighbours' work, every arm](docs/pictures/scatter-{}.svg)\n",
        wrap(&format!("{what}."), COLUMNS, ""),
        index.readme.workload
    )
}
