// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's life: check, open, configure, load, attach, serve, report.
//!
//! However this process ends, the kernel unregisters the scheduler and every task
//! is back on EEVDF.

mod ahead;
mod config;
mod counters;
pub mod export;
mod kernel;
mod load;
pub mod monitor;
pub mod pin;
mod placement;
pub mod reload;
mod report;
mod requests;
pub mod server;
mod state_file;
pub mod stats;
pub mod steer;
mod tunables;
mod yields;

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libbpf_rs::{Link, MapHandle, PrintLevel};
use log::{info, warn};
use scx_stats::prelude::*;
use scx_utils::{ScxExitKind, try_set_rlimit_infinity, uei_exited, uei_read};

use crate::bpf::gpuaware::GpuawareSkel;
use crate::bpf::intf;
use crate::identify::marks::Pins;
use crate::identify::prepared::Prepared;
use crate::identify::{Identify, cgroups};
use crate::limits;
use crate::listed::{LISTED, listed};
use crate::namespaces;
use crate::policy::Policy;
use crate::policy::effective::Effective;
use crate::shutdown::Shutdown;

pub use config::Config;
pub use placement::allowed_cpus;

use load::Loaded;
use pin::Pinning;
use placement::Placement;
use reload::{Asked, PolicyFile, Reload, Standing};
use report::{MarkCounts, Parts};
use requests::Requests;
use stats::Metrics;
use steer::Steer;
use tunables::tunables;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";
/// What `/sys/kernel/sched_ext/root/ops` begins with while this scheduler is loaded.
pub const OPS_NAME: &str = "gpuaware";

/// Why a loaded scheduler ended, if not by an error.
enum Ended {
    Asked,
    /// The kernel asks for a new start, for instance after CPU hotplug, and these maps are to outlive it: see
    /// [`Scheduler::retired`].
    Restart(Vec<MapHandle>),
}

/// A new start that fails is no reason to end: the next CPU came or went meanwhile, or no memory was free.
const MORE_ATTEMPTS: u32 = 10;
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// The name of the sched_ext scheduler that is loaded, if any.
pub fn loaded() -> Option<String> {
    let state = std::fs::read_to_string(format!("{SCHED_EXT}/state")).ok()?;
    if state.trim() == "disabled" {
        return None;
    }
    let ops = std::fs::read_to_string(format!("{SCHED_EXT}/root/ops")).unwrap_or_default();
    Some(ops.trim().to_owned())
}

/// Is this scheduler in charge?
pub fn is_loaded() -> bool {
    loaded().is_some_and(|name| name.starts_with(OPS_NAME))
}

