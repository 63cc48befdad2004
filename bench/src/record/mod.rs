// SPDX-License-Identifier: GPL-2.0-only
//! Raw results: one JSON file a cell, written in one step so that a run that is cut off keeps all
//! finished cells. Owns the format and the folder's layout; computes nothing.

pub mod archive;
mod disturbance;
pub mod facts;
pub mod neighbour;
mod seen;
mod trace;
mod workload;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::bpf::Programs;
use crate::datafile::DataError;
use crate::record::neighbour::{Neighbour, Work};
use crate::replace::{DRAFT, put};
pub use disturbance::{Discarded, Load, Surroundings};
pub use seen::{MarksSeen, SchedulerSeen, ThreadSeen};
pub use trace::{Launchers, SoftIrqs, TraceSeen};
pub use workload::{
    GpuLaunch, LlmClient, LlmServer, LlmServing, Pipeline, Switches, Times, WorkloadReport,
};

pub const SCHEMA: u32 = 1;

/// A file that is there while a run goes on.
const RESERVE: &str = ".reserve";
/// A cell without a measurement takes a block of the file system, its draft and the folder's entry some more.
const RESERVE_BYTES: usize = 1 << 16;

/// Which cell of a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CellKey {
    pub round: u32,
    pub arm: String,
    pub neighbour: Neighbour,
    pub workload: String,
}

/// One cell: what was measured, or why it was not.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    pub schema: u32,
    #[serde(flatten)]
    pub key: CellKey,
    /// The boot group: cells of one group share a kernel command line, thus a clean reference.
    pub group: String,
    pub block: usize,
    pub started_unix_ms: u64,
    pub failure: Option<String>,
    /// The arm cannot run here, as `failure` says: something that it needs is not there.
    #[serde(default)]
    pub cannot_run: bool,
    pub measurement: Option<Measurement>,
    /// What disturbed the measurement, by the machines' own counters; empty: nothing.
    #[serde(default)]
    pub disturbed: Vec<String>,
    /// What was measured before it and disturbed as well.
    #[serde(default)]
    pub discarded: Vec<Discarded>,
    /// Milliseconds spent in the phases of the cell.
    pub phases_ms: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    pub workload: WorkloadReport,
    pub cpu: CpuWindow,
    pub neighbours: Vec<Work>,
    pub scheduler: Option<SchedulerSeen>,
    pub marks: Option<MarksSeen>,
    /// How the kernel scheduled the workload's threads at the window's end: that the arm was applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadSeen>,
    /// In matrices with `bpf_stats`, for arms with a scheduler.
    #[serde(default)]
    pub bpf: Option<BpfCost>,
    /// Of workloads that are traced.
    #[serde(default)]
    pub trace: Option<TraceSeen>,
    /// Of workloads beside which the machine was recorded: what the simulator reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<serde_json::Value>,
    #[serde(default)]
    pub surroundings: Surroundings,
}

/// What the scheduler's BPF programs cost in the cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BpfCost {
    /// From before the workload's start to the end of the measured window.
    pub seconds: f64,
    pub programs: Programs,
}

/// What the CPUs did in the measured window, by the kernel's account.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuWindow {
    pub seconds: f64,
    /// Share of all CPUs' time that was idle, percent; and of each CPU's.
    pub idle_percent: f64,
    pub idle_percent_per_cpu: Vec<f64>,
    pub softirq_percent: f64,
    pub irq_percent: f64,
    pub interrupts: u64,
    pub context_switches: u64,
}

/// The folder of one run.
#[derive(Debug, Clone)]
pub struct RunDir {
    root: PathBuf,
}

