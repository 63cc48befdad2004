// SPDX-License-Identifier: GPL-2.0-only
//! The state of the modelled kernel: CPUs, tasks, queues; and how the scheduler's callbacks are called. What happens
//! to them is in `switch.rs` and `wake.rs`, what the scheduler calls in `kfuncs.rs`.

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use anyhow::Result;
use rand_pcg::Pcg64Mcg;

use crate::abi::{CpuMask, Css, CssSet, Env, Ops, PF_IDLE, TASK_QUEUED, TaskStruct};
use crate::callbacks::Call;
use crate::dsq::{Dsqs, Key, TaskId};
use crate::events::{Event, Events};
use crate::history::{Recorded, SchedEvent};
use crate::idle::IdleMasks;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::meter::Meter;
use crate::native::{Handlers, Native};
use crate::nested::Interleave;
use crate::overhead::Costs;
use crate::program::Progress;

/// Where a task is. Exactly one of these, at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Not begun yet.
    Unborn,
    Sleeping,
    /// Between two of the others, inside one scheduling operation.
    Moving,
    Queued(u64, Key),
    Running(usize),
    Dead,
}

/// A task.
#[derive(Debug)]
pub struct Task {
    pub body: Rc<TaskStruct>,
    pub mask: Rc<CpuMask>,
    pub place: Place,
    /// Where select_cpu or enqueue wants it, and with which flags.
    pub direct: Option<(u64, u64)>,
    /// What it still has to do before its program goes on, at full speed.
    pub work_ns: u64,
    /// Wakeups that came while it did not sleep.
    pub tokens: u32,
    /// Since when it waits for a CPU; 0: it does not.
    pub waits_since_ns: u64,
    /// Since when it waits after a wakeup; 0: it does not.
    pub woken_ns: u64,
    /// When it was woken last.
    pub turn_since_ns: u64,
    /// Is it of a class above background?
    pub is_boosted: bool,
    /// Of the GPU that it uses.
    pub gpu_node: Option<usize>,
    /// Where it ran last.
    pub last_cpu: Option<usize>,
    /// When it stopped running there.
    pub left_ns: u64,
    pub cpu_ns: u64,
    /// Of that, on the node of its GPU.
    pub near_ns: u64,
    /// What it got done, as time at full speed.
    pub work_done_ns: u64,
    pub switches: u64,
}

impl Task {
    pub fn new(pid: i32, name: &str, index: TaskId, cpus: &[usize]) -> Self {
        let mask = Rc::new(CpuMask::of(cpus.iter().copied()));
        let body = TaskStruct::new(pid, name, index as u32);
        body.nr_cpus_allowed.set(cpus.len() as i32);
        body.cpus_ptr.set(Rc::as_ptr(&mask));
        body.cpu.set(cpus.first().map_or(0, |&cpu| cpu as i32));
        let body = Rc::new(body);
        body.group_leader.set(Rc::as_ptr(&body));
        Self {
            body,
            mask,
            place: Place::Unborn,
            direct: None,
            work_ns: 0,
            tokens: 0,
            waits_since_ns: 0,
            woken_ns: 0,
            turn_since_ns: 0,
            is_boosted: false,
            gpu_node: None,
            last_cpu: None,
            left_ns: 0,
            cpu_ns: 0,
            near_ns: 0,
            work_done_ns: 0,
            switches: 0,
        }
    }

    pub fn cpu(&self) -> usize {
        self.body.cpu.get() as usize
    }

    /// On a run queue, running or not.
    pub fn is_queued(&self) -> bool {
        self.body.scx_flags.get() & TASK_QUEUED != 0
    }

    pub fn set_queued(&self, on: bool) {
        self.body.scx_flags.set(if on { TASK_QUEUED } else { 0 });
    }

    /// Puts it into a cgroup, of the CPU controller too.
    pub fn join(&self, group: *const Css, set: *const CssSet) {
        self.body.sched_task_group.set(group);
        self.body.cgroups.set(set);
    }
}

