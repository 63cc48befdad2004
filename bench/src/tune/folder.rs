// SPDX-License-Identifier: GPL-2.0-only
//! The folder of a tuning: its state, and the arms, policies and matrices that `gpuaware-bench run` reads. An operator
//! could have written them, and can repeat any step with them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::candidate::{Candidate, DEFAULT};
use super::goal::{On, Prefer};
use super::look::Seen;
use super::schedule::Schedule;
use crate::arm::Arm;
use crate::claim::{Claim, claim};
use crate::cpus;
use crate::datafile::DataError;
use crate::folders::Folders;
use crate::matrix::Matrix;
use crate::record;
use crate::replace::put;
use crate::simulator;

pub const BASELINE: &str = "eevdf";
const STATE: &str = "tune.json";
const ARMS: &str = "arms";
/// Says that a tuning was begun here, in a folder that was empty: what has the names of its parts is no one else's.
const BEGUN: &str = ".tuning";
/// The state of a tuning beside production.
pub const LIVE: &str = "live.json";
/// Steps before there is a state.
pub const RECORDED: &str = "recorded";
pub const SIMULATED: &str = "simulated";
/// Two at once would mix their candidates and forget each other's steps.
const TAKEN: &str =
    "expected a folder that no other tuning works in: wait for its end, or choose another with -o";

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

/// This process's alone while it lives.
#[derive(Debug)]
pub struct TuneDir {
    pub root: PathBuf,
    _claim: Claim,
}

