// SPDX-License-Identifier: GPL-2.0-only
//! From one task to the next on a CPU, in the order in which kernel/sched/ext.c of Linux 6.18 calls a scheduler:
//! dispatch, stopping, enqueue, running, update_idle. Slices end at ticks.

use crate::abi::{
    DEQ_SLEEP, DSQ_BUILTIN, DSQ_GLOBAL, DSQ_LOCAL, ENQ_HEAD, ENQ_LAST, ENQ_PREEMPT, OPS_ENQ_LAST,
    SLICE_DEFAULT_NS, SLICE_INFINITE,
};
use crate::dsq::TaskId;
use crate::events::Event;
use crate::history::SchedEvent;
use crate::state::{Context, Kernel, Place, call, local_dsq};

/// The queue is ordered by vtime: the kernel's own flag.
pub const ENQ_DSQ_PRIQ: u64 = 1 << 57;

impl Kernel {
    /// Puts `task` into a queue: the kernel's dispatch_enqueue().
    pub fn dispatch_enqueue(&mut self, dsq: u64, task: TaskId, flags: u64) {
        let by_vtime = flags & ENQ_DSQ_PRIQ != 0;
        if by_vtime && dsq & DSQ_BUILTIN != 0 {
            self.fail("cannot use vtime ordering for built-in DSQs");
            return;
        }
        let vtime = by_vtime.then(|| self.tasks[task].body.dsq_vtime.get());
        let key = match self.dsqs.insert(dsq, task, vtime, flags & ENQ_HEAD != 0) {
            Ok(key) => key,
            Err(error) => return self.fail(error),
        };
        self.tasks[task].place = Place::Queued(dsq, key);
        self.events.note(&[9, dsq, task as u64]);
        if let Some(meter) = &mut self.meter {
            meter.locks_queue(dsq, 0);
        }
        let cpu = (dsq & 0xffff_ffff) as usize;
        if dsq != local_dsq(cpu) {
            return;
        }
        let by = self.this_cpu();
        match self.cpus[cpu].curr {
            None => self.resched(cpu, by),
            Some(curr) if flags & ENQ_PREEMPT != 0 && curr != task => {
                self.tasks[curr].body.slice.set(0);
                self.resched(cpu, by);
            }
            Some(_) => {}
        }
    }

    /// A runnable task gets to a queue, the scheduler's choice: the kernel's do_enqueue_task(), run on CPU `by`.
    pub fn do_enqueue(&mut self, task: TaskId, flags: u64, by: usize) {
        if self.tasks[task].direct.is_none() {
            let body = self.body(task);
            if call!(self, by, Context::Insert(task), enqueue(body, flags)).is_none() {
                self.tasks[task].direct = Some((DSQ_GLOBAL, 0));
            }
        }
        let Some((dsq, direct_flags)) = self.tasks[task].direct.take() else {
            return self.fail("ops.enqueue() kept a task to itself, which is not modelled");
        };
        let dsq = match dsq {
            DSQ_LOCAL => local_dsq(self.tasks[task].cpu()),
            other => other,
        };
        self.dispatch_enqueue(dsq, task, direct_flags | flags);
    }

    /// Charges the slice of who runs on `cpu` up to now.
    pub fn update_curr(&mut self, cpu: usize) {
        let Some(curr) = self.cpus[cpu].curr else {
            return;
        };
        let ran_ns = self.now_ns - self.cpus[cpu].charged_ns;
        self.cpus[cpu].charged_ns = self.now_ns;
        let task = &mut self.tasks[curr];
        if !task.is_queued() {
            return;
        }
        task.cpu_ns += ran_ns;
        if task.is_boosted {
            self.cpus[cpu].boosted_ns += ran_ns;
        }
        if task.gpu_node == Some(self.machine.cpus[cpu].node) {
            task.near_ns += ran_ns;
        }
        let slice = task.body.slice.get();
        if slice != SLICE_INFINITE {
            task.body.slice.set(slice.saturating_sub(ran_ns));
        }
    }

    /// Counts what who runs on `cpu` got done up to now.
    pub fn settle(&mut self, cpu: usize) {
        let run = &mut self.cpus[cpu];
        let from = run.worked_ns;
        if self.now_ns <= from {
            return;
        }
        run.worked_ns = self.now_ns;
        if let Some(curr) = run.curr {
            let done = (self.now_ns - from) * run.speed_percent / 100;
            let task = &mut self.tasks[curr];
            let done = done.min(task.work_ns);
            task.work_ns -= done;
            task.work_done_ns += done;
        }
    }

