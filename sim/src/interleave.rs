// SPDX-License-Identifier: GPL-2.0-only
//! Callbacks that come in between each other, as on a machine whose CPUs run at the same time. At points within a
//! callback (`sim_point()` of the shim) what is due on another CPU soon happens first, from its beginning to its end.
//! Who wants a lock that a callback further out has waits until that one's event is over.

use std::collections::VecDeque;
use std::ffi::c_void;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::abi::TaskStruct;
use crate::events::Event;
use crate::memory::Timer;
use crate::nested::{Frame, Interleave, Interleaving, Late};
use crate::state::{Context, Cpu, Kernel, Task};

/// Callbacks within each other, at most: the outermost one and so many more.
const DEPTH: usize = 2;
/// Tells what is drawn here from what is drawn for tasks.
const INTERLEAVE: u64 = 0x7074;

/// What [`Kernel::enter`] set for a callback.
struct Entered {
    context: Context,
    kernel: *mut c_void,
    now_ns: u64,
    current: *const TaskStruct,
    cpu: i32,
}

/// On which CPU `event` happens, if it may come in between and is not void.
fn cpu_of(
    (cpus, tasks, timers): (&[Cpu], &[Task], &[Timer]),
    at_ns: u64,
    event: Event,
) -> Option<usize> {
    match event {
        Event::Start(task) => Some(task % cpus.len()),
        Event::Wake(task) | Event::GivesUp(task, _) => tasks.get(task).map(Task::cpu),
        Event::Done(cpu, runs) => Some(cpu).filter(|&cpu| cpus[cpu].runs == runs),
        Event::Resched(cpu) => Some(cpu).filter(|&cpu| cpus[cpu].resched_at == Some(at_ns)),
        Event::Timer(timer, starts) => {
            let timer = timers.get(timer).filter(|timer| timer.starts == starts);
            timer.map(|timer| timer.cpu)
        }
        Event::Kick { cpu, .. }
        | Event::Tick(cpu)
        | Event::Signal(_, cpu)
        | Event::AboveEnds(cpu)
        | Event::InterruptEnds(cpu) => Some(cpu),
        Event::Change(_) | Event::Above(_) | Event::Interrupt(_) | Event::Audit => None,
    }
}

impl Kernel {
    /// Callbacks come in between each other from now on.
    pub fn interleave(&mut self, spec: Interleaving, seed: u64) {
        self.interleave = Some(Box::new(Interleave {
            spec,
            rng: Pcg64Mcg::seed_from_u64(seed ^ INTERLEAVE),
            frames: Vec::new(),
            late: VecDeque::new(),
            catches_up: false,
        }));
        self.plan_point();
    }

    /// After how many points others go on again.
    fn plan_point(&mut self) {
        let Some(mode) = &mut self.interleave else {
            return;
        };
        let points = mode.rng.random_range(1..=2 * mode.spec.points - 1);
        // SAFETY: the scheduler is loaded, as new() asks for; its variables are cells to us.
        unsafe { (*self.env).points.set(points) };
    }

    /// A point of the kernel itself, which has locked the run queue of `cpu`.
    pub fn pass_point(&mut self, cpu: usize) {
        if self.interleave.is_none() {
            return;
        }
        // SAFETY: as in plan_point().
        let points = unsafe { &(*self.env).points };
        points.set(points.get().saturating_sub(1));
        if points.get() == 0 {
            self.enter(cpu, Context::Locked);
            self.let_others_go_on();
            self.leave();
        }
    }

