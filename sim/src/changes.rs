// SPDX-License-Identifier: GPL-2.0-only
//! What people and programs change while tasks run: affinities, nice values, marks, cgroups, the policy.

use crate::dsq::TaskId;
use crate::setup::{Class, Policy};

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// `sched_setaffinity()`, to one CPU at least.
    Affinity(TaskId, Vec<usize>),
    /// `setpriority()`, as the weight that the nice value has.
    Weight(TaskId, u32),
    /// `scx_gpuaware mark`, or `unmark`.
    Mark(TaskId, Option<Class>),
    /// The task is written to the `cgroup.procs` of a cgroup. `None`: the root.
    Join(TaskId, Option<usize>),
    /// `cpu.weight`
    CgroupWeight(usize, u32),
    /// `cpu.idle`
    CgroupIdle(usize, bool),
    /// `cpu.max`: of each 100 ms; `None`: no limit.
    CgroupLimit(usize, Option<u64>),
    /// The cgroup is removed and made once more, with its first weight and limit, if nobody is in it.
    Remake(usize),
    /// An idle CPU is on its way offline: still online, but it runs nobody any more.
    Leave(usize),
    /// Another policy is in force: a reload, or user space found other CPUs better.
    Reload(Policy),
}