    /// When who runs on `cpu` is done with its work.
    pub fn plan_done(&mut self, cpu: usize) {
        let run = &mut self.cpus[cpu];
        let Some(curr) = run.curr else {
            return;
        };
        run.runs += 1;
        let lasts = (self.tasks[curr].work_ns * 100).div_ceil(run.speed_percent);
        let at = run.worked_ns.max(self.now_ns) + lasts;
        self.events.push(at, Event::Done(cpu, run.runs));
    }

    /// Who runs on `cpu` may be far from its GPU.
    fn reach_percent(&self, cpu: usize) -> u64 {
        let curr = self.cpus[cpu].curr;
        match curr.and_then(|curr| self.tasks[curr].gpu_node) {
            Some(node) if node != self.machine.cpus[cpu].node => self.costs.remote_percent,
            _ => 100,
        }
    }

    /// What `task` needs is in the cache where it ran last.
    fn cold_ns(&self, task: TaskId, cpu: usize) -> u64 {
        let cpus = &self.machine.cpus;
        match self.tasks[task].last_cpu {
            Some(last) if cpus[last].node != cpus[cpu].node => self.costs.node_ns,
            Some(last) if cpus[last].llc != cpus[cpu].llc => self.costs.llc_ns,
            _ => 0,
        }
    }

    /// Threads of a core take from each other what they share.
    pub fn set_speeds(&mut self, cpu: usize) {
        for at in 0..self.machine.cpus[cpu].core.len() {
            let thread = self.machine.cpus[cpu].core[at];
            let core = &self.machine.cpus[thread].core;
            let busy = core.iter().filter(|&&other| !self.cpus[other].is_idle());
            let shared = if busy.count() > 1 {
                self.costs.smt_percent
            } else {
                100
            };
            let speed = shared * self.reach_percent(thread) / 100;
            if self.cpus[thread].speed_percent != speed {
                self.settle(thread);
                self.cpus[thread].speed_percent = speed;
                if thread != cpu {
                    self.plan_done(thread);
                }
            }
        }
    }

    /// Is `task` in a queue and the CPU that it ran on still on its way to another one? That has the lock of its run
    /// queue, which nobody gets who wants to move the task.
    pub fn is_switching_from(&self, task: TaskId) -> bool {
        self.cpus[self.tasks[task].cpu()].curr == Some(task)
    }

    /// The first task of `dsq` that may run on `cpu` goes to its local queue.
    pub fn move_to_local(&mut self, cpu: usize, dsq: u64) -> bool {
        let Some(queue) = self.dsqs.get(dsq) else {
            self.fail(format!("non-existent DSQ {dsq:#x}"));
            return false;
        };
        let may_run = |id: TaskId| {
            let task = &self.tasks[id];
            let may_come = task.mask.has(cpu) && task.body.migration_disabled.get() == 0;
            task.cpu() == cpu || (may_come && !self.is_switching_from(id))
        };
        let mut walked = 0;
        let found = queue.tasks().find(|&(_, task)| {
            walked += 1;
            may_run(task)
        });
        if let Some(meter) = self.meter.as_mut().filter(|_| walked > 0) {
            meter.locks_queue(dsq, walked);
        }
        let Some((key, task)) = found else {
            return false;
        };
        self.dsqs.remove(dsq, key);
        self.tasks[task].body.cpu.set(cpu as i32);
        self.dispatch_enqueue(local_dsq(cpu), task, 0);
        true
    }

    fn first_local(&self, cpu: usize) -> Option<TaskId> {
        let queue = self.dsqs.get(local_dsq(cpu))?;
        queue.next(None, false, u64::MAX).map(|(_, task)| task)
    }

