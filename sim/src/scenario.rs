// SPDX-License-Identifier: GPL-2.0-only
//! What is simulated: a machine, a scheduler, tasks and cgroups. Made by name here, at random in `random.rs`.

use std::sync::Arc;

use crate::cgroups::CgroupSpec;
use crate::changes::Change;
use crate::dsq::TaskId;
use crate::higher::Above;
use crate::interrupts::Interrupts;
use crate::machine::Machine;
use crate::meter::Group;
use crate::native::Scheduler;
use crate::nested::Interleaving;
use crate::overhead::Costs;
use crate::program::{Program, Sync};
use crate::recorded::Recorded;
use crate::setup::{Class, Policy};

/// The PID of a scenario's first task.
pub const FIRST_PID: i32 = 1000;

/// One task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSpec {
    pub name: &'static str,
    pub program: Program,
    /// Marked as by `scx_gpuaware mark`; schedulers without classes do not learn of it.
    pub class: Option<Class>,
    /// `None`: all.
    pub cpus: Option<Vec<usize>>,
    pub weight: u32,
    pub is_kthread: bool,
    pub cgroup: Option<usize>,
    /// Which of the machine's it uses.
    pub gpu: Option<usize>,
    /// An earlier task, of whose process it is a thread; `None`: its own process.
    pub leader: Option<TaskId>,
    pub start_ns: u64,
}

impl TaskSpec {
    /// Background that may run anywhere.
    pub fn new(name: &'static str, program: Program) -> Self {
        Self {
            name,
            program,
            class: None,
            cpus: None,
            weight: 100,
            is_kthread: false,
            cgroup: None,
            gpu: None,
            leader: None,
            start_ns: 0,
        }
    }

    /// Whom its callbacks are counted for.
    pub fn group(&self) -> Group {
        match self.class {
            _ if self.is_kthread => Group::Kthread,
            Some(Class::Launch) => Group::Launch,
            Some(Class::Handoff) => Group::Handoff,
            _ => Group::Background,
        }
    }
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    pub seed: u64,
    pub machine: Machine,
    pub scheduler: Scheduler,
    pub policy: Policy,
    pub costs: Costs,
    pub length_ns: u64,
    pub tasks: Vec<TaskSpec>,
    /// What those do whose program is [`Program::Recorded`].
    pub recorded: Vec<Arc<Recorded>>,
    pub cgroups: Vec<CgroupSpec>,
    /// Real-time tasks.
    pub above: Vec<Above>,
    pub interrupts: Vec<Interrupts>,
    /// What changes, and when.
    pub changes: Vec<(u64, Change)>,
    /// Callbacks of several CPUs come in between each other; `None`: they run one after the other.
    pub interleaving: Option<Interleaving>,
    /// Core scheduling takes another task than the scheduler's choice one time of so many; `None`: never.
    pub cookies: Option<u32>,
}

/// Tasks by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// A launcher for each GPU, or for each 16 CPUs, alone
    Quiet,
    /// The launchers beside a busy loop for each CPU and tasks that do I/O
    Noisy,
    /// The neighbours of `noisy` without launchers
    Neighbours,
    /// Pairs that wake each other, two for each CPU
    Pairs,
}

/// `cpu.weight` of nice -10.
const NICE_MINUS_10: u32 = 932;

const TOKEN: Program = Program::Launcher {
    launch_ns: 2_000_000,
    gpu_ns: 600_000,
    sync: Sync::Block,
};

impl Scenario {
    /// Nobody and nothing on `machine`, with the default policy.
    pub fn new(machine: Machine, scheduler: Scheduler, length_ns: u64, seed: u64) -> Self {
        Self {
            seed,
            policy: Policy::default_for(&machine),
            machine,
            scheduler,
            costs: Costs::default(),
            length_ns,
            tasks: Vec::new(),
            recorded: Vec::new(),
            cgroups: Vec::new(),
            above: Vec::new(),
            interrupts: Vec::new(),
            changes: Vec::new(),
            interleaving: None,
            cookies: None,
        }
    }

