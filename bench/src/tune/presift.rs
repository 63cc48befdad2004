// SPDX-License-Identifier: GPL-2.0-only
//! The sifting in the simulator, before anything is tried for real: a second of a small machine costs a tenth of one.
//! It drops what is much worse than the default there, and nothing else: it is some points away from real machines, and
//! knows few workloads.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::budget::Budget;
use super::candidate::{Candidate, DEFAULT, Dropped};
use super::folder::{SIMULATED as STEP, Step, TuneDir};
use super::goal::{On, Prefer};
use super::look::Seen;
use super::schedule::Rung;
use super::score::ranked;
use super::steps;
use crate::cli::RunOptions;
use crate::folders::Folders;
use crate::matrix::Matrix;
use crate::plan::Where;
use crate::record::neighbour::Neighbour;
use crate::simulator::{self, Machine};
use crate::{interrupt, report, run};

/// The score of what is dropped: some 20 % less of one thing. Shares of clean in the simulator are within 24 points of
/// the lab's (docs/simulator.md), those of scx_gpuaware within 4.
const MUCH_WORSE: f64 = -0.2;
const MAX_ROUNDS: u32 = 3;

/// Scores by the names of candidates. `Err`: why there are none.
type Scores = Result<BTreeMap<String, f64>, String>;

/// What is sifted for, and in what time.
pub struct Presift<'a> {
    pub matrix: &'a Matrix,
    /// What runs on the machine, in the place of the matrix's workload.
    pub recorded: Option<&'a Matrix>,
    pub seen: &'a Seen,
    pub prefer: Option<Prefer>,
    pub folders: &'a Folders,
    pub target: &'a std::path::Path,
    pub budget: &'a Budget,
    /// Where is tuned for.
    pub on: On,
}

impl Presift<'_> {
    /// The candidates that are left, the user's `own` first, then those that the simulator likes; and what it drops,
    /// with the reason.
    pub fn sift(
        &self,
        candidates: Vec<Candidate>,
        own: &BTreeSet<String>,
        dir: &TuneDir,
    ) -> Result<(Vec<Candidate>, Dropped)> {
        // One that is simulated is tried there in any case.
        let Some(shape) = &self.seen.shape else {
            return Ok((candidates, Vec::new()));
        };
        match self.scores(&candidates, shape, dir)? {
            Ok(scores) => Ok(divided(candidates, own, &scores)),
            Err(why) => {
                eprintln!("{STEP}: nothing is sifted in the simulator: {why}");
                Ok((candidates, Vec::new()))
            }
        }
    }

    fn scores(&self, candidates: &[Candidate], shape: &str, dir: &TuneDir) -> Result<Scores> {
        let (matrix, shape) = match self.simulated(shape) {
            Ok(simulated) => simulated,
            Err(why) => return Ok(Err(why)),
        };
        let dir = TuneDir::create(&dir.root.join(STEP))?;
        dir.write_references(self.folders)?;
        let mut names = Vec::new();
        for candidate in candidates {
            dir.write_candidate(candidate)?;
            if dir.not_simulated(candidate, self.seen)?.is_none() {
                names.push(candidate.name.clone());
            }
        }
        let costs = steps::costs(&matrix, On::Sim);
        let fits = |&rounds: &u32| {
            let candidates = names.len();
            costs.sift(Rung { candidates, rounds }) <= self.budget.early_part()
        };
        let Some(rounds) = (1..=MAX_ROUNDS).rev().find(fits) else {
            return Ok(Err("no time: a longer --budget allows it".to_owned()));
        };
        self.budget.say(STEP);
        eprintln!(
            "{STEP}: {} candidates beside the default on {shape}",
            names.len()
        );
        let step = Step {
            name: "sift".to_owned(),
            what: "tune, sifting in the simulator".to_owned(),
            arms: [DEFAULT.to_owned()].into_iter().chain(names).collect(),
            baseline: DEFAULT,
            rounds,
            boots: 1,
            seconds: steps::sift_seconds(&matrix),
        };
        self.measure(&matrix, &step, shape, &dir).map(Ok)
    }

    /// The matrix and the machine: what was recorded, or what the simulator has of the neighbours on a machine of that
    /// shape.
    fn simulated<'s>(&'s self, shape: &'s str) -> Result<(Matrix, &'s str), String> {
        if let Some(recorded) = self.recorded
            && let Some(file) = recorded.recorded_machine()
        {
            return Ok((self.with_cpus(recorded.clone()), file));
        }
        let whole = format!("0-{}", self.seen.cpus.saturating_sub(1));
        if self.seen.cpus > 1 && self.seen.online != whole {
            return Err(format!("CPUs {} leave gaps", self.seen.online));
        }
        Machine::find(shape, self.target).map_err(|error| error.to_string())?;
        let workload = &self.matrix.workloads[0];
        let all = self.matrix.neighbours.iter().copied();
        let (known, lacking): (Vec<_>, Vec<_>) = all
            .map(|one| (one, simulator::knows(workload, one)))
            .partition(|(_, knows)| knows.is_ok());
        let is_noise = |(one, _): &(Neighbour, _)| *one != Neighbour::None;
        if !known.iter().any(is_noise) {
            let why = lacking.into_iter().find_map(|(_, knows)| knows.err());
            return Err(why.unwrap_or_default());
        }
        let matrix = Matrix {
            neighbours: known.into_iter().map(|(one, _)| one).collect(),
            ..self.matrix.clone()
        };
        Ok((self.with_cpus(matrix), shape))
    }

    fn with_cpus(&self, mut matrix: Matrix) -> Matrix {
        matrix.lab.cpus = u32::try_from(self.seen.cpus).ok();
        matrix
    }

    fn measure(
        &self,
        matrix: &Matrix,
        step: &Step,
        shape: &str,
        dir: &TuneDir,
    ) -> Result<BTreeMap<String, f64>> {
        let folder = dir.root.join(&step.name);
        let file = dir.write_matrix(matrix, step)?;
        let folders = self.folders.with_arms(dir.arms());
        run::main(&RunOptions {
            machine: Some(shape.to_owned()),
            native: self.on.is_native(),
            ..RunOptions::of_file(&file, folder.clone(), Where::Sim, folders)
        })?;
        interrupt::check()?;
        report::write(&folder, false)?;
        let summary = report::read(&folder)?.summary;
        let names = step.arms.iter().map(String::as_str);
        let names = names.filter(|&name| name != DEFAULT);
        let scores = ranked(&summary, names, self.prefer).into_iter();
        let measured = scores.filter_map(|(name, score)| Some((name.to_owned(), score?)));
        Ok(measured.collect())
    }
}

