// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench compare`: what changed from one run to another, for people and for CI.

mod setting;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use crate::datafile::DataError;
use crate::plan::Plan;
use crate::record::{self, Cell, RunDir};
use crate::report::{
    self,
    table::{Align, Table},
};
use crate::study::compare::{Change, GATE, Run, Verdict, compare};
use crate::study::overlap::overlap;
use crate::study::study;
use setting::{Setting, differences};

/// Two runs of the same matrix.
#[derive(Debug, clap::Args)]
pub struct CompareOptions {
    /// The folder of the run before the change.
    before: PathBuf,

    /// The folder of the run after it.
    after: PathBuf,

    /// Arms to compare, or "all" that both runs have [default: the matrix's subject].
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    arms: Vec<String>,

    /// The chance of any wrong verdict when nothing has changed, percent, for all comparisons together (Bonferroni).
    #[arg(long, value_name = "PERCENT", default_value_t = GATE * 100.0, value_parser = gate)]
    gate: f64,

    /// Compare although the runs were not measured alike.
    #[arg(long)]
    anyway: bool,
}

fn gate(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.parse().ok();
    percent
        .filter(|percent| *percent > 0.0 && *percent <= 50.0)
        .ok_or_else(|| format!("expected percent above 0, up to 50, got {text:?}"))
}

/// Exit code 1 when something became worse, 2 when nothing could be judged.
pub fn main(options: &CompareOptions) -> Result<ExitCode> {
    let (before, before_cells) = read(&options.before)?;
    let (after, after_cells) = read(&options.after)?;
    let arms = arms(options, &before.plan, &after.plan)?;
    check(options, &before, &after)?;
    let changes = compare(
        options.gate / 100.0,
        &run(&before.plan, &before_cells),
        &run(&after.plan, &after_cells),
        &arms,
    );
    print!("{}", table(&changes).to_text());
    if changes.iter().all(|c| c.verdict == Verdict::TooFewBoots) {
        let why = "nothing could be judged: no row has three boots of either run (on a host, rounds); \
                   run both with --rounds 3 or more, and a matrix with as many boots";
        return Err(DataError::Usage(why.to_owned()).into());
    }
    let count = |verdict| changes.iter().filter(|c| c.verdict == verdict).count();
    let worse = count(Verdict::Worse);
    println!(
        "\n{worse} of {} became worse, {} better; with no change at all, {} % of the runs would say either of any.",
        changes.len(),
        count(Verdict::Better),
        options.gate
    );
    let overlap = overlap(
        &study(&before.plan, &before_cells),
        &study(&after.plan, &after_cells),
        &arms,
    );
    if let Some(percent) = overlap.percent() {
        println!(
            "{} of {} 95 % intervals in the two reports overlap: {percent:.1} %.",
            overlap.overlapping, overlap.all
        );
    }
    Ok(ExitCode::from(u8::from(worse > 0)))
}

fn run<'a>(plan: &'a Plan, cells: &'a [Cell]) -> Run<'a> {
    Run { plan, cells }
}

fn read(dir: &Path) -> Result<(Setting, Vec<Cell>)> {
    let run = RunDir::open(dir)?;
    let setting = Setting {
        plan: record::read_json(&dir.join("plan.json"))?,
        guest: report::facts(&dir.join("facts-block0.json"))?,
        host: report::facts(&dir.join("facts-host.json"))?,
    };
    Ok((setting, run.cells()?))
}

/// The arms that are asked for, checked.
fn arms(options: &CompareOptions, before: &Plan, after: &Plan) -> Result<Vec<String>> {
    let arms = match &options.arms[..] {
        [] => vec![after.matrix.subject.clone()],
        [all] if all == "all" => {
            let both = |arm: &&String| before.matrix.arms.contains(arm);
            after.matrix.arms.iter().filter(both).cloned().collect()
        }
        arms => arms.to_owned(),
    };
    for (dir, plan) in [(&options.before, before), (&options.after, after)] {
        if let Some(arm) = arms.iter().find(|arm| !plan.matrix.arms.contains(arm)) {
            return Err(DataError::Usage(format!(
                "--arms: expected arms of both runs, {arm:?} is not in {}, which has {}",
                dir.display(),
                plan.matrix.arms.join(", ")
            ))
            .into());
        }
    }
    Ok(arms)
}

/// Refuses runs that were not measured alike, and warns of what else differs.
fn check(options: &CompareOptions, before: &Setting, after: &Setting) -> Result<()> {
    let found = differences(before, after);
    if !found.fatal.is_empty() && !options.anyway {
        return Err(DataError::Usage(format!(
            "the runs were not measured alike:\n  {}\nmeasure both in the same way, or compare them with --anyway",
            found.fatal.join("\n  ")
        ))
        .into());
    }
    for line in found.fatal.iter().chain(&found.other) {
        eprintln!("gpuaware-bench: warning: {line}");
    }
    Ok(())
}

fn table(changes: &[Change]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("workload", Left),
        ("neighbour", Left),
        ("arm", Left),
        ("figure", Left),
        ("after / before", Right),
        ("boots", Right),
        ("verdict", Left),
    ]);
    for change in changes {
        let ratio = match (change.ratio, change.interval) {
            (Some(ratio), Some([low, high])) => format!("{ratio:.3} [{low:.3}–{high:.3}]"),
            (Some(ratio), None) => format!("{ratio:.3}"),
            (None, _) => "–".to_owned(),
        };
        let verdict = match change.verdict {
            Verdict::Better => "better".to_owned(),
            Verdict::Worse => "WORSE".to_owned(),
            Verdict::NoDifference => change.difference().to_string(),
            Verdict::TooFewBoots => "too few boots or tokens".to_owned(),
        };
        table.rows.push(vec![
            change.workload.clone(),
            change.neighbour.to_string(),
            change.arm.clone(),
            change.figure.name(),
            ratio,
            change.count.to_string(),
            verdict,
        ]);
    }
    table
}