/// A CPU's run queue.
#[derive(Debug)]
pub struct Cpu {
    pub curr: Option<TaskId>,
    pub idle_task: Rc<TaskStruct>,
    /// Up to when the slice of who runs has been charged.
    pub charged_ns: u64,
    /// Up to when its work has been counted.
    pub worked_ns: u64,
    /// What callbacks took from it in this event.
    pub owed_ns: u64,
    pub speed_percent: u64,
    /// What boosted tasks had of it, as far as it has been charged.
    pub boosted_ns: u64,
    /// Counts who ran: an event of an earlier one is void.
    pub runs: u64,
    pub resched_at: Option<u64>,
    /// It looks for the next task when who runs returns from the kernel, at a tick at the latest: TIF_NEED_RESCHED_LAZY.
    pub resched_lazily: bool,
    pub ticks: bool,
    pub idle_since_ns: u64,
    pub idle_ns: u64,
    /// The task of a class above that has it.
    pub above: Option<Rc<TaskStruct>>,
    /// One that will take it.
    pub above_waits: Option<crate::higher::Above>,
    /// When its interrupt is over.
    pub irq_until_ns: u64,
    /// What interrupts took so far.
    pub irq_ns: u64,
}

impl Cpu {
    pub fn is_idle(&self) -> bool {
        self.curr.is_none() && self.above.is_none()
    }
}

/// From where the scheduler calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// No callback runs.
    Outside,
    /// select_cpu and enqueue, which may insert this task.
    Insert(TaskId),
    /// dispatch, on the CPU.
    Dispatch,
    /// Callbacks that hold the lock of their CPU's run queue and may move no task.
    Locked,
    /// runnable, which holds the lock of the run queue that this task is for.
    Runnable(TaskId),
    /// cpu_release, on the CPU that a class above takes.
    Release(usize),
    /// Timers, programs run by user space, init.
    Unlocked,
    /// What the simulator looks up in the scheduler: nothing happens meanwhile.
    Audit,
}

/// Why a simulation ended before its time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at {:.6} s: {text}", *at_ns as f64 / 1e9)]
pub struct Failure {
    pub at_ns: u64,
    pub text: String,
}

/// The modelled kernel with a scheduler in it.
pub struct Kernel {
    pub machine: Machine,
    pub costs: Costs,
    pub now_ns: u64,
    pub cpus: Vec<Cpu>,
    pub tasks: Vec<Task>,
    pub dsqs: Dsqs,
    pub idle: IdleMasks,
    pub online: CpuMask,
    /// Those that are not on their way offline.
    pub active: CpuMask,
    pub memory: Memory,
    pub events: Events,
    pub context: Context,
    pub failure: Option<Failure>,
    /// How long tasks waited after wakeups, as (task, ns).
    pub waits: Vec<(TaskId, u64)>,
    /// How long it took those that were recorded from a wakeup to the next sleep, likewise.
    pub turns: Vec<(TaskId, u64)>,
    pub ops: Ops,
    /// What became of tasks, if somebody asks for it.
    pub history: Option<Vec<Recorded>>,
    /// What the scheduler was called for, if somebody asks for it.
    pub calls: Option<Vec<Call>>,
    /// Of a scheduler whose basic blocks are counted.
    pub meter: Option<Box<Meter>>,
    /// Of a scheduler that times interrupts.
    pub handlers: Option<Handlers>,
    /// What tasks do.
    pub programs: Vec<Progress>,
    /// Which tasks sleep until another one wakes them.
    pub awaits: Vec<bool>,
    /// CPUs whose callbacks have taken time in this event.
    owing: Vec<usize>,
    /// If callbacks of several CPUs come in between each other.
    pub interleave: Option<Box<Interleave>>,
    /// If tasks have cookies of core scheduling.
    pub cookies: Option<Cookies>,
    pub(crate) env: *const Env,
    /// `rt.rt_queued` of each run queue.
    rt_queued: *const Cell<i32>,
}

/// Core scheduling: cookies.rs has what it does.
#[derive(Debug)]
pub struct Cookies {
    /// How rare it is.
    pub one_of: u32,
    pub rng: Pcg64Mcg,
}

/// Where the clock begins: 0 stands for "never" in schedulers, and machines have run for a while.
pub const START_NS: u64 = 10_000_000_000;

