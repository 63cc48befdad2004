// SPDX-License-Identifier: GPL-2.0-only
//! What is simulated: a machine, a scheduler, tasks and cgroups. Made by name, or at random from a seed.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::above::Above;
use crate::cgroups::CgroupSpec;
use crate::interrupts::Interrupts;
use crate::machine::Machine;
use crate::meter::Group;
use crate::native::Scheduler;
use crate::program::{Program, Sync};
use crate::setup::{Class, Policy};
use crate::state::Costs;

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
    pub start_ns: u64,
    /// When its affinity changes, and to what.
    pub changes: Vec<(u64, Vec<usize>)>,
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
            start_ns: 0,
            changes: Vec::new(),
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
    pub cgroups: Vec<CgroupSpec>,
    /// Real-time tasks.
    pub above: Vec<Above>,
    pub interrupts: Vec<Interrupts>,
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

/// Tells what is drawn of real-time tasks from what is drawn of the others.
const REAL_TIME: u64 = 0x7274;

/// `cpu.weight` of nice -10.
const NICE_MINUS_10: u32 = 932;

const TOKEN: Program = Program::Launcher {
    launch_ns: 2_000_000,
    gpu_ns: 600_000,
    sync: Sync::Block,
};

impl Scenario {
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
        let mut scenario = Self {
            seed,
            policy: Policy::default_for(&machine),
            machine,
            scheduler,
            costs: Costs::default(),
            length_ns,
            tasks,
            cgroups: Vec::new(),
            above: Vec::new(),
            interrupts: Vec::new(),
        };
        match scheduler {
            Scheduler::Nice => scenario.weigh_launchers(NICE_MINUS_10),
            Scheduler::Isolated => scenario.isolate_launchers(),
            Scheduler::Gpuaware | Scheduler::Fifo | Scheduler::Eevdf => {}
        }
        scenario
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

    /// Any small machine with any tasks: `seed` says which.
    pub fn random(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let shapes = [
            "1", "2", "2x2", "2x1x1x2", "3", "4", "4x2", "4x4x2", "4x2x1x2", "8x2x2x2", "8x4",
            "12x3", "16x4x2x2", "16",
        ];
        let shape = shapes[rng.random_range(0..shapes.len() as u64) as usize];
        let machine = Machine::parse(shape).expect("these shapes divide");
        let mut policy = Policy::default_for(&machine);
        policy.lend = rng.random_range(0..4_u64) > 0;
        policy.hold_cap_us = [0, 500, 3_000][rng.random_range(0..3_u64) as usize];
        if rng.random_range(0..2_u64) == 0 {
            policy.hold_share = 1.0;
        }
        policy.max_share = [0.2, 0.5, 1.0][rng.random_range(0..3_u64) as usize];
        let cgroups = random_cgroups(&mut rng);
        let tasks = random_tasks(&mut rng, &machine, cgroups.len());
        let costs = Costs {
            tick_ns: [1_000_000, 4_000_000][rng.random_range(0..2_u64) as usize],
            llc_ns: 0,
            node_ns: 0,
            ..Costs::default()
        };
        Self {
            seed,
            machine,
            scheduler: Scheduler::Gpuaware,
            policy,
            costs,
            // Long enough for somebody to starve, now and then.
            length_ns: if rng.random_range(0..8_u64) == 0 {
                3_000_000_000
            } else {
                rng.random_range(100_000_000..=400_000_000)
            },
            tasks,
            cgroups,
            above: Vec::new(),
            interrupts: Vec::new(),
        }
    }

    /// With real-time tasks that take CPUs, up to one on each.
    pub fn with_real_time(mut self) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ REAL_TIME);
        for cpu in 0..self.machine.nr_cpus() {
            let period_ns = rng.random_range(1_000_000..=50_000_000);
            let above = Above {
                cpu,
                start_ns: rng.random_range(0..=100_000_000),
                period_ns,
                lasts_ns: rng.random_range(20_000..=period_ns / 2),
            };
            if rng.random_range(0..2_u64) == 0 {
                self.above.push(above);
            }
        }
        self
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

