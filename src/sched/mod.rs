// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's life: check, open, configure, load, attach, serve, report.
//!
//! When this process ends, in whichever way, the kernel unregisters the scheduler and every task
//! is back on EEVDF.

mod load;
pub mod stats;
pub mod steer;

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, PrintLevel};
use log::{info, warn};
use scx_stats::prelude::*;
use scx_utils::{try_set_rlimit_infinity, uei_exited, uei_report};

use crate::bpf::gpuaware::GpuawareSkel;
use crate::bpf::intf;
use crate::identify::marks::Pins;
use crate::identify::{Identify, Sightings};
use crate::policy::Policy;
use crate::policy::cpuset::CpuSet;
use crate::topology::Topology;

use stats::Metrics;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";
/// What `/sys/kernel/sched_ext/root/ops` begins with while this scheduler is loaded.
pub const OPS_NAME: &str = "gpuaware";

/// What to run.
#[derive(Debug, Clone)]
pub struct Config {
    /// What the operator wants.
    pub policy: Policy,
    /// Preferred CPUs that were named, all online; `None`: chosen from the topology.
    pub preferred: Option<CpuSet>,
    /// Size of the kernel's dump when it throws the scheduler out, bytes; 0: its default.
    pub exit_dump_len: u32,
    /// Log libbpf's debug output too.
    pub verbose: bool,
}

/// Why a loaded scheduler ended, if not by an error.
enum Ended {
    Asked,
    /// The kernel asks for a new start, for instance after CPU hotplug.
    Restart,
}

/// The name of the sched_ext scheduler that is loaded, if any.
pub fn loaded() -> Option<String> {
    let state = std::fs::read_to_string(format!("{SCHED_EXT}/state")).ok()?;
    if state.trim() == "disabled" {
        return None;
    }
    let ops = std::fs::read_to_string(format!("{SCHED_EXT}/root/ops")).unwrap_or_default();
    Some(ops.trim().to_owned())
}

/// Can a scheduler be loaded here and now?
///
/// # Errors
/// Says what is missing and what to do.
pub fn check() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("loading a scheduler needs root: try sudo");
    }
    if !Path::new(SCHED_EXT).exists() {
        let release = nix::sys::utsname::uname().context("uname")?;
        bail!(
            "kernel {} has no sched_ext: needs Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y",
            release.release().to_string_lossy()
        );
    }
    if let Some(name) = loaded() {
        let another = if name.starts_with(OPS_NAME) {
            "scx_gpuaware already runs"
        } else {
            "another sched_ext scheduler is loaded"
        };
        bail!("{another} ({name}): stop it first, only one can be loaded");
    }
    Ok(())
}

/// Loads the scheduler and serves until `shutdown`.
///
/// # Errors
/// It cannot be loaded, or the kernel threw it out.
pub fn run(config: &Config, shutdown: &Arc<AtomicBool>) -> Result<()> {
    check()?;
    // The verifier's log comes as a warning: without it nobody can tell why a load failed.
    let level = if config.verbose {
        PrintLevel::Debug
    } else {
        PrintLevel::Warn
    };
    scx_utils::init_libbpf_logging(Some(level));
    try_set_rlimit_infinity();
    raise_priority();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&config.policy, Pins::default(), &mut object)?;
    let server = StatsServer::new(stats::server_data())
        .launch()
        .context("starting the statistics server")?;
    loop {
        let mut object = MaybeUninit::uninit();
        let scheduler = Scheduler::start(config, &identify, &mut object)?;
        match scheduler.serve(&mut identify, &server, shutdown)? {
            Ended::Asked => return Ok(()),
            Ended::Restart => info!("restarting: the kernel asked for it"),
        }
    }
}

/// Probes are armed and disarmed by this thread, within milliseconds, beside any noise: it shares
/// the CPUs by weight like everybody else, so it takes a large one.
fn raise_priority() {
    const NICE: i32 = -15;
    // SAFETY: takes and returns plain integers; 0 is the calling thread.
    let ret = unsafe { nix::libc::setpriority(nix::libc::PRIO_PROCESS, 0, NICE) };
    if ret != 0 {
        warn!("nice {NICE}: {}", std::io::Error::last_os_error());
    }
}

struct Scheduler<'obj> {
    // Dropped first: unregisters.
    link: Option<Link>,
    skel: GpuawareSkel<'obj>,
    preferred: CpuSet,
}

impl<'obj> Scheduler<'obj> {
    fn start(
        config: &Config,
        identify: &Identify<'_>,
        object: &'obj mut MaybeUninit<OpenObject>,
    ) -> Result<Self> {
        let topology = Topology::read(Path::new(crate::topology::SYSFS))?;
        let preferred = preferred(config, &topology);
        let (skel, link) = load::load(config, &topology, &preferred, identify, object)?;
        eprintln!("scx_gpuaware: attached, launchers prefer CPUs {preferred}");
        Ok(Self {
            link: Some(link),
            skel,
            preferred,
        })
    }

