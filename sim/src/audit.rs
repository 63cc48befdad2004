// SPDX-License-Identifier: GPL-2.0-only
//! What must hold whatever happens: of the model at every event, of the scheduler's promises at every audit.

use std::cell::Cell;
use std::ops::Range;

use crate::dsq::TaskId;
use crate::native::Scheduler;
use crate::scenario::Scenario;
use crate::setup::{Class, Policy};
use crate::state::{Kernel, Place, START_NS, Task};

/// The kernel's watchdog, where a scheduler asks for no other time.
const WATCHDOG_NS: u64 = 30_000_000_000;

/// What a scheduler promises. Bounds are far above what is usual: beyond them somebody was forgotten.
#[derive(Debug, Clone)]
pub struct Promises {
    /// For how long a CPU may be idle while tasks wait that may run there; `None`: that is not promised.
    pub idle_ns: Option<u64>,
    /// How long a task waits at most.
    pub wait_ns: Option<u64>,
    /// Of these CPUs idle time is not looked at: background is not let in.
    pub closed: Vec<usize>,
    /// While one of these tasks runs, the other threads of its core are not looked at either, if it has that to
    /// itself.
    pub launchers: Vec<TaskId>,
    pub whole_core: bool,
    /// Who waits in these queues is made to wait: limits of cgroups.
    pub put_off: Range<u64>,
    /// Queues of one CPU each. Who waits there when a reload opens other CPUs waits on.
    pub at_cpu: Range<u64>,
    pub reloaded_ns: u64,
    /// The kernel's watchdog.
    pub timeout_ns: u64,
}

impl Promises {
    /// What the scheduler promises in this scenario: docs/simulator.md.
    pub fn of(scenario: &Scenario, timeout_ms: u32) -> Self {
        let mut promises = Self {
            idle_ns: None,
            wait_ns: None,
            closed: Vec::new(),
            launchers: Vec::new(),
            whole_core: false,
            put_off: 0..0,
            at_cpu: 0..0,
            reloaded_ns: START_NS,
            timeout_ns: match timeout_ms {
                0 => WATCHDOG_NS,
                ms => u64::from(ms) * 1_000_000,
            },
        };
        if scenario.scheduler == Scheduler::Gpuaware {
            let per_cpu = scenario.tasks.len().div_ceil(scenario.machine.nr_cpus()) as u64;
            // A core is kept for 10 ms after a launcher has left it at the latest, and found overdue after 25. With core
            // scheduling the kernel takes whom a CPU was woken for, and lets threads of cores idle itself: not promised.
            promises.idle_ns = scenario.cookies.is_none().then_some(40_000_000);
            // Overdue after 400 ms, found within 100, then turns of 4 ms each 80 ms for those of a CPU.
            promises.wait_ns = Some(600_000_000 + per_cpu * 100_000_000);
            // DSQ_CAPPED
            promises.put_off = 0x40000..0x50000;
            // DSQ_PINNED
            promises.at_cpu = 0x60000..0x70000;
            promises.reload(&scenario.policy, START_NS);
            for (id, task) in scenario.tasks.iter().enumerate() {
                promises.mark(id, task.class);
            }
        }
        promises
    }

    /// `task` is of that class from now on.
    pub fn mark(&mut self, task: TaskId, class: Option<Class>) {
        self.launchers.retain(|&launcher| launcher != task);
        if class == Some(Class::Launch) {
            self.launchers.push(task);
        }
    }

    /// When a launcher last left the core of `cpu`, if it has that to itself; 0: none did.
    fn core_left_ns(&self, kernel: &Kernel, cpu: usize) -> u64 {
        let core = &kernel.machine.cpus[cpu].core;
        let launchers = self.launchers.iter().filter(|_| self.whole_core);
        let tasks = launchers.map(|&launcher| &kernel.tasks[launcher]);
        let left = tasks.filter(|task| task.last_cpu.is_some_and(|last| core.contains(&last)));
        left.map(|task| task.left_ns).max().unwrap_or(0)
    }