/// Those that are tried for real, the likeliest first, and those that are not.
fn divided(
    candidates: Vec<Candidate>,
    own: &BTreeSet<String>,
    scores: &BTreeMap<String, f64>,
) -> (Vec<Candidate>, Dropped) {
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    for candidate in candidates {
        match scores.get(&candidate.name) {
            Some(score) if *score < MUCH_WORSE && !own.contains(&candidate.name) => {
                let why =
                    format!("much worse than the default in the simulator, score {score:+.3}");
                dropped.push((candidate.name, why));
            }
            _ => kept.push(candidate),
        }
    }
    // What the simulator does not know may be as good as the default.
    let likely = |candidate: &Candidate| {
        let score = scores.get(&candidate.name).copied().unwrap_or(0.0);
        (!own.contains(&candidate.name), -score)
    };
    kept.sort_by(|a, b| {
        let ((a_shipped, a), (b_shipped, b)) = (likely(a), likely(b));
        a_shipped.cmp(&b_shipped).then(a.total_cmp(&b))
    });
    (kept, dropped)
}

#[cfg(test)]
mod tests {
    use super::super::look::samples::two_cpus;
    use super::super::workload;
    use super::*;
    use crate::folders;

    #[test]
    fn a_recording_says_what_is_simulated_and_where_whatever_the_workload() {
        let folders = Folders::default();
        let (_, matrix) = workload::find("chat", &folders).unwrap();
        let file = folders::repository()
            .unwrap()
            .join("tests/data/profiles/launcher-beside-loops.json");
        let recorded = workload::recorded(&file, &folders).unwrap();
        let seen = two_cpus();
        let presift = Presift {
            matrix: &matrix,
            recorded: Some(&recorded),
            seen: &seen,
            prefer: None,
            folders: &folders,
            target: std::path::Path::new("/nowhere"),
            budget: &Budget::begin(std::time::Duration::ZERO),
            on: On::Lab,
        };
        let (simulated, machine) = presift.simulated("2x1").unwrap();
        assert_eq!(machine, file.display().to_string());
        assert_eq!(simulated.workloads, recorded.workloads);
        assert_eq!(simulated.lab.cpus, Some(2));
    }

    #[test]
    fn only_what_is_much_worse_is_dropped_and_nobodys_own() {
        let candidates = ["mine", "unknown", "bad", "good", "so-so"];
        let candidates = candidates.map(|name| Candidate::new(name, "", "")).to_vec();
        let scores = [
            ("mine", -1.0),
            ("bad", -0.21),
            ("good", 0.1),
            ("so-so", -0.19),
        ];
        let scores = scores.map(|(name, score)| (name.to_owned(), score)).into();
        let (kept, dropped) = divided(candidates, &["mine".to_owned()].into(), &scores);
        let kept: Vec<&str> = kept.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(kept, ["mine", "good", "unknown", "so-so"]);
        assert_eq!(dropped.len(), 1);
        assert!(dropped[0].1.ends_with("score -0.210"), "{dropped:?}");
    }
}
