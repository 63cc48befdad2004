// SPDX-License-Identifier: GPL-2.0-only
//! What a host lacks for a run, all of it in one list before the first cell: a run that fails after an hour for a program
//! that is not installed is an hour lost. What only makes figures worse is a warning.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nix::unistd::{Uid, geteuid};

use super::facts;
use super::scheduler::current_ops;
use crate::arm::{Arm, WorkloadSettings};
use crate::cgroup;
use crate::datafile::DataError;
use crate::folders;
use crate::matrix::{Program, Workload};
use crate::plan::Plan;
use crate::record::neighbour::{Kind, Neighbour};
use crate::workload::{self, driver};

/// The user namespace that the kernel starts with, of linux/proc_ns.h.
const INITIAL_USER: &str = "user:[4026531837]";

/// What to do where there are no cgroups of version 2, or they lack what those of version 1 have.
const UNIFIED: &str = "mount it, as systemd does with systemd.unified_cgroup_hierarchy=1";

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
        // One that runs has them for itself.
        current_ops().map_or_else(|| left_behind(Path::new(LEFT)), |_| Vec::new()),
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

    fn needs_root(&self) -> bool {
        let matrix = &self.plan.matrix;
        let served_or_traced = |workload: &Workload| {
            workload.trace.is_some() || !matches!(workload.program, Program::GpuLaunch(_))
        };
        changes_the_machine(self.plan)
            || self.arms().any(sets_priorities)
            || matrix.workloads.iter().any(served_or_traced)
    }

    fn root(&self) -> Vec<String> {
        let lacks = self
            .needs_root()
            .then(|| lacks_root(geteuid(), user_namespace(Path::new("/"))));
        lacks.flatten().into_iter().collect()
    }

    fn tools(&self) -> Vec<String> {
        let missing = self
            .tool_names()
            .into_iter()
            .filter(|name| folders::on_path(name).is_none());
        missing
            .map(|name| format!("{name}: expected it on the PATH: run make setup, or install it"))
            .collect()
    }

    fn tool_names(&self) -> BTreeSet<&'static str> {
        let mut names: BTreeSet<_> = self.kinds().into_iter().filter_map(program).collect();
        names.insert("taskset");
        // It tells what the programs of a scheduler cost.
        if self.plan.matrix.bpf_stats && self.arms().any(|arm| arm.scheduler.is_some()) {
            names.insert("bpftool");
        }
        names
    }

    fn kinds(&self) -> Vec<Kind> {
        let neighbours = self.plan.matrix.neighbours.iter();
        neighbours
            .flat_map(|one| one.kinds().iter().copied())
            .collect()
    }

    /// What a workload's command names and is not there, and GPUs.
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
                    problems.extend(Self::lacks_gpus(workload));
                }
            }
        }
        problems
    }

    fn lacks_gpus(workload: &Workload) -> Option<String> {
        let Program::GpuLaunch(launch) = &workload.program else {
            return None;
        };
        let why = driver::check_gpus(launch.gpus, launch.driver).err()?;
        Some(format!("workload {}: {why:#}", workload.name))
    }

    fn cgroups(&self) -> Vec<String> {
        let wanted = self
            .arms()
            .any(|arm| arm.workload.cgroup.is_some() || arm.neighbours.confined());
        if !wanted {
            return Vec::new();
        }
        let root = match cgroup::hierarchy() {
            Ok(root) => root,
            Err(error) => return vec![format!("cgroups: {error:#}: {UNIFIED}")],
        };
        let wanted = self.arms().flat_map(controllers).collect();
        lacks_controllers(&root, &wanted).into_iter().collect()
    }

    fn no_scheduler(&self) -> Vec<String> {
        current_ops()
            .map(|ops| format!("scheduler: expected the kernel's own, {ops} is loaded: end it, as every arm loads its own"))
            .into_iter()
            .collect()
    }

    /// A server of the host's own vLLM takes a share of the GPU, which is not free if somebody else has it.
    fn gpu_memory(&self) -> Vec<String> {
        let workloads = self.plan.matrix.workloads.iter();
        let shares = workloads.filter_map(workload::gpu_memory);
        let most = shares.max_by(f64::total_cmp);
        most.and_then(workload::lacks_gpu_memory)
            .into_iter()
            .collect()
    }
}

