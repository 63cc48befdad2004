// SPDX-License-Identifier: GPL-2.0-only
//! The folder of a tuning: its state, and the arms, policies and matrices that `gpuaware-bench run` reads. An operator
//! could have written them, and can repeat any step with them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::candidate::{Candidate, DEFAULT};
use super::goal::{On, Prefer};
use super::look::Seen;
use super::schedule::Schedule;
use crate::arm::Arm;
use crate::cpus;
use crate::datafile::DataError;
use crate::folders::Folders;
use crate::matrix::Matrix;
use crate::record;
use crate::simulator;

pub const BASELINE: &str = "eevdf";
const STATE: &str = "tune.json";

/// All that a tuning needs to go on.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    pub schema: u32,
    /// MATRIX/NAME.
    pub workload: String,
    pub matrix: Matrix,
    pub budget_s: f64,
    pub prefer: Option<Prefer>,
    pub on: On,
    /// The one that is simulated.
    #[serde(default)]
    pub machine: Option<String>,
    pub seen: Seen,
    /// What is tried, the likeliest first.
    pub candidates: Vec<Candidate>,
    /// What is not, and why.
    pub dropped: Vec<(String, String)>,
    pub schedule: Schedule,
    /// What the sifting found of each, the last time that it was measured.
    #[serde(default)]
    pub scores: BTreeMap<String, f64>,
    /// Steps that are finished, and the seconds that were spent on all so far.
    pub done: Vec<String>,
    pub spent_s: f64,
}

/// One run of the tuning.
#[derive(Debug, Clone)]
pub struct Step {
    pub name: String,
    pub what: String,
    pub arms: Vec<String>,
    pub baseline: &'static str,
    pub rounds: u32,
    pub boots: u32,
    pub seconds: f64,
}

#[derive(Debug)]
pub struct TuneDir {
    pub root: PathBuf,
}

impl TuneDir {
    pub fn create(root: &Path) -> Result<Self> {
        let shown = root.display();
        if root.join(STATE).exists() {
            return Err(DataError::Usage(format!(
                "{shown}: expected a folder without a tuning: choose another with -o, or go on with --resume {shown}"
            ))
            .into());
        }
        fs::create_dir_all(root.join("arms")).with_context(|| format!("cannot create {shown}"))?;
        let root = root
            .canonicalize()
            .with_context(|| format!("cannot find {shown}"))?;
        Ok(Self { root })
    }

    pub fn open(root: &Path) -> Result<Self, DataError> {
        let usage = |why: &str| DataError::Usage(format!("--resume: {}: {why}", root.display()));
        let root = root
            .canonicalize()
            .map_err(|error| usage(&error.to_string()))?;
        if !root.join(STATE).is_file() {
            return Err(usage(
                "expected the folder of a tuning, found no tune.json in it",
            ));
        }
        Ok(Self { root })
    }

    pub fn read_state(&self) -> Result<State> {
        record::read_json(&self.root.join(STATE))
    }

    pub fn write_state(&self, state: &State) -> Result<()> {
        record::write_json(&self.root.join(STATE), state)
    }

    pub fn arms(&self) -> PathBuf {
        self.root.join("arms")
    }

    /// The two arms that stand beside candidates.
    pub fn write_references(&self, folders: &Folders, on: On) -> Result<()> {
        for name in [BASELINE, "gpuaware"] {
            let file = format!("{name}.toml");
            let from = folders.arms().join(&file);
            fs::copy(&from, self.arms().join(&file))
                .with_context(|| format!("cannot copy {}", from.display()))?;
        }
        self.write_arm(DEFAULT, "scx_gpuaware without a policy", "[]", on)
    }

    pub fn write_candidate(&self, candidate: &Candidate, on: On) -> Result<PathBuf> {
        let name = &candidate.name;
        let file = self.arms().join(format!("{name}.policy"));
        write(&file, &candidate.policy)?;
        let args = format!("[\"--policy\", \"{{file:{name}.policy}}\"]");
        self.write_arm(name, &candidate.why, &args, on)?;
        Ok(file)
    }

