// SPDX-License-Identifier: GPL-2.0-only
//! From the command line and the data files to the plan of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;

use super::inside;
use super::preferred::preferred;
use crate::arm::Arm;
use crate::cli::RunOptions;
use crate::cpus;
use crate::datafile::{self, DataError};
use crate::folders::Folders;
use crate::lab::Lab;
use crate::matrix::{Cgroups, Matrix, Program};
use crate::plan::{self, Plan, Where};
use crate::record;
use crate::record::neighbour::Neighbour;
use crate::simulator::{self, Machine};
use crate::workload::check_graph;

/// A plan for what the user asks for.
pub fn settle(options: &RunOptions) -> Result<Plan> {
    let folders = &options.folders;
    let name = options.matrix.as_deref().unwrap_or_default();
    let file = datafile::find("matrix", name, &folders.matrices())?;
    let mut matrix = Matrix::read(&file)?;
    matrix.rounds = options.rounds.unwrap_or(matrix.rounds);
    matrix.seconds = options.seconds.unwrap_or(matrix.seconds);
    matrix.lab.cpus = options.cpus.or(matrix.lab.cpus);
    if let Some(preferred) = &options.preferred {
        matrix.preferred.clone_from(preferred);
    }
    if let Some(kernel) = &options.kernel {
        matrix.lab.kernel.clone_from(kernel);
    }
    matrix.narrow(&options.arms, &options.neighbours)?;
    if !matrix.arms.contains(&matrix.subject) {
        matrix.subject.clone_from(&matrix.baseline);
    }
    let machine = machine(options, &mut matrix)?;
    let cpus = match options.on {
        Where::Lab => cpus::first(
            matrix
                .lab
                .cpus
                .map_or_else(|| Lab::default().cpus, |cpus| cpus as usize),
        ),
        Where::Host => cpus::online(),
        Where::Sim => cpus::first(matrix.lab.cpus.unwrap_or_default() as usize),
    };
    let scheduler = match options.on {
        Where::Host => Some(folders.target()?.join("release/scx_gpuaware")),
        Where::Lab | Where::Sim => None,
    };
    let preferred = preferred(&matrix.preferred, &cpus, scheduler)?;
    if options.on != Where::Sim {
        check_real(&matrix, &file)?;
        check_graphs(&matrix, &file, &folders.target()?)?;
    }
    let arms = read_arms(&matrix, folders, &preferred, &cpus)?;
    let seed = options.seed.unwrap_or_else(inside::unix_ms);
    let blocks = plan::blocks(&matrix, &arms, seed);
    let plan = Plan {
        schema: record::SCHEMA,
        name: file
            .file_stem()
            .map_or_else(|| name.to_owned(), |s| s.to_string_lossy().into_owned()),
        matrix,
        arms,
        preferred,
        cpus: cpus.len(),
        seed,
        started_unix_ms: inside::unix_ms(),
        command_line: command_line(std::env::args_os().skip(1)),
        on: options.on,
        machine,
        native: options.native,
        blocks,
    };
    if plan.on == Where::Sim {
        simulator::check(&plan, &folders.target()?)?;
    }
    Ok(plan)
}

/// CPUs of the lab at most.
const LAB_CPUS: u32 = 64;
/// Of a simulated machine that nobody names: the lab's of the kept runs.
const SIM_CPUS: u32 = 2;

