// SPDX-License-Identifier: GPL-2.0-only
//! A cell of a plan as `gpuaware-sim cell` reads it. What the simulator cannot run is an error that names arm,
//! workload or neighbour.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::arm;
use crate::cpus;
use crate::datafile::{self, DataError};
use crate::matrix::{GpuLaunch, Program, Sync, Workload};
use crate::plan::Plan;
use crate::record::CellKey;
use crate::record::neighbour::{Kind, Neighbour};

/// Of Debian's kernels, as in the lab.
pub const HZ: u64 = 250;
// CPU time in quiet cells of the lab (bench/runs/2026-11-25-noisy-neighbour): of a launch by the emulated driver, and of a
// thread that waits for the GPU and wakes up, once a token. What a framework burns before a launch takes longer than the
// profile says: it looks at the clock.
const LAUNCH_NS: u64 = 2_900;
const WAIT_NS: u64 = 45_000;
const OVERSHOOT_NS: u64 = 1_800;

/// A file of `profiles`, which `gpu_launch` reads too.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Profile {
    #[serde(rename = "description")]
    _description: String,
    call: String,
    sync: Sync,
    launches_per_token: u64,
    kernels_per_graph: u64,
    kernel_ns: u64,
    last_kernel_ns: u64,
    launch_gap_ns: u64,
    token_cpu_us: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            _description: String::new(),
            call: "cuLaunchKernel".to_owned(),
            sync: Sync::Block,
            launches_per_token: 1,
            kernels_per_graph: 1,
            kernel_ns: 0,
            last_kernel_ns: 0,
            launch_gap_ns: 0,
            token_cpu_us: 0,
        }
    }
}

impl Profile {
    fn tokens(&self, sync: Option<Sync>) -> Value {
        let kernels = match self.call.as_str() {
            "cuGraphLaunch" => self.kernels_per_graph,
            _ => 1,
        };
        let kernel_ns = self.kernel_ns * kernels;
        let gap_ns = match self.launch_gap_ns {
            0 => 0,
            gap_ns => gap_ns + OVERSHOOT_NS,
        };
        json!({
            "launches": self.launches_per_token,
            "launch_ns": gap_ns + LAUNCH_NS,
            "kernel_ns": kernel_ns,
            "last_kernel_ns": if self.last_kernel_ns > 0 { self.last_kernel_ns } else { kernel_ns },
            "cpu_ns": self.token_cpu_us * 1000 + WAIT_NS,
            "sync": match sync.unwrap_or(self.sync) {
                Sync::Block => "block",
                Sync::Yield => "yield",
                // The driver's choice with one context.
                Sync::Auto | Sync::Spin => "spin",
            },
        })
    }
}

/// The cell `key` on `machine`, as JSON.
pub fn cell(plan: &Plan, key: &CellKey, machine: &Path, target: &Path) -> Result<Value, DataError> {
    let refused = |what: String| DataError::Usage(format!("--on sim: {what}"));
    let mut workloads = plan.matrix.workloads.iter();
    let workload = workloads.find(|workload| workload.name == key.workload);
    let workload = workload.ok_or_else(|| refused(format!("no workload {}", key.workload)))?;
    let launch = launching(workload).map_err(refused)?;
    if plan.matrix.bpf_stats {
        let why =
            "bpf_stats: the simulator does not measure what programs cost: see gpuaware-sim costs";
        return Err(refused(why.to_owned()));
    }
    let profiles = target.join("lab/profiles");
    let profile: Profile = datafile::read(&profiles.join(format!("{}.toml", launch.profile)))?;
    let how = arm::how(&plan.arms[&key.arm], plan.cpus)
        .map_err(|why| refused(format!("arm {:?}: {why}", key.arm)))?;
    let kinds: Vec<&str> = kinds(key.neighbour).map_err(refused)?;
    let preferred = cpus::parse_list(&plan.preferred).map_err(refused)?;
    Ok(json!({
        "machine": machine,
        "scheduler": how.scheduler,
        "hz": HZ,
        "seconds": plan.matrix.seconds,
        // A round's arms have the same dice.
        "seed": plan.seed.wrapping_add(u64::from(key.round)),
        "preferred": preferred,
        "policy": how.policy,
        "launcher": {
            "tokens": profile.tokens(launch.sync),
            "cpus": how.launcher_cpus,
            "nice": how.nice,
        },
        "neighbours": {
            "cpus": how.neighbour_cpus,
            "kinds": kinds,
            "workers": plan.matrix.stress_ng.workers,
        },
    }))
}