/// The local queue of `cpu`: `SCX_DSQ_LOCAL_ON | cpu`.
pub fn local_dsq(cpu: usize) -> u64 {
    3 << 62 | cpu as u64
}

impl Kernel {
    /// All CPUs idle. `native` has a scheduler with `ops`, which stays loaded for longer than this lives.
    pub fn new(machine: Machine, costs: Costs, native: &Native, ops: Ops) -> Result<Self> {
        let cpu = |cpu: usize| {
            let idle_task = TaskStruct::new(0, "swapper", u32::MAX);
            idle_task.flags.set(PF_IDLE);
            idle_task.cpu.set(cpu as i32);
            Cpu {
                curr: None,
                idle_task: Rc::new(idle_task),
                charged_ns: START_NS,
                worked_ns: START_NS,
                owed_ns: 0,
                boosted_ns: 0,
                speed_percent: 100,
                runs: 0,
                resched_at: None,
                resched_lazily: false,
                ticks: false,
                idle_since_ns: START_NS,
                idle_ns: 0,
                above: None,
                above_waits: None,
                irq_until_ns: 0,
                irq_ns: 0,
            }
        };
        let mut dsqs = Dsqs::default();
        dsqs.create(crate::abi::DSQ_GLOBAL);
        for cpu in 0..machine.nr_cpus() {
            dsqs.create(local_dsq(cpu));
        }
        Ok(Self {
            costs,
            now_ns: START_NS,
            cpus: (0..machine.nr_cpus()).map(cpu).collect(),
            tasks: Vec::new(),
            dsqs,
            idle: IdleMasks::new(&machine),
            online: CpuMask::of(0..machine.nr_cpus()),
            active: CpuMask::of(0..machine.nr_cpus()),
            memory: Memory::default(),
            events: Events::default(),
            context: Context::Outside,
            failure: None,
            waits: Vec::new(),
            turns: Vec::new(),
            ops,
            history: None,
            calls: None,
            meter: None,
            handlers: None,
            programs: Vec::new(),
            awaits: Vec::new(),
            owing: Vec::new(),
            interleave: None,
            cookies: None,
            env: native.env()?,
            rt_queued: native.symbol("runqueues")?,
            machine,
        })
    }

    /// The simulation ends with this, unless it has ended already.
    pub fn fail(&mut self, text: impl Into<String>) {
        self.failure.get_or_insert(Failure {
            at_ns: self.now_ns - START_NS,
            text: text.into(),
        });
    }

    /// For the history, if there is one.
    pub fn remember(&mut self, cpu: usize, task: TaskId, event: SchedEvent) {
        if let Some(history) = &mut self.history {
            history.push(Recorded {
                at_ns: self.now_ns,
                cpu,
                task,
                event,
            });
        }
    }

    pub fn body(&self, task: TaskId) -> *const TaskStruct {
        Rc::as_ptr(&self.tasks[task].body)
    }

    /// What boosted tasks had of `cpu` up to now.
    pub fn boosted_ns(&self, cpu: usize) -> u64 {
        let run = &self.cpus[cpu];
        let is_boosted = run.curr.is_some_and(|curr| self.tasks[curr].is_boosted);
        let not_charged_ns = if is_boosted {
            self.now_ns - run.charged_ns
        } else {
            0
        };
        run.boosted_ns + not_charged_ns
    }

    /// Who runs on `cpu`: a task, one of a class above or its idle task.
    pub fn current(&self, cpu: usize) -> *const TaskStruct {
        let run = &self.cpus[cpu];
        match (run.curr, &run.above) {
            (Some(task), _) => self.body(task),
            (None, Some(above)) => Rc::as_ptr(above),
            (None, None) => Rc::as_ptr(&run.idle_task),
        }
    }

    /// A real-time task is on the run queue of `cpu`, or is no more.
    pub fn set_rt_queued(&mut self, cpu: usize, on: bool) {
        // SAFETY: an array of the loaded scheduler, for MAX_CPUS, whose size was compared.
        unsafe { (*self.rt_queued.add(cpu)).set(i32::from(on)) };
    }

