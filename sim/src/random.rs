// SPDX-License-Identifier: GPL-2.0-only
//! Scenarios that are drawn: of any small machine, with any tasks, with whatever may come in between. A seed says all.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::callbacks::FREQUENT;
use crate::cgroups::CgroupSpec;
use crate::changes::Change;
use crate::higher::{Above, Higher};
use crate::interrupts::Interrupts;
use crate::machine::Machine;
use crate::native::Scheduler;
use crate::nested::Interleaving;
use crate::overhead::Costs;
use crate::program::{Program, Sync};
use crate::scenario::{Scenario, TaskSpec, add_kthreads, add_pairs};
use crate::setup::{Class, Policy};

/// Tell what is drawn of real-time tasks, changes, interleaving and core scheduling from what is drawn of the others.
const REAL_TIME: u64 = 0x7274;
const DEADLINE: u64 = 0x646c;
const CHANGES: u64 = 0x6368;
const INTERLEAVING: u64 = 0x696c;
const COOKIES: u64 = 0x6373;
const THREADS: u64 = 0x7468;
const INTERRUPTS: u64 = 0x6972;
const SOFTIRQS: u64 = 0x7369;
const LENT_YIELDS: u64 = 0x6c79;

const HOLD_CAPS_US: [u64; 3] = [0, 500, 3_000];
const MAX_SHARES: [f64; 3] = [0.2, 0.5, 1.0];
const CGROUP_WEIGHTS: [u32; 4] = [1, 100, 300, 10_000];

/// The one of `cpu`, if it is ever woken.
fn ksoftirqd(cpu: usize, rng: &mut Pcg64Mcg) -> Option<TaskSpec> {
    let program = Program::Periodic {
        run_ns: rng.random_range(10_000..=2_000_000),
        sleep_ns: rng.random_range(1_000_000..=50_000_000),
        runs: 0,
    };
    (rng.random_range(0..2_u64) == 0).then(|| TaskSpec {
        cpus: Some(vec![cpu]),
        is_kthread: true,
        ..TaskSpec::new("ksoftirqd/", program)
    })
}

impl Scenario {
    /// Any small machine with any tasks: `seed` says which.
    pub fn random(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let shapes = [
            "1", "2", "2x2", "2x1x1x2", "3", "4", "4x2", "4x4x2", "4x2x1x2", "8x2x2x2", "8x4",
            "12x3", "16x4x2x2", "16",
        ];
        let shape = one_of(&mut rng, shapes);
        let machine = Machine::parse(shape).expect("these shapes divide");
        let mut policy = Policy::default_for(&machine);
        policy.lend = rng.random_range(0..4_u64) > 0;
        policy.hold_cap_us = one_of(&mut rng, HOLD_CAPS_US);
        if rng.random_range(0..2_u64) == 0 {
            policy.hold_share = 1.0;
        }
        policy.max_share = one_of(&mut rng, MAX_SHARES);
        let cgroups = random_cgroups(&mut rng);
        let mut changes = Vec::new();
        let tasks = random_tasks(&mut rng, &machine, cgroups.len(), &mut changes);
        let costs = Costs {
            tick_ns: one_of(&mut rng, [1_000_000, 4_000_000]),
            llc_ns: 0,
            node_ns: 0,
            callback_ns: [0; FREQUENT.len()],
            ..Costs::default()
        };
        // Long enough for somebody to starve, now and then.
        let length_ns = if rng.random_range(0..8_u64) == 0 {
            3_000_000_000
        } else {
            rng.random_range(100_000_000..=400_000_000)
        };
        Self {
            policy,
            costs,
            tasks,
            cgroups,
            changes,
            ..Self::new(machine, Scheduler::Gpuaware, length_ns, seed)
        }
    }

