// SPDX-License-Identifier: GPL-2.0-only
//! A cell of a plan as `gpuaware-sim cell`, or `profile` for a recording, reads it. What the simulator cannot run is an
//! error that names arm, workload or neighbour.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::arm;
use super::choice::Wish;
use crate::cpus;
use crate::datafile::{self, DataError};
use crate::matrix::{GpuLaunch, Gpus, Program, Sync, Workload};
use crate::plan::Plan;
use crate::record::CellKey;
use crate::record::neighbour::{Kind, Neighbour};

/// Of Debian's kernels, as in the lab.
pub const HZ: u64 = 250;
// CPU time of a launch by the emulated driver, and of a thread that sleeps until the GPU is done, once a token: in quiet
// cells of the lab on 25 November, when no thread of the driver woke the launcher. In the kept run of noisy-neighbour
// tokens take 6 % (eager) and 11 % (qwen3) less. What a framework burns before a launch takes longer than the profile
// says: it looks at the clock.
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
        let sync = sync.unwrap_or(self.sync);
        let gap_ns = match self.launch_gap_ns {
            0 => 0,
            gap_ns => gap_ns + OVERSHOOT_NS,
        };
        json!({
            "launches": self.launches_per_token,
            "launch_ns": gap_ns + LAUNCH_NS,
            "kernel_ns": kernel_ns,
            "last_kernel_ns": if self.last_kernel_ns > 0 { self.last_kernel_ns } else { kernel_ns },
            "cpu_ns": self.token_cpu_us * 1000 + if sync == Sync::Block { WAIT_NS } else { 0 },
            "sync": match sync {
                Sync::Block => "block",
                Sync::Yield => "yield",
                // The driver's choice with one context.
                Sync::Auto | Sync::Spin => "spin",
            },
        })
    }
}

/// Where cells are simulated.
pub struct Site<'a> {
    /// As gpuaware-sim takes it.
    pub machine: &'a Path,
    pub hz: u64,
}

/// What is asked of gpuaware-sim.
pub struct Asked {
    pub command: &'static str,
    /// With the plan's preferred CPUs.
    pub spec: Map<String, Value>,
    /// For the scheduler's own choice in their place.
    pub chooses: Option<Wish>,
}

/// The cell `key` at `site`.
pub fn cell(plan: &Plan, key: &CellKey, site: &Site, target: &Path) -> Result<Asked, DataError> {
    let refused = |what: String| DataError::Usage(format!("--on sim: {what}"));
    let mut workloads = plan.matrix.workloads.iter();
    let workload = workloads.find(|workload| workload.name == key.workload);
    let workload = workload.ok_or_else(|| refused(format!("no workload {}", key.workload)))?;
    if plan.matrix.bpf_stats {
        let why =
            "bpf_stats: the simulator does not measure what programs cost: see gpuaware-sim costs";
        return Err(refused(why.to_owned()));
    }
    let work = work(workload, key.neighbour).map_err(refused)?;
    let how = arm::how(&plan.arms[&key.arm], plan.cpus)
        .map_err(|why| refused(format!("arm {:?}: {why}", key.arm)))?;
    let preferred = cpus::parse_list(&plan.preferred).map_err(refused)?;
    let chooses = match how.chooses {
        Some(policy) => Some(Wish {
            policy,
            threads: threads(workload)?,
        }),
        None => None,
    };
    let (command, own) = match work {
        Work::Recorded { file, alone } => {
            let own = json!({
                "profile": file,
                "alone": alone,
                "launcher_cpus": how.launcher_cpus,
                "nice": (how.nice != 0).then_some(how.nice),
                "neighbour_cpus": how.neighbour_cpus,
            });
            ("profile", own)
        }
        Work::Launches { launch, kinds } => {
            let file = format!("lab/profiles/{}.toml", launch.profile);
            let profile: Profile = datafile::read(&target.join(file))?;
            let own = json!({
                "native": plan.native,
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
            });
            ("cell", own)
        }
    };
    let common = json!({
        "machine": site.machine.to_string_lossy(),
        "scheduler": how.scheduler,
        "hz": site.hz,
        "seconds": plan.matrix.seconds,
        // A round's arms have the same dice.
        "seed": plan.seed.wrapping_add(u64::from(key.round)),
        "preferred": preferred,
        "policy": how.policy,
    });
    let parts = [common, own].into_iter();
    let keys = parts.filter_map(|part| match part {
        Value::Object(keys) => Some(keys),
        _ => None,
    });
    Ok(Asked {
        command,
        chooses,
        spec: keys.flatten().collect(),
    })
}