    /// `workload` on `machine`, for `length_ns`.
    pub fn named(
        workload: Workload,
        machine: Machine,
        scheduler: Scheduler,
        length_ns: u64,
        seed: u64,
    ) -> Self {
        let nr_cpus = machine.nr_cpus();
        let mut tasks = Vec::new();
        match workload {
            Workload::Pairs => add_pairs(&mut tasks, 2 * nr_cpus, 20_000),
            Workload::Quiet | Workload::Noisy => add_launchers(&mut tasks, &machine),
            Workload::Neighbours => {}
        }
        if matches!(workload, Workload::Noisy | Workload::Neighbours) {
            tasks.extend((0..nr_cpus).map(|_| TaskSpec::new("loop", Program::Loop)));
            let io = Program::Periodic {
                run_ns: 50_000,
                sleep_ns: 200_000,
                runs: 0,
            };
            tasks.extend((0..nr_cpus.div_ceil(2)).map(|_| TaskSpec::new("io", io)));
            add_kthreads(&mut tasks, nr_cpus);
        }
        let scenario = Self {
            tasks,
            ..Self::new(machine, scheduler, length_ns, seed)
        };
        scenario.arranged()
    }

    /// With what comes with its scheduler.
    pub(crate) fn arranged(mut self) -> Self {
        match self.scheduler {
            Scheduler::Nice => self.weigh_launchers(NICE_MINUS_10),
            Scheduler::Isolated => self.isolate_launchers(),
            Scheduler::Gpuaware
            | Scheduler::Fifo
            | Scheduler::Eevdf
            | Scheduler::Cfs
            | Scheduler::Peer => {}
        }
        self
    }

    /// Of its tasks, in their order.
    pub(crate) fn groups(&self) -> Vec<Group> {
        self.tasks.iter().map(TaskSpec::group).collect()
    }

    fn launchers(&mut self) -> impl Iterator<Item = &mut TaskSpec> {
        let tasks = self.tasks.iter_mut();
        tasks.filter(|task| task.class == Some(Class::Launch))
    }

    fn weigh_launchers(&mut self, weight: u32) {
        self.launchers().for_each(|task| task.weight = weight);
    }

    /// As somebody binds them by hand: to the CPUs of the node of their GPU.
    pub fn bind_launchers(&mut self) {
        let machine = self.machine.clone();
        for launcher in self.launchers() {
            let node = launcher.gpu.map(|gpu| machine.gpus[gpu]);
            if launcher.cpus.is_none() && node.is_some() {
                let near = |&cpu: &usize| Some(machine.cpus[cpu].node) == node;
                launcher.cpus = Some((0..machine.nr_cpus()).filter(near).collect());
            }
        }
    }

    /// Each to a core of its own, near its GPU; everybody else but the kernel's threads to the others.
    fn isolate_launchers(&mut self) {
        let machine = self.machine.clone();
        let mut cores = machine.cores_near_gpus();
        let mut taken: Vec<usize> = Vec::new();
        for launcher in self.launchers() {
            let node = launcher.gpu.map(|gpu| machine.gpus[gpu]);
            let is_near = |core: &&[usize]| Some(machine.cpus[core[0]].node) == node;
            // One core is left to the others.
            if cores.len() > 1 {
                let core = cores.remove(cores.iter().position(is_near).unwrap_or(0));
                launcher.cpus = Some(vec![core[0]]);
                taken.extend(core);
            }
        }
        let others = (0..machine.nr_cpus()).filter(|cpu| !taken.contains(cpu));
        let others: Vec<usize> = others.collect();
        for task in self.tasks.iter_mut().filter(|task| task.cpus.is_none()) {
            task.cpus = Some(others.clone());
        }
    }
}

/// One for each GPU.
fn add_launchers(tasks: &mut Vec<TaskSpec>, machine: &Machine) {
    let count = match machine.gpus.len() {
        0 => machine.nr_cpus().div_ceil(16),
        gpus => gpus,
    };
    tasks.extend((0..count).map(|at| TaskSpec {
        class: Some(Class::Launch),
        gpu: Some(at).filter(|&at| at < machine.gpus.len()),
        ..TaskSpec::new("launcher", TOKEN)
    }));
}

pub(crate) fn add_pairs(tasks: &mut Vec<TaskSpec>, count: usize, work_ns: u64) {
    for _ in 0..count {
        let first = tasks.len();
        for (own, ahead) in [(first, 1), (first + 1, 0)] {
            let partner = first + (first + 1 - own);
            tasks.push(TaskSpec::new(
                "pair",
                Program::Pair {
                    partner,
                    work_ns,
                    ahead,
                },
            ));
        }
    }
}

/// The kernel's own work: a thread on each CPU, ten times a second.
pub(crate) fn add_kthreads(tasks: &mut Vec<TaskSpec>, nr_cpus: usize) {
    let program = Program::Periodic {
        run_ns: 30_000,
        sleep_ns: 100_000_000,
        runs: 0,
    };
    tasks.extend((0..nr_cpus).map(|cpu| TaskSpec {
        cpus: Some(vec![cpu]),
        is_kthread: true,
        ..TaskSpec::new("kworker", program)
    }));
}
