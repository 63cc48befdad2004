// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench results`: docs/results.md, the generated part of README.md and their pictures, from the raw cells of
//! the runs that `bench/runs/index.toml` lists. Drives and writes; the texts are made by what is below it.

mod cost;
mod index;
mod loaded;
mod markers;
mod page;
mod readme;
mod strip;
mod verdicts;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::datafile::DataError;
use crate::folders;
use crate::replace::put;
use crate::report;
use index::{FILE, Index};
use loaded::Loaded;

#[derive(Debug, Args)]
pub struct ResultsOptions {
    /// The repository that is written to, and whose runs are read [default: this program's].
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Take a new strip for README first, from the traces that bench/strip.sh left in this folder.
    #[arg(long, value_name = "DIR")]
    strip: Option<PathBuf>,
}

/// Writes what differs and says so.
pub fn main(options: &ResultsOptions) -> Result<()> {
    let root = options.root.clone().or_else(folders::repository);
    let root = root.ok_or_else(|| {
        DataError::Usage(
            "--root: expected the repository's folder, found none by myself".to_owned(),
        )
    })?;
    if let Some(traces) = &options.strip {
        strip::cut(traces, &root)?;
    }
    let index = Index::read(&root)?;
    let loaded = Loaded::read(&root, &index)?;
    let strips = strip::read(&root)?;
    write(
        &root.join("docs/results.md"),
        &page::render(&index, &loaded),
    )?;
    write(&root.join("docs/pictures/strip.svg"), &strip::draw(&strips))?;
    let workload = &index.readme.workload;
    let scatter = report::scatter::standalone(loaded.subject(&index)?, workload);
    let picture = root.join(format!("docs/pictures/scatter-{workload}.svg"));
    write(&picture, &scatter)?;
    for (run, matrix, heading) in index.pictures() {
        let report = loaded.reports.get(run).context("a run that is shown")?;
        let picture =
            report::picture(report, heading).with_context(|| format!("{FILE}: run {run:?}"))?;
        write(&root.join(format!("docs/pictures/{matrix}.svg")), &picture)?;
    }
    let readme = root.join("README.md");
    let text =
        fs::read_to_string(&readme).with_context(|| format!("cannot read {}", readme.display()))?;
    let block = readme::block(&index, &loaded, &strips)?;
    write(
        &readme,
        &markers::replace(&readme, &text, "results", &block)?,
    )
}

fn write(file: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(file).is_ok_and(|old| old == text) {
        println!("as it was  {}", file.display());
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    put(file, text)?;
    println!("written    {}", file.display());
    Ok(())
}