/// What is done in a cell, whatever the arm.
pub enum Work<'a> {
    /// With all that was recorded, or with those alone that launch.
    Recorded { file: &'a str, alone: bool },
    Launches {
        launch: &'a GpuLaunch,
        kinds: Vec<&'static str>,
    },
}

/// Of a workload beside a neighbour; `Err`: what the simulator lacks.
pub fn work(workload: &Workload, neighbour: Neighbour) -> Result<Work<'_>, String> {
    let refused = |why: String| Err(format!("workload {:?}: {why}", workload.name));
    if workload.trace.is_some() {
        return refused("the simulator traces nothing".to_owned());
    }
    let launch = match &workload.program {
        Program::Recording(recording) => {
            let alone = match neighbour {
                Neighbour::None => true,
                Neighbour::Recorded => false,
                other => {
                    return refused(format!(
                        "expected the neighbours none and recorded, got {other}: a recording has its own"
                    ));
                }
            };
            let file = &recording.file;
            return Ok(Work::Recorded { file, alone });
        }
        Program::GpuLaunch(launch) if launch.gpus != Gpus::default() => {
            return refused(format!(
                "the simulator launches on one GPU, not on gpus = {}",
                launch.gpus
            ));
        }
        Program::GpuLaunch(launch) if launch.args.is_empty() => launch,
        Program::GpuLaunch(launch) => {
            return refused(format!(
                "the simulator has nothing for gpu_launch's {:?}",
                launch.args
            ));
        }
        _ => {
            return refused(
                "the simulator runs gpu_launch and recordings, no server and no pipeline"
                    .to_owned(),
            );
        }
    };
    let kinds = kinds(neighbour)?;
    Ok(Work::Launches { launch, kinds })
}

/// Of a recording, what a description depends on.
#[derive(Deserialize)]
struct Recording {
    length_ns: u64,
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    class: String,
    policy: String,
    alive_ns: u64,
}

fn recording(file: &str) -> Result<Recording, DataError> {
    let text = datafile::text(Path::new(file))?;
    serde_json::from_str(&text).map_err(|error| {
        let expected = "expected what scx_gpuaware trace --record-profile has written";
        DataError::Usage(format!("{file}: {expected}: {error}"))
    })
}

/// Whether anybody launches in it.
pub fn check_recording(file: &str) -> Result<(), DataError> {
    let groups = recording(file)?.groups;
    if groups.iter().any(|group| group.class == "launch") {
        return Ok(());
    }
    Err(DataError::Usage(format!(
        "{file}: expected threads that launch GPU work, found none: was it recorded while they ran?"
    )))
}

/// Launch and handoff threads of a workload that may be runnable at once.
pub fn threads(workload: &Workload) -> Result<u32, DataError> {
    workload.recording().map_or(Ok(1), threads_of_recording)
}

/// Launch and handoff threads that were there at once, all of which may be runnable at once.
pub fn threads_of_recording(file: &str) -> Result<u32, DataError> {
    let recording = recording(file)?;
    let groups = recording.groups.iter();
    let boosted = groups.filter(|one| one.class != "background" && one.policy != "real_time");
    let at_once = boosted.map(|group| group.alive_ns.div_ceil(recording.length_ns.max(1)).max(1));
    let threads = at_once.fold(0, u64::saturating_add);
    Ok(u32::try_from(threads).unwrap_or(u32::MAX).max(1))
}

