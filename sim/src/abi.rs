// SPDX-License-Identifier: GPL-2.0-only
//! What the natively compiled schedulers and the simulator share in memory: `shim/sim/kernel.h` and `env.h` in Rust.
//! Both sides write to these at any time, so all that changes is a `Cell`.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;

/// CPUs that a mask has room for.
pub const MAX_CPUS: usize = 1024;
/// Maps of task storage that a scheduler may have.
pub const MAX_STORAGES: usize = 8;
/// Levels of cgroups, the root's included.
pub const MAX_DEPTH: usize = 40;

pub const PF_IDLE: u32 = 0x2;
pub const PF_KTHREAD: u32 = 0x0020_0000;
pub const TASK_QUEUED: u32 = 1;
pub const SLICE_DEFAULT_NS: u64 = 20_000_000;
pub const SLICE_INFINITE: u64 = u64::MAX;

pub const DSQ_GLOBAL: u64 = 1 << 63 | 1;
pub const DSQ_LOCAL: u64 = 1 << 63 | 2;
pub const DSQ_BUILTIN: u64 = 1 << 63;
pub const DSQ_ITER_REV: u64 = 1 << 16;

pub const ENQ_WAKEUP: u64 = 1;
pub const ENQ_HEAD: u64 = 16;
pub const ENQ_CPU_SELECTED: u64 = 1 << 10;
pub const ENQ_PREEMPT: u64 = 1 << 32;
pub const ENQ_REENQ: u64 = 1 << 40;
pub const ENQ_LAST: u64 = 1 << 41;
pub const DEQ_SLEEP: u64 = 1;

pub const KICK_IDLE: u64 = 1;
pub const KICK_PREEMPT: u64 = 2;
/// The simulator's own, for its reference: nobody is interrupted for it.
pub const KICK_LAZY: u64 = 1 << 16;

pub const WAKE_FORK: u64 = 4;
pub const WAKE_TTWU: u64 = 8;
pub const WAKE_SYNC: u64 = 16;

pub const PICK_IDLE_CORE: u64 = 1;

pub const OPS_KEEP_BUILTIN_IDLE: u64 = 1;
pub const OPS_ENQ_LAST: u64 = 2;
pub const OPS_ENQ_EXITING: u64 = 4;
pub const OPS_ENQ_MIGRATION_DISABLED: u64 = 16;

/// `struct cpumask`
#[repr(C)]
#[derive(Debug, Default)]
pub struct CpuMask {
    pub bits: [Cell<u64>; MAX_CPUS / 64],
}

impl CpuMask {
    pub fn of(cpus: impl IntoIterator<Item = usize>) -> Self {
        let mask = Self::default();
        cpus.into_iter().for_each(|cpu| mask.assign(cpu, true));
        mask
    }

    pub fn has(&self, cpu: usize) -> bool {
        self.bits[cpu / 64].get() >> (cpu % 64) & 1 == 1
    }

    pub fn assign(&self, cpu: usize, on: bool) {
        let (word, bit) = (&self.bits[cpu / 64], 1 << (cpu % 64));
        word.set(if on {
            word.get() | bit
        } else {
            word.get() & !bit
        });
    }

