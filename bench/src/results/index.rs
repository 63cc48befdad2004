// SPDX-License-Identifier: GPL-2.0-only
//! `bench/runs/index.toml`: which runs the repository keeps, of what they are, and where their figures are quoted. Reads
//! and checks it against the runs' own files; renders nothing.

use std::path::Path;

use serde::Deserialize;

use crate::datafile::{self, DataError};
use crate::plan::Plan;
use crate::record::neighbour::Neighbour;
use crate::record::{RunDir, archive, facts};
use crate::{record, report};

pub const FILE: &str = "bench/runs/index.toml";
const RUNS: &str = "bench/runs";
const HOST: &str = "facts-host.json";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    pub readme: Headline,
    pub pool: Pooled,
    pub strip: StripNote,
    #[serde(rename = "run")]
    pub runs: Vec<Kept>,
}

/// README's table: one row of one matrix, and from which runs the arms are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    pub workload: String,
    /// What kind of launcher that is, in words.
    pub shape: String,
    pub neighbour: Neighbour,
    /// What that neighbour is, in words.
    pub noise: String,
    #[serde(rename = "row")]
    pub rows: Vec<HeadlineRow>,
    /// Runs whose verdicts on who dominates are told.
    pub verdicts: Vec<String>,
    /// The other workloads of the subject's run that have a row.
    #[serde(default)]
    pub also: Vec<Also>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Also {
    pub workload: String,
    /// What kind of launcher that is, in words.
    pub shape: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadlineRow {
    pub label: String,
    pub run: String,
    /// Candidates: the fastest is shown.
    pub arms: Vec<String>,
}

/// The runs whose quiet cells say together what the subject costs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pooled {
    pub arm: String,
    pub runs: Vec<String>,
}

/// Where the strip comes from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StripNote {
    pub revision: String,
}

/// A run that the repository keeps.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Its folder in `bench/runs`.
    pub run: String,
    /// Absent: it was made by a test or a script, not by `gpuaware-bench run`.
    pub matrix: Option<String>,
    pub revision: String,
    pub kernel: Option<String>,
    /// What it is quoted for.
    #[serde(rename = "for")]
    pub purpose: String,
    /// Files that quote it.
    pub quoted: Vec<String>,
    /// The heading of its section in docs/results.md; absent: it has a line in the list of runs.
    pub show: Option<String>,
    /// What a reader must know beside the figures.
    pub note: Option<String>,
    /// The heading of the picture of its report that docs/ shows, as docs/pictures/MATRIX.svg.
    pub picture: Option<String>,
}

impl Index {
    /// # Errors
    /// The file cannot be read; a run is missing or listed twice; an entry contradicts the run's own files; a run is no
    /// archive, or one of a changed tree.
    pub fn read(root: &Path) -> Result<Self, DataError> {
        let index: Self = datafile::read(&root.join(FILE))?;
        index.check()?;
        for kept in &index.runs {
            kept.check(&root.join(RUNS).join(&kept.run))?;
        }
        Ok(index)
    }

    fn check(&self) -> Result<(), DataError> {
        let mut names: Vec<&str> = self.runs.iter().map(|kept| kept.run.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(twice[0], "expected one entry, got two"));
        }
        let revisions = self.runs.iter().map(|kept| (&kept.run, &kept.revision));
        let strip = "strip".to_owned();
        for (run, revision) in revisions.chain([(&strip, &self.strip.revision)]) {
            repeatable(run, revision)?;
        }
        let rows = self.readme.rows.iter().map(|row| &row.run);
        let used = rows.chain(&self.readme.verdicts).chain(&self.pool.runs);
        for run in used {
            if !names.contains(&run.as_str()) {
                return Err(wrong(
                    run,
                    "expected a run with an entry of its own, [[run]]",
                ));
            }
        }
        let drawn = || self.runs.iter().filter(|kept| kept.picture.is_some());
        let is_alone = |kept: &&Kept| kept.show.is_none() || kept.matrix.is_none();
        if let Some(kept) = drawn().find(is_alone) {
            let message =
                "picture: expected `show` and `matrix` as well: it is drawn from the run's report";
            return Err(wrong(&kept.run, message));
        }
        let mut matrices: Vec<_> = drawn().map(|kept| (&kept.matrix, &kept.run)).collect();
        matrices.sort_unstable();
        if let Some(twice) = matrices.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let message = "picture: expected one run of a matrix that has it, got two";
            return Err(wrong(twice[1].1, message));
        }
        Ok(())
    }

    /// Runs with a section of their own, in the order of the file.
    pub fn shown(&self) -> impl Iterator<Item = (&Kept, &str)> {
        let heading = |kept: &'_ Kept| kept.show.is_some();
        self.runs
            .iter()
            .filter(move |kept| heading(kept))
            .map(|kept| (kept, kept.show.as_deref().unwrap_or_default()))
    }

    /// What docs/ shows a picture of: run, matrix and the picture's heading.
    pub fn pictures(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.runs.iter().filter_map(|kept| {
            let heading = kept.picture.as_deref()?;
            Some((kept.run.as_str(), kept.matrix.as_deref()?, heading))
        })
    }

    pub fn kept(&self, run: &str) -> Option<&Kept> {
        self.runs.iter().find(|kept| kept.run == run)
    }
}

