// SPDX-License-Identifier: GPL-2.0-only
//! What changes of a task while it sleeps, waits or runs: the kernel takes it off its queue and puts it back. After
//! sched_setaffinity() it moves the task if it may not stay.

use crate::dsq::TaskId;
use crate::history::SchedEvent;
use crate::state::{Context, Kernel, Place, Task, call, local_dsq};

/// DEQUEUE_SAVE and ENQUEUE_RESTORE: what changes is not that it is runnable.
const SAVE_RESTORE: u64 = 2;

impl Kernel {
    /// `cpu`, which is idle, is on its way offline: it runs nobody any more.
    pub fn leave_soon(&mut self, cpu: usize) {
        let queue = self.dsqs.get(local_dsq(cpu));
        let is_empty = queue.is_none_or(|queue| queue.is_empty());
        if self.cpus[cpu].is_idle() && is_empty {
            self.active.assign(cpu, false);
        } else {
            let runs = self.cpus[cpu].curr;
            self.fail(format!("CPU {cpu} is to leave, and runs {runs:?}"));
        }
    }

    /// `task` may run on `cpus` from now on, which has at least one.
    pub fn set_affinity(&mut self, task: TaskId, cpus: &[usize]) {
        let nr_cpus = self.cpus.len();
        self.change(task, |task| {
            for cpu in 0..nr_cpus {
                task.mask.assign(cpu, cpus.contains(&cpu));
            }
            task.body.nr_cpus_allowed.set(cpus.len() as i32);
        });
        match self.tasks[task].place {
            Place::Queued(..) => self.leave_if_it_must(task, cpus),
            Place::Running(cpu) if !cpus.contains(&cpu) => self.drive_from(cpu, task, cpus),
            _ => {}
        }
    }

    /// `how` is done to `task` while it is off its queue.
    pub fn change(&mut self, task: TaskId, how: impl FnOnce(&mut Task)) {
        match self.tasks[task].place {
            Place::Queued(..) => {
                let by = self.tasks[task].cpu();
                self.take_off(task, by);
                how(&mut self.tasks[task]);
                self.put_back(task, by);
                self.do_enqueue(task, SAVE_RESTORE, by);
            }
            Place::Running(cpu) => self.change_current(cpu, task, how),
            _ => how(&mut self.tasks[task]),
        }
    }

    /// Out of its queue, if it is in one.
    fn take_off(&mut self, task: TaskId, by: usize) {
        self.unqueue(task);
        let body = self.body(task);
        call!(self, by, Context::Locked, quiescent(body, SAVE_RESTORE));
        self.tasks[task].set_queued(false);
    }

    fn unqueue(&mut self, task: TaskId) {
        if let Place::Queued(dsq, key) = self.tasks[task].place {
            self.dsqs.remove(dsq, key);
        }
        self.tasks[task].place = Place::Moving;
    }

    fn put_back(&mut self, task: TaskId, by: usize) {
        self.tasks[task].set_queued(true);
        let body = self.body(task);
        call!(self, by, Context::Locked, runnable(body, SAVE_RESTORE));
    }

    /// A task that waits where it may not run any more is enqueued on another CPU.
    fn leave_if_it_must(&mut self, task: TaskId, cpus: &[usize]) {
        let cpu = self.tasks[task].cpu();
        if cpus.contains(&cpu) {
            return;
        }
        self.unqueue(task);
        self.tasks[task].body.cpu.set(cpus[0] as i32);
        self.do_enqueue(task, 0, cpu);
        if self.cpus[cpus[0]].curr.is_none() {
            self.resched(cpus[0], cpu);
        }
    }

    /// Who runs goes on, and was in the local queue for a moment: ops.enqueue() is not asked.
    fn change_current(&mut self, cpu: usize, task: TaskId, how: impl FnOnce(&mut Task)) {
        self.settle(cpu);
        self.update_curr(cpu);
        self.stop(cpu, task, false);
        self.take_off(task, cpu);
        how(&mut self.tasks[task]);
        self.put_back(task, cpu);
        self.tasks[task].place = Place::Running(cpu);
        let body = self.body(task);
        call!(self, cpu, Context::Locked, running(body));
    }

    /// The stopper, which is of a class above, drives it off.
    fn drive_from(&mut self, cpu: usize, task: TaskId, cpus: &[usize]) {
        self.stop(cpu, task, true);
        self.remember(cpu, task, SchedEvent::Preempted);
        let entry = &mut self.tasks[task];
        entry.waits_since_ns = self.now_ns;
        entry.place = Place::Moving;
        self.leave_if_it_must(task, cpus);
        self.after_stopper(cpu);
    }
}