fn add_pairs(tasks: &mut Vec<TaskSpec>, count: usize, work_ns: u64) {
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

fn random_cgroups(rng: &mut Pcg64Mcg) -> Vec<CgroupSpec> {
    let count = rng.random_range(0..4_u64) as usize;
    let spec = |at: usize| CgroupSpec {
        parent: (at > 0 && rng.random_range(0..2_u64) == 0).then(|| at - 1),
        weight: [1, 100, 300, 10_000][rng.random_range(0..4_u64) as usize],
        quota_us: (rng.random_range(0..3_u64) == 0).then(|| rng.random_range(20_000..=150_000)),
    };
    (0..count).map(spec).collect()
}

fn random_tasks(rng: &mut Pcg64Mcg, machine: &Machine, nr_cgroups: usize) -> Vec<TaskSpec> {
    let nr_cpus = machine.nr_cpus() as u64;
    let mut tasks = Vec::new();
    for _ in 0..rng.random_range(0..=1 + nr_cpus / 4) {
        let sync = [Sync::Block, Sync::Block, Sync::Spin, Sync::Yield];
        let program = Program::Launcher {
            launch_ns: rng.random_range(50_000..=3_000_000),
            gpu_ns: rng.random_range(50_000..=8_000_000),
            sync: sync[rng.random_range(0..4_u64) as usize],
        };
        tasks.push(TaskSpec {
            class: Some(Class::Launch),
            ..TaskSpec::new("launcher", program)
        });
    }
    let (pairs, work_ns) = (
        rng.random_range(0..=nr_cpus),
        rng.random_range(5_000..=400_000),
    );
    add_pairs(&mut tasks, pairs as usize, work_ns);
    for _ in 0..rng.random_range(0..=2 * nr_cpus) {
        tasks.push(TaskSpec::new("loop", Program::Loop));
    }
    for _ in 0..rng.random_range(0..=2 * nr_cpus) {
        let program = Program::Periodic {
            run_ns: rng.random_range(10_000..=6_000_000),
            sleep_ns: rng.random_range(20_000..=20_000_000),
            runs: [0, 0, 5][rng.random_range(0..3_u64) as usize],
        };
        tasks.push(TaskSpec::new("io", program));
    }
    for task in &mut tasks {
        vary(rng, task, machine, nr_cgroups);
    }
    add_kthreads(&mut tasks, machine.nr_cpus());
    tasks
}

fn vary(rng: &mut Pcg64Mcg, task: &mut TaskSpec, machine: &Machine, nr_cgroups: usize) {
    task.start_ns = rng.random_range(0..=100_000_000);
    if task.class.is_none() {
        task.weight = [100, 100, 15, 3_000][rng.random_range(0..4_u64) as usize];
        if rng.random_range(0..10_u64) == 0 {
            task.class = Some(Class::Handoff);
        }
    }
    if nr_cgroups > 0 && rng.random_range(0..3_u64) > 0 {
        task.cgroup = Some(rng.random_range(0..nr_cgroups as u64) as usize);
    }
    if rng.random_range(0..4_u64) == 0 {
        task.cpus = Some(some_cpus(rng, machine));
    }
    if rng.random_range(0..8_u64) == 0 {
        let at = |rng: &mut Pcg64Mcg| rng.random_range(0..=300_000_000);
        let count = rng.random_range(1..4_u64);
        task.changes = (0..count)
            .map(|_| (at(rng), some_cpus(rng, machine)))
            .collect();
    }
}

/// About half of the CPUs, one at least.
fn some_cpus(rng: &mut Pcg64Mcg, machine: &Machine) -> Vec<usize> {
    let all = 0..machine.nr_cpus();
    let mut cpus: Vec<usize> = all.filter(|_| rng.random_range(0..2_u64) == 0).collect();
    if cpus.is_empty() {
        cpus.push(rng.random_range(0..machine.nr_cpus() as u64) as usize);
    }
    cpus
}