    /// Something that is due on another CPU happens, inside the callback that runs.
    pub fn let_others_go_on(&mut self) {
        self.plan_point();
        let frame = Frame {
            cpu: self.this_cpu(),
            locked: self.locks(),
        };
        let Some(mode) = &mut self.interleave else {
            return;
        };
        let is_alone = mode.catches_up || self.context == Context::Audit;
        if is_alone || mode.frames.len() == DEPTH {
            return;
        }
        let limit_ns = self.now_ns + mode.spec.window_ns;
        mode.frames.push(frame);
        self.events.depth += 1;
        if let Some((at_ns, event)) = self.take_elsewhere(limit_ns) {
            let entered = self.entered();
            self.now_ns = self.now_ns.max(at_ns);
            self.happen(at_ns, event);
            self.enter_again(entered);
        }
        self.events.depth -= 1;
        if let Some(mode) = &mut self.interleave {
            mode.frames.pop();
        }
    }

    /// What happens next on a CPU that runs no callback and waits for none.
    fn take_elsewhere(&mut self, limit_ns: u64) -> Option<(u64, Event)> {
        let mode = self.interleave.as_ref()?;
        let kernel = (&*self.cpus, &*self.tasks, &*self.memory.timers);
        self.events.take(limit_ns, |at_ns, event| {
            // irq_work of a CPU runs when its callback is over.
            let is_sent = !matches!(event, Event::Kick { by, .. } if mode.is_in_callback(by));
            let cpu = cpu_of(kernel, at_ns, event).filter(|_| is_sent);
            cpu.is_some_and(|cpu| !mode.is_in_callback(cpu))
        })
    }

    /// Does `cpu` wait for a lock, for the rest of a wakeup?
    pub fn is_late(&self, cpu: usize) -> bool {
        let mode = self.interleave.as_ref();
        mode.is_some_and(|mode| mode.is_late(cpu))
    }

    /// Has a callback locked the run queue of `cpu`? Not known if they run one after the other.
    pub fn is_locked(&self, cpu: usize) -> bool {
        self.interleave.as_ref().is_some_and(|mode| {
            let outer = mode.frames.iter().filter_map(|frame| frame.locked);
            outer.chain(self.locks()).any(|locked| locked == cpu)
        })
    }

    /// The CPU whose run queue the callback has locked that runs now.
    fn locks(&self) -> Option<usize> {
        match self.context {
            // In select_cpu the task is on no run queue yet.
            Context::Insert(task) | Context::Runnable(task) => {
                let task = &self.tasks[task];
                task.is_queued().then(|| task.cpu())
            }
            Context::Dispatch | Context::Locked | Context::Release(_) => Some(self.this_cpu()),
            Context::Outside | Context::Unlocked | Context::Audit => None,
        }
    }

    /// Somebody waits for a lock: when the event that has it is over.
    pub fn later(&mut self, late: Late) {
        match &mut self.interleave {
            Some(mode) => mode.late.push_back(late),
            None => self.fail("a task is woken while it is on its way"),
        }
    }

    /// An event is over, and whoever waited for its locks goes on.
    pub fn catch_up(&mut self) {
        while self.failure.is_none() {
            let Some(mode) = &mut self.interleave else {
                return;
            };
            let late = mode.late.pop_front();
            mode.catches_up = late.is_some();
            match late {
                Some(Late::Wakeup { task, by, sync }) => self.wake(task, by, sync),
                Some(Late::Enqueue(woken)) => self.enqueue_woken(woken),
                None => return,
            }
        }
    }

    fn entered(&self) -> Entered {
        // SAFETY: as in plan_point().
        let env = unsafe { &*self.env };
        Entered {
            context: self.context,
            kernel: env.kernel.get(),
            now_ns: env.now_ns.get(),
            current: env.current.get(),
            cpu: env.cpu.get(),
        }
    }

    /// The callback that others came in between goes on, and sees the time that its CPU has read.
    fn enter_again(&mut self, entered: Entered) {
        self.context = entered.context;
        // SAFETY: as in plan_point().
        let env = unsafe { &*self.env };
        env.kernel.set(entered.kernel);
        env.now_ns.set(entered.now_ns);
        env.current.set(entered.current);
        env.cpu.set(entered.cpu);
    }
}