/// Can a scheduler be loaded here and now?
///
/// # Errors
/// Says what is missing and what to do.
pub fn check() -> Result<()> {
    namespaces::check_root("loading a scheduler")?;
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

/// Undoes what a killed run has left: pinned objects, affinities of interrupts and threads. The caller holds the lock
/// of [`crate::running`]. A scheduler that is loaded goes when its process does.
pub fn undo_a_killed_run() {
    if Path::new(steer::STATE_FILE).exists() {
        start_steering();
    }
    if Path::new(pin::STATE_FILE).exists() {
        start_pinning(&Policy::default());
    }
    if let Err(error) = Pins::default().remove() {
        warn!("{error:#}");
    }
}

/// Loads the scheduler and serves until `shutdown`, with `policy` at first and then with what
/// `file` says. This process is the one that runs: [`crate::running`].
///
/// # Errors
/// It cannot be loaded, or the kernel threw it out.
pub fn run(
    config: &Config,
    policy: Effective,
    file: Option<PolicyFile>,
    asked: Asked,
    shutdown: &Shutdown,
) -> Result<()> {
    // Another one may have come before this became the one that runs, or from a container.
    check()?;
    undo_a_killed_run();
    // The verifier's log comes as a warning: without it nobody can tell why a load failed.
    let level = if config.verbose {
        PrintLevel::Debug
    } else {
        PrintLevel::Warn
    };
    scx_utils::init_libbpf_logging(Some(level));
    try_set_rlimit_infinity();
    limits::raise_file_limit();
    limits::raise_priority();
    // Now, while nobody is scheduled by us, though a later policy may be the first to ask.
    yields::auto();
    load::read_ahead();
    let mut object = MaybeUninit::uninit();
    let prepared = Prepared::open(&mut object)?;
    let maps = prepared.shared_maps()?;
    let mut reload = Reload::start(policy, file, asked);
    let policy = &reload.in_force().policy;
    let requests = Arc::new(Requests::new()?);
    if let Some(address) = config.metrics {
        export::http::serve(address, Arc::clone(&requests))?;
    }
    let mut object = MaybeUninit::uninit();
    let (mut identify, loaded) =
        load::with_identification(prepared, config, policy, &maps, &mut object)?;
    let mut first = Some(loaded);
    let (mut server, mut pinning, mut retired) = (None, None, Vec::new());
    let mut attempts = 0;
    loop {
        let mut object = MaybeUninit::uninit();
        let policy = &reload.in_force().policy;
        let loaded = first
            .take()
            .unwrap_or_else(|| Loaded::new(config, policy, &maps, &mut object));
        let started = loaded.and_then(|loaded| Scheduler::start(config, policy, &identify, loaded));
        let mut scheduler = match started {
            Err(error) if attempts > 0 => {
                attempts -= 1;
                warn!("starting anew failed, and is tried again: {error:#}");
                shutdown.sleep(BETWEEN_ATTEMPTS);
                if shutdown.is_asked() {
                    return Ok(());
                }
                continue;
            }
            started => started?,
        };
        scheduler.retired = retired;
        // Not before: its socket is that of any sched_ext scheduler, and only one can be attached.
        if server.is_none() {
            let data = server::data(&requests);
            let started = StatsServer::new(data).launch();
            server = Some(started.context("starting the statistics server")?);
        }
        scheduler.announce();
        // Threads stay on their CPUs when the scheduler starts anew.
        let pinning = pinning.get_or_insert_with(|| start_pinning(policy));
        match scheduler.serve(&mut identify, pinning, &mut reload, &requests, shutdown)? {
            Ended::Asked => {
                info!(event = "detached"; "detached: every task is back on the kernel's scheduler");
                return Ok(());
            }
            Ended::Restart(maps) => {
                retired = maps;
                attempts = MORE_ATTEMPTS;
                info!(event = "restarting"; "restarting: the kernel asked for it");
            }
        }
    }
}

struct Scheduler<'obj> {
    // Dropped first: unregisters.
    link: Option<Link>,
    // Interrupts go back to where they were once nobody is scheduled by us.
    steer: Option<Steering>,
    skel: GpuawareSkel<'obj>,
    placement: Placement,
    marks: MarkCounts,
    left_out: LeftOut,
    started: Instant,
    /// Its own task storage.
    storage: MapHandle,
    /// The task storage of schedulers that ended because a CPU came or went. Before Linux 7.0 the kernel's worker that
    /// frees it can deadlock with the next CPU that goes offline, so it is freed when CPUs have been left alone for
    /// [`CPUS_ARE_LEFT_ALONE`].
    retired: Vec<MapHandle>,
}

/// So long after the last CPU came or went no other is expected to.
const CPUS_ARE_LEFT_ALONE: Duration = Duration::from_secs(30);

/// Cgroups that count as part of those above them, as far as the log has said so.
#[derive(Default)]
struct LeftOut {
    said: u64,
    next: Duration,
}

/// The log says of others no sooner.
const LEFT_OUT_INTERVAL: Duration = Duration::from_secs(60);

/// Interrupts that are kept away from the preferred CPUs.
struct Steering {
    steer: Steer,
    next: Duration,
}

/// How often new interrupts are looked for.
const STEER_INTERVAL: Duration = Duration::from_secs(10);