    /// Who runs next on `cpu`: the kernel's balance_one() and pick_task_scx().
    pub fn pick_next(&mut self, cpu: usize, prev: Option<TaskId>) -> Option<TaskId> {
        self.update_curr(cpu);
        let on_queue = prev.filter(|&prev| self.tasks[prev].is_queued());
        let has_slice = |kernel: &Self, task: &TaskId| kernel.tasks[*task].body.slice.get() > 0;
        if let Some(prev) = on_queue.filter(|prev| has_slice(self, prev)) {
            return Some(prev);
        }
        if self.first_local(cpu).is_none() && !self.move_to_local(cpu, DSQ_GLOBAL) {
            let body = prev.map_or(std::ptr::null(), |prev| self.body(prev));
            call!(self, cpu, Context::Dispatch, dispatch(cpu as i32, body));
            if let Some(prev) = on_queue.filter(|prev| has_slice(self, prev)) {
                return Some(prev);
            }
            if self.first_local(cpu).is_none() {
                self.move_to_local(cpu, DSQ_GLOBAL);
            }
        }
        let goes_on = on_queue.filter(|_| self.ops.flags & OPS_ENQ_LAST == 0);
        let next = self.first_local(cpu).or(goes_on)?;
        if !has_slice(self, &next) {
            self.tasks[next].body.slice.set(SLICE_DEFAULT_NS);
        }
        Some(next)
    }

    /// `cpu` looks for the next task and switches to it: the kernel's schedule().
    pub fn schedule(&mut self, cpu: usize) {
        if !self.active.has(cpu) {
            // Its idle task goes on.
            self.cpus[cpu].resched_at = None;
            self.idle.set(cpu, true);
            return;
        }
        let prev = self.cpus[cpu].curr;
        let irq_until_ns = self.cpus[cpu].irq_until_ns;
        if self.now_ns < irq_until_ns {
            self.cpus[cpu].resched_at = Some(irq_until_ns);
            return self.events.push(irq_until_ns, Event::Resched(cpu));
        }
        self.settle(cpu);
        self.cpus[cpu].resched_at = None;
        self.cpus[cpu].resched_lazily = false;
        if let Some(above) = self.cpus[cpu].above_waits.take() {
            return self.give_way(above);
        }
        if self.cpus[cpu].above.is_some() {
            return;
        }
        let next = self.pick_next(cpu, prev);
        let next = self.other_of_core(cpu).or(next);
        self.cpus[cpu].resched_at = None;
        if prev == next {
            if let Some(meter) = &mut self.meter {
                meter.chose(cpu, next, false);
            }
            if next.is_none() {
                self.idle.set(cpu, true);
            }
            return;
        }
        match prev {
            Some(prev) => self.put_prev(cpu, prev, next),
            None => self.leave_idle(cpu),
        }
        self.switch_to(cpu, next);
    }

    pub fn leave_idle(&mut self, cpu: usize) {
        self.cpus[cpu].idle_ns += self.now_ns - self.cpus[cpu].idle_since_ns;
        self.idle.set(cpu, false);
        call!(self, cpu, Context::Locked, update_idle(cpu as i32, false));
    }

    /// A task of a class above had `cpu` and is done.
    pub fn after_stopper(&mut self, cpu: usize) {
        self.cpus[cpu].curr = None;
        let next = self.pick_next(cpu, None);
        self.switch_to(cpu, next);
        if self.cpus[cpu].above_waits.is_some() {
            self.resched(cpu, cpu);
        }
    }

    fn switch_to(&mut self, cpu: usize, next: Option<TaskId>) {
        self.cpus[cpu].resched_at = None;
        match next {
            Some(next) => self.set_next(cpu, next),
            None => self.set_idle(cpu),
        }
        if let Some(meter) = &mut self.meter {
            meter.chose(cpu, next, true);
        }
        self.set_speeds(cpu);
        self.plan_done(cpu);
    }

    /// `task` stops running on `cpu`.
    pub fn stop(&mut self, cpu: usize, task: TaskId, runnable: bool) {
        let body = self.body(task);
        call!(self, cpu, Context::Locked, stopping(body, runnable));
        self.tasks[task].left_ns = self.now_ns;
    }

    fn put_prev(&mut self, cpu: usize, prev: TaskId, next: Option<TaskId>) {
        if !self.tasks[prev].is_queued() {
            return;
        }
        self.stop(cpu, prev, true);
        self.remember(cpu, prev, SchedEvent::Preempted);
        let task = &mut self.tasks[prev];
        task.place = Place::Moving;
        task.waits_since_ns = self.now_ns;
        if task.body.slice.get() > 0 {
            // Core scheduling takes another one.
            return self.dispatch_enqueue(local_dsq(cpu), prev, ENQ_HEAD);
        }
        let flags = if next.is_none() { ENQ_LAST } else { 0 };
        self.do_enqueue(prev, flags, cpu);
    }

