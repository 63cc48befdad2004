// SPDX-License-Identifier: GPL-2.0-only
//! Calls of the scheduler's callbacks, one by one. Kept only for who asks for it.

use crate::abi::{Cgroup, CgroupInitArgs, InitTaskArgs, ReleaseArgs, TaskStruct};
use crate::dsq::TaskId;
use crate::meter::Subject;

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
