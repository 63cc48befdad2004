// SPDX-License-Identifier: GPL-2.0-only
//! Core scheduling (`prctl(PR_SCHED_CORE)`): threads of a core run only tasks of one cookie at a time. For the others of
//! a core the kernel looks in a tree of its own, which has all tasks that wait on a run queue, whatever queue of the
//! scheduler they are in. So a task may run that was never dispatched (`SCX_DEQ_CORE_SCHED_EXEC`), and the one that was
//! chosen waits. That is modelled; which task it is, and when, is drawn. That a thread idles for want of a task with the
//! right cookie is not.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::dsq::TaskId;
use crate::state::{Cookies, Kernel, Place};

/// Tells what is drawn here from what is drawn for tasks.
const COOKIES: u64 = 0x636b;

impl Kernel {
    /// Another task than the scheduler's choice runs one time of so many, from now on.
    pub fn use_cookies(&mut self, one_of: u32, seed: u64) {
        let rng = Pcg64Mcg::seed_from_u64(seed ^ COOKIES);
        self.cookies = Some(Cookies { one_of, rng });
    }

    /// Somebody else who waits on the run queue of `cpu`, now and then: the kernel's sched_core_find().
    pub fn other_of_core(&mut self, cpu: usize) -> Option<TaskId> {
        let cookies = self.cookies.as_mut()?;
        if cookies.rng.random_range(0..cookies.one_of) > 0 {
            return None;
        }
        let waits = |id: &TaskId| {
            let task = &self.tasks[*id];
            matches!(task.place, Place::Queued(..)) && task.cpu() == cpu && task.mask.has(cpu)
        };
        let waiting: Vec<TaskId> = (0..self.tasks.len()).filter(waits).collect();
        let at = cookies.rng.random_range(0..waiting.len().max(1) as u64);
        waiting.get(at as usize).copied()
    }
}