    /// With callbacks of other CPUs in between.
    pub fn with_interleaving(mut self) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ INTERLEAVING);
        self.interleaving = Some(Interleaving {
            points: one_of(&mut rng, [2, 8, 32]),
            window_ns: one_of(&mut rng, [2_000, 10_000, 50_000]),
        });
        self
    }

    /// With CPUs that are lent by launchers that wait by sched_yield(), for moments of some length.
    pub fn with_lent_yields(mut self) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ LENT_YIELDS);
        self.policy.lend_yields_us = one_of(&mut rng, [20, 100, 1_000]);
        self
    }

    /// With core scheduling.
    pub fn with_cookies(mut self) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ COOKIES);
        self.cookies = Some(one_of(&mut rng, [2, 8, 64]));
        self
    }

    /// With pairs that are threads of one process each, which one of them launches for, every second time.
    pub fn with_threads(mut self) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ THREADS);
        for id in 0..self.tasks.len() {
            let Program::Pair { partner, .. } = self.tasks[id].program else {
                continue;
            };
            if partner < id {
                self.tasks[id].leader = Some(partner);
                if let Some(launcher) = one_of(&mut rng, [None, None, Some(id), Some(partner)]) {
                    self.tasks[launcher].class = Some(Class::Launch);
                }
            }
        }
        self
    }

    /// With devices whose interrupts go to some of the CPUs, up to a third of the time of each. What these leave to be
    /// done has ksoftirqd on half of them, which is a task.
    pub fn with_interrupts(mut self) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ INTERRUPTS);
        let mut soft = Pcg64Mcg::seed_from_u64(self.seed ^ SOFTIRQS);
        for cpu in 0..self.machine.nr_cpus() {
            let period_ns = rng.random_range(100_000..=20_000_000);
            let device = Interrupts {
                cpu,
                period_ns,
                lasts_ns: rng.random_range(1_000..=period_ns / 3),
            };
            if rng.random_range(0..2_u64) == 0 {
                self.interrupts.push(device);
                self.tasks.extend(ksoftirqd(cpu, &mut soft));
            }
        }
        self
    }

    /// With real-time tasks that take CPUs, up to one on each; one of four is a deadline task.
    pub fn with_real_time(mut self) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ REAL_TIME);
        let mut classes = Pcg64Mcg::seed_from_u64(self.seed ^ DEADLINE);
        for cpu in 0..self.machine.nr_cpus() {
            let period_ns = rng.random_range(1_000_000..=50_000_000);
            let class = match classes.random_range(0..4_u64) {
                0 => Higher::Deadline,
                _ => Higher::RealTime,
            };
            let above = Above {
                class,
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

    /// With changes of everything that people and programs change, some of them at the same time.
    pub fn with_changes(mut self) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ CHANGES);
        while self.cgroups.len() < 2 {
            self.cgroups.push(CgroupSpec {
                parent: None,
                weight: 100,
                quota_us: None,
            });
        }
        let mut at_ns = 0;
        for _ in 0..rng.random_range(1..=80_u64) {
            if rng.random_range(0..4_u64) > 0 {
                at_ns = rng.random_range(0..=self.length_ns);
            }
            let change = random_change(&mut rng, &self);
            self.changes.push((at_ns, change));
        }
        self
    }
}

fn one_of<T: Copy, const N: usize>(rng: &mut Pcg64Mcg, choices: [T; N]) -> T {
    choices[rng.random_range(0..N as u64) as usize]
}

fn random_cgroups(rng: &mut Pcg64Mcg) -> Vec<CgroupSpec> {
    let count = rng.random_range(0..4_u64) as usize;
    let spec = |at: usize| CgroupSpec {
        parent: (at > 0 && rng.random_range(0..2_u64) == 0).then(|| at - 1),
        weight: one_of(rng, CGROUP_WEIGHTS),
        quota_us: some_limit(rng),
    };
    (0..count).map(spec).collect()
}

