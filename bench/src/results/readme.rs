// SPDX-License-Identifier: GPL-2.0-only
//! The generated part of README.md: the table, what it costs, where others are better, the strip's figures. Pure.

use anyhow::{Context, Result};

use super::index::{Also, HeadlineRow, Index};
use super::loaded::Loaded;
use super::markers::COLUMNS;
use super::strip::Strip;
use super::verdicts::{self, Dominated};
use crate::report::Report;
use crate::report::dominance;
use crate::report::format::{percent, times};
use crate::report::table::{Align, Table};
use crate::study::Row;
use crate::study::pool::Pool;
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
    let subject = picked.iter().find(|picked| picked.is_subject());
    let subject = subject.context("the index shows no arm that is its run's subject in README")?;
    let paragraphs = [
        table(index, &picked, subject).to_markdown(),
        wrap(&how(index, &picked, subject), COLUMNS, ""),
        wrap(&costs(index, loaded, subject), COLUMNS, ""),
        others(index, loaded, subject),
        pictures(index, strips),
    ];
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

    /// The arm that speed and p99 are over.
    fn reserved(&self) -> &str {
        let arm = self.report.plan.matrix.reserved_arm();
        arm.unwrap_or("nobody")
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
    let most = (MAX_ROWS - 1).saturating_sub(headline.also.len());
    headline.rows.iter().take(most).map(pick).collect()
}

fn table(index: &Index, picked: &[Picked], main: &Picked) -> Table {
    let reserved = main.reserved();
    let speed = format!("tokens/s, × {reserved} (more is better)");
    let p99 = format!("token p99, × {reserved} (less is better)");
    let mut table = Table::new(&[
        ("", Left),
        (speed.as_str(), Right),
        (p99.as_str(), Right),
        ("neighbours' work, % of possible", Right),
    ]);
    for (at, picked) in picked.iter().enumerate() {
        if picked.is_subject() {
            table.strong.push(at);
        }
        let label = if picked.reserved() == reserved {
            picked.label.clone()
        } else {
            format!("{} (× {})", picked.label, picked.reserved())
        };
        table.rows.push(vec![
            label,
            times(picked.row.over_isolcpus, true),
            times(picked.row.p99_over_isolcpus, true),
            percent(picked.row.work_of_possible, 0, true),
        ]);
    }
    for Also { workload, shape } in &index.readme.also {
        table.rows.extend(also(index, main, workload, shape));
    }
    let possible = format!("what is possible: {reserved}'s speed, no CPU time lost");
    let possible = [possible.as_str(), "1.00", "1.00", "100"];
    table.rows.push(possible.map(str::to_owned).to_vec());
    table
}

/// The subject with another launcher, and what the arm that reserves CPUs leaves there.
fn also(index: &Index, main: &Picked, workload: &str, shape: &str) -> Option<Vec<String>> {
    let rows = &main.report.summary.rows;
    let of = |arm: &str| {
        rows.iter().find(|row| {
            (row.workload.as_str(), row.neighbour, row.arm.as_str())
                == (workload, index.readme.neighbour, arm)
        })
    };
    let row = of(&main.row.arm)?;
    let reserved = main.reserved();
    let leaves = of(reserved).and_then(|row| row.work_of_possible);
    let leaves = leaves.map(|_| format!(" ({reserved}: {})", percent(leaves, 0, true)));
    Some(vec![
        format!("with *{workload}*, {shape}"),
        times(row.over_isolcpus, true),
        times(row.p99_over_isolcpus, true),
        percent(row.work_of_possible, 0, true) + &leaves.unwrap_or_default(),
    ])
}

/// What the table is of.
fn how(index: &Index, picked: &[Picked], main: &Picked) -> String {
    let headline = &index.readme;
    let plan = &main.report.plan;
    let kernel = main.report.guest.get("kernel");
    let boots = plan.boots();
    let mut text = format!(
        "Workload *{}*: {}. Neighbours *{}*: {}. *Possible* is what they could do with the CPU time that the launcher \
         leaves; in brackets are 95 % intervals over boots{}. {}; Linux {}, {} CPUs, {} rounds in {boots} boots",
        headline.workload,
        headline.shape,
        headline.neighbour,
        headline.noise,
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
            "; {}, against {} in its own run: {}",
            other.of.label,
            other.reserved(),
            made(index, other)
        );
    }
    text += ".";
    let is_layered = |picked: &Picked| picked.row.arm.starts_with("scx_layered");
    if picked.iter().any(is_layered) {
        text += " scx_layered finds no launchers itself: scx_gpuaware told it who they are.";
    }
    text
}

fn made(index: &Index, picked: &Picked) -> String {
    let revision = index
        .kept(&picked.of.run)
        .map_or("?", |kept| &kept.revision);
    format!("`{}` at {revision}", picked.report.plan.command_line)
}

