// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench tune`: the policy for this machine and workload, with the evidence. Looks, proposes, sifts, verifies,
//! decides; each step is a run that `report` reads. Knows the runner and the statistics; nobody knows it.

mod candidate;
mod decide;
mod folder;
pub mod goal;
mod look;
mod outcome;
mod propose;
mod schedule;
mod score;
mod steps;
mod workload;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::cli::TuneOptions;
use crate::datafile::{self, DataError};
use crate::lab::Lab;
use crate::matrix::Matrix;
use crate::plan::Where;
use crate::run;
use crate::words::in_words;
use crate::{cpus, interrupt, record, watchdog};
use candidate::{Candidate, DEFAULT, file_name};
use folder::{BASELINE, State, TuneDir, refusal};
use look::{Place, Seen};
use schedule::schedule;
use steps::Tuning;

pub fn main(options: &TuneOptions) -> Result<ExitCode> {
    watchdog::start()?;
    interrupt::watch()?;
    let (dir, state) = match &options.resume {
        Some(folder) => {
            let dir = TuneDir::open(folder)?;
            let state = dir.read_state()?;
            (dir, state)
        }
        None => begin(options)?,
    };
    let mut tuning = Tuning {
        dir,
        state,
        folders: &options.folders,
    };
    let finalists = tuning.sift()?;
    let proof = tuning.verify(&finalists)?;
    let outcome = outcome::Outcome::new(&tuning.state, &finalists, &proof);
    outcome.write(&tuning.dir)?;
    let policy = tuning.dir.root.join("policy.toml");
    let target = options.folders.target()?;
    if let Some(why) = refusal(&policy, &tuning.state.seen.online, &target)? {
        bail!("the policy that was found is refused, which should not be: {why}");
    }
    println!("\n{}", outcome.verdict());
    if options.explain {
        for line in outcome.explain() {
            println!("- {line}");
        }
    }
    for name in ["policy.toml", "report.md", "report.html"] {
        println!("{}", tuning.dir.root.join(name).display());
    }
    Ok(ExitCode::SUCCESS)
}

/// What can be refused is refused before anything boots; then the machine is looked at, and the steps are planned.
fn begin(options: &TuneOptions) -> Result<(TuneDir, State)> {
    let folders = &options.folders;
    let wanted = options.workload.as_deref().unwrap_or_default();
    let (source, mut matrix) = workload::find(wanted, folders)?;
    matrix.neighbours = workload::neighbours(&options.neighbours)?;
    let target = folders.target()?;
    let cpus = how_many(options, &mut matrix)?;
    let costs = steps::costs(&matrix, options.on);
    // One candidate is the least that is tried.
    schedule(1, options.budget, &costs).map_err(|least| too_short(options, least))?;
    let own = own_candidates(&options.candidate, cpus, &target)?;
    let root = options
        .output
        .clone()
        .unwrap_or_else(|| run::default_output("tune"));
    let dir = TuneDir::create(&root)?;
    dir.write_references(folders)?;
    eprintln!(
        "tuning for {source}/{} in {}",
        matrix.workloads[0].name,
        dir.root.display()
    );
    let began = std::time::Instant::now();
    let place = Place {
        on: options.on.cells(),
        cpus,
        kernel: &matrix.lab.kernel,
        target: &target,
    };
    eprintln!("look: what the machine is");
    let seen = look::look(&place)?;
    say(&seen);
    if !seen.problems.is_empty() {
        bail!(
            "the scheduler cannot do its work there: {}",
            seen.problems.join("; ")
        );
    }
    let (mut candidates, mut dropped) = (own, Vec::new());
    candidates.extend(proposals(options, &matrix, &seen)?);
    let mut names = BTreeSet::from([
        DEFAULT.to_owned(),
        BASELINE.to_owned(),
        "gpuaware".to_owned(),
    ]);
    candidates.retain(|candidate| names.insert(candidate.name.clone()));
    let mut kept = Vec::new();
    for candidate in candidates {
        let file = dir.write_candidate(&candidate)?;
        match refusal(&file, &seen.online, &target)? {
            Some(why) => dropped.push((candidate.name, first_error(&why))),
            None => kept.push(candidate),
        }
    }
    let left = options.budget.saturating_sub(began.elapsed());
    let planned = schedule(kept.len(), left, &costs).map_err(|least| too_short(options, least))?;
    let why = "no time: a longer --budget tries it";
    let late = kept.split_off(kept.len() - planned.left_out);
    dropped.extend(late.into_iter().map(|late| (late.name, why.to_owned())));
    for candidate in &kept {
        eprintln!("propose: {}: {}", candidate.name, candidate.why);
    }
    for (name, why) in &dropped {
        eprintln!("propose: not {name}: {why}");
    }
    let state = State {
        schema: record::SCHEMA,
        workload: format!("{source}/{}", matrix.workloads[0].name),
        matrix,
        budget_s: options.budget.as_secs_f64(),
        prefer: options.prefer,
        on: options.on,
        seen,
        candidates: kept,
        dropped,
        schedule: planned,
        done: Vec::new(),
        spent_s: began.elapsed().as_secs_f64(),
    };
    dir.write_state(&state)?;
    Ok((dir, state))
}

