// SPDX-License-Identifier: GPL-2.0-only
//! How tasks become runnable: begin, wake up; and what arrives at a CPU from elsewhere: kicks and timers.

use std::ffi::c_void;
use std::mem::transmute;

use crate::abi::{
    ENQ_CPU_SELECTED, ENQ_WAKEUP, InitTaskArgs, KICK_IDLE, KICK_LAZY, KICK_PREEMPT, WAKE_FORK,
    WAKE_TTWU,
};
use crate::dsq::TaskId;
use crate::history::SchedEvent;
use crate::nested::{Late, Woken};
use crate::state::{Context, Kernel, Place, call};

impl Kernel {
    /// The scheduler learns of `task`.
    pub fn init_task(&mut self, task: TaskId) {
        let body = self.body(task);
        let args = InitTaskArgs {
            fork: true,
            cgroup: std::ptr::null(),
        };
        let made = call!(self, 0, Context::Unlocked, init_task(body, &raw const args));
        if made.is_some_and(|code| code != 0) {
            self.fail(format!("ops.init_task() returned {made:?}"));
        }
        call!(self, 0, Context::Locked, enable(body));
    }

    /// A task that CPU `by` has forked begins: wake_up_new_task().
    pub fn start(&mut self, task: TaskId, by: usize) {
        if self.tasks[task].place == Place::Unborn {
            self.tasks[task].woken_ns = self.now_ns;
            self.tasks[task].turn_since_ns = self.now_ns;
            self.activate(task, by, WAKE_FORK, 0);
        }
    }

    /// CPU `by` wakes `task`: try_to_wake_up(). One that does not sleep finds the wakeup when it wants to.
    pub fn wake(&mut self, task: TaskId, by: usize, sync: u64) {
        match self.tasks[task].place {
            // Its CPU is not done with it yet: `p->on_cpu`.
            Place::Sleeping
                if self.is_switching_from(task) && self.is_locked(self.tasks[task].cpu()) =>
            {
                self.later(Late::Wakeup { task, by, sync });
            }
            Place::Sleeping => {
                self.tasks[task].woken_ns = self.now_ns;
                self.tasks[task].turn_since_ns = self.now_ns;
                self.activate(task, by, WAKE_TTWU | sync, ENQ_WAKEUP);
            }
            Place::Dead => {}
            // On its way to sleep, or another wakeup was first: the lock says which.
            Place::Moving => self.later(Late::Wakeup { task, by, sync }),
            _ => self.tasks[task].tokens += 1,
        }
    }

    fn activate(&mut self, task: TaskId, by: usize, wake_flags: u64, enq_flags: u64) {
        self.remember(by, task, SchedEvent::Wakeup);
        self.tasks[task].place = Place::Moving;
        let (cpu, selected) = self.select_cpu(task, by, wake_flags);
        let woken = Woken {
            task,
            by,
            cpu,
            flags: enq_flags | selected,
        };
        if self.is_locked(cpu) {
            self.later(Late::Enqueue(woken));
        } else {
            self.enqueue_woken(woken);
        }
    }

    /// The second half of a wakeup, with the lock of the CPU that was selected.
    pub fn enqueue_woken(&mut self, woken: Woken) {
        let Woken {
            task,
            by,
            cpu,
            flags,
        } = woken;
        let entry = &mut self.tasks[task];
        entry.body.cpu.set(cpu as i32);
        entry.set_queued(true);
        entry.waits_since_ns = self.now_ns;
        let body = self.body(task);
        call!(self, by, Context::Runnable(task), runnable(body, flags));
        self.do_enqueue(task, flags, by);
        // wakeup_preempt(): any class is above that of the idle task.
        if self.cpus[cpu].curr.is_none() {
            self.resched(cpu, by);
        }
    }

    /// The kernel asks a scheduler only if there is a choice.
    fn select_cpu(&mut self, task: TaskId, by: usize, wake_flags: u64) -> (usize, u64) {
        let (prev, mask) = (self.tasks[task].cpu(), &self.tasks[task].mask);
        let may_run = |cpu: usize| mask.has(cpu) && self.active.has(cpu);
        let fallback = if may_run(prev) {
            prev
        } else {
            mask.cpus().find(|&cpu| may_run(cpu)).unwrap_or(prev)
        };
        let body = &self.tasks[task].body;
        if body.nr_cpus_allowed.get() < 2 || body.migration_disabled.get() != 0 {
            return (fallback, 0);
        }
        let body = self.body(task);
        let selected = call!(
            self,
            by,
            Context::Insert(task),
            select_cpu(body, prev as i32, wake_flags)
        );
        let Some(selected) = selected else {
            return (fallback, ENQ_CPU_SELECTED);
        };
        let cpu = usize::try_from(selected).unwrap_or(usize::MAX);
        if cpu >= self.cpus.len() {
            self.fail(format!("ops.select_cpu() returned CPU {selected}"));
            return (fallback, 0);
        }
        let allowed = self.tasks[task].mask.has(cpu) && self.active.has(cpu);
        (if allowed { cpu } else { fallback }, ENQ_CPU_SELECTED)
    }

    /// scx_bpf_kick_cpu() has arrived.
    pub fn kicked(&mut self, cpu: usize, flags: u64) {
        let curr = self.cpus[cpu].curr;
        match curr {
            Some(_) if flags & KICK_IDLE != 0 => return,
            Some(_) if flags & KICK_LAZY != 0 => {
                self.cpus[cpu].resched_lazily = true;
                return;
            }
            Some(curr) if flags & KICK_PREEMPT != 0 => self.tasks[curr].body.slice.set(0),
            _ => {}
        }
        // irq_work on any CPU but this one: the interrupt's way is part of kick_ns.
        self.resched(cpu, cpu);
    }

    /// A timer of the scheduler fires.
    pub fn timer(&mut self, timer: usize, starts: u64) {
        let entry = &self.memory.timers[timer];
        if entry.starts != starts || entry.callback.is_null() {
            return;
        }
        let (cpu, map, value) = (entry.cpu, entry.map, entry.value);
        type Callback = unsafe extern "C" fn(*mut c_void, *const i32, *mut c_void) -> i32;
        // SAFETY: bpf_timer_set_callback() gave a function of this type.
        let callback = unsafe { transmute::<*const c_void, Callback>(entry.callback) };
        let key = entry.index;
        self.enter(cpu, Context::Unlocked);
        // SAFETY: as the kernel calls it; the value is where the timer is.
        unsafe { callback(map, &raw const key, value) };
        self.leave();
    }
}
