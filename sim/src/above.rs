// SPDX-License-Identifier: GPL-2.0-only
//! Real-time and deadline tasks, which are of classes above: they take a CPU when they wake up and keep it until they are
//! done. What the scheduler is told of it is what Linux 6.18 tells: ops.cpu_release(), and nothing where the CPU was idle.

use std::rc::Rc;

use crate::abi::{ENQ_HEAD, ENQ_REENQ, ReleaseArgs, TaskStruct};
use crate::dsq::TaskId;
use crate::events::Event;
use crate::higher::{Above, Higher};
use crate::history::SchedEvent;
use crate::state::{Context, Kernel, Place, call, local_dsq};

impl Kernel {
    /// `above` wakes up. It waits if another one has the CPU: then it is left out this time.
    pub fn wake_above(&mut self, above: Above) {
        let cpu = above.cpu;
        let run = &mut self.cpus[cpu];
        if run.above.is_some() || run.above_waits.is_some() {
            return;
        }
        run.above_waits = Some(above);
        self.set_rt_queued(cpu, above.class == Higher::RealTime);
        self.resched(cpu, cpu);
    }

    /// The task of a class above takes its CPU.
    pub fn give_way(
        &mut self,
        Above {
            class,
            cpu,
            lasts_ns,
            ..
        }: Above,
    ) {
        let prev = self.cpus[cpu].curr;
        // The kernel asks the scheduler for work all the same.
        self.pick_next(cpu, prev);
        let body = TaskStruct::new(0, "realtime", u32::MAX);
        body.prio.set(class.prio());
        body.cpu.set(cpu as i32);
        let above = Rc::new(body);
        match prev {
            Some(prev) => self.drive_off(cpu, prev, class, &above),
            None => self.leave_idle(cpu),
        }
        let run = &mut self.cpus[cpu];
        run.curr = None;
        run.runs += 1;
        run.resched_at = None;
        run.above = Some(above);
        self.events.note(&[12, cpu as u64]);
        self.events
            .push(self.now_ns + lasts_ns, Event::AboveEnds(cpu));
        self.set_speeds(cpu);
    }

    fn drive_off(&mut self, cpu: usize, prev: TaskId, class: Higher, above: &Rc<TaskStruct>) {
        if self.tasks[prev].is_queued() {
            self.stop(cpu, prev, true);
            self.remember(cpu, prev, SchedEvent::Preempted);
            let task = &mut self.tasks[prev];
            task.place = Place::Moving;
            task.waits_since_ns = self.now_ns;
            if task.body.slice.get() > 0 {
                self.dispatch_enqueue(local_dsq(cpu), prev, ENQ_HEAD);
            } else {
                self.do_enqueue(prev, 0, cpu);
            }
        }
        let args = ReleaseArgs {
            reason: class.reason(),
            task: Rc::as_ptr(above),
        };
        call!(
            self,
            cpu,
            Context::Release(cpu),
            cpu_release(cpu as i32, &raw const args)
        );
    }

    /// The task of a class above on `cpu` is done.
    pub fn above_ends(&mut self, cpu: usize) {
        self.cpus[cpu].above = None;
        self.set_rt_queued(cpu, false);
        self.after_stopper(cpu);
    }

    /// `scx_bpf_reenqueue_local()`: whoever waits in the CPU's local queue is enqueued anew.
    pub fn reenqueue_local(&mut self) -> u32 {
        let Context::Release(cpu) = self.context else {
            self.fail("scx_bpf_reenqueue_local() outside of cpu_release: the kernel refuses that");
            return 0;
        };
        let dsq = local_dsq(cpu);
        let waiting: Vec<_> = self
            .dsqs
            .get(dsq)
            .map(|queue| queue.tasks().collect())
            .unwrap_or_default();
        for &(key, task) in &waiting {
            self.dsqs.remove(dsq, key);
            self.tasks[task].place = Place::Moving;
        }
        for &(_, task) in &waiting {
            self.do_enqueue(task, ENQ_REENQ, cpu);
        }
        // The callback that called goes on.
        self.enter(cpu, Context::Release(cpu));
        waiting.len() as u32
    }
}
