// SPDX-License-Identifier: GPL-2.0-only
//! All cells of a run in one compressed file, a line of JSON for each: what the repository keeps of a run.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use bzip2::Compression;
use bzip2::read::BzDecoder;
use bzip2::write::BzEncoder;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Columns of digits: bzip2 makes them a quarter smaller than gzip does.
pub const FILE: &str = "cells.ndjson.bz2";

/// The cells in an archive, in its order.
///
/// # Errors
/// It cannot be read, or a line of it is no cell.
pub fn read<Cell: DeserializeOwned>(file: &Path) -> Result<Vec<Cell>> {
    let open = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = BufReader::new(BzDecoder::new(open)).lines();
    let cell = |(index, line): (usize, std::io::Result<String>)| -> Result<Cell> {
        let place = || format!("{}: line {} (uncompressed)", file.display(), index + 1);
        serde_json::from_str(&line.with_context(place)?).with_context(place)
    };
    lines.enumerate().map(cell).collect()
}

/// Puts the files of cells into a new archive, as they were written; `most`, with no more latencies of requests in each.
///
/// # Errors
/// One of them is no cell, or the archive cannot be written.
pub fn write<Cell: DeserializeOwned>(
    archive: &Path,
    cells: &[PathBuf],
    most: Option<usize>,
) -> Result<()> {
    let out =
        File::create(archive).with_context(|| format!("cannot write {}", archive.display()))?;
    let mut out = BzEncoder::new(out, Compression::best());
    for file in cells {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str::<Cell>(&text)
            .with_context(|| format!("{} is no cell", file.display()))?;
        let line = match most {
            // Within strings JSON has no line breaks: all that there are separate words.
            None => text.trim().replace('\n', " "),
            Some(most) => thinned(serde_json::from_str(&text)?, most).to_string(),
        };
        out.write_all(format!("{line}\n").as_bytes())?;
    }
    out.finish()
        .with_context(|| format!("cannot write {}", archive.display()))?;
    Ok(())
}

/// A cell with the latency of every second, third, ... request, so that there are no more than `most`.
fn thinned(mut cell: Value, most: usize) -> Value {
    for key in ["latency_us", "latency_request"] {
        let place = format!("/measurement/workload/{key}");
        let Some(Value::Array(values)) = cell.pointer_mut(&place) else {
            continue;
        };
        let every = values.len().div_ceil(most.max(1));
        if every > 1 {
            *values = values.iter().step_by(every).cloned().collect();
        }
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::neighbour::Neighbour;
    use crate::record::{Cell, RunDir, samples};

    #[test]
    fn a_run_is_read_from_its_archive_as_from_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        for round in 1..=3 {
            let cell = samples::cell(round, "eevdf", Neighbour::Heavy, 100.0 / 3.0);
            run.write_cell(&cell).unwrap();
        }
        let before = serde_json::to_string(&run.cells().unwrap()).unwrap();
        run.archive(&dir.path().join(FILE), None).unwrap();
        std::fs::remove_dir_all(dir.path().join("cells")).unwrap();
        assert_eq!(
            serde_json::to_string(&run.cells().unwrap()).unwrap(),
            before
        );
    }

    #[test]
    fn latencies_are_thinned_with_the_numbers_of_their_requests() {
        let cell = |last: u64| {
            let requests: Vec<u64> = (1..=last).collect();
            let us: Vec<f64> = requests
                .iter()
                .map(|&request| request as f64 / 2.0)
                .collect();
            serde_json::json!({"measurement": {"workload": {"latency_us": us, "latency_request": requests, "x": [1, 2, 3]}}})
        };
        let workload = thinned(cell(7), 3)["measurement"]["workload"].take();
        let expected = serde_json::json!({"latency_us": [0.5, 2.0, 3.5], "latency_request": [1, 4, 7], "x": [1, 2, 3]});
        assert_eq!(workload, expected);
        assert_eq!(thinned(cell(7), 7), cell(7));
    }

    #[test]
    fn a_broken_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        let cell = serde_json::to_string(&samples::cell(1, "eevdf", Neighbour::None, 1.0)).unwrap();
        let mut out = BzEncoder::new(File::create(&file).unwrap(), Compression::fast());
        out.write_all(format!("{cell}\n{{\n").as_bytes()).unwrap();
        out.finish().unwrap();
        let error = read::<Cell>(&file).unwrap_err().to_string();
        assert!(
            error.ends_with("cells.ndjson.bz2: line 2 (uncompressed)"),
            "{error}"
        );
    }
}
