// SPDX-License-Identifier: GPL-2.0-only
//! Preferred CPUs of a simulated machine, as the scheduler itself chooses them: `scx_gpuaware topology` reads the
//! machine's files of sysfs, which the simulator writes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use tempfile::TempDir;

use super::started::{program, why};
use crate::datafile::DataError;

/// What the choice depends on, beside the machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wish {
    /// TOML; empty: the default.
    pub policy: String,
    /// Launch and handoff threads, runnable at once.
    pub threads: u32,
}

impl Default for Wish {
    /// What the scheduler expects before it knows anything.
    fn default() -> Self {
        Self {
            policy: String::new(),
            threads: 1,
        }
    }
}

/// A machine's files, and what was chosen there.
pub struct Chooser {
    files: TempDir,
    program: PathBuf,
    chosen: RefCell<BTreeMap<Wish, Vec<usize>>>,
}

#[derive(Deserialize)]
struct Topology {
    preferred: Preferred,
}

#[derive(Deserialize)]
struct Preferred {
    ranked: Vec<usize>,
}

impl Chooser {
    /// Of a machine as gpuaware-sim takes it.
    ///
    /// # Errors
    /// There is no such machine, or its files cannot be written.
    pub fn of(machine: &Path, target: &Path) -> Result<Self, DataError> {
        let files = tempfile::tempdir().map_err(|error| cannot_keep(&error))?;
        let mut simulator = Command::new(program(target));
        simulator
            .arg("sysfs")
            .arg(machine)
            .arg(files.path().join("sys"));
        ask(&mut simulator, "gpuaware-sim sysfs")?;
        Ok(Self {
            files,
            program: target.join("release/scx_gpuaware"),
            chosen: RefCell::default(),
        })
    }

    /// What `topology --json` says there.
    ///
    /// # Errors
    /// The policy is not for that machine.
    pub fn topology(&self, wish: &Wish) -> Result<String, DataError> {
        let policy = self.files.path().join("policy.toml");
        let text = match wish.policy.as_str() {
            "" => "version = 1\n",
            text => text,
        };
        fs::write(&policy, text).map_err(|error| cannot_keep(&error))?;
        let mut topology = Command::new(&self.program);
        topology.args(["topology", "--json", "--sysfs"]);
        topology.arg(self.files.path().join("sys"));
        topology.arg("--policy").arg(&policy);
        topology.args(["--threads", &wish.threads.to_string()]);
        ask(&mut topology, "scx_gpuaware topology").map_err(|error| {
            // Nobody but this program has seen that file.
            let said = error.to_string();
            DataError::Usage(said.replace(&*policy.to_string_lossy(), "policy"))
        })
    }

    /// The CPUs that launchers are to prefer, the best first.
    ///
    /// # Errors
    /// As of `topology`.
    pub fn preferred(&self, wish: &Wish) -> Result<Vec<usize>, DataError> {
        if let Some(known) = self.chosen.borrow().get(wish) {
            return Ok(known.clone());
        }
        let topology: Topology = serde_json::from_str(&self.topology(wish)?).map_err(|error| {
            DataError::Usage(format!(
                "scx_gpuaware topology is another version: {error}: run make build"
            ))
        })?;
        let ranked = topology.preferred.ranked;
        self.chosen
            .borrow_mut()
            .insert(wish.clone(), ranked.clone());
        Ok(ranked)
    }
}

fn cannot_keep(error: &io::Error) -> DataError {
    DataError::Usage(format!("cannot keep a simulated machine's files: {error}"))
}

/// What it prints.
fn ask(command: &mut Command, name: &str) -> Result<String, DataError> {
    let refused = |why: String| DataError::Usage(format!("{name}: {why}"));
    let output = command.stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| refused(format!("cannot start it: {error}: run make build")))?;
    if !output.status.success() {
        return Err(DataError::Usage(why(&output)));
    }
    String::from_utf8(output.stdout).map_err(|error| refused(error.to_string()))
}