/// The cell `key` of the recording in `file`, likewise, as `gpuaware-sim profile` reads it.
pub fn recorded(
    plan: &Plan,
    key: &CellKey,
    machine: &Path,
    file: &str,
) -> Result<Value, DataError> {
    let refused = |what: String| DataError::Usage(format!("--on sim: {what}"));
    let alone = match key.neighbour {
        Neighbour::None => true,
        Neighbour::Recorded => false,
        other => {
            return Err(refused(format!(
                "workload {:?}: expected the neighbours none and recorded, got {other}: a recording has its own",
                key.workload
            )));
        }
    };
    let how = arm::how(&plan.arms[&key.arm], plan.cpus)
        .map_err(|why| refused(format!("arm {:?}: {why}", key.arm)))?;
    let preferred = cpus::parse_list(&plan.preferred).map_err(refused)?;
    Ok(json!({
        "profile": file,
        "machine": machine,
        "scheduler": how.scheduler,
        "seconds": plan.matrix.seconds,
        "seed": plan.seed.wrapping_add(u64::from(key.round)),
        "preferred": preferred,
        "policy": how.policy,
        "alone": alone,
        "launcher_cpus": how.launcher_cpus,
        "nice": (how.nice != 0).then_some(how.nice),
        "neighbour_cpus": how.neighbour_cpus,
    }))
}

/// Whether anybody launches in it.
pub fn check_recording(file: &str) -> Result<(), DataError> {
    #[derive(Deserialize)]
    struct Recording {
        groups: Vec<Group>,
    }
    #[derive(Deserialize)]
    struct Group {
        class: String,
    }
    let text = datafile::text(Path::new(file))?;
    let recording: Recording = serde_json::from_str(&text).map_err(|error| {
        let expected = "expected what scx_gpuaware trace --record-profile has written";
        DataError::Usage(format!("{file}: {expected}: {error}"))
    })?;
    if recording.groups.iter().any(|group| group.class == "launch") {
        return Ok(());
    }
    Err(DataError::Usage(format!(
        "{file}: expected threads that launch GPU work, found none: was it recorded while they ran?"
    )))
}

/// The launcher that a workload is.
pub fn launching(workload: &Workload) -> Result<&GpuLaunch, String> {
    let refused = |why: String| Err(format!("workload {:?}: {why}", workload.name));
    match &workload.program {
        _ if workload.trace.is_some() => refused("the simulator traces nothing".to_owned()),
        Program::GpuLaunch(launch) if launch.args.is_empty() => Ok(launch),
        Program::GpuLaunch(launch) => refused(format!(
            "the simulator has nothing for gpu_launch's {:?}",
            launch.args
        )),
        _ => refused("the simulator runs gpu_launch, no server and no pipeline".to_owned()),
    }
}

/// The neighbour's programs.
pub fn kinds(neighbour: Neighbour) -> Result<Vec<&'static str>, String> {
    let kinds = neighbour.kinds();
    let modelled = [Kind::StressNg, Kind::Iperf3, Kind::Fio, Kind::Hackbench];
    // Of irq, the packets that interrupts receive are all that it is about.
    if neighbour == Neighbour::Irq || kinds.iter().any(|kind| !modelled.contains(kind)) {
        return Err(format!(
            "neighbour {neighbour}: the simulator models none, cpu, network, disk, hackbench and heavy, and recorded of recordings"
        ));
    }
    Ok(kinds.iter().map(|kind| kind.name()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples;

    fn described(neighbour: Neighbour, arm: &str, profile: &str) -> Result<Value, DataError> {
        let target = tempfile::tempdir().unwrap();
        let folder = target.path().join("lab/profiles");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("qwen3.toml"), profile).unwrap();
        let key = CellKey {
            round: 3,
            arm: arm.to_owned(),
            neighbour,
            workload: "qwen3".to_owned(),
        };
        cell(&samples::plan(), &key, Path::new("2x1"), target.path())
    }

    const GRAPHS: &str = "call = \"cuGraphLaunch\"\nlaunches_per_token = 3\nkernels_per_graph = 10\nkernel_ns = 6_000\n\
                          launch_gap_ns = 500\ntoken_cpu_us = 5\nsync = \"auto\"\n";

    #[test]
    fn a_cell_is_machine_launcher_and_neighbours() {
        let cell = described(Neighbour::Heavy, "isolcpus", GRAPHS).unwrap();
        assert_eq!(cell["seed"], 10);
        let tokens = &cell["launcher"]["tokens"];
        assert_eq!(
            (&tokens["kernel_ns"], &tokens["sync"]),
            (&60_000.into(), &"spin".into())
        );
        assert_eq!(tokens["launch_ns"], 500 + OVERSHOOT_NS + LAUNCH_NS);
        let neighbours = &cell["neighbours"];
        assert_eq!(neighbours["cpus"], json!([0]));
        assert_eq!(neighbours["kinds"], json!(["fio", "iperf3", "stress-ng"]));
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let refused =
            |neighbour, arm, profile| described(neighbour, arm, profile).unwrap_err().to_string();
        let text = refused(Neighbour::Memory, "eevdf", GRAPHS);
        assert!(text.contains("neighbour memory: the simulator"), "{text}");
        assert!(refused(Neighbour::Irq, "eevdf", GRAPHS).contains("neighbour irq"));
        let text = refused(Neighbour::None, "eevdf", "streams = 4\n");
        assert!(text.contains("qwen3.toml:1: streams"), "{text}");
    }
}
