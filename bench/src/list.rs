// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench list`: what each matrix compares.

use std::fmt::Write;

use anyhow::Result;

use crate::arm::Arm;
use crate::datafile;
use crate::folders::Folders;
use crate::matrix::Matrix;
use crate::words::in_words;

/// Prints every matrix in the folder. A broken one is an error: it would be one in `run` as well.
pub fn main(folders: &Folders) -> Result<()> {
    for name in datafile::names(&folders.matrices())? {
        let file = datafile::find("matrix", &name, &folders.matrices())?;
        print!("{}", explain(&name, &Matrix::read(&file)?, folders)?);
    }
    Ok(())
}

fn explain(name: &str, matrix: &Matrix, folders: &Folders) -> Result<String> {
    let mut text = format!("{name}: {}\n", matrix.description);
    writeln!(
        text,
        "  {} rounds of {} cells of {} s in a lab with kernel {}: about {} and the boots",
        matrix.rounds,
        matrix.cells() / matrix.rounds as usize,
        matrix.seconds,
        matrix.lab.kernel,
        in_words(matrix.about())
    )?;
    let names = matrix
        .arms
        .iter()
        .chain(matrix.workloads.iter().map(|w| &w.name));
    let width = names.map(String::len).max().unwrap_or(0);
    for workload in &matrix.workloads {
        let described = workload.describe();
        writeln!(text, "  workload   {:<width$} {described}", workload.name)?;
    }
    for neighbour in &matrix.neighbours {
        writeln!(
            text,
            "  neighbour  {neighbour:<width$} {}",
            neighbour.description(&matrix.stress_ng)
        )?;
    }
    for arm in &matrix.arms {
        let file = datafile::find("arm", arm, &folders.arms())?;
        let described = Arm::read(&file, "{preferred}", "{others}")?;
        writeln!(text, "  arm        {arm:<width$} {}", described.description)?;
    }
    Ok(text)
}