    /// The first of both masks at or above `from`, below `end`.
    fn find(&self, other: &Self, from: usize, end: usize) -> Option<usize> {
        let mut at = from;
        while at < end {
            let word = (self.bits[at / 64].get() & other.bits[at / 64].get()) >> (at % 64);
            if word != 0 {
                return Some(at + word.trailing_zeros() as usize).filter(|&found| found < end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// The first of both masks at or above `from`, else the first of all.
    pub fn find_wrapping(&self, other: &Self, from: usize) -> Option<usize> {
        self.find(other, from, MAX_CPUS)
            .or_else(|| self.find(other, 0, from))
    }

    pub fn cpus(&self) -> impl Iterator<Item = usize> {
        let words = self.bits.iter().enumerate();
        words.flat_map(|(at, word)| {
            let first = Some(word.get()).filter(|&left| left != 0);
            let all = std::iter::successors(first, |left| {
                Some(left & (left - 1)).filter(|&left| left != 0)
            });
            all.map(move |left| at * 64 + left.trailing_zeros() as usize)
        })
    }

    /// The CPUs of both.
    pub fn and(&self, other: &Self) -> Self {
        let both = Self::default();
        for (at, word) in both.bits.iter().enumerate() {
            word.set(self.bits[at].get() & other.bits[at].get());
        }
        both
    }

    pub fn is_subset_of(&self, other: &Self) -> bool {
        let mut words = self.bits.iter().zip(&other.bits);
        words.all(|(word, other)| word.get() & !other.get() == 0)
    }

    pub fn intersects(&self, other: &Self) -> bool {
        let mut words = self.bits.iter().zip(&other.bits);
        words.any(|(word, other)| word.get() & other.get() != 0)
    }
}

/// `struct cgroup_subsys_state`
#[repr(C)]
#[derive(Debug)]
pub struct Css {
    pub cgroup: Cell<*const Cgroup>,
    pub parent: Cell<*const Css>,
}

/// `struct kernfs_node`, whose folder is root's.
#[repr(C)]
#[derive(Debug)]
pub struct KernfsNode {
    pub id: u64,
    /// Of its `struct kernfs_iattrs` the owner's uid, all that it has in this model.
    pub iattr: &'static u32,
}

/// `struct cgroup`
#[repr(C)]
#[derive(Debug)]
pub struct Cgroup {
    pub css: Css,
    pub level: Cell<c_int>,
    pub kn: Cell<*const KernfsNode>,
    pub ancestors: [Cell<*const Cgroup>; MAX_DEPTH],
}

/// `struct css_set`
#[repr(C)]
#[derive(Debug)]
pub struct CssSet {
    pub dfl_cgrp: Cell<*const Cgroup>,
}

/// `struct scx_cgroup_init_args`
#[repr(C)]
#[derive(Debug)]
pub struct CgroupInitArgs {
    pub weight: u32,
    pub sched_idle: bool,
    pub bw_period_us: u64,
    pub bw_quota_us: u64,
    pub bw_burst_us: u64,
}

/// `struct scx_init_task_args`
#[repr(C)]
#[derive(Debug)]
pub struct InitTaskArgs {
    pub fork: bool,
    pub cgroup: *const Cgroup,
}

/// `struct scx_cpu_release_args`
#[repr(C)]
#[derive(Debug)]
pub struct ReleaseArgs {
    pub reason: u32,
    pub task: *const TaskStruct,
}

/// `struct task_struct`
#[repr(C)]
#[derive(Debug)]
pub struct TaskStruct {
    pub flags: Cell<u32>,
    pub prio: Cell<i32>,
    pub pid: Cell<i32>,
    pub tgid: Cell<i32>,
    pub comm: [Cell<u8>; 16],
    pub nr_cpus_allowed: Cell<i32>,
    pub migration_disabled: Cell<u16>,
    pub cpus_ptr: Cell<*const CpuMask>,
    pub cgroups: Cell<*const CssSet>,
    pub sched_task_group: Cell<*const Css>,
    /// The first thread of its process; null: not a task of the scenario.
    pub group_leader: Cell<*const TaskStruct>,
    pub scx_flags: Cell<u32>,
    pub weight: Cell<u32>,
    pub slice: Cell<u64>,
    pub dsq_vtime: Cell<u64>,
    pub cpu: Cell<i32>,
    pub index: Cell<u32>,
    pub storage: [Cell<*mut u64>; MAX_STORAGES],
}

impl TaskStruct {
    pub fn new(pid: i32, comm: &str, index: u32) -> Self {
        let task = Self {
            flags: Cell::new(0),
            prio: Cell::new(120),
            pid: Cell::new(pid),
            tgid: Cell::new(pid),
            comm: Default::default(),
            nr_cpus_allowed: Cell::new(0),
            migration_disabled: Cell::new(0),
            cpus_ptr: Cell::new(ptr::null()),
            cgroups: Cell::new(ptr::null()),
            sched_task_group: Cell::new(ptr::null()),
            group_leader: Cell::new(ptr::null()),
            scx_flags: Cell::new(0),
            weight: Cell::new(100),
            slice: Cell::new(SLICE_DEFAULT_NS),
            dsq_vtime: Cell::new(0),
            cpu: Cell::new(0),
            index: Cell::new(index),
            storage: std::array::from_fn(|_| Cell::new(ptr::null_mut())),
        };
        for (to, byte) in task.comm.iter().zip(comm.bytes().take(15)) {
            to.set(byte);
        }
        task
    }
}

/// `struct sim_env`
#[repr(C)]
#[derive(Debug)]
pub struct Env {
    pub kernel: Cell<*mut c_void>,
    pub now_ns: Cell<u64>,
    pub current: Cell<*const TaskStruct>,
    pub cpu: Cell<i32>,
    pub nr_words: Cell<u32>,
    pub points: Cell<u32>,
    pub nr_locks: Cell<u32>,
}

/// `struct sim_map`
#[repr(C)]
#[derive(Debug)]
pub struct Map {
    pub max_entries: u64,
    pub value_size: u64,
    pub index: u64,
    pub values: *mut u64,
}

/// `struct bpf_iter_scx_dsq`
#[repr(C)]
#[derive(Debug)]
pub struct DsqIter {
    pub dsq: u64,
    pub flags: u64,
    pub limit: u64,
    pub order: i64,
    pub seq: u64,
    pub slice: u64,
    pub vtime: u64,
    pub state: u32,
}

pub const ITER_STARTED: u32 = 1;
pub const ITER_SET_VTIME: u32 = 2;

/// `struct sim_kfunc`
#[repr(C)]
pub struct Kfunc {
    pub name: *const c_char,
    pub slot: *mut *const c_void,
}

type TaskOp = Option<unsafe extern "C" fn(*const TaskStruct)>;
type FlaggedOp = Option<unsafe extern "C" fn(*const TaskStruct, u64)>;

/// `struct sched_ext_ops`, as far as the simulator calls it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ops {
    pub select_cpu: Option<unsafe extern "C" fn(*const TaskStruct, i32, u64) -> i32>,
    pub enqueue: FlaggedOp,
    pub dispatch: Option<unsafe extern "C" fn(i32, *const TaskStruct)>,
    pub runnable: FlaggedOp,
    pub running: TaskOp,
    pub tick: TaskOp,
    pub stopping: Option<unsafe extern "C" fn(*const TaskStruct, bool)>,
    pub quiescent: FlaggedOp,
    pub yield_cpu: Option<unsafe extern "C" fn(*const TaskStruct, *const TaskStruct) -> bool>,
    pub update_idle: Option<unsafe extern "C" fn(i32, bool)>,
    pub init_task: Option<unsafe extern "C" fn(*const TaskStruct, *const InitTaskArgs) -> i32>,
    pub enable: TaskOp,
    pub cgroup_init: Option<unsafe extern "C" fn(*const Cgroup, *const CgroupInitArgs) -> i32>,
    pub init: Option<unsafe extern "C" fn() -> i32>,
    pub flags: u64,
    pub timeout_ms: u32,
    pub cpu_release: Option<unsafe extern "C" fn(i32, *const ReleaseArgs)>,
    pub cgroup_exit: Option<unsafe extern "C" fn(*const Cgroup)>,
    pub cgroup_set_weight: Option<unsafe extern "C" fn(*const Cgroup, u32)>,
    pub cgroup_set_idle: Option<unsafe extern "C" fn(*const Cgroup, bool)>,
    pub cgroup_set_bandwidth: Option<unsafe extern "C" fn(*const Cgroup, u64, u64, u64)>,
}

/// As `sim_layout` in `shim/runtime.c`.
pub const LAYOUT: &[u64] = &[
    size_of::<TaskStruct>() as u64,
    offset_of!(TaskStruct, cpus_ptr) as u64,
    offset_of!(TaskStruct, slice) as u64,
    offset_of!(TaskStruct, cpu) as u64,
    offset_of!(TaskStruct, storage) as u64,
    size_of::<Cgroup>() as u64,
    offset_of!(Cgroup, ancestors) as u64,
    size_of::<CgroupInitArgs>() as u64,
    offset_of!(Ops, flags) as u64,
    offset_of!(Ops, cgroup_set_bandwidth) as u64,
    size_of::<ReleaseArgs>() as u64,
    // struct rq, of which only rt.rt_queued is there.
    size_of::<i32>() as u64,
    size_of::<Env>() as u64,
    size_of::<Map>() as u64,
    size_of::<DsqIter>() as u64,
];
