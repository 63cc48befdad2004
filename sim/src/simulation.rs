// SPDX-License-Identifier: GPL-2.0-only
//! A scenario, run: the loop over events, with what tasks do and what must hold.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Result;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::abi::PF_KTHREAD;
use crate::audit::{self, Promises, Watch};
use crate::boosted::Boosted;
use crate::callbacks::Call;
use crate::cgroups::Cgroups;
use crate::changes::Change;
use crate::dsq::TaskId;
use crate::events::{Event, Recent};
use crate::history::Recorded;
use crate::kfuncs;
use crate::meter::{Counts, Meter};
use crate::native::{Handlers, Native, Scheduler};
use crate::program::{Program, Progress};
use crate::scenario::{FIRST_PID, Scenario, TaskSpec};
use crate::setup::{self, Class, STATS};
use crate::state::{Context, Failure, Kernel, Place, START_NS, Task, call};
use crate::weights::Weights;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Of all events, in their order.
    pub hash: u64,
    pub nr_events: u64,
    pub length_ns: u64,
    pub failure: Option<Failure>,
    /// What happened last.
    pub recent: Vec<Recent>,
    /// Of tasks, if it was asked for.
    pub history: Vec<Recorded>,
    /// Of callbacks, if it was asked for.
    pub calls: Vec<Call>,
    pub idle_ns: u64,
    pub idle_by_cpu: Vec<u64>,
    pub tasks: Vec<TaskOutcome>,
    /// What scx_gpuaware counted, by name.
    pub stats: Vec<(&'static str, u64)>,
    /// What callbacks cost, if that was counted or timed.
    pub counts: Option<Counts>,
}

/// Of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskOutcome {
    pub name: &'static str,
    pub class: Option<Class>,
    /// Where it was at the end, and on which CPU it was last.
    pub place: Place,
    pub cpu: usize,
    pub cpu_ns: u64,
    /// Of that, on the node of its GPU; `None`: it uses none.
    pub near_ns: Option<u64>,
    /// What it got done, as time at full speed.
    pub work_ns: u64,
    pub switches: u64,
    /// Rounds, tokens or messages.
    pub done: u64,
    /// From the start and each wakeup to the CPU.
    pub waits_ns: Vec<u64>,
    /// From each wakeup to the next sleep, of those that were recorded.
    pub turns_ns: Vec<u64>,
    /// When tokens came to their ends, of launchers with a timeline.
    pub ends_ns: Vec<u64>,
}

const AUDIT_NS: u64 = 1_000_000;
/// With so many times more tasks, their places are looked at after so many times fewer events.
const TASKS_AUDITED: usize = 16;
/// Nothing does that much in no time.
const MOST_EVENTS_AT_ONCE: u64 = 1_000_000;

/// A scenario on its way.
pub struct Simulation {
    // In this order they are dropped: the scheduler goes last.
    kernel: Box<Kernel>,
    scenario: Scenario,
    /// For what the scheduler promises; a test may ask for more.
    pub watch: Watch,
    boosted: Option<Boosted>,
    weights: Option<Weights>,
    cgroups: Cgroups,
    native: Native,
}

impl Simulation {
    /// Loads the scheduler, tells it of machine, policy, cgroups and tasks.
    pub fn new(scenario: Scenario) -> Result<Self> {
        let object = scenario.scheduler.object();
        Self::with_object(scenario, object)
    }