fn random_tasks(
    rng: &mut Pcg64Mcg,
    machine: &Machine,
    nr_cgroups: usize,
    changes: &mut Vec<(u64, Change)>,
) -> Vec<TaskSpec> {
    let nr_cpus = machine.nr_cpus() as u64;
    let mut tasks = Vec::new();
    for _ in 0..rng.random_range(0..=1 + nr_cpus / 4) {
        let sync = [Sync::Block, Sync::Block, Sync::Spin, Sync::Yield];
        let program = Program::Launcher {
            launch_ns: rng.random_range(50_000..=3_000_000),
            gpu_ns: rng.random_range(50_000..=8_000_000),
            sync: one_of(rng, sync),
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
            runs: one_of(rng, [0, 0, 5]),
        };
        tasks.push(TaskSpec::new("io", program));
    }
    for (id, task) in tasks.iter_mut().enumerate() {
        vary(rng, task, machine, nr_cgroups);
        if rng.random_range(0..8_u64) == 0 {
            let at = |rng: &mut Pcg64Mcg| rng.random_range(0..=300_000_000);
            for _ in 0..rng.random_range(1..4_u64) {
                changes.push((at(rng), Change::Affinity(id, some_cpus(rng, machine))));
            }
        }
    }
    add_kthreads(&mut tasks, machine.nr_cpus());
    tasks
}

fn vary(rng: &mut Pcg64Mcg, task: &mut TaskSpec, machine: &Machine, nr_cgroups: usize) {
    task.start_ns = rng.random_range(0..=100_000_000);
    if task.class.is_none() {
        task.weight = one_of(rng, [100, 100, 15, 3_000]);
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

fn random_change(rng: &mut Pcg64Mcg, scenario: &Scenario) -> Change {
    let tasks = scenario.tasks.iter().enumerate();
    let tasks: Vec<usize> = tasks
        .filter(|(_, task)| !task.is_kthread)
        .map(|(id, _)| id)
        .collect();
    let cgroup = rng.random_range(0..scenario.cgroups.len() as u64) as usize;
    let kinds = if tasks.is_empty() { 0..5 } else { 0..14_u64 };
    let task = |rng: &mut Pcg64Mcg| tasks[rng.random_range(0..tasks.len() as u64) as usize];
    match rng.random_range(kinds) {
        0 => Change::CgroupWeight(cgroup, one_of(rng, CGROUP_WEIGHTS)),
        1 => Change::CgroupIdle(cgroup, rng.random_range(0..2_u64) == 0),
        2 => Change::CgroupLimit(cgroup, some_limit(rng)),
        3 => Change::Remake(cgroup),
        4 => Change::Reload(some_policy(rng, scenario)),
        5 | 6 => Change::Weight(task(rng), one_of(rng, [15, 100, 3_000])),
        7..=9 => {
            let classes = [None, None, Some(Class::Launch), Some(Class::Handoff)];
            Change::Mark(task(rng), one_of(rng, classes))
        }
        10 => Change::Affinity(task(rng), some_cpus(rng, &scenario.machine)),
        _ => Change::Join(
            task(rng),
            (rng.random_range(0..3_u64) > 0).then_some(cgroup),
        ),
    }
}

fn some_limit(rng: &mut Pcg64Mcg) -> Option<u64> {
    (rng.random_range(0..3_u64) == 0).then(|| rng.random_range(20_000..=150_000))
}

/// That of `scenario`, with other preferred CPUs and limits.
fn some_policy(rng: &mut Pcg64Mcg, scenario: &Scenario) -> Policy {
    let mut preferred = some_cpus(rng, &scenario.machine);
    preferred.truncate((scenario.machine.nr_cpus() / 2).max(1));
    Policy {
        preferred,
        lend: rng.random_range(0..4_u64) > 0,
        hold_cap_us: one_of(rng, HOLD_CAPS_US),
        max_share: one_of(rng, MAX_SHARES),
        ..scenario.policy.clone()
    }
}
