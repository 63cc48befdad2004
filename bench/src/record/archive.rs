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

/// Puts the files of cells into a new archive, as they were written.
///
/// # Errors
/// One of them is no cell, or the archive cannot be written.
pub fn write<Cell: DeserializeOwned>(archive: &Path, cells: &[PathBuf]) -> Result<()> {
    let out =
        File::create(archive).with_context(|| format!("cannot write {}", archive.display()))?;
    let mut out = BzEncoder::new(out, Compression::best());
    for file in cells {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str::<Cell>(&text)
            .with_context(|| format!("{} is no cell", file.display()))?;
        // Within strings JSON has no line breaks: all that there are separate words.
        let line = text.trim().replace('\n', " ") + "\n";
        out.write_all(line.as_bytes())?;
    }
    out.finish()
        .with_context(|| format!("cannot write {}", archive.display()))?;
    Ok(())
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
        run.archive(&dir.path().join(FILE)).unwrap();
        std::fs::remove_dir_all(dir.path().join("cells")).unwrap();
        assert_eq!(
            serde_json::to_string(&run.cells().unwrap()).unwrap(),
            before
        );
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