    /// Why the simulator cannot try a candidate that is written here; `None`: it can.
    pub fn not_simulated(&self, candidate: &Candidate, seen: &Seen) -> Result<Option<String>> {
        let file = self.arms().join(format!("{}.toml", candidate.name));
        let others = cpus::others(&seen.preferred, seen.cpus);
        let arm = Arm::read(&file, &seen.preferred, &others)?;
        Ok(simulator::refusal(&arm, seen.cpus))
    }

    /// As on a host: the scheduler chooses the preferred CPUs. A simulated one has to be told.
    fn write_arm(&self, name: &str, description: &str, args: &str, on: On) -> Result<()> {
        let mut program = "\"{target}/release/scx_gpuaware\"".to_owned();
        if on == On::Sim {
            program += ", \"--preferred-cpus\", \"{preferred}\"";
        }
        let description = toml::Value::from(description);
        let text = format!(
            "include = \"gpuaware\"\ndescription = {description}\n\n[scheduler]\ncommand = [{program}, \"{{args}}\"]\n\
             args = {args}\nsettings = [\"{{target}}/release/scx_gpuaware\", \"policy\", \"show\", \"{{args}}\"]\n"
        );
        write(&self.arms().join(format!("{name}.toml")), &text)
    }

    /// The matrix file of a step.
    pub fn write_matrix(&self, matrix: &Matrix, step: &Step) -> Result<PathBuf> {
        let matrix = Matrix {
            description: step.what.clone(),
            rounds: step.rounds,
            boots: step.boots,
            seconds: step.seconds,
            arms: step.arms.clone(),
            baseline: step.baseline.to_owned(),
            subject: DEFAULT.to_owned(),
            ..matrix.clone()
        };
        let text = toml::to_string(&matrix).context("cannot write a matrix as TOML")?;
        let file = self.root.join(format!("{}.toml", step.name));
        write(&file, &text)?;
        Ok(file)
    }
}

pub fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Why `scx_gpuaware policy check` refuses the file; `None`: it does not.
pub fn refusal(file: &Path, online: &str, target: &Path) -> Result<Option<String>> {
    let output = policy(&["check".as_ref(), file], online, target)?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok((!output.status.success()).then_some(said))
}

/// Whether the file comes to the same as no policy at all.
pub fn is_default(file: &Path, online: &str, target: &Path) -> Result<bool> {
    let output = policy(&["diff".as_ref(), DEFAULT.as_ref(), file], online, target)?;
    Ok(output.status.success() && output.stdout.trim_ascii() == b"no difference")
}

fn policy(words: &[&Path], online: &str, target: &Path) -> Result<Output> {
    let program = target.join("release/scx_gpuaware");
    Command::new(&program)
        .arg("policy")
        .args(words)
        .args(["--online", online])
        .output()
        .with_context(|| format!("cannot start {}", program.display()))
}

#[cfg(test)]
pub mod samples {
    use super::super::look::samples::two_cpus;
    use super::*;

    pub fn state(candidates: &[Candidate]) -> State {
        let scores = candidates.iter().map(|one| (one.name.clone(), 0.031));
        State {
            schema: record::SCHEMA,
            workload: "demo/qwen3".to_owned(),
            matrix: crate::plan::samples::matrix(),
            budget_s: 1800.0,
            prefer: None,
            on: On::Lab,
            machine: None,
            seen: two_cpus(),
            candidates: candidates.to_vec(),
            dropped: vec![("late".to_owned(), "no time".to_owned())],
            schedule: Schedule {
                rungs: Vec::new(),
                finalists: candidates.len(),
                left_out: 0,
            },
            scores: scores.collect(),
            done: Vec::new(),
            spent_s: 0.0,
        }
    }
}