/// Where scx_gpuaware keeps what it has to restore.
const LEFT: &str = "/run/scx_gpuaware";

/// What a killed scx_gpuaware has changed would be part of every arm.
fn left_behind(folder: &Path) -> Vec<String> {
    let files = [
        ("irq-affinity.json", "interrupts"),
        ("thread-affinity.json", "threads"),
    ];
    let left = files
        .into_iter()
        .filter(|(file, _)| folder.join(file).exists());
    left.map(|(file, what)| {
        format!(
            "affinities: expected those of the host, but {what} are where a scx_gpuaware that was killed has put them \
             ({}): start scx_gpuaware and end it with Ctrl-C, which puts them back",
            folder.join(file).display()
        )
    })
    .collect()
}

/// Why a process is not root as runs need it; `None`: it is.
fn lacks_root(uid: Uid, namespace: Option<String>) -> Option<String> {
    let what = "schedulers, cgroups, priorities, interrupts and what the kernel counts need it";
    if !uid.is_root() {
        return Some(format!(
            "root: expected it, got the user {uid}: {what}: sudo"
        ));
    }
    let namespace = namespace?;
    Some(format!(
        "root: expected that of the host, got that of {namespace}: {what}: run it on the host, or in a container \
         without a user namespace of its own"
    ))
}

/// The user namespace that this process is in, in words; `None`: that of the host. `/proc` is below `root`.
fn user_namespace(root: &Path) -> Option<String> {
    let map = fs::read_to_string(root.join("proc/self/uid_map")).unwrap_or_default();
    let map = map.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_initial = match fs::read_link(root.join("proc/self/ns/user")) {
        Ok(namespace) => namespace == Path::new(INITIAL_USER),
        Err(_) => map.is_empty() || map == "0 0 4294967295",
    };
    (!is_initial).then(|| format!("a user namespace (uid_map: {map})"))
}

/// The controllers that an arm sets something of.
fn controllers(arm: &Arm) -> BTreeSet<&'static str> {
    let (workload, neighbours) = (&arm.workload, &arm.neighbours);
    let cpuset = workload.cpuset.is_some() || neighbours.cpuset.is_some();
    let cpu = workload.weight.is_some() || neighbours.weight.is_some() || neighbours.idle;
    let wanted = [("cpu", cpu), ("cpuset", cpuset)].into_iter();
    wanted
        .filter_map(|(name, is_wanted)| is_wanted.then_some(name))
        .collect()
}