    fn set_next(&mut self, cpu: usize, next: TaskId) {
        let Place::Queued(dsq, key) = self.tasks[next].place else {
            return self.fail(format!("task {next} runs and was in no queue"));
        };
        self.dsqs.remove(dsq, key);
        if !self.tasks[next].mask.has(cpu) {
            let pid = self.tasks[next].body.pid.get();
            return self.fail(format!("{pid} runs on CPU {cpu}, where it may not"));
        }
        self.tasks[next].place = Place::Running(cpu);
        self.cpus[cpu].charged_ns = self.now_ns;
        let body = self.body(next);
        call!(self, cpu, Context::Locked, running(body));
        self.remember(cpu, next, SchedEvent::SwitchIn);
        let task = &mut self.tasks[next];
        task.switches += 1;
        task.waits_since_ns = 0;
        if task.woken_ns > 0 {
            self.waits.push((next, self.now_ns - task.woken_ns));
            task.woken_ns = 0;
        }
        self.events.note(&[10, cpu as u64, next as u64]);
        let lost_ns = self.costs.switch_ns + self.cold_ns(next, cpu);
        self.tasks[next].last_cpu = Some(cpu);
        let run = &mut self.cpus[cpu];
        run.curr = Some(next);
        // An interrupt may go on that a real-time task before was interrupted by.
        run.worked_ns = self.now_ns.max(run.irq_until_ns) + lost_ns;
        if !run.ticks {
            run.ticks = true;
            let tick_ns = self.costs.tick_ns;
            let at = (self.now_ns / tick_ns + 1) * tick_ns;
            self.events.push(at, Event::Tick(cpu));
        }
    }

    fn set_idle(&mut self, cpu: usize) {
        // Nobody was chosen, and it is not seen idle yet.
        self.pass_point(cpu);
        self.idle.set(cpu, true);
        self.events.note(&[10, cpu as u64, u64::MAX]);
        call!(self, cpu, Context::Locked, update_idle(cpu as i32, true));
        let run = &mut self.cpus[cpu];
        run.curr = None;
        run.runs += 1;
        run.idle_since_ns = self.now_ns;
    }

    /// Who runs on `cpu` goes to sleep, or ends; somebody calls schedule() next.
    pub fn deactivate(&mut self, cpu: usize, place: Place) {
        let Some(curr) = self.cpus[cpu].curr else {
            return;
        };
        self.settle(cpu);
        self.update_curr(cpu);
        // Who wakes it from now on waits until it sleeps.
        self.tasks[curr].place = Place::Moving;
        self.stop(cpu, curr, false);
        let body = self.body(curr);
        call!(self, cpu, Context::Locked, quiescent(body, DEQ_SLEEP));
        let event = match place {
            Place::Dead => SchedEvent::Exited,
            _ => SchedEvent::Blocked,
        };
        self.remember(cpu, curr, event);
        self.tasks[curr].set_queued(false);
        self.tasks[curr].place = place;
    }

    pub fn tick(&mut self, cpu: usize) {
        let Some(curr) = self.cpus[cpu].curr else {
            self.cpus[cpu].ticks = false;
            return;
        };
        self.events
            .push(self.now_ns + self.costs.tick_ns, Event::Tick(cpu));
        self.update_curr(cpu);
        let body = self.body(curr);
        call!(self, cpu, Context::Locked, tick(body));
        if self.cpus[cpu].resched_lazily {
            self.tasks[curr].body.slice.set(0);
        }
        if self.tasks[curr].body.slice.get() == 0 {
            self.resched(cpu, cpu);
        }
    }

    /// Who runs on `cpu` returns from the kernel, to which it or an interrupt has turned. Does it go on?
    pub fn leave_kernel(&mut self, cpu: usize) -> bool {
        let curr = self.cpus[cpu].curr;
        if let Some(curr) = curr.filter(|_| self.cpus[cpu].resched_lazily) {
            self.tasks[curr].body.slice.set(0);
            self.schedule(cpu);
        }
        self.cpus[cpu].curr == curr
    }

    /// Who runs on `cpu` calls sched_yield().
    pub fn yield_cpu(&mut self, cpu: usize) {
        let Some(curr) = self.cpus[cpu].curr else {
            return;
        };
        let body = self.body(curr);
        let none = std::ptr::null();
        if call!(self, cpu, Context::Locked, yield_cpu(body, none)).is_none() {
            self.tasks[curr].body.slice.set(0);
        }
        self.schedule(cpu);
    }
}
