// SPDX-License-Identifier: GPL-2.0-only
//! What scx_gpuaware's user space does to the BPF side before and after it is loaded, from the same values. Written
//! once more after `src/sched/load.rs`, `src/sched/tunables.rs` and the defaults in `src/policy/model.rs`: the
//! simulator links nothing of them.

use std::cell::Cell;
use std::mem::{offset_of, size_of};

use anyhow::{Result, ensure};

use crate::abi::{
    CpuMask, OPS_ENQ_EXITING, OPS_ENQ_LAST, OPS_ENQ_MIGRATION_DISABLED, OPS_KEEP_BUILTIN_IDLE,
    TaskStruct,
};
use crate::machine::{Machine, MachineCpu};
use crate::native::{Handler, Native};
use crate::weights::Counted;

const MAX_CPUS: usize = 1024;
const MAX_LLCS: usize = 128;
const HOLD_UNBOUNDED: u32 = u32::MAX;
const TURN_UNIT: f64 = 1024.0;
const GUARD_WINDOW_NS: f64 = 1e8;
const GUARD_SLACK: f64 = 0.01;

/// `enum gpuaware_class`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Launch = 1,
    Handoff = 2,
    Background = 3,
}

/// What a policy says, as far as the simulator has a use for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Preferred CPUs, best first.
    pub preferred: Vec<usize>,
    pub lend: bool,
    /// Background keeps off the second thread of a launcher's core.
    pub whole_core: bool,
    pub launch_slice_us: u64,
    pub handoff_slice_us: u64,
    pub background_slice_us: u64,
    /// Part of a CPU that background gets beside launchers.
    pub min_share: f64,
    pub hold_cap_us: u64,
    /// What a thread that waits by sched_yield() lends of its CPU at a time; 0: nothing.
    pub lend_yields_us: u64,
    /// Part of all CPUs' time that holds may waste.
    pub hold_share: f64,
    /// Part of all CPUs that launch and handoff may take from others.
    pub max_share: f64,
}

impl Policy {
    /// The defaults where a switch costs what it does without emulation: `src/sched/yields.rs`.
    pub fn native(machine: &Machine) -> Self {
        Self {
            lend_yields_us: 100,
            ..Self::default_for(machine)
        }
    }

    /// The defaults where a switch is dear, as in emulation, with a quarter of `machine` preferred.
    pub fn default_for(machine: &Machine) -> Self {
        Self {
            preferred: machine.default_preferred((machine.nr_cpus() / 4).max(1)),
            lend: true,
            whole_core: true,
            launch_slice_us: 20_000,
            handoff_slice_us: 3_000,
            background_slice_us: 4_000,
            min_share: 0.05,
            hold_cap_us: 500,
            lend_yields_us: 0,
            hold_share: 0.06,
            max_share: 0.5,
        }
    }
}

/// `struct gpuaware_tunables`
#[repr(C)]
struct Tunables {
    launch_slice_ns: u64,
    handoff_slice_ns: u64,
    background_slice_ns: u64,
    lent_slice_ns: u64,
    turn_interval_ns: u64,
    hold_cap_ns: u64,
    lend_yields_ns: u64,
    guard_budget_ns: u64,
    hold_us_per_s: u32,
    lend: u32,
    whole_core: u32,
    turn_factor: u32,
}

/// `struct gpuaware_preferred`
#[repr(C)]
struct Preferred {
    nr: u32,
    cpus: [i32; MAX_CPUS],
}

/// What user space has the scheduler find in the kernel's symbols, if it asks for it: which CPUs are not on their way
/// offline.
pub fn find_active_mask(native: &Native, mask: &CpuMask) {
    if let Ok(address) = native.symbol::<*const Cell<u64>>("active_mask") {
        // SAFETY: a variable of the loaded scheduler.
        unsafe { (*address).set(std::ptr::from_ref(mask) as u64) };
    }
}

/// As `enum gpuaware_stat` counts them.
pub const STATS: [&str; 16] = [
    "launch_wakeups",
    "launch_to_preferred",
    "launch_to_other",
    "launch_queued",
    "handoff_wakeups",
    "handoff_queued",
    "background_direct",
    "background_queued",
    "background_turns",
    "overdue",
    "guard_throttles",
    "capped",
    "holds",
    "hold_ns",
    "hold_waste_ns",
    "holds_expired",
];

/// As `sim_gpuaware_layout` in `schedulers/gpuaware.bpf.c`.
const LAYOUT: [u64; 5] = [
    size_of::<Tunables>() as u64,
    offset_of!(Tunables, whole_core) as u64,
    size_of::<Preferred>() as u64,
    size_of::<[u64; STATS.len()]>() as u64,
    size_of::<Counted>() as u64,
];