    /// Was `task` put into `dsq` before other CPUs were opened?
    fn is_left_at_cpu(&self, task: &Task, dsq: u64) -> bool {
        self.at_cpu.contains(&dsq) && task.waits_since_ns < self.reloaded_ns
    }

    /// `policy` is in force from `now_ns` on.
    pub fn reload(&mut self, policy: &Policy, now_ns: u64) {
        self.reloaded_ns = now_ns;
        self.whole_core = policy.whole_core;
        self.closed = if policy.lend {
            Vec::new()
        } else {
            policy.preferred.clone()
        };
    }
}

/// What is saved up of the budget of holds, and how long one hold may go on when that is gone.
const HOLD_BUCKET_NS: u64 = 40_000_000;
const LONGEST_HOLD_NS: u64 = 10_000_000;

/// For so long at most, all CPUs together, holds keep CPUs from background that waits, in `ran_ns` under one of
/// `policies` after the other. `None`: one of them has no bound.
pub fn most_hold_waste_ns<'a>(
    policies: impl Iterator<Item = &'a Policy>,
    nr_cpus: usize,
    ran_ns: u64,
) -> Option<u64> {
    let share = policies.map(|policy| policy.hold_share).fold(0.0, f64::max);
    let cpus = nr_cpus as u64;
    let budget_ns = (share * (cpus * ran_ns) as f64) as u64;
    (share < 1.0).then_some(budget_ns + HOLD_BUCKET_NS + cpus * LONGEST_HOLD_NS)
}

/// Is every task in exactly one place, and where it may be?
pub fn places(kernel: &Kernel) -> Result<(), String> {
    let mut nr_queued = 0;
    for (id, task) in kernel.tasks.iter().enumerate() {
        let on_queue = matches!(task.place, Place::Queued(..) | Place::Running(_));
        let lost = |what: &str| Err(format!("task {id}, {:?}: {what}", task.place));
        if on_queue != task.is_queued() {
            return lost("its SCX_TASK_QUEUED says something else");
        }
        match task.place {
            Place::Moving => return lost("it is lost"),
            Place::Running(cpu) if kernel.cpus[cpu].curr != Some(id) => {
                return lost("somebody else runs there");
            }
            Place::Running(cpu) if !task.mask.has(cpu) => return lost("it may not run there"),
            Place::Queued(dsq, key) => {
                nr_queued += 1;
                let queue = kernel.dsqs.get(dsq);
                if queue.and_then(|queue| queue.at(key)) != Some(id) {
                    return lost("it is not there");
                }
            }
            _ => {}
        }
    }
    if kernel.dsqs.total() != nr_queued {
        return Err(format!(
            "{} tasks in queues, {nr_queued} of them know it",
            kernel.dsqs.total()
        ));
    }
    for (cpu, run) in kernel.cpus.iter().enumerate() {
        let runs = run.curr.map(|curr| kernel.tasks[curr].place);
        if runs.is_some_and(|place| place != Place::Running(cpu)) {
            return Err(format!("CPU {cpu} runs a task that is elsewhere: {runs:?}"));
        }
    }
    Ok(())
}

/// Looks now and then whether somebody waits for too long.
#[derive(Debug)]
pub struct Watch {
    pub promises: Promises,
    /// Up to when nobody was to run each task: it did not want to, or is put off.
    excused_ns: Vec<u64>,
    /// Since when each CPU was idle, whenever looked at, while somebody waited that could run there.
    wasted_since_ns: Vec<u64>,
}

impl Watch {
    pub fn new(promises: Promises, nr_tasks: usize, nr_cpus: usize) -> Self {
        Self {
            promises,
            excused_ns: vec![START_NS; nr_tasks],
            wasted_since_ns: vec![START_NS; nr_cpus],
        }
    }

