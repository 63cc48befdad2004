// SPDX-License-Identifier: GPL-2.0-only
//! What a host lacks for a run, all of it in one list before the first cell: a run that fails after an hour for a program
//! that is not installed is an hour lost. What only makes figures worse is a warning.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::unistd::geteuid;

use super::facts;
use super::scheduler::current_ops;
use crate::arm::{Arm, WorkloadSettings};
use crate::cgroup;
use crate::datafile::DataError;
use crate::folders;
use crate::matrix::{Matrix, Program, Server};
use crate::plan::Plan;
use crate::record::neighbour::{Kind, Neighbour};
use crate::workload;

/// What a run needs of a host, as its plan says.
struct Wants<'a> {
    plan: &'a Plan,
    target: &'a Path,
}

/// Looks at this machine.
///
/// # Errors
/// All that must be mended before a run, with what to do.
pub fn check(plan: &Plan, target: &Path) -> Result<(), DataError> {
    let wants = Wants { plan, target };
    for warning in warnings() {
        eprintln!("gpuaware-bench: warning: {warning}");
    }
    let problems: Vec<String> = [
        wants.root(),
        wants.tools(),
        wants.workloads(),
        wants.cgroups(),
        wants.no_scheduler(),
        wants.gpu_memory(),
    ]
    .concat();
    if problems.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = problems
        .iter()
        .map(|line| format!("\n  - {line}"))
        .collect();
    Err(DataError::Usage(format!(
        "--on host: this machine is not ready for the run:{}",
        list.concat()
    )))
}

impl Wants<'_> {
    fn arms(&self) -> impl Iterator<Item = &Arm> {
        self.plan.arms.values()
    }

    fn root(&self) -> Vec<String> {
        let served = |matrix: &Matrix| {
            let mut all = matrix.workloads.iter();
            all.any(|workload| !matches!(workload.program, Program::GpuLaunch(_)))
        };
        let wanted = self.arms().any(needs_root) || served(&self.plan.matrix);
        let uid = geteuid();
        let missing = wanted && !uid.is_root();
        let line = || {
            format!(
                "root: expected it, got the user {uid}: schedulers, cgroups and priorities need it: sudo"
            )
        };
        missing.then(line).into_iter().collect()
    }

    fn tools(&self) -> Vec<String> {
        let mut names: Vec<&str> = self.kinds().into_iter().filter_map(program).collect();
        names.push("taskset");
        names.sort_unstable();
        names.dedup();
        let missing = names
            .into_iter()
            .filter(|name| folders::on_path(name).is_none());
        missing
            .map(|name| format!("{name}: expected it on the PATH: run make setup, or install it"))
            .collect()
    }

    fn kinds(&self) -> Vec<Kind> {
        let neighbours = self.plan.matrix.neighbours.iter();
        neighbours
            .flat_map(|one| one.kinds().iter().copied())
            .collect()
    }

    /// What a workload's command names and is not there.
    fn workloads(&self) -> Vec<String> {
        let place = workload::Place {
            target: self.target,
            preferred: &self.plan.preferred,
        };
        let settings = WorkloadSettings::default();
        let mut problems = Vec::new();
        for workload in &self.plan.matrix.workloads {
            let name = &workload.name;
            match workload::commands(workload, &settings, self.plan.matrix.seconds, place) {
                Err(error) => problems.push(format!("workload {name}: {error:#}")),
                Ok(commands) => {
                    let programs = commands.iter().map(|command| command.get_program());
                    let missing = programs.filter(|program| !is_there(Path::new(program)));
                    problems.extend(missing.map(|program| {
                        let program = program.to_string_lossy();
                        format!("workload {name}: expected the program {program}: run make build, or install it")
                    }));
                }
            }
        }
        problems
    }

    fn cgroups(&self) -> Vec<String> {
        let wanted = self
            .arms()
            .any(|arm| arm.workload.cgroup.is_some() || arm.neighbours.confined());
        let error = wanted.then(cgroup::hierarchy).and_then(Result::err);
        let remedy = "mount it, as systemd does with systemd.unified_cgroup_hierarchy=1";
        error
            .map(|error| format!("cgroups: {error:#}: {remedy}"))
            .into_iter()
            .collect()
    }

    fn no_scheduler(&self) -> Vec<String> {
        current_ops()
            .map(|ops| format!("scheduler: expected the kernel's own, {ops} is loaded: end it, as every arm loads its own"))
            .into_iter()
            .collect()
    }

    /// A server of the host's own vLLM takes a share of the GPU, which is not free if somebody else has it.
    fn gpu_memory(&self) -> Vec<String> {
        let shares =
            self.plan
                .matrix
                .workloads
                .iter()
                .filter_map(|workload| match &workload.program {
                    Program::Served(served) => match &served.server {
                        Server::Vllm {
                            gpu_memory_utilization,
                            instead: None,
                        } => Some(*gpu_memory_utilization),
                        _ => None,
                    },
                    _ => None,
                });
        let Some(share) = shares.max_by(f64::total_cmp) else {
            return Vec::new();
        };
        let asked = Command::new("nvidia-smi")
            .args([
                "--query-gpu=memory.free,memory.total",
                "--format=csv,noheader,nounits",
            ])
            .output();
        let text = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        too_full(&text.unwrap_or_default(), share)
            .into_iter()
            .collect()
    }
}

