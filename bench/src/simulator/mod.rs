// SPDX-License-Identifier: GPL-2.0-only
//! Cells that are simulated: `gpuaware-sim` is started for each, as any other program that a cell needs. `describe`
//! translates a cell, `arm` the parts of an arm that can be simulated, and `choice` asks the scheduler which CPUs it
//! would prefer.

mod arm;
mod choice;
mod describe;
mod started;

use std::collections::BTreeMap;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

pub use arm::CHOOSING;
pub use choice::{Chooser, Wish};
use describe::{HZ, Site};
pub use describe::{check_recording, threads, threads_of_recording};
use started::{program, why};

use crate::arm::Arm;
use crate::datafile::DataError;
use crate::folders;
use crate::matrix::Workload;
use crate::plan::Plan;
use crate::process::{self, Supervised};
use crate::record::facts::Facts;
use crate::record::neighbour::Neighbour;
use crate::record::{CellKey, Measurement};

/// Its exit code for what nobody can simulate.
const BAD_INPUT: i32 = 2;

/// What the program says of a machine.
#[derive(Debug, Deserialize)]
pub struct Machine {
    pub cpus: usize,
    /// Where it was recorded; `None`: the model's.
    hz: Option<u64>,
    description: String,
    version: String,
}

/// A name is that of a recorded machine, a shape stands for itself.
pub fn place(machine: &str) -> PathBuf {
    let recorded = folders::repository().unwrap_or_default();
    let recorded = recorded.join(format!("tests/data/sysfs/{machine}.txt"));
    if recorded.is_file() {
        recorded
    } else {
        machine.into()
    }
}

impl Machine {
    /// By shape or name.
    pub fn find(machine: &str, target: &Path) -> Result<Self, DataError> {
        let program = program(target);
        let output = Command::new(&program)
            .arg("machine")
            .arg(place(machine))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                DataError::Usage(format!(
                    "--on sim: cannot start {}: {error}: run make build",
                    program.display()
                ))
            })?;
        if !output.status.success() {
            let folder = "tests/data/sysfs";
            return Err(DataError::Usage(format!(
                "--machine {machine}: expected a shape or the name of a file in {folder}: {}",
                why(&output)
            )));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| {
            DataError::Usage(format!(
                "--on sim: {} is another version: {error}: run make build",
                program.display()
            ))
        })
    }

    /// Ticks a second.
    pub fn hz(&self) -> u64 {
        self.hz.unwrap_or(HZ)
    }

    /// Where the cells run, by the names of a real machine's facts.
    pub fn facts(&self) -> Facts {
        let facts = [
            ("cpus", self.cpus.to_string()),
            ("machine", self.description.clone()),
            ("kernel", "a model of 6.18".to_owned()),
            ("HZ", self.hz().to_string()),
            (
                "virtualisation",
                format!("simulated by gpuaware-sim {}", self.version),
            ),
        ];
        let facts = facts.into_iter();
        facts.map(|(name, fact)| (name.to_owned(), fact)).collect()
    }
}

/// Why an arm cannot be simulated; `None`: it can.
pub fn refusal(arm: &Arm, nr_cpus: usize) -> Option<String> {
    arm::how(arm, nr_cpus).err()
}

/// Whether the simulator knows that workload and that neighbour, whatever the arm; `Err`: what it lacks.
pub fn knows(workload: &Workload, neighbour: Neighbour) -> Result<(), String> {
    describe::work(workload, neighbour).map(drop)
}

/// Before the first cell: an error if the simulator cannot run one of them.
pub fn check(plan: &Plan, target: &Path) -> Result<(), DataError> {
    for workload in &plan.matrix.workloads {
        workload.recording().map_or(Ok(()), check_recording)?;
    }
    let nowhere = Site {
        machine: Path::new(""),
        hz: HZ,
    };
    let mut wishes = BTreeMap::new();
    for key in plan.keys() {
        if let Some(wish) = describe::cell(plan, &key, &nowhere, target)?.chooses {
            wishes.insert(wish, key.arm);
        }
    }
    let Some(chooser) = chooser(plan, target)? else {
        return Ok(());
    };
    for (wish, arm) in wishes {
        chooser
            .preferred(&wish)
            .map_err(|why| DataError::Usage(format!("--on sim: arm {arm:?}: {why}")))?;
    }
    Ok(())
}

/// Chooses for those arms of a plan that are not told the preferred CPUs; `None`: all are.
pub fn chooser(plan: &Plan, target: &Path) -> Result<Option<Chooser>, DataError> {
    let chooses = |arm| arm::how(arm, plan.cpus).is_ok_and(|how| how.chooses.is_some());
    match &plan.machine {
        Some(machine) if plan.arms.values().any(chooses) => {
            Chooser::of(&place(machine), target).map(Some)
        }
        _ => Ok(None),
    }
}

/// Simulates a cell on `machine`, which the plan names; `chooser` is of the same plan.
pub fn measure(
    plan: &Plan,
    key: &CellKey,
    (machine, chooser): (&Machine, Option<&Chooser>),
    target: &Path,
) -> Result<Measurement> {
    #[derive(Deserialize)]
    struct Replayed {
        measurement: Measurement,
    }
    let site = Site {
        machine: &place(plan.machine.as_deref().unwrap_or_default()),
        hz: machine.hz(),
    };
    let mut asked = describe::cell(plan, key, &site, target)?;
    if let Some(wish) = &asked.chooses {
        let chooser = chooser.context("nobody chooses preferred CPUs for this arm")?;
        let preferred = chooser.preferred(wish)?;
        asked.spec.insert("preferred".to_owned(), preferred.into());
    }
    let value = answer(asked.command, &Value::Object(asked.spec), target)?;
    let measurement = match asked.command {
        "profile" => serde_json::from_value(value).map(|replayed: Replayed| replayed.measurement),
        _ => serde_json::from_value(value),
    };
    measurement.context("gpuaware-sim printed no measurement")
}

/// What a policy's text changes of the default, in the simulator's terms, or why that cannot be simulated.
pub fn policy(text: &str) -> Result<Map<String, Value>, String> {
    arm::tunables(text)
}

/// Replays a recorded profile; what the simulator calls bad input is the user's to mend.
pub fn replay(spec: &Value, target: &Path) -> Result<Value> {
    answer("profile", spec, target)
}

/// What a command of the simulator says of `spec`.
fn answer(command: &str, spec: &Value, target: &Path) -> Result<Value> {
    let output = ask(command, spec, target)?;
    if output.status.code() == Some(BAD_INPUT) {
        return Err(DataError::Usage(why(&output)).into());
    }
    if !output.status.success() {
        bail!("gpuaware-sim ended ({}): {}", output.status, why(&output));
    }
    serde_json::from_slice(&output.stdout).context("gpuaware-sim printed no result")
}

/// Has a command of the simulator do what `spec` says.
fn ask(command: &str, spec: &Value, target: &Path) -> Result<Output> {
    let program = program(target);
    let text = serde_json::to_vec(spec).context("cannot write what to simulate")?;
    let file = || tempfile::tempfile().context("cannot write what to simulate");
    let (mut input, mut errors) = (file()?, file()?);
    input.write_all(&text).and_then(|()| input.rewind())?;
    let mut simulator = Command::new(&program);
    simulator
        .arg(command)
        .stdin(input)
        .stderr(errors.try_clone()?);
    let name = "gpuaware-sim, as make build makes it";
    let (status, stdout) = process::capture(name, &mut simulator, Supervised::wait)?;
    let stderr = process::read_back(&mut errors).context("cannot read what gpuaware-sim says")?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}
