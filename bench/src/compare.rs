// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench compare`: what changed from one run to another, for people and for CI.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use crate::datafile::DataError;
use crate::record::{self, Cell, RunDir};
use crate::report::table::{Align, Table};
use crate::run::plan::Plan;
use crate::study::compare::{Change, Run, Verdict, compare};

/// Two runs of the same matrix.
#[derive(Debug, clap::Args)]
pub struct CompareOptions {
    /// The folder of the run before the change.
    before: PathBuf,

    /// The folder of the run after it.
    after: PathBuf,

    /// Arms to compare [default: the matrix's subject].
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    arms: Vec<String>,
}

/// Exit code 1 when something became worse.
pub fn main(options: &CompareOptions) -> Result<ExitCode> {
    let (before, before_cells) = read(&options.before)?;
    let (after, after_cells) = read(&options.after)?;
    let arms = if options.arms.is_empty() {
        vec![after.matrix.subject.clone()]
    } else {
        options.arms.clone()
    };
    for (dir, plan) in [(&options.before, &before), (&options.after, &after)] {
        if let Some(arm) = arms.iter().find(|arm| !plan.matrix.arms.contains(arm)) {
            return Err(DataError::Usage(format!(
                "--arms: expected arms of both runs, {arm:?} is not in {}, which has {}",
                dir.display(),
                plan.matrix.arms.join(", ")
            ))
            .into());
        }
    }
    let run = |plan, cells| Run { plan, cells };
    let changes = compare(
        &run(&before, &before_cells),
        &run(&after, &after_cells),
        &arms,
    );
    print!("{}", table(&changes).to_text());
    let worse = changes
        .iter()
        .filter(|change| change.verdict == Verdict::Worse)
        .count();
    println!(
        "\n{worse} of {} became worse; with no change at all, one run in a hundred would say so of any.",
        changes.len()
    );
    Ok(ExitCode::from(u8::from(worse > 0)))
}

fn read(dir: &Path) -> Result<(Plan, Vec<Cell>)> {
    let run = RunDir::open(dir).map_err(|error| DataError::Usage(error.to_string()))?;
    Ok((record::read_json(&dir.join("plan.json"))?, run.cells()?))
}

fn table(changes: &[Change]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("workload", Left),
        ("neighbour", Left),
        ("arm", Left),
        ("figure", Left),
        ("after / before", Right),
        ("rounds", Right),
        ("verdict", Left),
    ]);
    for change in changes {
        let ratio = match (change.ratio, change.interval) {
            (Some(ratio), Some([low, high])) => format!("{ratio:.3} [{low:.3}–{high:.3}]"),
            (Some(ratio), None) => format!("{ratio:.3}"),
            (None, _) => "–".to_owned(),
        };
        let verdict = match change.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::NoDifference => "no difference shown",
            Verdict::TooFewRounds => "too few rounds or tokens",
        };
        table.rows.push(vec![
            change.workload.clone(),
            change.neighbour.to_string(),
            change.arm.clone(),
            change.figure.name().to_owned(),
            ratio,
            change.rounds.to_string(),
            verdict.to_owned(),
        ]);
    }
    table
}