impl RunDir {
    pub fn create(root: &Path) -> Result<Self> {
        for folder in [root.to_owned(), root.join("cells"), root.join("logs")] {
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(Self {
            root: root.to_owned(),
        })
    }

    pub fn open(root: &Path) -> Result<Self> {
        if !root.join("plan.json").is_file() {
            let usage = format!("{} holds no run: no plan.json in it", root.display());
            return Err(DataError::Usage(usage).into());
        }
        Ok(Self { root: root.into() })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    fn cell_file(&self, key: &CellKey) -> PathBuf {
        let CellKey {
            round,
            arm,
            neighbour,
            workload,
        } = key;
        self.root
            .join("cells")
            .join(format!("r{round:02}-{arm}-{neighbour}-{workload}.json"))
    }

    pub fn has(&self, key: &CellKey) -> bool {
        self.cell_file(key).is_file()
    }

    /// Forgets the cells that failed, so that they are measured again; those of arms that cannot run
    /// here stay. Returns how many it forgot.
    pub fn forget_failed(&self) -> Result<usize> {
        let failed: Vec<Cell> = self
            .cells()?
            .into_iter()
            .filter(|cell| cell.measurement.is_none() && !cell.cannot_run)
            .collect();
        for cell in &failed {
            let file = self.cell_file(&cell.key);
            fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        Ok(failed.len())
    }

    /// Removes what a runner that was killed had not written to its end.
    pub fn remove_drafts(&self) -> Result<()> {
        for folder in [self.root.clone(), self.root.join("cells")] {
            let entries = fs::read_dir(&folder)
                .with_context(|| format!("cannot list {}", folder.display()))?;
            for entry in entries.flatten() {
                if entry
                    .file_name()
                    .as_encoded_bytes()
                    .starts_with(DRAFT.as_bytes())
                {
                    let file = entry.path();
                    fs::remove_file(&file)
                        .with_context(|| format!("cannot remove {}", file.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Writes the cell. Where the disk is full the reserve makes room for the reason, so that the cell is marked.
    ///
    /// An earlier measurement of the same cell is worth more than the reason why there is no second one.
    pub fn write_cell(&self, cell: &Cell) -> Result<()> {
        let file = self.cell_file(&cell.key);
        if let (Some(failure), true) = (&cell.failure, file.exists()) {
            let mut earlier: Cell = read_json(&file)?;
            let failure = format!("measured again, which failed: {failure}");
            earlier.disturbed.push(failure);
            return write_json(&file, &earlier);
        }
        let Err(error) = write_json(&file, cell) else {
            return Ok(());
        };
        if self.drop_reserve() && !file.exists() {
            let failed = Cell {
                failure: Some(format!("{error:#}")),
                measurement: None,
                disturbed: Vec::new(),
                discarded: Vec::new(),
                ..cell.clone()
            };
            // What cannot be written now is told by the error that follows.
            let _ = write_json(&file, &failed);
        }
        Err(error)
    }

    /// Takes room for the last words of a run on a disk that becomes full.
    pub fn make_reserve(&self) -> Result<()> {
        let file = self.root.join(RESERVE);
        fs::write(&file, [0; RESERVE_BYTES])
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Gives that room back; false: there was none.
    pub fn drop_reserve(&self) -> bool {
        fs::remove_file(self.root.join(RESERVE)).is_ok()
    }

    /// What was measured, from the files of the cells or from their archive.
    pub fn cells(&self) -> Result<Vec<Cell>> {
        if self.is_archived() {
            return archive::read(&self.root.join(archive::FILE));
        }
        self.cell_files()?
            .iter()
            .map(|file| read_json(file))
            .collect()
    }

    /// Whether it was kept: nothing is measured in it any more.
    pub fn is_archived(&self) -> bool {
        self.root.join(archive::FILE).exists()
    }

    /// Whether something was measured in it, also where a cell can no longer be read.
    pub fn has_results(&self) -> Result<bool> {
        Ok(self.is_archived() || !self.cell_files()?.is_empty())
    }

    /// Puts all cells into one compressed file: see [`archive::write`].
    pub fn archive(&self, file: &Path, most: Option<usize>) -> Result<()> {
        archive::write::<Cell>(file, &self.cell_files()?, most)
    }

    fn cell_files(&self) -> Result<Vec<PathBuf>> {
        let folder = self.root.join("cells");
        let entries =
            fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "json")
            })
            .collect();
        files.sort();
        Ok(files)
    }
}

/// Writes JSON beside its place and moves it there: a reader sees all of it or nothing.
pub fn write_json<T: Serialize>(file: &Path, value: &T) -> Result<()> {
    let mut text =
        serde_json::to_string(value).with_context(|| format!("cannot write {}", file.display()))?;
    text.push('\n');
    put(file, text)
}

pub fn read_json<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not what it should be", file.display()))
}

#[cfg(test)]
pub mod samples {
    use super::*;

    /// A good cell with round figures: `tokens` tokens of `token_us` in `seconds`.
    pub fn cell(round: u32, arm: &str, neighbour: Neighbour, tokens_per_s: f64) -> Cell {
        Cell {
            schema: SCHEMA,
            key: CellKey {
                round,
                arm: arm.to_owned(),
                neighbour,
                workload: "qwen3".to_owned(),
            },
            group: "shared".to_owned(),
            block: 0,
            started_unix_ms: 0,
            failure: None,
            cannot_run: false,
            measurement: Some(Measurement {
                workload: WorkloadReport::GpuLaunch(GpuLaunch {
                    tokens: 200,
                    seconds: 200.0 / tokens_per_s,
                    tokens_per_s,
                    launches: 2000,
                    failures: 0,
                    token_us: vec![1e6 / tokens_per_s; 200],
                    context_switches: Switches {
                        voluntary: 200,
                        involuntary: 20,
                    },
                    threads_detail: Vec::new(),
                    rest: serde_json::Map::new(),
                }),
                cpu: CpuWindow {
                    seconds: 1.0,
                    idle_percent: 5.0,
                    idle_percent_per_cpu: vec![5.0, 5.0],
                    softirq_percent: 0.0,
                    irq_percent: 0.0,
                    interrupts: 0,
                    context_switches: 0,
                },
                threads: Vec::new(),
                neighbours: Vec::new(),
                scheduler: None,
                marks: None,
                bpf: None,
                trace: None,
                profile: None,
                surroundings: Surroundings::default(),
            }),
            disturbed: Vec::new(),
            discarded: Vec::new(),
            phases_ms: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_survive_writing_and_reading() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        let cell = samples::cell(3, "eevdf", Neighbour::Heavy, 100.0);
        assert!(!run.has(&cell.key));
        assert!(!run.has_results().unwrap());
        run.write_cell(&cell).unwrap();
        assert!(run.has(&cell.key));
        assert!(
            dir.path()
                .join("cells/r03-eevdf-heavy-qwen3.json")
                .is_file()
        );
        let back = run.cells().unwrap();
        assert_eq!(back.len(), 1);
        assert_eq!(back[0].key, cell.key);
        // Cut off by a crash.
        fs::write(dir.path().join("cells/r03-eevdf-heavy-qwen3.json"), "").unwrap();
        assert!(run.cells().is_err() && run.has_results().unwrap());
    }

    #[test]
    fn a_repetition_that_fails_leaves_what_was_measured() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        let mut disturbed = samples::cell(1, "eevdf", Neighbour::None, 100.0);
        disturbed.disturbed.push("steal".to_owned());
        run.write_cell(&disturbed).unwrap();
        let failed = Cell {
            measurement: None,
            failure: Some("iperf3 died".to_owned()),
            ..samples::cell(1, "eevdf", Neighbour::None, 100.0)
        };
        run.write_cell(&failed).unwrap();
        let cell = run.cells().unwrap().remove(0);
        let wanted = ["steal", "measured again, which failed: iperf3 died"];
        assert_eq!(cell.disturbed, wanted);
        assert!(cell.measurement.is_some() && cell.failure.is_none());
    }

    #[test]
    fn failed_cells_can_be_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        let good = samples::cell(1, "eevdf", Neighbour::None, 100.0);
        let failed = Cell {
            measurement: None,
            ..samples::cell(2, "eevdf", Neighbour::None, 100.0)
        };
        let impossible = Cell {
            measurement: None,
            cannot_run: true,
            ..samples::cell(3, "eevdf", Neighbour::None, 100.0)
        };
        for cell in [&good, &failed, &impossible] {
            run.write_cell(cell).unwrap();
        }
        assert_eq!(run.forget_failed().unwrap(), 1);
        assert!(run.has(&good.key) && run.has(&impossible.key) && !run.has(&failed.key));
    }

    #[test]
    fn drafts_of_a_killed_runner_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        let cell = samples::cell(1, "eevdf", Neighbour::None, 100.0);
        run.write_cell(&cell).unwrap();
        for draft in [".draft-x", "cells/.draft-y"] {
            fs::write(dir.path().join(draft), "{").unwrap();
        }
        run.remove_drafts().unwrap();
        assert!(run.has(&cell.key));
        for folder in ["", "cells"] {
            let names = fs::read_dir(dir.path().join(folder)).unwrap();
            let drafts = names.filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .contains("draft")
            });
            assert_eq!(drafts.count(), 0, "in {folder:?}");
        }
    }

    #[test]
    fn a_cell_that_cannot_be_written_uses_the_reserve_up() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        let mut cell = samples::cell(1, "eevdf", Neighbour::None, 100.0);
        cell.key.workload = "no/such/folder".to_owned();
        run.make_reserve().unwrap();
        assert!(run.write_cell(&cell).is_err());
        assert!(!run.drop_reserve(), "the room was given back");
    }

    #[test]
    fn says_that_a_folder_holds_no_run() {
        let dir = tempfile::tempdir().unwrap();
        let error = RunDir::open(dir.path()).unwrap_err().to_string();
        assert!(
            error.ends_with("holds no run: no plan.json in it"),
            "{error}"
        );
    }
}