fn costs(index: &Index, loaded: &Loaded, subject: &Picked) -> String {
    let runs = loaded.pool.first().map_or(0, |pool| pool.runs);
    let spreads: Vec<String> = loaded.pool.iter().map(spread).collect();
    let neighbour = index.readme.neighbour;
    format!(
        "**What it costs.** On a quiet machine, in % of EEVDF's, pooled over {runs} runs \
         ([command](docs/results.md#what-it-costs-where-nothing-disturbs)): {}. By run \
         and workload: {}. Beside *{neighbour}* the neighbours do {} % of their work under EEVDF; \
         with a launcher that gets all it needs, {} % is possible.",
        listed(&loaded.pool, pooled),
        spreads.join("; "),
        percent(subject.row.work_mean, 0, true),
        percent(subject.row.possible, 0, true),
    )
}

fn listed(pools: &[Pool], say: fn(&Pool) -> String) -> String {
    let said: Vec<String> = pools.iter().map(say).collect();
    said.join(", ")
}

/// "tokens/s 98.5 [96.4–100.6] %".
fn pooled(pool: &Pool) -> String {
    format!("{} {} %", pool.figure, percent(pool.ratio, 1, true))
}

/// "tokens/s 8 lower and 4 higher, median 99.0 %".
fn spread(pool: &Pool) -> String {
    format!(
        "{} {} lower and {} higher, median {:.1} %",
        pool.figure,
        pool.below,
        pool.comparisons.len() - pool.below,
        pool.median.unwrap_or(f64::NAN) * 100.0
    )
}

/// A paragraph, and a line for each run whose verdicts are told.
fn others(index: &Index, loaded: &Loaded, subject: &Picked) -> String {
    let first = format!(
        "**Where others beat it.** {} *Dominated*: another is shown to be better in speed, p99 or the neighbours' \
         work, and worse in none. A row is a workload beside a neighbour.",
        ahead(index, subject)
    );
    let mut text = wrap(&first, COLUMNS, "");
    for run in &index.readme.verdicts {
        let Some(report) = loaded.reports.get(run) else {
            continue;
        };
        let said = verdict(report, &Dominated::of(report));
        text += &wrap(&format!("- {said}"), COLUMNS, "  ");
    }
    if let Some(said) = elsewhere(index, loaded) {
        text += &wrap(&format!("- {said}"), COLUMNS, "  ");
    }
    text
}

/// Who is shown to dominate in kept runs whose verdicts are not told.
fn elsewhere(index: &Index, loaded: &Loaded) -> Option<String> {
    let told = &index.readme.verdicts;
    let others = loaded.reports.iter().filter(|(run, _)| !told.contains(run));
    let said: Vec<String> = others
        .filter_map(|(_, report)| {
            let shown = Dominated::of(report).shown;
            (!shown.is_empty()).then(|| format!("*{}* {}", report.plan.name, shown.len()))
        })
        .collect();
    (!said.is_empty()).then(|| {
        let where_to = "Dominated rows in [other kept runs](docs/results.md)";
        format!("{where_to}: {}.", said.join(", "))
    })
}

/// Who is shown to be ahead of the subject in README's table, in what.
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
    let place = format!("*{}* beside *{}*", headline.workload, headline.neighbour);
    if said.is_empty() {
        return format!("With {place} nobody is shown to be better in any figure.");
    }
    format!(
        "With {place} these are shown to be better: {}.",
        said.join("; ")
    )
}

/// In how many rows, where and by whom.
fn verdict(report: &Report, found: &Dominated) -> String {
    let (name, rows) = (&report.plan.name, found.rows);
    let shown = match &found.shown[..] {
        [] => "nobody is shown to dominate it".to_owned(),
        some => format!("it is shown to be dominated in {}", by(some)),
    };
    // What values alone say is of interest where nothing is shown.
    let by_value = if found.by_value.is_empty() || !found.shown.is_empty() {
        String::new()
    } else {
        format!(
            "; by the values alone, without intervals, somebody does in {}",
            by(&found.by_value)
        )
    };
    format!("*{name}*, {rows} rows: {shown}{by_value}.")
}

/// "2 (qwen3 beside cpu; eager beside heavy), by scx_lavd in 2".
fn by(rows: &[verdicts::Row]) -> String {
    let (places, by_whom) = (verdicts::places(rows), verdicts::by_whom(rows));
    format!("{} ({places}), by {by_whom}", rows.len())
}

/// The strip and the scatter, and what the strip shows in figures.
fn pictures(index: &Index, strips: &[Strip]) -> String {
    let said: Vec<String> = strips.iter().map(Strip::in_words).collect();
    let what = format!(
        "40 ms beside *{}* (`bench/strip.sh` at {}; tracing slows launches down): {}",
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
