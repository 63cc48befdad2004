// SPDX-License-Identifier: GPL-2.0-only
//! From policy and topology to a loaded scheduler: what the BPF side knows is written here.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::thread::{self, Builder};

use anyhow::{Context, Result, bail};
use libbpf_rs::{Link, OpenObject};
use log::warn;
use scx_utils::{compat, scx_ops_attach, scx_ops_load, scx_ops_open};

use super::ahead::Ahead;
use super::config::Config;
use super::kernel::{find_by_name, request_preferred};
use super::placement::Placement;
use super::tunables::tunables;
use super::yields;
use crate::bpf::gpuaware::{GpuawareSkel, GpuawareSkelBuilder, OpenGpuawareSkel, types};
use crate::bpf::intf;
use crate::identify::Identify;
use crate::identify::marks::Pins;
use crate::identify::prepared::{Prepared, SharedMaps};
use crate::policy::Policy;

/// Begins to look up what scx_utils asks the kernel's BTF for, which is searched type by type: who opens the scheduler
/// waits for the rest of it.
pub fn read_ahead() {
    // Any of them: the first use looks up all. Without a thread that is later.
    let look_up = || scx_utils::scx_enums.SCX_SLICE_DFL;
    let _ = Builder::new().name("enums".to_owned()).spawn(look_up);
}

/// The scheduler as the kernel has it before it schedules anybody.
pub struct Loaded<'obj> {
    skel: OfAnyThread<GpuawareSkel<'obj>>,
    placement: Placement,
}

struct OfAnyThread<T>(T);

// SAFETY: pointers of a skeleton lead to what belongs to its own object of libbpf, which one thread at a time uses.
unsafe impl Send for OfAnyThread<GpuawareSkel<'_>> {}

impl<'obj> Loaded<'obj> {
    /// Opens, configures and loads the scheduler for the CPUs that this thread may use.
    pub fn new(
        config: &Config,
        policy: &Policy,
        maps: &SharedMaps,
        object: &'obj mut MaybeUninit<OpenObject>,
    ) -> Result<Self> {
        let placement = Placement::new(policy)?;
        let mut open = open(config, object)?;
        configure(&mut open, policy, &placement)?;
        share_maps(&mut open, maps)?;
        let skel = OfAnyThread(load(open)?);
        Ok(Self { skel, placement })
    }

    /// It schedules everybody from now on.
    pub fn attach(self, verbose: bool) -> Result<(GpuawareSkel<'obj>, Link, Placement)> {
        let mut skel = self.skel.0;
        let link = attach(&mut skel, verbose)?;
        Ok((skel, link, self.placement))
    }
}

/// Starts identification, and loads the scheduler meanwhile on another thread: the kernel's verifier takes its time for
/// each of them.
pub fn with_identification<'a, 'obj>(
    prepared: Prepared<'a>,
    config: &Config,
    policy: &Policy,
    maps: &SharedMaps,
    object: &'obj mut MaybeUninit<OpenObject>,
) -> Result<(Identify<'a>, Result<Loaded<'obj>>)> {
    thread::scope(|scope| {
        let loading = Builder::new()
            .name("load".to_owned())
            .spawn_scoped(scope, || Loaded::new(config, policy, maps, object))
            .context("starting a thread that loads the scheduler")?;
        let identify = Identify::of(prepared, policy, Pins::default());
        let loaded = loading.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((identify?, loaded))
    })
}

/// Does the kernel tell a scheduler of `cpu.max`?
pub fn kernel_tells_limits() -> bool {
    compat::struct_has_field("sched_ext_ops", "cgroup_set_bandwidth").unwrap_or(false)
}

/// Does the kernel tell a scheduler of `cpu.idle`?
pub fn kernel_tells_idle() -> bool {
    compat::struct_has_field("sched_ext_ops", "cgroup_set_idle").unwrap_or(false)
}

/// May any program take tasks back from a CPU's own queue, not only `ops.cpu_release`? Kernels where it may
/// call that operation out of date.
fn kernel_takes_tasks_back_anywhere() -> bool {
    ["scx_bpf_dsq_reenq", "scx_bpf_reenqueue_local___v2"]
        .iter()
        .any(|name| compat::ksym_exists(name).unwrap_or(false))
}

