// SPDX-License-Identifier: GPL-2.0-only
//! The workload that is tuned for, found among those of the matrices, and the matrix of the tuning's runs.

use std::path::Path;

use anyhow::Result;

use super::candidate::file_name;
use super::propose::Kind;
use crate::datafile::{self, DataError};
use crate::folders::Folders;
use crate::matrix::{Matrix, Program, Recording, Workload};
use crate::record::neighbour::Neighbour;

/// Launchers that wake fifty times a second have a p99 after that.
const RECORDED_SECONDS: f64 = 10.0;
/// Whose workloads come first where several have the same name.
const FIRST: &str = "demo";

/// The matrix that has `wanted`, NAME or MATRIX/NAME, with that workload alone; and the matrix's name.
pub fn find(wanted: &str, folders: &Folders) -> Result<(String, Matrix), DataError> {
    if let Some((matrix, name)) = wanted.rsplit_once('/') {
        let file = datafile::find("matrix", matrix, &folders.matrices())?;
        return match only(&file, name)? {
            Ok(found) => Ok((matrix.to_owned(), found)),
            Err(names) => Err(unknown(&format!("a workload of {matrix}"), &names, name)),
        };
    }
    let mut matrices = datafile::names(&folders.matrices())?;
    matrices.sort_by_key(|name| (name != FIRST, name.clone()));
    let mut known: Vec<String> = Vec::new();
    for matrix in matrices {
        let file = datafile::find("matrix", &matrix, &folders.matrices())?;
        match only(&file, wanted)? {
            Ok(found) => return Ok((matrix, found)),
            Err(names) => known.extend(names),
        }
    }
    known.sort();
    known.dedup();
    Err(unknown("NAME or MATRIX/NAME, one of", &known, wanted))
}

fn unknown(what: &str, known: &[String], got: &str) -> DataError {
    DataError::Usage(format!(
        "--workload: expected {what} ({}), got {got:?}: gpuaware-bench list shows them all",
        known.join(", ")
    ))
}

/// The matrix with that one workload, or the names of those that it has.
fn only(file: &Path, name: &str) -> Result<Result<Matrix, Vec<String>>, DataError> {
    let mut matrix = Matrix::read(file)?;
    let names = matrix
        .workloads
        .iter()
        .map(|workload| workload.name.clone());
    let names: Vec<String> = names.collect();
    matrix.workloads.retain(|workload| workload.name == name);
    let Some(workload) = matrix.workloads.first_mut() else {
        return Ok(Err(names));
    };
    // What the matrix asks is not asked here.
    workload.arms.clear();
    workload.neighbours.clear();
    workload.trace = None;
    Ok(Ok(alone(matrix)))
}

/// The matrix of a recorded host: those that launch there, alone and beside the others.
pub fn recorded(file: &Path, folders: &Folders) -> Result<Matrix, DataError> {
    let demo = datafile::find("matrix", FIRST, &folders.matrices())?;
    // A tuning may go on from another folder.
    let file = &file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let name = file.file_stem().unwrap_or(file.as_os_str());
    Ok(Matrix {
        workloads: vec![Workload {
            name: file_name(&name.to_string_lossy()),
            trace: None,
            arms: Vec::new(),
            neighbours: Vec::new(),
            program: Program::Recording(Recording {
                file: file.display().to_string(),
            }),
        }],
        neighbours: vec![Neighbour::None, Neighbour::Recorded],
        seconds: RECORDED_SECONDS,
        ..alone(Matrix::read(&demo)?)
    })
}

/// Without what a matrix asks besides.
fn alone(matrix: Matrix) -> Matrix {
    Matrix {
        sweeps: Vec::new(),
        reference: None,
        published: None,
        reserved: None,
        bpf_stats: false,
        ..matrix
    }
}

/// The quiet machine and those that the user names.
pub fn neighbours(names: &[String]) -> Result<Vec<Neighbour>, DataError> {
    let mut all = vec![Neighbour::None];
    for name in names {
        let neighbour = serde_json::from_value(name.as_str().into())
            .map_err(|error| DataError::Usage(format!("--neighbours: {error}")))?;
        if !all.contains(&neighbour) {
            all.push(neighbour);
        }
    }
    if all.len() == 1 {
        let expected =
            "--neighbours: expected one or more beside none: a quiet machine needs no policy";
        return Err(DataError::Usage(expected.to_owned()));
    }
    Ok(all)
}

/// What proposals need to know of it.
pub fn kind(matrix: &Matrix) -> Kind {
    match matrix.workloads.first().map(|workload| &workload.program) {
        Some(Program::LlmServer(_) | Program::Served(_)) => Kind::Server,
        Some(Program::Pipeline(_)) => Kind::Pipeline,
        _ => Kind::Launcher,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_found_by_name_or_by_matrix_and_name() {
        let folders = Folders::default();
        let (matrix, found) = find("qwen3", &folders).unwrap();
        assert_eq!((matrix.as_str(), found.workloads.len()), ("demo", 1));
        let (matrix, found) = find("llm-serving/chat", &folders).unwrap();
        assert_eq!(
            (matrix.as_str(), kind(&found)),
            ("llm-serving", Kind::Server)
        );
        let error = find("qwen4", &folders).err().unwrap().to_string();
        assert!(
            error.contains("qwen3") && error.ends_with("gpuaware-bench list shows them all"),
            "{error}"
        );
        let error = find("demo/chat", &folders).err().unwrap().to_string();
        assert!(
            error.contains("a workload of demo (qwen3, eager), got \"chat\""),
            "{error}"
        );
    }

    #[test]
    fn a_matrix_of_a_tuning_is_read_as_it_was_written() {
        let folders = Folders::default();
        for name in ["qwen3", "chat", "seed-windflow/wc-1"] {
            let Ok((_, matrix)) = find(name, &folders) else {
                continue;
            };
            let text = toml::to_string(&matrix).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("m.toml");
            std::fs::write(&file, &text).unwrap();
            let mut back = Matrix::read(&file).unwrap_or_else(|error| panic!("{error}\n{text}"));
            back.description.clone_from(&matrix.description);
            assert_eq!(
                serde_json::to_value(&back).unwrap(),
                serde_json::to_value(&matrix).unwrap()
            );
        }
    }

    #[test]
    fn neighbours_are_those_that_there_are() {
        let list =
            |names: &[&str]| neighbours(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            list(&["cpu", "cpu"]).unwrap(),
            [Neighbour::None, Neighbour::Cpu]
        );
        assert!(list(&["none"]).is_err());
        assert!(
            list(&["gpu"])
                .unwrap_err()
                .to_string()
                .starts_with("--neighbours: unknown variant `gpu`")
        );
    }
}