/// From nvidia-smi's lines, free and total MiB of each GPU: whether the first one, which a server takes, has that share.
fn too_full(text: &str, share: f64) -> Option<String> {
    let (free, total) = text.lines().next()?.split_once(',')?;
    let (free, total): (f64, f64) = (free.trim().parse().ok()?, total.trim().parse().ok()?);
    (free < share * total).then(|| {
        format!(
            "GPU 0: expected {share} of its {total:.0} MiB to be free, {free:.0} are: end what uses it \
             (nvidia-smi lists that), or set gpu_memory_utilization"
        )
    })
}

/// Whether a run changes what others share on a machine: who schedules, cgroups, interrupts, what the kernel counts.
pub fn changes_the_machine(plan: &Plan) -> bool {
    let by_arm = |arm: &Arm| {
        arm.scheduler.is_some() || arm.workload.cgroup.is_some() || arm.neighbours.confined()
    };
    plan.arms.values().any(by_arm)
        || plan.matrix.neighbours.contains(&Neighbour::Irq)
        || plan.matrix.bpf_stats
}

fn needs_root(arm: &Arm) -> bool {
    let nice = |prefix: &[String]| {
        prefix
            .iter()
            .any(|word| ["nice", "chrt"].contains(&word.as_str()))
    };
    arm.scheduler.is_some()
        || arm.workload.cgroup.is_some()
        || arm.neighbours.confined()
        || nice(&arm.workload.prefix)
        || !arm.workload.threads.is_empty()
}

fn program(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::StressNg | Kind::Stream | Kind::Cache => "stress-ng",
        Kind::Iperf3 => "iperf3",
        Kind::Fio => "fio",
        Kind::Hackbench => "hackbench",
        Kind::Recorded => return None,
    })
}

fn is_there(program: &Path) -> bool {
    match program.to_str() {
        Some(name) if !name.contains('/') => folders::on_path(name).is_some(),
        // Through a prefix, a script need not be executable.
        _ => program.is_file(),
    }
}

/// What makes figures worse and keeps nobody from measuring.
fn warnings() -> Vec<String> {
    let slow =
        facts::governor().filter(|governor| !["", "performance"].contains(&governor.as_str()));
    let slow = slow.map(|governor| {
        format!("the frequency governor is {governor}: cpupower frequency-set --governor performance makes clocks steady")
    });
    let moves = runs("irqbalance").then(|| {
        "irqbalance moves interrupts while cells are measured: systemctl stop irqbalance until the run is over".to_owned()
    });
    [slow, moves].into_iter().flatten().collect()
}

/// Whether a process with that name runs.
fn runs(name: &str) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut names = processes.filter_map(|entry| fs::read(entry.path().join("comm")).ok());
    names.any(|comm| comm.trim_ascii() == name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples;

    #[test]
    fn a_gpu_that_somebody_else_fills_is_named() {
        let text = "1000, 81559\n81000, 81559\n";
        let said = too_full(text, 0.9).unwrap();
        assert!(
            said.starts_with("GPU 0: expected 0.9 of its 81559 MiB to be free, 1000 are"),
            "{said}"
        );
        assert_eq!(too_full("81000, 81559\n", 0.9), None);
        assert_eq!(too_full("", 0.9), None);
        assert_eq!(too_full("[N/A], 5\n", 0.9), None);
    }

    #[test]
    fn all_that_is_missing_is_one_list() {
        let mut plan = samples::plan();
        let target = Path::new("/nowhere");
        let wants = Wants {
            plan: &plan,
            target,
        };
        let missing = wants.workloads();
        assert!(
            missing.iter().all(|line| line.contains("run make build")) && !missing.is_empty(),
            "{missing:?}"
        );
        plan.matrix.workloads.clear();
        let wants = Wants {
            plan: &plan,
            target,
        };
        assert_eq!(wants.workloads(), Vec::<String>::new());
    }

    #[test]
    fn this_test_runs_and_nobody_else_of_that_name() {
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert!(runs(own.trim()) && !runs("nobody-is-so"));
    }
}