fn tunables(policy: &Policy, nr_cpus: usize) -> Tunables {
    let background = policy.background_slice_us * 1000;
    let all = nr_cpus as f64;
    let turn_interval = (background as f64 / policy.min_share) as u64;
    let longest_launch_slice = turn_interval.saturating_sub(background) / 2;
    Tunables {
        launch_slice_ns: (policy.launch_slice_us * 1000).min(longest_launch_slice),
        handoff_slice_ns: policy.handoff_slice_us * 1000,
        background_slice_ns: background,
        lent_slice_ns: background.min(1_000_000),
        turn_interval_ns: turn_interval,
        hold_cap_ns: policy.hold_cap_us * 1000,
        lend_yields_ns: policy.lend_yields_us * 1000,
        guard_budget_ns: if policy.max_share >= 1.0 {
            0
        } else {
            (GUARD_WINDOW_NS * all * (policy.max_share + GUARD_SLACK)) as u64
        },
        hold_us_per_s: if policy.hold_share >= 1.0 {
            HOLD_UNBOUNDED
        } else {
            (policy.hold_share * all * 1e6) as u32
        },
        lend: u32::from(policy.lend),
        whole_core: u32::from(policy.whole_core),
        turn_factor: (TURN_UNIT / policy.min_share).round() as u32,
    }
}

/// Tells EEVDF or CFS of the machine.
pub fn configure_fair(native: &Native, machine: &Machine) -> Result<()> {
    let of = |of: &dyn Fn(&MachineCpu) -> usize| -> Vec<u32> {
        machine.cpus.iter().map(|cpu| of(cpu) as u32).collect()
    };
    native.set_rodata("nr_cpu_ids", &[machine.nr_cpus() as u32])?;
    native.set_rodata("cpu_llc", &of(&|cpu| cpu.llc))?;
    native.set_rodata("cpu_node", &of(&|cpu| cpu.node))
}

/// Tells the BPF side of the machine and the policy, before ops.init().
pub fn configure(native: &Native, machine: &Machine, policy: &Policy) -> Result<()> {
    native.expect_layout("sim_gpuaware_layout", &LAYOUT)?;
    let (mut llcs, mut sizes) = (vec![0_u32; MAX_CPUS], vec![0_u32; MAX_LLCS]);
    let (mut siblings, mut nodes) = (vec![-1; MAX_CPUS], vec![0_u32; MAX_CPUS]);
    for (id, cpu) in machine.cpus.iter().enumerate() {
        llcs[id] = cpu.llc as u32;
        nodes[id] = cpu.node as u32;
        sizes[cpu.llc] += 1;
        if let Some(&sibling) = cpu.core.iter().find(|&&other| other != id) {
            siblings[id] = sibling as i32;
        }
    }
    native.set_rodata("nr_cpu_ids", &[machine.nr_cpus() as u32])?;
    native.set_rodata("nr_llcs", &[machine.nr_llcs as u32])?;
    native.set_rodata("cpu_llc", &llcs)?;
    native.set_rodata("cpu_node", &nodes)?;
    native.set_rodata("llc_nr_cpus", &sizes)?;
    native.set_rodata("cpu_sibling", &siblings)?;
    // Linux 6.18: tasks are taken back in ops.cpu_release() only.
    native.set_rodata("takes_back_anywhere", &[false])?;
    let ops = native.ops()?;
    // SAFETY: a variable of the scheduler, which does not run yet.
    unsafe {
        (*ops).flags =
            OPS_KEEP_BUILTIN_IDLE | OPS_ENQ_EXITING | OPS_ENQ_LAST | OPS_ENQ_MIGRATION_DISABLED;
    }
    request(native, machine, policy)
}

/// What the scheduler is asked for: in force when ops.init() has run, or `set_preferred`.
fn request(native: &Native, machine: &Machine, policy: &Policy) -> Result<()> {
    let target: *mut Tunables = native.symbol("tunables")?;
    // SAFETY: a variable of the scheduler, of a size that was compared.
    unsafe { target.write(tunables(policy, machine.nr_cpus())) };
    request_preferred(native, machine, policy)
}

/// Asks a scheduler that runs for another policy. The caller runs the program that is returned.
pub fn reload(native: &Native, machine: &Machine, policy: &Policy) -> Result<Handler> {
    request(native, machine, policy)?;
    native.symbol("set_preferred")
}

fn request_preferred(native: &Native, machine: &Machine, policy: &Policy) -> Result<()> {
    let fit = policy.preferred.iter().all(|&cpu| cpu < machine.nr_cpus());
    ensure!(
        fit,
        "preferred CPUs {:?}: the machine has {}",
        policy.preferred,
        machine.nr_cpus()
    );
    let mut request = Preferred {
        nr: policy.preferred.len() as u32,
        cpus: [0; MAX_CPUS],
    };
    for (slot, &cpu) in request.cpus.iter_mut().zip(&policy.preferred) {
        *slot = cpu as i32;
    }
    let target: *mut Preferred = native.symbol("preferred_request")?;
    // SAFETY: a variable of the scheduler, of a size that was compared.
    unsafe { target.write(request) };
    Ok(())
}

/// `sim_mark`
pub type Mark = unsafe extern "C" fn(*const TaskStruct, u32, u32) -> i32;

/// The function that marks a task as `scx_gpuaware mark` does.
pub fn marker(native: &Native) -> Result<Mark> {
    native.symbol("sim_mark")
}

/// The counters, in the order of [`STATS`].
pub fn stats(native: &Native) -> Result<[u64; STATS.len()]> {
    let sum: unsafe extern "C" fn(*mut u64) = native.symbol("sim_sum_stats")?;
    let mut counts = [0; STATS.len()];
    // SAFETY: as many numbers as struct gpuaware_stats has, which was compared.
    unsafe { sum(counts.as_mut_ptr()) };
    Ok(counts)
}
