// SPDX-License-Identifier: GPL-2.0-only
//! What is runnable in each cgroup, as scx_gpuaware counts it by adding and taking off, is added up anew. A count that
//! is off once stays so.

use std::rc::Rc;

use anyhow::Result;

use crate::abi::{PF_KTHREAD, TaskStruct};
use crate::cgroups::Cgroups;
use crate::native::Native;
use crate::state::{Context, Kernel};

/// `struct sim_counted`
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    parent: u64,
    weight: i64,
    counted_weight: i64,
    runnable_weight: i64,
}

/// Where the scheduler says what it has counted.
#[derive(Debug)]
pub struct Weights {
    of_cgroup: unsafe extern "C" fn(u64, *mut Counted) -> bool,
    of_task: unsafe extern "C" fn(*const TaskStruct, *mut u64) -> u32,
    next_ns: u64,
}

/// An error stays: it is seen soon enough.
const EVERY_NS: u64 = 10_000_000;

/// At least, of a kernel thread that may run on several CPUs.
const KTHREAD_WEIGHT: u32 = 1000;

fn weight_of(task: &TaskStruct) -> u32 {
    let is_kthread = task.flags.get() & PF_KTHREAD != 0;
    let least = match is_kthread && task.nr_cpus_allowed.get() != 1 {
        true => KTHREAD_WEIGHT,
        false => 0,
    };
    task.weight.get().max(least)
}

impl Weights {
    pub fn of(native: &Native) -> Result<Self> {
        Ok(Self {
            of_cgroup: native.symbol("sim_counted_of")?,
            of_task: native.symbol("sim_counts_in")?,
            next_ns: 0,
        })
    }

    /// Is every task counted that is runnable, and every cgroup for all that is in it? Called between events.
    pub fn look(&mut self, kernel: &mut Kernel, cgroups: &Cgroups) -> Result<(), String> {
        if kernel.now_ns < self.next_ns {
            return Ok(());
        }
        self.next_ns = kernel.now_ns + EVERY_NS;
        let tasks = kernel.tasks.iter().map(|task| {
            let weight = if task.is_queued() {
                weight_of(&task.body)
            } else {
                0
            };
            (Rc::clone(&task.body), weight)
        });
        let tasks: Vec<_> = tasks.collect();
        kernel.enter(0, Context::Audit);
        let tasks = tasks.iter().map(|(body, weight)| {
            let mut cgroup = 0;
            // SAFETY: a function of the loaded scheduler, with a task of the kernel.
            let counted = unsafe { (self.of_task)(Rc::as_ptr(body), &raw mut cgroup) };
            (body.pid.get(), cgroup, counted, *weight)
        });
        let tasks: Vec<_> = tasks.collect();
        let cgroups: Vec<_> = cgroups.ids().filter_map(|id| self.counted(id)).collect();
        kernel.leave();
        for (pid, cgroup, counted, weight) in &tasks {
            if counted != weight {
                return Err(format!(
                    "task {pid} counts for {counted} in cgroup {cgroup}, and should for {weight}"
                ));
            }
        }
        for (id, counted) in &cgroups {
            let own = tasks.iter().filter(|(_, cgroup, ..)| cgroup == id);
            let below = cgroups.iter().filter(|(_, below)| below.parent == *id);
            let sum = own.map(|(.., counted, _)| i64::from(*counted)).sum::<i64>()
                + below.map(|(_, below)| below.counted_weight).sum::<i64>();
            counted.check(*id, sum)?;
        }
        Ok(())
    }

    fn counted(&self, id: u64) -> Option<(u64, Counted)> {
        let mut counted = Counted::default();
        // SAFETY: a function of the loaded scheduler; the size of what it writes was compared.
        let has_context = unsafe { (self.of_cgroup)(id, &raw mut counted) };
        has_context.then_some((id, counted))
    }
}

impl Counted {
    /// Of cgroup `id`, in which so much is runnable.
    fn check(self, id: u64, sum: i64) -> Result<(), String> {
        let Self {
            weight,
            counted_weight: above,
            runnable_weight: within,
            ..
        } = self;
        if within != sum {
            return Err(format!(
                "cgroup {id} counts {within} as runnable in it, where {sum} is"
            ));
        }
        let weight = if within > 0 { weight } else { 0 };
        if above != weight {
            return Err(format!(
                "cgroup {id} counts for {above} in its parent, and should for {weight}"
            ));
        }
        Ok(())
    }
}
