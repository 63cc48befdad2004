// SPDX-License-Identifier: GPL-2.0-only
//! The runs of a tuning: the rungs of the sifting, then the proof. A run that is finished is only read; one that was cut
//! off goes on.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::budget::say_left;
use super::candidate::{Candidate, DEFAULT};
use super::folder::{BASELINE, State, Step, TuneDir};
use super::goal::On;
use super::schedule::{Costs, MIN_ROUNDS, Rung};
use super::score::ranked;
use crate::cli::RunOptions;
use crate::folders::Folders;
use crate::interrupt;
use crate::matrix::Matrix;
use crate::plan::Where;
use crate::report::{self, Report};
use crate::run;

pub const PROOF: &str = "verify";

/// A tuning under way.
pub struct Tuning<'a> {
    pub dir: TuneDir,
    pub state: State,
    pub folders: &'a Folders,
    /// Runs go on although something is another than at their start.
    pub force: bool,
}

/// Cells of the sifting are half as long.
pub fn sift_seconds(matrix: &Matrix) -> f64 {
    (matrix.seconds / 2.0).max(1.0).min(matrix.seconds)
}

/// A simulator neither boots nor warms up. A busy second of 512 CPUs takes it about a second
/// (docs/simulator.md); more is reckoned here, as the proof must have its time.
fn simulated_costs(matrix: &Matrix) -> Costs {
    let cpus = matrix.lab.cpus.map_or(1.0, f64::from);
    let slowness = 0.1 + cpus / 320.0;
    let turn =
        |seconds: f64| Duration::from_secs_f64(seconds * slowness) * matrix.neighbours.len() as u32;
    Costs {
        sift_turn: turn(sift_seconds(matrix)),
        verify_turn: turn(matrix.seconds),
        warm_up: Duration::ZERO,
        boot: Duration::ZERO,
    }
}

/// By the bench's own estimate.
pub fn costs(matrix: &Matrix, on: On) -> Costs {
    if on == On::Sim {
        return simulated_costs(matrix);
    }
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
        warm_up: turn(matrix.warmup_seconds) / matrix.neighbours.len() as u32,
        boot: match on.cells() {
            Where::Lab => run::GUESSED_BOOT,
            Where::Host | Where::Sim => Duration::ZERO,
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
            if at > 0 && !self.has_time_for(&step, *rung) {
                eprintln!("{}: left out, the time is for the proof", step.name);
                break;
            }
            let report = self.measure(&step)?;
            let next = rungs.get(at + 1).map_or(finalists, |rung| rung.candidates);
            let ranking = self.rank(&step.name, &report, &left, next)?;
            let both = (at + 1 == rungs.len()).then(|| best_two(&left, &ranking));
            left = ranking
                .iter()
                .take(next)
                .filter_map(|(name, _)| left.iter().find(|one| one.name == *name).cloned())
                .collect();
            // The best stays: what is good apart need not be good together.
            if let Some(both) = both.flatten().filter(|_| left.len() > 1) {
                eprintln!("{}: {} is verified too", step.name, both.name);
                left.pop();
                left.push(both);
            }
        }
        left.truncate(finalists);
        Ok(left)
    }

    /// Whether the proof has its time after this one too.
    fn has_time_for(&self, step: &Step, rung: Rung) -> bool {
        let costs = costs(&self.state.matrix, self.state.on);
        let proof = costs.verify(self.state.schedule.finalists, MIN_ROUNDS);
        self.state.done.contains(&step.name) || costs.sift(rung) + proof <= self.left()
    }

    /// Those that were measured, the best first; says who is among the `next` ones.
    fn rank(
        &mut self,
        step: &str,
        report: &Report,
        left: &[Candidate],
        next: usize,
    ) -> Result<Vec<(String, f64)>> {
        let names = left.iter().map(|candidate| candidate.name.as_str());
        let mut ranking = Vec::new();
        for (name, score) in ranked(&report.summary, names, self.state.prefer) {
            let Some(score) = score else {
                eprintln!("{step}: {name}: dropped, its cells failed");
                continue;
            };
            let goes_on = if ranking.len() < next {
                "goes on"
            } else {
                "dropped"
            };
            eprintln!("{step}: {name}: {goes_on}, score {score:+.3}");
            self.state.scores.insert(name.to_owned(), score);
            ranking.push((name.to_owned(), score));
        }
        if ranking.is_empty() {
            bail!(
                "no candidate was measured: {} says why",
                self.dir.root.join(step).join("report.md").display()
            );
        }
        Ok(ranking)
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
            boots: match self.state.on.cells() {
                Where::Lab => rounds,
                Where::Host | Where::Sim => 1,
            },
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
        let all = Duration::from_secs_f64(self.state.budget_s);
        say_left(&step.name, self.left(), all);
        let began = Instant::now();
        let measured = self.run(step, &folder);
        self.state.spent_s += began.elapsed().as_secs_f64();
        self.dir.write_state(&self.state)?;
        // Before the error: a step that is stopped while it begins ends with one.
        if let Err(stopped) = interrupt::check() {
            let root = self.dir.root.display();
            eprintln!("go on with: gpuaware-bench tune --resume {root}");
            return measured.and(Err(stopped));
        }
        measured?;
        report::write(&folder, false)?;
        self.state.done.push(step.name.clone());
        self.dir.write_state(&self.state)?;
        report::read(&folder)
    }

    fn run(&self, step: &Step, folder: &Path) -> Result<()> {
        let options = if folder.join("plan.json").is_file() {
            RunOptions::rest_of(folder.to_owned(), self.force, self.folders.clone())
        } else {
            let matrix = self.dir.write_matrix(&self.state.matrix, step)?;
            let folders = self.folders.with_arms(self.dir.arms());
            let on = self.state.on.cells();
            RunOptions {
                machine: self.state.machine.clone(),
                native: self.state.on == On::Sim,
                ..RunOptions::of_file(&matrix, folder.to_owned(), on, folders)
            }
        };
        // A candidate whose cells fail is dropped for that.
        run::main(&options).map(drop)
    }
}

/// The best two together, where both look better than the default.
fn best_two(all: &[Candidate], ranking: &[(String, f64)]) -> Option<Candidate> {
    let [(first, a), (second, b), ..] = ranking else {
        return None;
    };
    let named = |name: &str| all.iter().find(|candidate| candidate.name == name);
    (*a > 0.0 && *b > 0.0)
        .then(|| named(first)?.with(named(second)?))
        .flatten()
}