    /// The same with a variant of the scenario's scheduler.
    pub fn with_object(scenario: Scenario, object: &[u8]) -> Result<Self> {
        let native = Native::load(object, &kfuncs::table())?;
        match scenario.scheduler {
            Scheduler::Gpuaware => {
                setup::configure(&native, &scenario.machine, &scenario.policy)?;
            }
            Scheduler::Fifo | Scheduler::Peer => {}
            Scheduler::Eevdf | Scheduler::Nice | Scheduler::Isolated | Scheduler::Cfs => {
                setup::configure_fair(&native, &scenario.machine)?;
            }
        }
        // SAFETY: a variable of the scheduler, of the type that its layout was compared with.
        let ops = unsafe { *native.ops()? };
        let machine = scenario.machine.clone();
        let mut costs = scenario.costs.clone();
        if !matches!(scenario.scheduler, Scheduler::Gpuaware | Scheduler::Peer) {
            // These stand for the kernel's own code, which is part of a switch.
            costs.callback_ns.fill(0);
        }
        let mut kernel = Box::new(Kernel::new(machine, costs, &native, ops)?);
        if scenario.scheduler == Scheduler::Gpuaware {
            setup::find_active_mask(&native, &kernel.active);
        }
        if let Some(code) = call!(kernel, 0, Context::Unlocked, init()).filter(|&code| code != 0) {
            kernel.fail(format!("ops.init() returned {code}"));
        }
        let cgroups = Cgroups::new(&scenario.cgroups);
        cgroups.init(&mut kernel);
        let mut simulation = Self {
            watch: Watch::new(
                Promises::of(&scenario, ops.timeout_ms),
                scenario.tasks.len(),
                scenario.machine.nr_cpus(),
            ),
            boosted: Boosted::of(&scenario),
            kernel,
            scenario,
            weights: None,
            cgroups,
            native,
        };
        simulation.create_tasks()?;
        let scenario = &simulation.scenario;
        if scenario.scheduler == Scheduler::Gpuaware {
            simulation.kernel.handlers = Some(Handlers::of(&simulation.native)?);
        }
        let nr_cpus = scenario.machine.nr_cpus();
        simulation.kernel.meter = Meter::of(&simulation.native, scenario.groups(), nr_cpus)?;
        // What a look enters would be counted with the scheduler's own.
        let is_metered = simulation.kernel.meter.is_some();
        if scenario.scheduler == Scheduler::Gpuaware && !is_metered {
            simulation.weights = Some(Weights::of(&simulation.native)?);
        }
        Ok(simulation)
    }