    fn serve(
        mut self,
        identify: &mut Identify<'_>,
        server: &StatsServer<(), Metrics>,
        shutdown: &AtomicBool,
    ) -> Result<Ended> {
        let (response, request) = server.channels();
        while !shutdown.load(Ordering::Relaxed) && !self.exited() {
            let wait = identify.step()?;
            match request.recv_timeout(wait) {
                Ok(()) => response
                    .send(self.metrics(&identify.sightings())?)
                    .context("answering a statistics client")?,
                Err(crossbeam::channel::RecvTimeoutError::Timeout) => {}
                Err(error) => return Err(error).context("statistics server"),
            }
        }
        self.link = None;
        let exit = self.report()?;
        Ok(if exit { Ended::Restart } else { Ended::Asked })
    }

    /// Reports why the scheduler ended; true if the kernel asks for a restart.
    #[allow(clippy::unwrap_used, reason = "inside the macro of scx_utils")]
    fn report(&self) -> Result<bool> {
        let exit = uei_report!(&self.skel, uei)?;
        Ok(exit.should_restart())
    }

    #[allow(clippy::unwrap_used, reason = "inside the macro of scx_utils")]
    fn exited(&self) -> bool {
        uei_exited!(&self.skel, uei)
    }

    fn metrics(&self, sightings: &Sightings) -> Result<Metrics> {
        let sum = |stat| self.stat(stat).map(|values| values.iter().sum::<u64>());
        let us = |stat| sum(stat).map(|ns| ns / 1000);
        let max_us = |stat| -> Result<u64> {
            let values = self.stat(stat)?;
            Ok(values.iter().max().map_or(0, |ns| ns / 1000))
        };
        Ok(Metrics {
            preferred_cpus: self.preferred.to_string(),
            launch_wakeups: sum(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_WAKEUPS)?,
            launch_to_preferred: sum(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_TO_PREFERRED)?,
            launch_preempts: sum(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_PREEMPTS)?,
            launch_to_other: sum(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_TO_OTHER)?,
            launch_queued: sum(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_QUEUED)?,
            launch_run_us: us(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_RUN_NS)?,
            handoff_wakeups: sum(intf::gpuaware_stat_GPUAWARE_STAT_HANDOFF_WAKEUPS)?,
            handoff_queued: sum(intf::gpuaware_stat_GPUAWARE_STAT_HANDOFF_QUEUED)?,
            handoff_run_us: us(intf::gpuaware_stat_GPUAWARE_STAT_HANDOFF_RUN_NS)?,
            guard_throttles: sum(intf::gpuaware_stat_GPUAWARE_STAT_GUARD_THROTTLES)?,
            capped: sum(intf::gpuaware_stat_GPUAWARE_STAT_CAPPED)?,
            background_direct: sum(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_DIRECT)?,
            background_queued: sum(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_QUEUED)?,
            background_run_us: us(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_RUN_NS)?,
            background_turns: sum(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_TURNS)?,
            lent_run_us: us(intf::gpuaware_stat_GPUAWARE_STAT_LENT_RUN_NS)?,
            holds: sum(intf::gpuaware_stat_GPUAWARE_STAT_HOLDS)?,
            hold_us: us(intf::gpuaware_stat_GPUAWARE_STAT_HOLD_NS)?,
            holds_expired: sum(intf::gpuaware_stat_GPUAWARE_STAT_HOLDS_EXPIRED)?,
            worst_wait_us: max_us(intf::gpuaware_stat_GPUAWARE_STAT_WORST_WAIT_NS)?,
            worst_launch_wait_us: max_us(intf::gpuaware_stat_GPUAWARE_STAT_WORST_LAUNCH_WAIT_NS)?,
            probe_hits: sightings.launch_hits,
            probe_windows: sightings.windows,
            probes_armed: u64::from(sightings.armed),
            libraries: sightings.libraries as u64,
            launchers_found: sightings.launchers_found,
        })
    }

    /// One counter's value on every possible CPU.
    fn stat(&self, stat: intf::gpuaware_stat) -> Result<Vec<u64>> {
        let values = self
            .skel
            .maps
            .stats
            .lookup_percpu(&stat.to_ne_bytes(), MapFlags::ANY)
            .context("reading the scheduler's counters")?
            .unwrap_or_default();
        let number = |bytes: Vec<u8>| bytes.try_into().map(u64::from_ne_bytes).unwrap_or(0);
        Ok(values.into_iter().map(number).collect())
    }
}

/// The CPUs that were named and are still online, else what the topology suggests.
fn preferred(config: &Config, topology: &Topology) -> CpuSet {
    let online = topology.online();
    let Some(named) = &config.preferred else {
        return topology.choose_preferred();
    };
    let usable = CpuSet::new(named.iter().filter(|&cpu| online.contains(cpu)));
    if usable.len() < named.len() {
        warn!("preferred CPUs {} went offline", named.difference(&usable));
    }
    if usable.is_empty() {
        return topology.choose_preferred();
    }
    usable
}