    pub fn look(&mut self, kernel: &Kernel) -> Result<(), String> {
        let now_ns = kernel.now_ns;
        no_time_twice(kernel)?;
        let mut waiting = Vec::new();
        for (id, task) in kernel.tasks.iter().enumerate() {
            let Place::Queued(dsq, _) = task.place else {
                continue;
            };
            let timeout_ns = self.promises.timeout_ns;
            if now_ns - task.waits_since_ns > timeout_ns {
                let name = name(task);
                return Err(format!(
                    "watchdog: {name} failed to run for {timeout_ns} ns"
                ));
            }
            let is_taken = |cpu: usize| kernel.cpus[cpu].above.is_some();
            if self.promises.put_off.contains(&dsq) || task.mask.cpus().all(is_taken) {
                self.excused_ns[id] = now_ns;
                continue;
            }
            let waited_ns = now_ns - task.waits_since_ns.max(self.excused_ns[id]);
            if self.promises.wait_ns.is_some_and(|most| waited_ns > most) {
                let (name, ms) = (name(task), waited_ns / 1_000_000);
                return Err(format!("{name} has waited for {ms} ms in {dsq:#x}"));
            }
            waiting.push((task, dsq));
        }
        match self.promises.idle_ns {
            Some(most) => self.find_waste(kernel, &waiting, most),
            None => Ok(()),
        }
    }

    fn find_waste(
        &mut self,
        kernel: &Kernel,
        waiting: &[(&Task, u64)],
        most_ns: u64,
    ) -> Result<(), String> {
        for (cpu, since_ns) in self.wasted_since_ns.iter_mut().enumerate() {
            let keeps_core = |&other: &usize| {
                let curr = kernel.cpus[other].curr;
                self.promises.whole_core
                    && curr.is_some_and(|task| self.promises.launchers.contains(&task))
            };
            let is_open = kernel.cpus[cpu].is_idle()
                && kernel.active.has(cpu)
                && !self.promises.closed.contains(&cpu)
                && !kernel.machine.cpus[cpu].core.iter().any(keeps_core);
            // A local queue is that CPU's alone, but nobody is to be left in one that a real-time task has.
            let is_free =
                |task: &Task| cpu == task.cpu() || kernel.cpus[task.cpu()].above.is_some();
            let could_run = |&&(task, dsq): &&(&Task, u64)| {
                let is_left = self.promises.is_left_at_cpu(task, dsq);
                task.mask.has(cpu) && !is_left && (dsq >> 62 != 3 || is_free(task))
            };
            // Who ran there meanwhile had it held, as may be, or had its core held.
            let left_ns = self.promises.core_left_ns(kernel, cpu);
            *since_ns = kernel.cpus[cpu].idle_since_ns.max(*since_ns).max(left_ns);
            match waiting.iter().filter(|_| is_open).find(could_run) {
                None => *since_ns = kernel.now_ns,
                Some((task, dsq)) if kernel.now_ns - *since_ns > most_ns => {
                    let (name, ms) = (name(task), (kernel.now_ns - *since_ns) / 1_000_000);
                    return Err(format!(
                        "CPU {cpu} is idle while {name} waits in {dsq:#x}, others before it, for {ms} ms"
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// What tasks got done, what interrupts took and what was idle come to no more than the CPUs had.
fn no_time_twice(kernel: &Kernel) -> Result<(), String> {
    let ran_ns = kernel.now_ns - START_NS;
    let done: u64 = kernel.tasks.iter().map(|task| task.work_done_ns).sum();
    let interrupted = kernel.cpus.iter().map(|cpu| {
        let ahead_ns = cpu.irq_until_ns.saturating_sub(kernel.now_ns);
        // An interrupt that comes to an idle CPU is idle time already.
        cpu.irq_ns.saturating_sub(ahead_ns + cpu.idle_ns)
    });
    let spent = done + interrupted.sum::<u64>();
    let had = ran_ns * kernel.cpus.len() as u64;
    if spent > had {
        return Err(format!("{spent} ns were spent of {had} that all CPUs had"));
    }
    Ok(())
}

fn name(task: &Task) -> String {
    let bytes = task.body.comm.iter().map(Cell::get);
    let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
    format!(
        "{}({})",
        String::from_utf8_lossy(&bytes),
        task.body.pid.get()
    )
}