/// The neighbour's programs.
fn kinds(neighbour: Neighbour) -> Result<Vec<&'static str>, String> {
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
    use std::num::NonZeroU32;

    use super::*;
    use crate::matrix::{Recording, Trace};
    use crate::plan::samples;

    fn described(
        neighbour: Neighbour,
        arm: &str,
        profile: &str,
    ) -> Result<Map<String, Value>, DataError> {
        of(&samples::plan(), neighbour, arm, profile).map(|asked| asked.spec)
    }

    fn of(plan: &Plan, neighbour: Neighbour, arm: &str, profile: &str) -> Result<Asked, DataError> {
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
        let site = Site {
            machine: Path::new("2x1"),
            hz: 300,
        };
        cell(plan, &key, &site, target.path())
    }

    const GRAPHS: &str = "call = \"cuGraphLaunch\"\nlaunches_per_token = 3\nkernels_per_graph = 10\nkernel_ns = 6_000\n\
                          launch_gap_ns = 500\ntoken_cpu_us = 5\nsync = \"auto\"\n";

    #[test]
    fn a_cell_is_machine_launcher_and_neighbours() {
        let cell = described(Neighbour::Heavy, "isolcpus", GRAPHS).unwrap();
        assert_eq!((&cell["seed"], &cell["hz"]), (&10.into(), &300.into()));
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
    fn threads_of_a_recording_are_those_that_were_there_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("host.json");
        let threads = |groups: Value| {
            let recording = json!({ "length_ns": 1000, "groups": groups });
            std::fs::write(&file, recording.to_string()).unwrap();
            threads_of_recording(file.to_str().unwrap()).unwrap()
        };
        let group = |class: &str, policy: &str, alive_ns: u64| json!({ "class": class, "policy": policy, "alive_ns": alive_ns });
        assert_eq!(
            threads(json!([])),
            1,
            "one is expected before anybody is known"
        );
        let four = [
            group("launch", "normal", 2000),
            group("launch", "normal", 10),
            group("handoff", "normal", 900),
            group("launch", "real_time", 9000),
            group("background", "normal", 9000),
        ];
        assert_eq!(threads(json!(four)), 4);
        let endless = [
            group("launch", "normal", u64::MAX),
            group("handoff", "normal", u64::MAX),
        ];
        assert_eq!(threads(json!(endless)), u32::MAX);
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
        let mut plan = samples::plan();
        for workload in &mut plan.matrix.workloads {
            if let Program::GpuLaunch(launch) = &mut workload.program {
                launch.gpus = Gpus::Count(NonZeroU32::MAX);
            }
        }
        let cell = of(&plan, Neighbour::None, "eevdf", GRAPHS);
        let error = cell.map(|asked| asked.spec).unwrap_err();
        assert!(error.to_string().contains("gpus = 4294967295"), "{error}");
    }

    /// The plan's qwen3 as a recording.
    fn recorded() -> Plan {
        let mut plan = samples::plan();
        let mut workloads = plan.matrix.workloads.iter_mut();
        let qwen3 = workloads.find(|workload| workload.name == "qwen3").unwrap();
        qwen3.program = Program::Recording(Recording {
            file: "host.json".to_owned(),
        });
        plan
    }

    #[test]
    fn a_cell_of_a_recording_is_replayed_alone_or_with_all_that_was_recorded() {
        for (neighbour, alone) in [(Neighbour::None, true), (Neighbour::Recorded, false)] {
            let asked = of(&recorded(), neighbour, "isolcpus", "").unwrap();
            assert_eq!(asked.command, "profile");
            let spec = asked.spec;
            assert_eq!(
                (&spec["profile"], &spec["alone"], &spec["hz"], &spec["seed"]),
                (&"host.json".into(), &alone.into(), &300.into(), &10.into())
            );
            assert_eq!(spec["neighbour_cpus"], json!([0]));
        }
    }

    #[test]
    fn a_recording_is_neither_traced_nor_counted_nor_beside_others() {
        let refused = |plan: &Plan, neighbour| match of(plan, neighbour, "eevdf", "") {
            Ok(_) => panic!("not refused"),
            Err(error) => error.to_string(),
        };
        let text = refused(&recorded(), Neighbour::Cpu);
        assert!(text.contains("none and recorded, got cpu"), "{text}");
        let mut plan = recorded();
        plan.matrix.bpf_stats = true;
        assert!(refused(&plan, Neighbour::None).contains("bpf_stats"));
        let mut plan = recorded();
        for workload in &mut plan.matrix.workloads {
            workload.trace = Some(Trace::Summary);
        }
        assert!(refused(&plan, Neighbour::None).contains("traces nothing"));
        let text = refused(&samples::plan(), Neighbour::Recorded);
        assert!(text.contains("neighbour recorded"), "{text}");
    }
}
