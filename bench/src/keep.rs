// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench keep`: from the folder of a run to what the repository keeps of it: the report, what it was made of,
//! and all cells in one file, from which `report` draws the pictures again. `compare` and `pool` read both.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::datafile::DataError;
use crate::record::facts::{self, Facts};
use crate::record::{self, RunDir, archive};
use crate::replace::put;
use crate::report;

/// Keeps the run in `dir` as `to`, with the report of what is kept; `most`, with no more latencies of requests a cell.
///
/// # Errors
/// The run was made from a tree with changes of its own, `to` is there already, or a file cannot be written.
pub fn keep(dir: &Path, to: &Path, most: Option<usize>) -> Result<()> {
    let run = RunDir::open(dir)?;
    let facts: Facts = record::read_json(&dir.join("facts-host.json"))?;
    let revision = facts.get("git revision").map_or("", String::as_str);
    if !facts::can_be_repeated(revision) {
        let usage = format!(
            "{}: expected a run of a revision that others can check out, got {revision:?}: commit, then measure again",
            dir.display()
        );
        return Err(DataError::Usage(usage).into());
    }
    if to.exists() {
        let usage = format!("{}: expected a folder that is not there yet", to.display());
        return Err(DataError::Usage(usage).into());
    }
    let folder = to.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // Beside its place, so that a run that is kept is kept whole.
    let draft = tempfile::Builder::new()
        .prefix(".keep-")
        .tempdir_in(folder)
        .with_context(|| format!("cannot write into {}", folder.display()))?;
    for file in files(dir)? {
        let name = file.file_name().context("a file without a name")?;
        fs::copy(&file, draft.path().join(name))
            .with_context(|| format!("cannot copy {}", file.display()))?;
    }
    run.archive(&draft.path().join(archive::FILE), most)?;
    put(
        &draft.path().join("report.md"),
        report::markdown(draft.path())?,
    )?;
    fs::set_permissions(
        draft.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )?;
    let draft = draft.keep();
    fs::rename(&draft, to).with_context(|| format!("cannot make {}", to.display()))
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let kept = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name == "plan.json" || name.starts_with("facts-")
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(kept)
        .collect();
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::plan;
    use crate::record::neighbour::Neighbour;
    use crate::record::samples;

    fn run(revision: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        run.write_cell(&samples::cell(1, "eevdf", Neighbour::None, 9.0))
            .unwrap();
        record::write_json(&dir.path().join("plan.json"), &plan()).unwrap();
        let facts = Facts::from([("git revision".to_owned(), revision.to_owned())]);
        record::write_json(&dir.path().join("facts-host.json"), &facts).unwrap();
        for name in [
            "report.md",
            "summary.json",
            "report.html",
            "isolation-qwen3.svg",
        ] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        dir
    }

    #[test]
    fn keeps_what_is_quoted_and_all_cells_in_one_file() {
        let (dir, out) = (run("0123456789ab"), tempfile::tempdir().unwrap());
        let to = out.path().join("runs/2026-01-01-demo");
        keep(dir.path(), &to, None).unwrap();
        let entries = fs::read_dir(&to).unwrap().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected = [
            "cells.ndjson.bz2",
            "facts-host.json",
            "plan.json",
            "report.md",
        ];
        assert_eq!(names, expected);
        assert_eq!(RunDir::open(&to).unwrap().cells().unwrap().len(), 1);
        let again = keep(dir.path(), &to, None).unwrap_err();
        assert!(again.is::<DataError>(), "{again}");
    }

    #[test]
    fn the_report_is_of_what_is_kept() {
        let (dir, out) = (run("0123456789ab"), tempfile::tempdir().unwrap());
        let to = out.path().join("kept");
        keep(dir.path(), &to, None).unwrap();
        let kept = fs::read_to_string(to.join("report.md")).unwrap();
        assert_eq!(kept, report::markdown(&to).unwrap());
        assert_ne!(kept, "report.md", "as it was before");
    }

    #[test]
    fn refuses_what_nobody_can_repeat() {
        let out = tempfile::tempdir().unwrap();
        for revision in ["0123456789ab with local changes", ""] {
            let error = keep(run(revision).path(), &out.path().join("kept"), None).unwrap_err();
            assert!(error.is::<DataError>(), "{error}");
            assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
        }
    }
}