/// The machine that is simulated, if one is; the matrix has its number of CPUs then, and no boots.
fn machine(options: &RunOptions, matrix: &mut Matrix) -> Result<Option<String>, DataError> {
    let usage = |text: String| Err(DataError::Usage(text));
    if options.on != Where::Sim {
        return match options.cpus.filter(|&cpus| cpus > LAB_CPUS) {
            _ if options.machine.is_some() => {
                usage("--machine: expected with --on sim: others have machines of their own".into())
            }
            _ if options.native => usage(
                "--native: expected with --on sim: elsewhere callbacks cost what they cost".into(),
            ),
            Some(cpus) => usage(format!(
                "--cpus: expected at most {LAB_CPUS} outside --on sim, got {cpus}"
            )),
            None => Ok(None),
        };
    }
    if options.kernel.is_some() {
        return usage("--kernel: expected without --on sim, which models one kernel".into());
    }
    let cpus = matrix.lab.cpus.unwrap_or(SIM_CPUS).to_string();
    let name = (options.machine.clone())
        .or_else(|| matrix.recorded_machine().map(str::to_owned))
        .unwrap_or(cpus);
    let found = Machine::find(&name, &options.folders.target()?)?;
    if let Some(cpus) = options.cpus.filter(|&cpus| cpus as usize != found.cpus) {
        return usage(format!(
            "--cpus {cpus}: expected as many as the machine {name} has, which are {}",
            found.cpus
        ));
    }
    matrix.lab.cpus = u32::try_from(found.cpus).ok();
    matrix.boots = 1;
    Ok(Some(name))
}

/// What was recorded cannot be run once more.
fn check_real(matrix: &Matrix, file: &Path) -> Result<(), DataError> {
    let mut workloads = matrix.workloads.iter();
    let workload = workloads.find(|workload| workload.recording().is_some());
    let what = match workload {
        Some(workload) => format!("workload {:?}", workload.name),
        None if matrix.neighbours.contains(&Neighbour::Recorded) => "neighbour recorded".to_owned(),
        None => return Ok(()),
    };
    Err(DataError::Usage(format!(
        "{}: {what}: expected --on sim: what was recorded is simulated only",
        file.display()
    )))
}

/// Before anything boots: a graph that cannot be run is a mistake in the matrix.
fn check_graphs(matrix: &Matrix, file: &Path, target: &Path) -> Result<(), DataError> {
    for workload in &matrix.workloads {
        if let Program::Pipeline(pipeline) = &workload.program {
            check_graph(pipeline, target).map_err(|error| {
                let (file, name) = (file.display(), &workload.name);
                DataError::Usage(format!("{file}: workload {name:?}: {error}"))
            })?;
        }
    }
    Ok(())
}

fn read_arms(
    matrix: &Matrix,
    folders: &Folders,
    preferred: &str,
    cpus: &BTreeSet<usize>,
) -> Result<BTreeMap<String, Arm>, DataError> {
    let others = cpus::others(preferred, cpus);
    matrix
        .arms
        .iter()
        .map(|name| {
            let file = datafile::find("arm", name, &folders.arms())?;
            let arm = Arm::read(&file, preferred, &others)?;
            Ok((
                name.clone(),
                match matrix.cgroups {
                    Cgroups::Shared => arm,
                    Cgroups::Separate => arm.in_separate_cgroups(),
                },
            ))
        })
        .collect()
}

/// What was typed, without what does not change the figures: where files lie. Paths may have any bytes.
fn command_line(mut words: impl Iterator<Item = OsString>) -> String {
    let mut text = String::from("gpuaware-bench");
    while let Some(word) = words.next() {
        let word = word.to_string_lossy();
        match &*word {
            "-o" | "--output" | "--target-dir" => drop(words.next()),
            _ if word.starts_with("--output=") || word.starts_with("--target-dir=") => {}
            _ => text += &format!(" {word}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn the_command_line_is_kept_without_places() {
        let words = [
            "run",
            "demo",
            "-o",
            "/x",
            "--target-dir=/y",
            "--rounds",
            "3",
        ];
        let text = command_line(words.into_iter().map(OsString::from));
        assert_eq!(text, "gpuaware-bench run demo --rounds 3");
        let words = ["--disk".into(), OsString::from_vec(b"/d\xff".to_vec())];
        let text = command_line(words.into_iter());
        assert_eq!(text, "gpuaware-bench --disk /d\u{fffd}");
    }
}
