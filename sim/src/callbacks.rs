// SPDX-License-Identifier: GPL-2.0-only
//! Calls of the scheduler's callbacks, one by one: what each takes, and, for who asks for it, a record of it.

use crate::abi::{Cgroup, CgroupInitArgs, InitTaskArgs, ReleaseArgs, TaskStruct};
use crate::dsq::TaskId;
use crate::meter::Subject;

/// Those that are called again and again. What a call of each takes is kept in this order.
pub const FREQUENT: [&str; 10] = [
    "select_cpu",
    "enqueue",
    "dispatch",
    "runnable",
    "running",
    "tick",
    "stopping",
    "quiescent",
    "yield_cpu",
    "update_idle",
];

/// Nanoseconds of each, without the kernel's functions that it calls: `gpuaware-sim costs --ns` on 128 saturated CPUs,
/// on an AMD EPYC of 2.4 GHz.
pub const NATIVE_NS: [u64; FREQUENT.len()] = [100, 110, 70, 20, 45, 30, 45, 15, 20, 20];

/// The same on the lab's emulated CPUs beside `cpu`, with the kernel's functions, as the kernel counts run time of BPF
/// programs: medians of `bench/runs/2026-11-23-bpf-cost`.
pub const LAB_NS: [u64; FREQUENT.len()] = [
    14_903, 15_659, 32_856, 6_816, 5_223, 9_277, 10_620, 5_939, 1_467, 1_389,
];

/// Of one of them, where it stands.
pub const fn frequent(name: &str) -> Option<usize> {
    let mut at = 0;
    while at < FREQUENT.len() {
        if is_same(FREQUENT[at].as_bytes(), name.as_bytes()) {
            return Some(at);
        }
        at += 1;
    }
    None
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// An argument of a callback, as far as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    Task(Option<TaskId>),
    Number(u64),
    Other,
}

/// What callbacks get.
pub trait Passed {
    fn argument(&self) -> Argument;
}

macro_rules! passed {
    ($($type:ty: |$value:ident| $argument:expr;)*) => {
        $(impl Passed for $type {
            fn argument(&self) -> Argument {
                let $value = self;
                $argument
            }
        })*
    };
}

passed! {
    *const TaskStruct: |task| Argument::Task(task.task());
    u64: |number| Argument::Number(*number);
    bool: |flag| Argument::Number(u64::from(*flag));
    i32: |_cpu| Argument::Other;
    u32: |_weight| Argument::Other;
    *const InitTaskArgs: |_args| Argument::Other;
    *const Cgroup: |_cgroup| Argument::Other;
    *const CgroupInitArgs: |_args| Argument::Other;
    *const ReleaseArgs: |_args| Argument::Other;
}

/// A call: of which callback, when, on which CPU, for whom, and the flags that it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub callback: &'static str,
    pub at_ns: u64,
    pub cpu: usize,
    pub task: Option<TaskId>,
    pub flags: u64,
}

impl Call {
    pub fn new(callback: &'static str, at_ns: u64, cpu: usize, arguments: &[Argument]) -> Self {
        let task = |argument: &Argument| match argument {
            Argument::Task(task) => *task,
            _ => None,
        };
        let number = |argument: &Argument| match argument {
            Argument::Number(number) => Some(*number),
            _ => None,
        };
        Self {
            callback,
            at_ns,
            cpu,
            task: arguments.iter().find_map(task),
            flags: arguments.iter().rev().find_map(number).unwrap_or(0),
        }
    }
}