#[allow(clippy::unwrap_used, reason = "inside the macro of scx_utils")]
fn open<'obj>(
    config: &Config,
    object: &'obj mut MaybeUninit<OpenObject>,
) -> Result<OpenGpuawareSkel<'obj>> {
    let builder = GpuawareSkelBuilder::default();
    let mut open = scx_ops_open!(builder, object, gpuaware_ops, None)?;
    let ops = open.struct_ops.gpuaware_ops_mut();
    ops.exit_dump_len = config.exit_dump_len;
    if !kernel_tells_limits() {
        ops.cgroup_set_bandwidth = std::ptr::null_mut();
        open.progs.gpuaware_cgroup_set_bandwidth.set_autoload(false);
    }
    if !kernel_tells_idle() {
        open.struct_ops.gpuaware_ops_mut().cgroup_set_idle = std::ptr::null_mut();
        open.progs.gpuaware_cgroup_set_idle.set_autoload(false);
    }
    let takes_back_anywhere = kernel_takes_tasks_back_anywhere();
    rodata(&mut open)?.takes_back_anywhere = takes_back_anywhere;
    if takes_back_anywhere {
        open.struct_ops.gpuaware_ops_mut().cpu_release = std::ptr::null_mut();
        open.progs.gpuaware_cpu_release.set_autoload(false);
    } else {
        open.progs.gpuaware_switched.set_autoload(false);
    }
    let ops = open.struct_ops.gpuaware_ops_mut();
    ops.flags = *compat::SCX_OPS_KEEP_BUILTIN_IDLE
        | *compat::SCX_OPS_ENQ_EXITING
        // A held CPU must be able to go idle though a task could go on there.
        | *compat::SCX_OPS_ENQ_LAST
        | *compat::SCX_OPS_ENQ_MIGRATION_DISABLED;
    Ok(open)
}

fn rodata<'a>(open: &'a mut OpenGpuawareSkel<'_>) -> Result<&'a mut types::rodata> {
    let rodata = open.maps.rodata_data.as_deref_mut();
    rodata.context("the BPF object has no read-only data")
}

fn configure(
    open: &mut OpenGpuawareSkel<'_>,
    policy: &Policy,
    placement: &Placement,
) -> Result<()> {
    let topology = placement.topology();
    let (max_cpus, max_llcs) = (
        intf::gpuaware_limits_GPUAWARE_MAX_CPUS as usize,
        intf::gpuaware_limits_GPUAWARE_MAX_LLCS as usize,
    );
    if topology.nr_cpu_ids > max_cpus || topology.nr_llcs > max_llcs {
        bail!(
            "{} CPUs and {} last-level caches: at most {max_cpus} and {max_llcs} are supported",
            topology.nr_cpu_ids,
            topology.nr_llcs
        );
    }
    let rodata = rodata(open)?;
    rodata.nr_cpu_ids = topology.nr_cpu_ids as u32;
    rodata.nr_llcs = topology.nr_llcs as u32;
    rodata.cpu_sibling.fill(-1);
    for cpu in &topology.cpus {
        let id = cpu.id as usize;
        rodata.cpu_llc[id] = cpu.llc as u32;
        rodata.cpu_node[id] = cpu.node;
        rodata.llc_nr_cpus[cpu.llc] += 1;
        if let Some(sibling) = cpu.core.iter().find(|&other| other != cpu.id) {
            rodata.cpu_sibling[id] = sibling as i32;
        }
    }
    let data = open.maps.data_data.as_deref_mut();
    data.context("the BPF object has no writable data")?
        .tunables = tunables(policy, topology.cpus.len(), yields::auto());
    let bss = open
        .maps
        .bss_data
        .as_deref_mut()
        .context("the BPF object has no data")?;
    request_preferred(&mut bss.preferred_request, placement.ranked());
    Ok(())
}

/// Gives the scheduler identification's maps instead of its own.
fn share_maps(open: &mut OpenGpuawareSkel<'_>, shared: &SharedMaps) -> Result<()> {
    let maps = &mut open.maps;
    maps.task_marks
        .reuse_fd(shared.task_marks.as_fd())
        .context("sharing task_marks")?;
    maps.gpu_processes
        .reuse_fd(shared.gpu_processes.as_fd())
        .context("sharing gpu_processes")?;
    maps.cgroup_tags
        .reuse_fd(shared.cgroup_tags.as_fd())
        .context("sharing cgroup_tags")?;
    maps.class_rules
        .reuse_fd(shared.class_rules.as_fd())
        .context("sharing class_rules")?;
    maps.class_generation
        .reuse_fd(shared.class_generation.as_fd())
        .context("sharing class_generation")
}

#[allow(clippy::unwrap_used, reason = "inside the macros of scx_utils")]
fn load(mut open: OpenGpuawareSkel<'_>) -> Result<GpuawareSkel<'_>> {
    scx_ops_load!(open, gpuaware_ops, uei)
}

fn attach(skel: &mut GpuawareSkel<'_>, verbose: bool) -> Result<Link> {
    find_by_name(skel)?;
    if !verbose {
        // Attaching warns of a map of the skeleton that struct_ops do not use.
        libbpf_rs::set_print(None);
    }
    let ahead = Ahead::start().inspect_err(|error| {
        warn!("busy CPUs may keep the scheduler from being loaded: SCHED_FIFO: {error}");
    });
    let link = scx_ops_attach!(skel, gpuaware_ops)?;
    drop(ahead);
    Ok(link)
}