impl Kept {
    /// What the run says of itself is what the index says of it.
    fn check(&self, folder: &Path) -> Result<(), DataError> {
        if !folder.is_dir() {
            let message = format!("expected a folder {}", folder.display());
            return Err(wrong(&self.run, &message));
        }
        let plan = folder.join("plan.json");
        if !plan.exists() {
            return match self.matrix {
                None => Ok(()),
                Some(_) => Err(wrong(
                    &self.run,
                    "matrix: expected none: it has no plan.json",
                )),
            };
        }
        let unreadable = |error: anyhow::Error| wrong(&self.run, &format!("{error:#}"));
        if !RunDir::open(folder).map_err(unreadable)?.is_archived() {
            let message = format!(
                "expected {} in its folder: gpuaware-bench keep makes it",
                archive::FILE
            );
            return Err(wrong(&self.run, &message));
        }
        let plan: Plan = record::read_json(&plan).map_err(unreadable)?;
        self.same("matrix", self.matrix.as_deref(), Some(&plan.name))?;
        for (file, fact, own) in [
            (HOST, "git revision", Some(&self.revision)),
            ("facts-block0.json", "kernel", self.kernel.as_ref()),
        ] {
            let facts = report::facts(&folder.join(file)).map_err(unreadable)?;
            let found = facts.get(fact).map(String::as_str);
            if file == HOST {
                repeatable(&self.run, found.unwrap_or_default())?;
            }
            self.same(fact, own.map(String::as_str), found)?;
        }
        Ok(())
    }

    fn same(&self, key: &str, own: Option<&str>, found: Option<&str>) -> Result<(), DataError> {
        if own == found {
            return Ok(());
        }
        let [own, found] = [own, found].map(|value| value.unwrap_or("none"));
        Err(wrong(
            &self.run,
            &format!("{key}: expected {found:?}, as its own files say, got {own:?}"),
        ))
    }
}

fn repeatable(run: &str, revision: &str) -> Result<(), DataError> {
    if facts::can_be_repeated(revision) {
        return Ok(());
    }
    let message = format!(
        "revision: expected one that others can check out, got {revision:?}: commit, measure again and keep that run"
    );
    Err(wrong(run, &message))
}

fn wrong(run: &str, message: &str) -> DataError {
    DataError::Usage(format!("{FILE}: run {run:?}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::plan;
    use crate::record::facts::Facts;

    const HEAD: &str = r#"
[readme]
workload = "eager"
shape = "launch-bound"
neighbour = "heavy"
noise = "all at once"
verdicts = ["a"]
row = [{ label = "EEVDF", run = "a", arms = ["eevdf"] }]
[pool]
arm = "gpuaware"
runs = ["a"]
[strip]
revision = "r"
"#;
    const RUN: &str = r#"
[[run]]
run = "a"
matrix = "sample"
revision = "0123"
kernel = "6.18.15"
for = "tests"
quoted = ["README.md"]
"#;

    fn read(text: &str) -> Result<Index, DataError> {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("bench/runs/a");
        std::fs::create_dir_all(&folder).unwrap();
        record::write_json(&folder.join("plan.json"), &plan()).unwrap();
        for (file, fact, value) in [
            ("facts-host.json", "git revision", "0123"),
            ("facts-block0.json", "kernel", "6.18.15"),
        ] {
            let facts = Facts::from([(fact.to_owned(), value.to_owned())]);
            record::write_json(&folder.join(file), &facts).unwrap();
        }
        std::fs::write(folder.join(archive::FILE), "").unwrap();
        std::fs::write(dir.path().join(FILE), text).unwrap();
        Index::read(dir.path())
    }

    #[test]
    fn an_entry_says_what_the_run_says_of_itself() {
        assert_eq!(read(&format!("{HEAD}{RUN}")).unwrap().runs.len(), 1);
        for (right, wrong, named) in [
            ("\"sample\"", "\"demo\"", "matrix: expected \"sample\""),
            ("\"0123\"", "\"4567\"", "git revision: expected \"0123\""),
            ("\"6.18.15\"", "\"7.3\"", "kernel: expected \"6.18.15\""),
        ] {
            let text = format!("{HEAD}{}", RUN.replacen(right, wrong, 1));
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn rejects_a_run_of_a_changed_tree() {
        for (right, changed, named) in [
            ("\"0123\"", "\"0123 with local changes\"", "run \"a\": "),
            ("\"0123\"", "\"\"", "run \"a\": "),
            ("\"r\"", "\"r with local changes\"", "run \"strip\": "),
        ] {
            let text = format!("{HEAD}{RUN}").replacen(right, changed, 1);
            let error = read(&text).unwrap_err().to_string();
            let expected = format!("{named}revision: expected one that others can check out");
            assert!(error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn rejects_a_run_whose_cells_are_no_archive() {
        let dir = tempfile::tempdir().unwrap();
        record::write_json(&dir.path().join("plan.json"), &plan()).unwrap();
        let index: Index = toml::from_str(&format!("{HEAD}{RUN}")).unwrap();
        let error = index.runs[0].check(dir.path()).unwrap_err().to_string();
        assert!(error.ends_with("gpuaware-bench keep makes it"), "{error}");
    }

    #[test]
    fn rejects_a_run_that_is_not_listed_or_listed_twice() {
        let twice = read(&format!("{HEAD}{RUN}{RUN}")).unwrap_err().to_string();
        assert!(
            twice.ends_with("run \"a\": expected one entry, got two"),
            "{twice}"
        );
        let text = format!("{HEAD}{RUN}").replacen("runs = [\"a\"]", "runs = [\"b\"]", 1);
        let unknown = read(&text).unwrap_err().to_string();
        assert!(
            unknown.contains("run \"b\": expected a run with an entry"),
            "{unknown}"
        );
        let text = format!("{HEAD}{RUN}picture = \"eager\"\n");
        let alone = read(&text).unwrap_err().to_string();
        assert!(alone.contains("picture: expected `show`"), "{alone}");
        let gone = read(&format!("{HEAD}{}", RUN.replace("\"a\"", "\"b\"")));
        assert!(gone.is_err(), "its folder is not there");
    }
}