    /// The CPU that runs the scheduler's code right now.
    pub fn this_cpu(&self) -> usize {
        // SAFETY: the scheduler is loaded, as new() asks for.
        unsafe { (*self.env).cpu.get() as usize }
    }

    /// Says to the scheduler on which CPU it is called. Whatever it calls back goes through the pointer that is set
    /// here, so nobody may use a reference to the kernel before leave(). A callback that comes in between has a pointer
    /// of its own, made from the reference of the function where that happens: see interleave.rs.
    pub fn enter(&mut self, cpu: usize, context: Context) {
        self.context = context;
        let current = self.current(cpu);
        let (now_ns, nr_words) = (self.now_ns, self.cpus.len().div_ceil(64));
        // SAFETY: the scheduler is loaded, as new() asks for; its variables are cells to us.
        let env = unsafe { &*self.env };
        env.kernel.set(ptr::from_mut(self).cast());
        env.now_ns.set(now_ns);
        env.current.set(current);
        env.cpu.set(cpu as i32);
        env.nr_words.set(nr_words as u32);
    }

    pub fn leave(&mut self) {
        self.context = Context::Outside;
    }

    /// A callback is called on `cpu`, which takes so long.
    pub fn charge(&mut self, cpu: usize, callback_ns: u64) {
        if callback_ns > 0 {
            self.cpus[cpu].owed_ns += callback_ns;
            self.owing.push(cpu);
        }
    }

    /// Whoever runs now loses what callbacks took from its CPU; where nobody runs, nobody does.
    pub fn pay_callbacks(&mut self) {
        while let Some(cpu) = self.owing.pop() {
            let owed_ns = std::mem::take(&mut self.cpus[cpu].owed_ns);
            if owed_ns > 0 && self.cpus[cpu].curr.is_some() {
                self.settle(cpu);
                let run = &mut self.cpus[cpu];
                run.worked_ns = run.worked_ns.max(self.now_ns) + owed_ns;
                self.plan_done(cpu);
            }
        }
    }

    /// `cpu` is to look for the next task, as CPU `by` says.
    pub fn resched(&mut self, cpu: usize, by: usize) {
        if self.cpus[cpu].above.is_some() {
            return;
        }
        let ipi_ns = if cpu == by { 0 } else { self.costs.ipi_ns };
        let exit_ns = match self.cpus[cpu].curr {
            None => self.costs.idle_exit_ns,
            Some(_) => 0,
        };
        let at = self.now_ns + ipi_ns + exit_ns + self.cpus[by].owed_ns;
        if self.cpus[cpu]
            .resched_at
            .is_some_and(|earlier| earlier <= at)
        {
            return;
        }
        self.cpus[cpu].resched_at = Some(at);
        self.events.push(at, Event::Resched(cpu));
    }
}

/// Calls one of the scheduler's callbacks, if it has it: `call!(kernel, cpu, context, op(arguments))`.
macro_rules! call {
    ($kernel:expr, $cpu:expr, $context:expr, $op:ident($($first:expr $(, $rest:expr)*)?)) => {{
        let op = $kernel.ops.$op;
        op.map(|op| {
            let subject = None $(.or($crate::meter::Subject::task(&$first)))?;
            if let Some(calls) = &mut $kernel.calls {
                let arguments = [$($crate::callbacks::Passed::argument(&$first)
                    $(, $crate::callbacks::Passed::argument(&$rest))*)?];
                let (name, at_ns) = (stringify!($op), $kernel.now_ns);
                calls.push($crate::callbacks::Call::new(name, at_ns, $cpu, &arguments));
            }
            if let Some(at) = const { $crate::callbacks::frequent(stringify!($op)) } {
                $kernel.charge($cpu, $kernel.costs.callback_ns[at]);
            }
            $kernel.enter($cpu, $context);
            if let Some(meter) = &mut $kernel.meter {
                meter.begin(subject);
            }
            // SAFETY: a callback of the loaded scheduler, with arguments that live in the kernel.
            let result = unsafe { op($($first $(, $rest)*)?) };
            if let Some(meter) = &mut $kernel.meter {
                meter.end(stringify!($op), $cpu);
            }
            $kernel.leave();
            result
        })
    }};
}
pub(crate) use call;
