// SPDX-License-Identifier: GPL-2.0-only
//! What happens on CPUs, and what tasks do when they have one.

use crate::abi::WAKE_SYNC;
use crate::events::Event;
use crate::op::Op;
use crate::state::{Kernel, Place};

impl Kernel {
    /// `event` happens, which was due at `at_ns`. Those that a scenario says more about are not for here.
    pub fn happen(&mut self, at_ns: u64, event: Event) {
        match event {
            Event::Start(task) => {
                let by = task % self.cpus.len();
                self.start(task, by);
            }
            Event::Wake(task) => self.wake_in_interrupt(task, self.tasks[task].cpu()),
            Event::Signal(task, by) => self.wake_in_interrupt(task, by),
            Event::GivesUp(task, switches) => {
                let is_same = self.tasks[task].switches == switches;
                if is_same && std::mem::take(&mut self.awaits[task]) {
                    self.wake_in_interrupt(task, self.tasks[task].cpu());
                }
            }
            Event::Done(cpu, runs) => {
                if self.cpus[cpu].runs == runs {
                    self.settle(cpu);
                    self.advance(cpu);
                }
            }
            Event::Resched(cpu) => {
                if self.cpus[cpu].resched_at == Some(at_ns) {
                    self.schedule(cpu);
                }
            }
            Event::Kick { cpu, flags, .. } => self.kicked(cpu, flags),
            Event::Tick(cpu) => self.tick(cpu),
            Event::InterruptEnds(cpu) => {
                self.interrupt_ends(cpu);
                self.leave_kernel(cpu);
            }
            Event::AboveEnds(cpu) => self.above_ends(cpu),
            Event::Timer(timer, starts) => self.timer(timer, starts),
            Event::Change(_) | Event::Above(_) | Event::Interrupt(_) | Event::Audit => {}
        }
    }

    /// A timer's interrupt on CPU `by` wakes `task`.
    fn wake_in_interrupt(&mut self, task: usize, by: usize) {
        self.wake(task, by, 0);
        self.leave_kernel(by);
    }

    /// Who runs on `cpu` is done with its work: its program goes on.
    fn advance(&mut self, cpu: usize) {
        let Some(task) = self.cpus[cpu].curr else {
            return;
        };
        let mut spent_ns = 0;
        loop {
            let now_ns = self.now_ns;
            match self.programs[task].next(now_ns) {
                Op::Run(ns) => return self.work(cpu, ns + spent_ns),
                Op::Sleep(ns) => {
                    self.events.push(now_ns + ns, Event::Wake(task));
                    return self.sleep(cpu, Place::Sleeping);
                }
                Op::Arm { task: other, ns } => {
                    self.events.push(now_ns + ns, Event::Signal(other, cpu));
                }
                Op::Call => {
                    if !self.leave_kernel(cpu) {
                        return;
                    }
                }
                Op::Wait if self.tasks[task].tokens > 0 => {
                    self.tasks[task].tokens -= 1;
                }
                Op::Wait => return self.sleep(cpu, Place::Sleeping),
                Op::Wake { task: other, sync } => {
                    let flags = if sync { WAKE_SYNC } else { 0 };
                    self.wake(other, cpu, flags);
                    spent_ns += self.costs.wake_ns;
                    // It goes on when it has the lock.
                    if self.is_late(cpu) {
                        return self.work(cpu, spent_ns);
                    }
                    if !self.leave_kernel(cpu) {
                        return;
                    }
                }
                Op::WakeOne { first, count, from } => {
                    let mut tasks = (0..count).map(|at| first + (from + at) % count);
                    // Nobody waits: it is found without being woken.
                    if let Some(other) = tasks.find(|&task| self.awaits[task]) {
                        self.awaits[other] = false;
                        self.wake(other, cpu, 0);
                        spent_ns += self.costs.wake_ns;
                        if self.is_late(cpu) {
                            return self.work(cpu, spent_ns);
                        }
                        if !self.leave_kernel(cpu) {
                            return;
                        }
                    }
                }
                Op::Await(ns) => {
                    self.awaits[task] = true;
                    let event = Event::GivesUp(task, self.tasks[task].switches);
                    self.events.push(now_ns + ns, event);
                    return self.sleep(cpu, Place::Sleeping);
                }
                Op::Yield => {
                    self.yield_cpu(cpu);
                    if self.cpus[cpu].curr != Some(task) {
                        return;
                    }
                }
                Op::Exit => return self.sleep(cpu, Place::Dead),
            }
        }
    }

    /// Who runs on `cpu` has so much to do before its program goes on.
    fn work(&mut self, cpu: usize, ns: u64) {
        if let Some(task) = self.cpus[cpu].curr {
            self.tasks[task].work_ns = ns;
        }
        self.plan_done(cpu);
    }

    fn sleep(&mut self, cpu: usize, place: Place) {
        if let Some(task) = self.cpus[cpu]
            .curr
            .filter(|&task| self.programs[task].is_recorded())
        {
            let turn_ns = self.now_ns - self.tasks[task].turn_since_ns;
            self.turns.push((task, turn_ns));
        }
        self.deactivate(cpu, place);
        self.schedule(cpu);
    }
}
