// SPDX-License-Identifier: GPL-2.0-only
//! What the simulator does not know, a server or a pipeline, is recorded for it: in a cell of its own beside a neighbour,
//! under the default.

use std::path::Path;

use anyhow::Result;

use super::budget::Budget;
use super::candidate::DEFAULT;
use super::folder::{RECORDED as STEP, Step, TuneDir};
use super::goal::On;
use super::{steps, workload};
use crate::cli::RunOptions;
use crate::folders::Folders;
use crate::matrix::{Matrix, Trace};
use crate::record::neighbour::Neighbour;
use crate::record::{self, RunDir};
use crate::words::in_words;
use crate::{interrupt, run, simulator};

/// Half of them are recorded. Starting the recorder takes some before.
const SECONDS: f64 = 20.0;

/// The matrix of the recording, for the sifting in the simulator; `None`: it knows the workload, or there is none, and
/// this says why.
pub fn record(
    matrix: &Matrix,
    on: On,
    budget: &Budget,
    folders: &Folders,
    dir: &TuneDir,
) -> Result<Option<Matrix>> {
    let Some(cell) = unknown(matrix) else {
        return Ok(None);
    };
    let costs = steps::costs(&cell, on);
    let takes = costs.boot + costs.verify_turn;
    if takes > budget.early_part() {
        eprintln!(
            "{STEP}: nothing: it takes {}, a longer --budget allows it",
            in_words(takes)
        );
        return Ok(None);
    }
    budget.say(STEP);
    eprintln!(
        "{STEP}: {} beside {}, for the simulator",
        cell.workloads[0].name, cell.neighbours[0]
    );
    let file = match measure(&cell, on, folders, dir)? {
        Ok(profile) => {
            let file = dir.root.join(format!("{STEP}.json"));
            record::write_json(&file, &profile)?;
            file
        }
        Err(why) => {
            eprintln!("{STEP}: nothing: {why}");
            return Ok(None);
        }
    };
    if let Err(lacks) = simulator::check_recording(&file.display().to_string()) {
        eprintln!("{STEP}: of no use: {lacks}");
        return Ok(None);
    }
    Ok(Some(workload::recorded(&file, folders)?))
}

/// The workload beside its first neighbour, to be recorded; `None`: the simulator knows it beside one of them.
fn unknown(matrix: &Matrix) -> Option<Matrix> {
    let noise = matrix.neighbours.iter().copied();
    let noise: Vec<Neighbour> = noise.filter(|&one| one != Neighbour::None).collect();
    let workload = matrix.workloads.first()?;
    let knows = |&neighbour: &Neighbour| simulator::knows(workload, neighbour).is_ok();
    if noise.iter().any(knows) {
        return None;
    }
    let mut cell = Matrix {
        neighbours: vec![*noise.first()?],
        seconds: SECONDS,
        warmup_seconds: 0.0,
        ..matrix.clone()
    };
    cell.workloads[0].trace = Some(Trace::Profile);
    Some(cell)
}

/// The profile that the cell has, or why it has none.
fn measure(
    cell: &Matrix,
    on: On,
    folders: &Folders,
    dir: &TuneDir,
) -> Result<Result<serde_json::Value, String>> {
    let step = Step {
        name: STEP.to_owned(),
        what: "tune, recording for the simulator".to_owned(),
        arms: vec![DEFAULT.to_owned()],
        baseline: DEFAULT,
        rounds: 1,
        boots: 1,
        seconds: SECONDS,
    };
    let file = dir.write_matrix(cell, &step)?;
    let folder = dir.root.join(STEP);
    let folders = folders.with_arms(dir.arms());
    run::main(&RunOptions::of_file(
        &file,
        folder.clone(),
        on.cells(),
        folders,
    ))?;
    interrupt::check()?;
    profile_in(&folder)
}

fn profile_in(folder: &Path) -> Result<Result<serde_json::Value, String>> {
    let mut why = "the cell was not measured".to_owned();
    for cell in RunDir::open(folder)?.cells()? {
        match cell.measurement.and_then(|measured| measured.profile) {
            Some(profile) => return Ok(Ok(profile)),
            None => why = cell.failure.unwrap_or(why),
        }
    }
    Ok(Err(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_simulator_does_not_know_is_recorded() {
        let folders = Folders::default();
        let beside = |name: &str, neighbours: &[&str]| {
            let (_, mut matrix) = workload::find(name, &folders).unwrap();
            let names: Vec<String> = neighbours.iter().map(|&name| name.to_owned()).collect();
            matrix.neighbours = workload::neighbours(&names).unwrap();
            unknown(&matrix)
        };
        assert!(beside("qwen3", &["irq", "cpu"]).is_none());
        assert!(beside("qwen3", &["irq"]).is_some());
        let cell = beside("chat", &["cpu", "heavy"]).unwrap();
        assert_eq!(cell.neighbours, [Neighbour::Cpu]);
        assert_eq!(cell.workloads[0].trace, Some(Trace::Profile));
    }

    #[test]
    fn the_profile_or_what_went_wrong_is_taken_from_the_cells() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        std::fs::write(dir.path().join("plan.json"), "{}").unwrap();
        let mut cell = record::samples::cell(1, DEFAULT, Neighbour::Cpu, 100.0);
        let measured = cell.measurement.take();
        cell.failure = Some("the recorder ended".to_owned());
        run.write_cell(&cell).unwrap();
        assert_eq!(
            profile_in(dir.path()).unwrap().unwrap_err(),
            "the recorder ended"
        );
        cell.measurement = measured;
        cell.failure = None;
        let profile = serde_json::json!({"groups": []});
        cell.measurement.as_mut().unwrap().profile = Some(profile.clone());
        run.write_cell(&cell).unwrap();
        assert_eq!(profile_in(dir.path()).unwrap().unwrap(), profile);
    }
}
