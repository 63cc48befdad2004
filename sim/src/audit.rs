// SPDX-License-Identifier: GPL-2.0-only
//! What must hold whatever happens: of the model at every event, of the scheduler's promises at every audit.

use std::ops::Range;

use crate::state::{Kernel, Place, START_NS};

/// What a scheduler promises. Bounds are far above what is usual: beyond them somebody was forgotten.
#[derive(Debug, Clone)]
pub struct Promises {
    /// For how long a CPU may be idle while a task waits that may run there; `None`: that is not promised.
    pub idle_ns: Option<u64>,
    /// How long a task waits at most.
    pub wait_ns: Option<u64>,
    /// Of these CPUs idle time is not looked at: background is not let in.
    pub closed: Vec<usize>,
    /// Who waits in these queues is made to wait: limits of cgroups.
    pub put_off: Range<u64>,
    /// The kernel's watchdog.
    pub timeout_ns: u64,
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

/// Does somebody wait for too long?
pub fn waits(kernel: &Kernel, promises: &Promises) -> Result<(), String> {
    let now_ns = kernel.now_ns;
    let idle_for = |cpu: usize| match kernel.cpus[cpu].curr {
        None => now_ns - kernel.cpus[cpu].idle_since_ns.max(START_NS),
        Some(_) => 0,
    };
    for task in &kernel.tasks {
        let Place::Queued(dsq, _) = task.place else {
            continue;
        };
        let waited = now_ns - task.waits_since_ns;
        let (pid, name) = (task.body.pid.get(), name(task));
        let ms = waited / 1_000_000;
        if waited > promises.timeout_ns {
            return Err(format!("watchdog: {name}({pid}) failed to run for {ms} ms"));
        }
        if promises.put_off.contains(&dsq) {
            continue;
        }
        if promises.wait_ns.is_some_and(|most| waited > most) {
            return Err(format!("{name}({pid}) has waited for {ms} ms in {dsq:#x}"));
        }
        let Some(most) = promises.idle_ns.filter(|&most| waited > most) else {
            continue;
        };
        let is_free = |&cpu: &usize| idle_for(cpu) > most && !promises.closed.contains(&cpu);
        // A local queue is that CPU's alone.
        let own = (dsq >> 62 == 3).then(|| task.cpu());
        let mut could = task
            .mask
            .cpus()
            .filter(|cpu| own.is_none_or(|own| own == *cpu));
        if let Some(cpu) = could.find(is_free) {
            return Err(format!(
                "CPU {cpu} is idle while {name}({pid}) waits in {dsq:#x} since {ms} ms"
            ));
        }
    }
    Ok(())
}

fn name(task: &crate::state::Task) -> String {
    let bytes = task.body.comm.iter().map(std::cell::Cell::get);
    let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