fn say(seen: &Seen) {
    eprintln!("look: {}", seen.words());
    for warning in &seen.warnings {
        eprintln!("look: doctor warns: {warning}");
    }
}

/// CPUs of the place where candidates are tried.
fn how_many(options: &TuneOptions, matrix: &mut Matrix) -> Result<usize, DataError> {
    match (options.on.cells(), options.cpus) {
        (Where::Host, Some(_)) => Err(DataError::Usage(
            "--cpus: expected with --on lab: a host has the CPUs that it has".to_owned(),
        )),
        (Where::Host, None) => Ok(cpus::online()),
        (Where::Lab, asked) => {
            matrix.lab.cpus = asked.or(matrix.lab.cpus);
            let own = matrix.lab.cpus.map(|cpus| cpus as usize);
            Ok(own.unwrap_or_else(|| Lab::default().cpus))
        }
    }
}

fn too_short(options: &TuneOptions, least: std::time::Duration) -> DataError {
    DataError::Usage(format!(
        "--budget: expected at least {}, the time to verify one candidate beside the default, and a minute to look at \
         the machine; got {}",
        in_words(least),
        in_words(options.budget)
    ))
}

/// The user's own: one that is refused is the user's mistake.
fn own_candidates(files: &[PathBuf], cpus: usize, target: &Path) -> Result<Vec<Candidate>> {
    let online = format!("0-{}", cpus.saturating_sub(1));
    let mut all = Vec::new();
    for file in files {
        let policy = datafile::text(file)?;
        if let Some(why) = refusal(file, &online, target)? {
            return Err(DataError::Usage(format!("--candidate: {why}")).into());
        }
        let stem = file.file_stem().context("a policy file without a name")?;
        all.push(Candidate {
            name: file_name(&stem.to_string_lossy()),
            why: "the user's own".to_owned(),
            policy,
        });
    }
    let names: BTreeSet<&String> = all.iter().map(|candidate| &candidate.name).collect();
    let reserved = [DEFAULT, BASELINE, "gpuaware"]
        .iter()
        .any(|name| names.iter().any(|own| own == name));
    if names.len() != all.len() || reserved {
        let expected = format!(
            "--candidate: expected files with names of their own, none of them {DEFAULT}, {BASELINE}, gpuaware"
        );
        return Err(DataError::Usage(expected).into());
    }
    Ok(all)
}

/// The shipped policies that are for such a machine, and what follows from what was seen.
fn proposals(options: &TuneOptions, matrix: &Matrix, seen: &Seen) -> Result<Vec<Candidate>> {
    let kind = workload::kind(matrix);
    let folder = options.folders.policies();
    let mut all = Vec::new();
    for name in datafile::names(&folder)? {
        if propose::fits(&name, seen, kind) {
            all.push(Candidate {
                policy: datafile::text(&folder.join(format!("{name}.toml")))?,
                why: "a shipped policy for such a machine".to_owned(),
                name,
            });
        }
    }
    all.extend(propose::propose(seen, kind));
    Ok(all)
}

fn first_error(said: &str) -> String {
    let line = said.lines().find(|line| line.contains(": error: "));
    let line = line.or_else(|| said.lines().next()).unwrap_or_default();
    line.rsplit_once("error: ")
        .map_or(line, |(_, why)| why)
        .to_owned()
}
