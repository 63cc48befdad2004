// SPDX-License-Identifier: GPL-2.0-only
//! The runs of a tuning: the rungs of the sifting, then the proof. A run that is finished is only read; one that was cut
//! off goes on.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::candidate::{Candidate, DEFAULT};
use super::folder::{BASELINE, State, Step, TuneDir};
use super::goal::On;
use super::schedule::{Costs, Rung};
use super::score::ranked;
use crate::cli::RunOptions;
use crate::folders::Folders;
use crate::interrupt;
use crate::matrix::Matrix;
use crate::plan::Where;
use crate::report::{self, Report};
use crate::run;
use crate::words::in_words;

pub const PROOF: &str = "verify";

/// A tuning under way.
pub struct Tuning<'a> {
    pub dir: TuneDir,
    pub state: State,
    pub folders: &'a Folders,
}

/// Cells of the sifting are half as long.
pub fn sift_seconds(matrix: &Matrix) -> f64 {
    (matrix.seconds / 2.0).max(1.0).min(matrix.seconds)
}

/// By the bench's own estimate.
pub fn costs(matrix: &Matrix, on: On) -> Costs {
    let turn = |seconds: f64| {
        let arms = vec![DEFAULT.to_owned()];
        let one = Matrix {
            seconds,
            rounds: 1,
            arms,
            ..matrix.clone()
        };
        one.about()
    };
    Costs {
        sift_turn: turn(sift_seconds(matrix)),
        verify_turn: turn(matrix.seconds),
        boot: match on.cells() {
            Where::Lab => run::GUESSED_BOOT,
            Where::Host => Duration::ZERO,
        },
    }
}

impl Tuning<'_> {
    /// Those that go to the proof, the best first. The best two together are one of them, where they can be.
    pub fn sift(&mut self) -> Result<Vec<Candidate>> {
        let mut left = self.state.candidates.clone();
        let rungs = self.state.schedule.rungs.clone();
        let finalists = self.state.schedule.finalists;
        for (at, rung) in rungs.iter().enumerate() {
            let step = self.rung(at, rungs.len(), *rung, &left);
            let report = self.measure(&step)?;
            let names = left.iter().map(|candidate| candidate.name.as_str());
            let ranking: Vec<(String, Option<f64>)> =
                ranked(&report.summary, names, self.state.prefer)
                    .into_iter()
                    .filter(|(_, score)| score.is_some())
                    .map(|(name, score)| (name.to_owned(), score))
                    .collect();
            if ranking.is_empty() {
                bail!(
                    "no candidate was measured: {} says why",
                    self.dir.root.join(&step.name).join("report.md").display()
                );
            }
            let next = rungs.get(at + 1).map_or(finalists, |rung| rung.candidates);
            say_ranking(&step.name, &ranking, next);
            let both = match ranking.as_slice() {
                [(first, Some(a)), (second, Some(b)), ..]
                    if at + 1 == rungs.len() && *a > 0.0 && *b > 0.0 =>
                {
                    pair(&left, first, second)
                }
                _ => None,
            };
            left = ranking
                .iter()
                .take(next)
                .filter_map(|(name, _)| left.iter().find(|one| one.name == *name).cloned())
                .collect();
            // The best stays: what is good apart need not be good together.
            if let Some(both) = both.filter(|_| left.len() > 1) {
                eprintln!("{}: {} is verified too", step.name, both.name);
                left.pop();
                left.push(both);
            }
        }
        left.truncate(finalists);
        Ok(left)
    }

    fn rung(&self, at: usize, rungs: usize, rung: Rung, left: &[Candidate]) -> Step {
        let names = left.iter().map(|candidate| candidate.name.clone());
        Step {
            name: format!("sift-{}", at + 1),
            what: format!(
                "tune, sifting {} of {rungs}: {} candidates beside the default",
                at + 1,
                left.len()
            ),
            arms: [DEFAULT.to_owned()].into_iter().chain(names).collect(),
            baseline: DEFAULT,
            rounds: rung.rounds,
            boots: 1,
            seconds: sift_seconds(&self.state.matrix),
        }
    }

    /// The finalists beside the default and the kernel's own scheduler, in rounds that nobody has seen yet.
    pub fn verify(&mut self, finalists: &[Candidate]) -> Result<Report> {
        for candidate in finalists {
            self.dir.write_candidate(candidate)?;
        }
        let rounds =
            costs(&self.state.matrix, self.state.on).verify_rounds(finalists.len(), self.left());
        let names = finalists.iter().map(|candidate| candidate.name.clone());
        let beside = [BASELINE, DEFAULT].map(str::to_owned);
        let step = Step {
            name: PROOF.to_owned(),
            what: format!(
                "tune, proof: {} candidates beside the default, on rounds of their own",
                finalists.len()
            ),
            arms: beside.into_iter().chain(names).collect(),
            baseline: BASELINE,
            rounds,
            boots: rounds,
            seconds: self.state.matrix.seconds,
        };
        self.measure(&step)
    }

    fn left(&self) -> Duration {
        Duration::from_secs_f64((self.state.budget_s - self.state.spent_s).max(0.0))
    }

    fn measure(&mut self, step: &Step) -> Result<Report> {
        let folder = self.dir.root.join(&step.name);
        if self.state.done.contains(&step.name) {
            return report::read(&folder);
        }
        let (left, all) = (
            in_words(self.left()),
            in_words(Duration::from_secs_f64(self.state.budget_s)),
        );
        eprintln!("\n{}: {}; {left} of {all} left", step.name, step.what);
        let began = Instant::now();
        let measured = self.run(step, &folder);
        self.state.spent_s += began.elapsed().as_secs_f64();
        self.dir.write_state(&self.state)?;
        measured?;
        if let Err(stopped) = interrupt::check() {
            let root = self.dir.root.display();
            eprintln!("go on with: gpuaware-bench tune --resume {root}");
            return Err(stopped);
        }
        report::write(&folder, false)?;
        self.state.done.push(step.name.clone());
        self.dir.write_state(&self.state)?;
        report::read(&folder)
    }

    fn run(&self, step: &Step, folder: &Path) -> Result<()> {
        let options = if folder.join("plan.json").is_file() {
            RunOptions::rest_of(folder.to_owned(), self.folders.clone())
        } else {
            let matrix = self.dir.write_matrix(&self.state, step)?;
            let folders = self.folders.with_arms(self.dir.arms());
            let on = self.state.on.cells();
            RunOptions::of_file(&matrix, folder.to_owned(), on, folders)
        };
        // A candidate whose cells fail is dropped for that.
        run::main(&options).map(drop)
    }
}

fn pair(all: &[Candidate], first: &str, second: &str) -> Option<Candidate> {
    let named = |name: &str| all.iter().find(|candidate| candidate.name == name);
    named(first)?.with(named(second)?)
}

fn say_ranking(step: &str, ranking: &[(String, Option<f64>)], next: usize) {
    for (at, (name, score)) in ranking.iter().enumerate() {
        let goes_on = if at < next { "goes on" } else { "dropped" };
        let score = score.unwrap_or(0.0);
        eprintln!("{step}: {name}: {goes_on}, score {score:+.3}");
    }
}
