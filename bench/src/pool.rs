// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench pool`: what an arm costs on a quiet machine, from many runs together.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::datafile::DataError;
use crate::plan::Plan;
use crate::record::{self, Cell, RunDir};
use crate::report::{
    figure,
    table::{Align, Table},
};
use crate::study::compare::Run;
use crate::study::pool::{Pool, pool};

/// Runs whose quiet cells are pooled.
#[derive(Debug, clap::Args)]
pub struct PoolOptions {
    /// The folders of the runs.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,

    /// The arm whose quiet cells are set against the baseline's.
    #[arg(long, default_value = "gpuaware")]
    arm: String,

    /// Only this workload.
    #[arg(long)]
    workload: Option<String>,

    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

struct Read {
    name: String,
    plan: Plan,
    cells: Vec<Cell>,
}

pub fn main(options: &PoolOptions) -> Result<()> {
    let read = read(&options.runs)?;
    let runs: Vec<_> = read
        .iter()
        .map(|Read { name, plan, cells }| (name.as_str(), Run { plan, cells }))
        .collect();
    let pools = pool(&runs, &options.arm, options.workload.as_deref());
    if pools.iter().all(|pool| pool.runs == 0) {
        return Err(DataError::Usage(format!(
            "expected a run with quiet cells of {}{} and of its baseline, got none in {} runs: see --arm, --workload",
            options.arm,
            options.workload.iter().map(|name| format!(", {name},")).collect::<String>(),
            runs.len()
        ))
        .into());
    }
    if options.json {
        let value = serde_json::json!({ "schema": 1, "arm": options.arm, "figures": pools });
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", text(&pools, &options.arm, runs.len()));
    }
    Ok(())
}

fn read(folders: &[PathBuf]) -> Result<Vec<Read>> {
    let mut known = BTreeSet::new();
    let mut runs = Vec::new();
    for dir in folders {
        let run = RunDir::open(dir)?;
        let whole = dir
            .canonicalize()
            .with_context(|| format!("cannot find {}", dir.display()))?;
        if !known.insert(whole.clone()) {
            let twice = format!("{}: expected each run once, got it twice", dir.display());
            return Err(DataError::Usage(twice).into());
        }
        let name = whole.file_name().unwrap_or(whole.as_os_str());
        let mut name = name.to_string_lossy().into_owned();
        // Two of one name would be pooled as one run.
        if runs.iter().any(|read: &Read| read.name == name) {
            name = whole.display().to_string();
        }
        runs.push(Read {
            name,
            plan: record::read_json(&dir.join("plan.json"))?,
            cells: run.cells()?,
        });
    }
    Ok(runs)
}

fn text(pools: &[Pool], arm: &str, runs: usize) -> String {
    let with = pools.iter().map(|pool| pool.runs).max().unwrap_or(0);
    format!(
        "Quiet cells of {arm} over the baseline's of the same rounds, percent; {with} of {runs} runs have them.\n\n{}\n{}\n{}",
        each(pools).to_text(),
        together(pools).to_text(),
        "[a–b]: 95 % interval, random effects by run (DerSimonian and Laird, Knapp and Hartung). tau: by how much runs\n\
         differ, a standard deviation. seen: the smallest difference that would have been found four times in five.\n"
    )
}

fn percent(ratio: f64) -> String {
    format!("{:.1}", ratio * 100.0)
}

/// A row for each comparison.
fn each(pools: &[Pool]) -> Table {
    let mut table = Table::new(&[
        ("run", Align::Left),
        ("workload", Align::Left),
        ("rounds", Align::Right),
    ]);
    let figures = pools
        .iter()
        .map(|pool| (pool.figure.to_owned(), Align::Right));
    table.columns.extend(figures);
    let Some(first) = pools.first() else {
        return table;
    };
    for row in &first.comparisons {
        let of = |pool: &Pool| {
            let mut all = pool.comparisons.iter();
            let found = all.find(|c| (&c.run, &c.workload) == (&row.run, &row.workload));
            found.map_or_else(|| "–".to_owned(), |c| percent(c.ratio))
        };
        let name = [
            row.run.clone(),
            row.workload.clone(),
            row.rounds.to_string(),
        ];
        table
            .rows
            .push(name.into_iter().chain(pools.iter().map(of)).collect());
    }
    table
}

/// A row for each figure.
fn together(pools: &[Pool]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("figure", Left),
        ("pooled", Right),
        ("tau", Right),
        ("seen", Right),
        ("runs", Right),
        ("comparisons", Right),
        ("below 100", Right),
        ("median", Right),
    ]);
    let share = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), percent);
    for pool in pools {
        table.rows.push(vec![
            pool.figure.to_owned(),
            figure(pool.ratio.map(|ratio| ratio.scaled(100.0)), 1, true),
            share(pool.tau),
            share(pool.detectable),
            pool.runs.to_string(),
            pool.comparisons.len().to_string(),
            pool.below.to_string(),
            share(pool.median),
        ]);
    }
    table
}