impl<'obj> Scheduler<'obj> {
    fn start(
        config: &Config,
        policy: &Policy,
        identify: &Identify<'_>,
        loaded: Loaded<'obj>,
    ) -> Result<Self> {
        let (skel, link, placement) = loaded.attach(config.verbose)?;
        // Now, and not when it ends: then no descriptor may be free.
        let storage = MapHandle::try_from(&skel.maps.task_ctxs).context("the task storage")?;
        warn_of_cgroups(identify.cgroup_root());
        Ok(Self {
            link: Some(link),
            storage,
            steer: policy.irq.steer.then(start_steering).flatten(),
            skel,
            placement,
            marks: MarkCounts::default(),
            left_out: LeftOut::default(),
            started: Instant::now(),
            retired: Vec::new(),
        })
    }

    fn announce(&self) {
        let cpus = self.placement.cpus().to_string();
        info!(event = "attached", cpus = cpus; "scx_gpuaware: attached, launchers prefer CPUs {cpus}");
    }

    /// Looks at the machine if it is time, and acts on it.
    fn follow_machine(&mut self) -> Result<()> {
        let now = self.started.elapsed();
        if now > CPUS_ARE_LEFT_ALONE {
            self.retired.clear();
        }
        if self.placement.is_due(now) {
            let times = counters::irq_times(
                &self.skel.maps.irq_ctxs,
                &self.placement.topology().online(),
            )?;
            let demand = kernel::take_demand(&mut self.skel)?;
            if self.placement.look(now, times, demand, &allowed_cpus()) {
                kernel::set_preferred(&mut self.skel, self.placement.ranked())?;
                self.steer_now();
            }
        }
        if self
            .steer
            .as_ref()
            .is_some_and(|steering| now >= steering.next)
        {
            self.steer_now();
        }
        Ok(())
    }

    /// Says of cgroups whose weights and limits do not hold.
    fn tell_left_out(&mut self) {
        let (nr, now) = (kernel::cgroups_left_out(&self.skel), self.started.elapsed());
        if nr > self.left_out.said && now >= self.left_out.next {
            warn!(
                "{} cgroups count as part of those above them, and their own cpu.weight and cpu.max do not hold: there \
                 are more than {}, or they are nested deeper than {}",
                nr - self.left_out.said,
                intf::gpuaware_limits_GPUAWARE_MAX_CGROUPS,
                intf::gpuaware_limits_GPUAWARE_MAX_CGROUP_DEPTH
            );
            self.left_out = LeftOut {
                said: nr,
                next: now + LEFT_OUT_INTERVAL,
            };
        }
    }

    /// Puts another policy into force, if one is asked for: all of it or nothing. True if it is.
    fn follow_policy(&mut self, identify: &mut Identify<'_>, reload: &mut Reload) -> bool {
        let Some(wanted) = reload.poll() else {
            return false;
        };
        if let Err(error) = self.put_into_force(&wanted.policy, identify) {
            // Not a reason to end: without the scheduler the old policy is not in force either.
            let back = self.put_into_force(&reload.in_force().policy, identify);
            reload.roll_back(&error, back);
            return false;
        }
        reload.accept(wanted);
        true
    }

    fn put_into_force(&mut self, policy: &Policy, identify: &mut Identify<'_>) -> Result<()> {
        identify.follow(policy)?;
        let nr_cpus = self.placement.topology().cpus.len();
        kernel::set_tunables(&mut self.skel, tunables(policy, nr_cpus, yields::auto()))?;
        self.placement.follow(policy);
        // Also where the CPUs are the same: whether they are lent may have changed.
        kernel::set_preferred(&mut self.skel, self.placement.ranked())?;
        if !policy.irq.steer {
            self.steer = None;
        } else if self.steer.is_none() {
            self.steer = start_steering();
        }
        self.steer_now();
        Ok(())
    }

    fn steer_now(&mut self) {
        let online = self.placement.topology().online();
        if let Some(steering) = &mut self.steer {
            steering.steer.follow(self.placement.cpus(), &online);
            steering.next = self.started.elapsed() + STEER_INTERVAL;
        }
    }

    fn metrics(&mut self, identify: &Identify<'_>, policies: &Standing) -> Result<Metrics> {
        let marks = self.marks.read(self.started.elapsed(), identify);
        report::metrics(&Parts {
            skel: &self.skel,
            placement: &self.placement,
            marks,
            sightings: &identify.sightings(),
            policies,
        })
    }