impl TuneDir {
    pub fn create(root: &Path) -> Result<Self> {
        let shown = root.display();
        let cannot = || format!("cannot create {shown}");
        fs::create_dir_all(root).with_context(cannot)?;
        let root = root
            .canonicalize()
            .with_context(|| format!("cannot find {shown}"))?;
        let claim = claim(&root, TAKEN)?;
        let refuse = |why: &str| Err(DataError::Usage(format!("{shown}: expected {why}")).into());
        if root.join(STATE).exists() || root.join(LIVE).exists() {
            return refuse(&format!(
                "a folder without a tuning: choose another with -o, or go on with --resume {shown}"
            ));
        }
        let begun = root.join(BEGUN);
        let is_empty = fs::read_dir(&root).with_context(cannot)?.next().is_none();
        if !is_empty && !begun.is_file() {
            return refuse("an empty folder, or none: choose another with -o");
        }
        // Before all else, so that one that was stopped before its plan was made is known, and begins anew.
        put(&begun, "")?;
        for name in [ARMS, RECORDED, SIMULATED] {
            match fs::remove_dir_all(root.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(cannot);
                }
                _ => {}
            }
        }
        fs::create_dir(root.join(ARMS)).with_context(cannot)?;
        Ok(Self {
            root,
            _claim: claim,
        })
    }

    pub fn open(root: &Path) -> Result<Self> {
        let usage = |why: &str| DataError::Usage(format!("--resume: {}: {why}", root.display()));
        let root = root
            .canonicalize()
            .map_err(|error| usage(&error.to_string()))?;
        if !root.join(STATE).is_file() && !root.join(LIVE).is_file() {
            return Err(usage(
                "expected the folder of a tuning, found no tune.json or live.json in it: if one was stopped before its plan was made, \
                 begin it again with -o",
            )
            .into());
        }
        let claim = claim(&root, TAKEN)?;
        Ok(Self {
            root,
            _claim: claim,
        })
    }

    /// Whether the tuning is one beside production.
    pub fn is_live(&self) -> bool {
        self.root.join(LIVE).is_file()
    }

    pub fn read_state(&self) -> Result<State> {
        record::read_json(&self.root.join(STATE))
    }

    pub fn write_state(&self, state: &State) -> Result<()> {
        record::write_json(&self.root.join(STATE), state)
    }

    pub fn arms(&self) -> PathBuf {
        self.root.join(ARMS)
    }

    /// The two arms that stand beside candidates.
    pub fn write_references(&self, folders: &Folders) -> Result<()> {
        for name in [BASELINE, "gpuaware"] {
            let file = format!("{name}.toml");
            let from = folders.arms().join(&file);
            fs::copy(&from, self.arms().join(&file))
                .with_context(|| format!("cannot copy {}", from.display()))?;
        }
        self.write_arm(DEFAULT, "scx_gpuaware without a policy", "[]")
    }

    pub fn write_candidate(&self, candidate: &Candidate) -> Result<PathBuf> {
        let name = &candidate.name;
        let file = self.arms().join(format!("{name}.policy"));
        put(&file, &candidate.policy)?;
        let args = format!("[\"--policy\", \"{{file:{name}.policy}}\"]");
        self.write_arm(name, &candidate.why, &args)?;
        Ok(file)
    }

    /// Why the simulator cannot try a candidate that is written here; `None`: it can.
    pub fn not_simulated(&self, candidate: &Candidate, seen: &Seen) -> Result<Option<String>> {
        let file = self.arms().join(format!("{}.toml", candidate.name));
        let others = cpus::others(&seen.preferred, &cpus::first(seen.cpus));
        let arm = Arm::read(&file, &seen.preferred, &others)?;
        Ok(simulator::refusal(&arm, seen.cpus))
    }

    /// As on a host: the scheduler chooses the preferred CPUs.
    fn write_arm(&self, name: &str, description: &str, args: &str) -> Result<()> {
        let program = "{target}/release/scx_gpuaware";
        let description = toml::Value::from(description);
        let text = format!(
            "include = \"gpuaware\"\ndescription = {description}\n\n[scheduler]\ncommand = [\"{program}\", \"{{args}}\"]\n\
             args = {args}\nsettings = [\"{program}\", \"policy\", \"show\", \"{{args}}\"]\n"
        );
        put(&self.arms().join(format!("{name}.toml")), text)
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
        put(&file, text)?;
        Ok(file)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(root: &Path) -> String {
        TuneDir::create(root).unwrap_err().to_string()
    }

    #[test]
    fn a_folder_is_one_tunings_and_nothing_in_it_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("tuned");
        let dir = TuneDir::create(&root).unwrap();
        assert!(refused(&root).contains(TAKEN));
        fs::create_dir(root.join(RECORDED)).unwrap();
        drop(dir);
        // It was stopped before its plan was made.
        let said = TuneDir::open(&root).unwrap_err().to_string();
        assert!(said.contains("begin it again with -o"), "{said}");
        let dir = TuneDir::create(&root).unwrap();
        assert!(!root.join(RECORDED).exists());
        dir.write_state(&samples::state(&[])).unwrap();
        drop(dir);
        assert!(refused(&root).contains("--resume"));
        let dir = TuneDir::open(&root).unwrap();
        let said = TuneDir::open(&root).unwrap_err().to_string();
        assert!(said.contains(TAKEN), "{said}");
        drop(dir);
        let live = folder.path().join("live");
        drop(TuneDir::create(&live).unwrap());
        fs::write(live.join(LIVE), "[]").unwrap();
        assert!(refused(&live).contains("without a tuning"));
        assert!(TuneDir::open(&live).unwrap().is_live());
        assert!(refused(folder.path()).contains("expected an empty folder"));
    }

    #[test]
    fn a_folder_of_somebody_elses_is_left_alone_whatever_is_in_it() {
        for name in [ARMS, RECORDED, SIMULATED] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(name).join("own.toml");
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(&file, "own").unwrap();
            assert!(refused(folder.path()).contains("expected an empty folder"));
            assert_eq!(fs::read_to_string(&file).unwrap(), "own");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
        // A tuning that was stopped between its first two steps is one too.
        let folder = tempfile::tempdir().unwrap();
        drop(TuneDir::create(folder.path()).unwrap());
        fs::remove_dir(folder.path().join(ARMS)).unwrap();
        assert!(TuneDir::create(folder.path()).unwrap().arms().is_dir());
    }
}