/// Which of these the hierarchy at `root` does not have; `None`: it has all. One that is mounted beside version 1's has
/// what that one leaves.
fn lacks_controllers(root: &Path, wanted: &BTreeSet<&str>) -> Option<String> {
    let file = root.join("cgroup.controllers");
    let text = fs::read_to_string(&file).unwrap_or_default();
    let has: BTreeSet<&str> = text.split_whitespace().collect();
    let lacking: Vec<&str> = wanted.difference(&has).copied().collect();
    (!lacking.is_empty()).then(|| {
        format!(
            "cgroups: expected the controllers {} in {}, got {:?}: where version 1 of cgroups has them, leave all to \
             version 2: {UNIFIED}; or leave out the arms that set cpusets and weights (--arms)",
            lacking.join(", "),
            file.display(),
            text.trim()
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

/// Or CPUs, of threads by their names.
fn sets_priorities(arm: &Arm) -> bool {
    let nice = |prefix: &[String]| {
        prefix
            .iter()
            .any(|word| ["nice", "chrt"].contains(&word.as_str()))
    };
    nice(&arm.workload.prefix) || !arm.workload.threads.is_empty()
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
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::arm::Scheduler;
    use crate::matrix::Trace;
    use crate::plan::samples;

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
    fn what_a_killed_scheduler_has_left_is_no_host_to_measure_on() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(left_behind(folder.path()), Vec::<String>::new());
        fs::write(folder.path().join("irq-affinity.json"), "{}").unwrap();
        let said = left_behind(folder.path()).concat();
        assert!(
            said.contains("interrupts") && said.contains("Ctrl-C"),
            "{said}"
        );
    }

    #[test]
    fn root_of_a_user_namespace_is_not_the_hosts() {
        assert_eq!(lacks_root(Uid::from_raw(0), None), None);
        let said = lacks_root(Uid::from_raw(1000), None).unwrap();
        assert!(said.contains("got the user 1000"), "{said}");
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/self");
        fs::create_dir_all(process.join("ns")).unwrap();
        assert_eq!(
            user_namespace(root.path()),
            None,
            "where /proc does not tell"
        );
        for (map, is_host) in [("0 0 4294967295\n", true), ("  0  1000  1\n", false)] {
            fs::write(process.join("uid_map"), map).unwrap();
            assert_eq!(user_namespace(root.path()).is_none(), is_host, "{map}");
        }
        let said = lacks_root(Uid::from_raw(0), user_namespace(root.path())).unwrap();
        assert!(
            said.contains("a user namespace (uid_map: 0 1000 1)"),
            "{said}"
        );
        // Some containers map everybody to himself.
        fs::write(process.join("uid_map"), "0 0 4294967295\n").unwrap();
        let link = process.join("ns/user");
        symlink("user:[4026532701]", &link).unwrap();
        assert!(user_namespace(root.path()).is_some());
        fs::remove_file(&link).unwrap();
        symlink(INITIAL_USER, &link).unwrap();
        assert_eq!(user_namespace(root.path()), None);
    }

    #[test]
    fn what_changes_or_watches_the_kernel_needs_root_and_its_tools() {
        let bare = || {
            let mut plan = samples::plan();
            plan.arms.clear();
            plan.matrix.neighbours = vec![Neighbour::None];
            plan.matrix.bpf_stats = false;
            let launches = |workload: &Workload| matches!(workload.program, Program::GpuLaunch(_));
            plan.matrix.workloads.retain(launches);
            plan
        };
        let target = Path::new("/nowhere");
        let needs_root = |plan: &Plan| Wants { plan, target }.needs_root();
        assert!(!needs_root(&bare()) && !bare().matrix.workloads.is_empty());
        let mut irq = bare();
        irq.matrix.neighbours.push(Neighbour::Irq);
        let mut traced = bare();
        traced.matrix.workloads[0].trace = Some(Trace::Summary);
        let mut counted = bare();
        counted.matrix.bpf_stats = true;
        assert!([&irq, &traced, &counted].into_iter().all(needs_root));
        let names = |plan: &Plan| Wants { plan, target }.tool_names();
        assert!(!names(&counted).contains("bpftool"), "nobody is counted");
        counted.arms.insert("gpuaware".to_owned(), scheduled());
        assert!(names(&counted).contains("bpftool"));
        counted.matrix.bpf_stats = false;
        assert!(!names(&counted).contains("bpftool"));
    }

    fn scheduled() -> Arm {
        Arm {
            scheduler: Some(Scheduler::default()),
            ..Arm::default()
        }
    }

    #[test]
    fn controllers_that_version_1_has_are_named() {
        let mut arm = Arm::default();
        assert!(controllers(&arm).is_empty());
        arm.neighbours.idle = true;
        assert_eq!(controllers(&arm), ["cpu"].into());
        arm.workload.cpuset = Some("1".to_owned());
        let both = controllers(&arm);
        assert_eq!(both, ["cpu", "cpuset"].into());
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("cgroup.controllers");
        fs::write(&file, "cpuset cpu io memory\n").unwrap();
        assert_eq!(lacks_controllers(root.path(), &both), None);
        // As on a host with both: version 2's hierarchy has what version 1 leaves.
        fs::write(&file, "io cpu\n").unwrap();
        let said = lacks_controllers(root.path(), &both).unwrap();
        assert!(said.contains("the controllers cpuset in "), "{said}");
        assert!(
            said.contains("got \"io cpu\"") && said.contains(UNIFIED),
            "{said}"
        );
        fs::write(&file, "\n").unwrap();
        let said = lacks_controllers(root.path(), &both).unwrap();
        assert!(said.contains("the controllers cpu, cpuset in "), "{said}");
        assert_eq!(lacks_controllers(root.path(), &BTreeSet::new()), None);
    }

    #[test]
    fn this_test_runs_and_nobody_else_of_that_name() {
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert!(runs(own.trim()) && !runs("nobody-is-so"));
    }
}