    fn serve(
        mut self,
        identify: &mut Identify<'_>,
        pinning: &mut Option<Pinning>,
        reload: &mut Reload,
        requests: &Requests,
        shutdown: &Shutdown,
    ) -> Result<Ended> {
        let mut next_step = Duration::ZERO;
        while !shutdown.is_asked() && !self.exited() {
            if self.follow_policy(identify, reload) {
                let policy = &reload.in_force().policy;
                match pinning {
                    Some(pinning) => pinning.set_policy(policy),
                    // What a killed run has left was in the way, and may have been removed.
                    None => *pinning = start_pinning(policy),
                }
            }
            self.follow_machine()?;
            self.tell_left_out();
            // Not for every statistics client that asks.
            if self.started.elapsed() >= next_step {
                next_step = self.started.elapsed() + identify.step_anyway();
                self.marks.follow(self.started.elapsed(), identify);
            }
            let threads = pinning.as_mut().map_or(Duration::MAX, |pins| pins.step());
            let now = self.started.elapsed();
            let wait = next_step
                .saturating_sub(now)
                .min(self.placement.next_look(now))
                .min(threads);
            if requests.wait(wait)? {
                requests.answer(&self.metrics(identify, reload.standing())?);
            }
        }
        self.link = None;
        if !self.report()? {
            return Ok(Ended::Asked);
        }
        self.retired.push(self.storage);
        Ok(Ended::Restart(self.retired))
    }

    /// Reports why the scheduler ended; true if the kernel asks for a restart.
    ///
    /// # Errors
    /// The kernel threw it out; its dump is on standard error.
    #[allow(clippy::unwrap_used, reason = "inside the macro of scx_utils")]
    fn report(&self) -> Result<bool> {
        let exit = uei_read!(&self.skel, uei);
        let (kind, reason) = kernel::exit_reason(&self.skel)?;
        if kind > ScxExitKind::UnregKern as i32 {
            // Does not return Ok(). It prints the dump, and panics where nobody reads standard error any more.
            let report = std::panic::AssertUnwindSafe(|| exit.report());
            std::panic::catch_unwind(report).unwrap_or_else(|_| bail!("EXIT: {reason}"))?;
        }
        if kind != 0 {
            info!(event = "exit", reason = reason; "the kernel says: {reason}");
        }
        Ok(exit.should_restart())
    }

    #[allow(clippy::unwrap_used, reason = "inside the macro of scx_utils")]
    fn exited(&self) -> bool {
        uei_exited!(&self.skel, uei)
    }
}

/// Operators count on `cpu.max` and `cpu.idle`: they are told where these will not hold.
fn warn_of_cgroups(cgroup_root: Option<&Path>) {
    let (limits, idle) = (load::kernel_tells_limits(), load::kernel_tells_idle());
    for (is_told, file, since, find) in [
        (limits, "cpu.max", "6.17", cgroups::limited as Find),
        (idle, "cpu.idle", "6.19", cgroups::idle),
    ] {
        if is_told {
            continue;
        }
        let found = cgroup_root.map(find).unwrap_or_default();
        if !found.is_empty() {
            warn!(
                "this kernel does not tell schedulers of {file} (Linux {since} does): it is not enforced for {}",
                listed(&found, LISTED)
            );
        }
    }
}

/// The cgroups below a root of which something holds.
type Find = fn(&Path) -> Vec<String>;

/// Not being able to steer is no reason not to schedule.
fn start_steering() -> Option<Steering> {
    match Steer::start(Path::new(steer::PROCFS), Path::new(steer::STATE_FILE)) {
        Ok(steer) => Some(Steering {
            steer,
            next: Duration::ZERO,
        }),
        Err(error) => {
            warn!("irq.steer: interrupts stay where they are: {error:#}");
            None
        }
    }
}

/// Nor is not being able to pin.
fn start_pinning(policy: &Policy) -> Option<Pinning> {
    Pinning::start(policy, Path::new(pin::STATE_FILE))
        .inspect_err(|error| warn!("pin: threads stay as they are: {error:#}"))
        .ok()
}