    fn create_tasks(&mut self) -> Result<()> {
        let all: Vec<usize> = (0..self.scenario.machine.nr_cpus()).collect();
        for id in 0..self.scenario.tasks.len() {
            let spec = self.scenario.tasks[id].clone();
            let mut task = task(&spec, &self.kernel.tasks, &all, &self.cgroups);
            let gpu_node = spec.gpu.map(|gpu| self.scenario.machine.gpus[gpu]);
            task.gpu_node = gpu_node;
            self.kernel.tasks.push(task);
            let seed = self.scenario.seed ^ (id as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let rng = Pcg64Mcg::seed_from_u64(seed);
            let mut progress = Progress::new(spec.program, rng);
            if let Program::Recorded(at) = spec.program {
                progress = progress.playing(Arc::clone(&self.scenario.recorded[at]));
            }
            self.kernel.programs.push(progress);
            self.kernel.awaits.push(false);
            self.kernel.init_task(id);
            if spec.class.is_some() {
                self.mark(id, spec.class)?;
            }
            self.kernel
                .events
                .push(START_NS + spec.start_ns, Event::Start(id));
        }
        for (at, (at_ns, _)) in self.scenario.changes.iter().enumerate() {
            self.kernel.events.push(START_NS + at_ns, Event::Change(at));
        }
        for (at, above) in self.scenario.above.iter().enumerate() {
            let start_ns = START_NS + above.start_ns;
            self.kernel.events.push(start_ns, Event::Above(at));
        }
        for (at, device) in self.scenario.interrupts.iter().enumerate() {
            let start_ns = START_NS + device.period_ns;
            self.kernel.events.push(start_ns, Event::Interrupt(at));
        }
        self.kernel.events.push(START_NS + AUDIT_NS, Event::Audit);
        Ok(())
    }

    /// `scx_gpuaware mark`, or `unmark`. Schedulers without classes do not learn of it.
    fn mark(&mut self, task: TaskId, class: Option<Class>) -> Result<()> {
        if self.scenario.scheduler != Scheduler::Gpuaware {
            return Ok(());
        }
        let mark = setup::marker(&self.native)?;
        let body = self.kernel.body(task);
        let node = self.kernel.tasks[task].gpu_node;
        let node = node.map_or(0, |node| node as u32 + 1);
        self.kernel.enter(0, Context::Unlocked);
        // SAFETY: a program of the scheduler, with a task of the kernel.
        let code = unsafe { mark(body, class.map_or(0, |class| class as u32), node) };
        self.kernel.leave();
        if let Place::Running(cpu) = self.kernel.tasks[task].place {
            self.kernel.update_curr(cpu);
        }
        self.kernel.tasks[task].is_boosted = matches!(class, Some(Class::Launch | Class::Handoff));
        anyhow::ensure!(code == 0, "marking task {task}: {code}");
        Ok(())
    }

    /// The scenario's change of that number.
    fn change(&mut self, at: usize) -> Result<()> {
        let (_, change) = self.scenario.changes[at].clone();
        let kernel = &mut self.kernel;
        match change {
            Change::Affinity(task, cpus) => {
                kernel.set_affinity(task, &cpus);
                if let Some(boosted) = &mut self.boosted {
                    boosted.begin_anew(task, kernel.now_ns);
                }
            }
            Change::Weight(task, weight) => {
                kernel.change(task, |task| task.body.weight.set(weight));
            }
            Change::Mark(task, class) => {
                self.mark(task, class)?;
                self.watch.promises.mark(task, class);
            }
            Change::Join(task, cgroup) => {
                let (group, set) = self.cgroups.pointers(cgroup);
                kernel.change(task, |task| task.join(group, set));
                if let Place::Running(cpu) = kernel.tasks[task].place {
                    kernel.resched(cpu, cpu);
                }
            }
            Change::CgroupWeight(cgroup, weight) => {
                self.cgroups.set_weight(kernel, cgroup, weight);
            }
            Change::CgroupIdle(cgroup, idle) => self.cgroups.set_idle(kernel, cgroup, idle),
            Change::CgroupLimit(cgroup, quota_us) => {
                self.cgroups.set_limit(kernel, cgroup, quota_us);
            }
            Change::Remake(cgroup) => self.cgroups.remake(kernel, cgroup),
            Change::Leave(cpu) => kernel.leave_soon(cpu),
            Change::Reload(policy) => {
                let program = setup::reload(&self.native, &self.scenario.machine, &policy)?;
                kernel.enter(0, Context::Unlocked);
                // SAFETY: a program of the scheduler, which takes no arguments that it looks at.
                unsafe { program() };
                kernel.leave();
                self.watch.promises.reload(&policy, kernel.now_ns);
                if let Some(boosted) = &mut self.boosted {
                    boosted.reload(&policy, kernel.now_ns);
                }
            }
        }
        Ok(())
    }

    /// What becomes of tasks will be in the outcome.
    pub fn keep_history(&mut self) {
        self.kernel.history = Some(Vec::new());
    }

    /// How long callbacks take this host will be in the outcome. What they leave behind is not looked at then.
    pub fn time_callbacks(&mut self) {
        let nr_cpus = self.scenario.machine.nr_cpus();
        self.kernel.meter = Some(Meter::clock(self.scenario.groups(), nr_cpus));
        self.weights = None;
    }

    /// Which callbacks were called from now on will be in the outcome.
    pub fn keep_calls(&mut self) {
        self.kernel.calls = Some(Vec::new());
    }

    /// Until its end, or until something does not hold.
    pub fn run(mut self) -> Result<Outcome> {
        let end_ns = START_NS + self.scenario.length_ns;
        let every = (self.kernel.tasks.len() / TASKS_AUDITED).max(1) as u64;
        let mut at_once = 0;
        if let Some(spec) = self.scenario.interleaving {
            self.kernel.interleave(spec, self.scenario.seed);
        }
        if let Some(one_of) = self.scenario.cookies {
            self.kernel.use_cookies(one_of, self.scenario.seed);
        }
        while self.kernel.failure.is_none() {
            let Some((at_ns, event)) = self.kernel.events.pop() else {
                break;
            };
            if at_ns > end_ns {
                break;
            }
            if at_ns > self.kernel.now_ns {
                at_once = 0;
            }
            at_once += 1;
            // What was due earlier may have waited for a callback that took its time.
            self.kernel.now_ns = at_ns.max(self.kernel.now_ns);
            self.happen(at_ns, event);
            self.kernel.catch_up();
            self.kernel.pay_callbacks();
            if at_once > MOST_EVENTS_AT_ONCE {
                self.kernel
                    .fail("time stands still: events go round in a circle");
            }
            if self.kernel.events.count().is_multiple_of(every)
                && let Err(text) = audit::places(&self.kernel)
            {
                self.kernel.fail(text);
            }
        }
        self.outcome()
    }

    fn happen(&mut self, at_ns: u64, event: Event) {
        let now_ns = self.kernel.now_ns;
        match event {
            Event::Change(at) => {
                if let Err(error) = self.change(at) {
                    self.kernel.fail(format!("{error:#}"));
                }
            }
            Event::Above(at) => {
                let above = self.scenario.above[at];
                self.kernel.events.push(now_ns + above.period_ns, event);
                self.kernel.wake_above(above);
            }
            Event::Interrupt(at) => {
                let device = self.scenario.interrupts[at];
                self.kernel.events.push(now_ns + device.period_ns, event);
                self.kernel.interrupt(device.cpu, device.lasts_ns);
            }
            Event::Audit => {
                self.kernel.events.push(now_ns + AUDIT_NS, Event::Audit);
                if let Err(text) = self.look() {
                    self.kernel.fail(text);
                }
            }
            _ => self.kernel.happen(at_ns, event),
        }
    }

    fn look(&mut self) -> Result<(), String> {
        self.watch.look(&self.kernel)?;
        if let Some(boosted) = &mut self.boosted {
            boosted.look(&self.kernel, &self.watch.promises.launchers)?;
        }
        match &mut self.weights {
            Some(weights) => weights.look(&mut self.kernel, &self.cgroups),
            None => Ok(()),
        }
    }

    fn look_at_holds(&self, stats: &[(&str, u64)]) -> Result<(), String> {
        let scenario = &self.scenario;
        let changes = scenario.changes.iter().map(|(_, change)| change);
        let reloads = changes.filter_map(|change| match change {
            Change::Reload(policy) => Some(policy),
            _ => None,
        });
        let policies = std::iter::once(&scenario.policy).chain(reloads);
        let (cpus, ran_ns) = (self.kernel.cpus.len(), scenario.length_ns);
        let most = audit::most_hold_waste_ns(policies, cpus, ran_ns);
        let wasted = stats.iter().find(|(name, _)| *name == "hold_waste_ns");
        match (wasted, most) {
            (Some(&(_, wasted)), Some(most)) if wasted > most => Err(format!(
                "holds kept CPUs from others for {:.1} ms, where {:.1} are the most",
                wasted as f64 / 1e6,
                most as f64 / 1e6
            )),
            _ => Ok(()),
        }
    }

    fn outcome(mut self) -> Result<Outcome> {
        let ran_ns = self.scenario.length_ns;
        let mut tasks: Vec<TaskOutcome> = Vec::new();
        for ((task, spec), progress) in self
            .kernel
            .tasks
            .iter()
            .zip(&self.scenario.tasks)
            .zip(&self.kernel.programs)
        {
            tasks.push(TaskOutcome {
                name: spec.name,
                class: spec.class,
                place: task.place,
                cpu: task.cpu(),
                cpu_ns: task.cpu_ns,
                near_ns: task.gpu_node.map(|_| task.near_ns),
                work_ns: task.work_done_ns,
                switches: task.switches,
                done: progress.done,
                waits_ns: Vec::new(),
                turns_ns: Vec::new(),
                ends_ns: progress.ends_ns.iter().map(|ns| ns - START_NS).collect(),
            });
        }
        for &(task, ns) in &self.kernel.waits {
            tasks[task].waits_ns.push(ns);
        }
        for &(task, ns) in &self.kernel.turns {
            tasks[task].turns_ns.push(ns);
        }
        let idle = self.kernel.cpus.iter().map(|cpu| match cpu.is_idle() {
            true => cpu.idle_ns + (START_NS + ran_ns).saturating_sub(cpu.idle_since_ns),
            false => cpu.idle_ns,
        });
        let idle_by_cpu: Vec<u64> = idle.collect();
        let mut stats = Vec::new();
        if self.scenario.scheduler == Scheduler::Gpuaware {
            self.kernel.enter(0, Context::Audit);
            let counts = setup::stats(&self.native)?;
            self.kernel.leave();
            stats = STATS.into_iter().zip(counts).collect();
        }
        if self.kernel.failure.is_none()
            && let Err(text) = self.look_at_holds(&stats)
        {
            self.kernel.fail(text);
        }
        let meter = self.kernel.meter.take();
        let counts = meter.map(|mut meter| meter.finish(&self.native));
        Ok(Outcome {
            counts: counts.transpose()?,
            hash: self.kernel.events.hash(),
            nr_events: self.kernel.events.count(),
            length_ns: ran_ns,
            failure: self.kernel.failure.take(),
            recent: self.kernel.events.recent(),
            history: self.kernel.history.take().unwrap_or_default(),
            calls: self.kernel.calls.take().unwrap_or_default(),
            idle_ns: idle_by_cpu.iter().sum(),
            idle_by_cpu,
            tasks,
            stats,
        })
    }
}

fn task(spec: &TaskSpec, before: &[Task], all: &[usize], cgroups: &Cgroups) -> Task {
    let id = before.len();
    let cpus = spec.cpus.as_deref().unwrap_or(all);
    let task = Task::new(id as i32 + FIRST_PID, spec.name, id, cpus);
    // Where its parent happened to run.
    task.body.cpu.set(cpus[id % cpus.len()] as i32);
    task.body.weight.set(spec.weight);
    if spec.is_kthread {
        task.body.flags.set(PF_KTHREAD);
    }
    if let Some(leader) = spec.leader {
        let leader = &before[leader].body;
        task.body.tgid.set(leader.tgid.get());
        task.body.group_leader.set(Rc::as_ptr(leader));
    }
    let (group, set) = cgroups.pointers(spec.cgroup);
    task.join(group, set);
    task
}
