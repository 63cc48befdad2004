// SPDX-License-Identifier: GPL-2.0-only
//! `feed`: identification at work for a scheduler that is not this one, or for people who look at `marks`.

use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Args;
use log::{info, warn};

use crate::identify::Identify;
use crate::identify::feed::{self, Feed, Numbers};
use crate::identify::marks::Pins;
use crate::limits;
use crate::namespaces;
use crate::running::{Role, Running};
use crate::sched;
use crate::shutdown::Shutdown;

use super::output::Failure;
use super::policy;

/// What a killed run leaves for the next one. /run is empty after a boot, as are all maps.
const STATE: &str = "/run/scx_gpuaware/feed.json";
/// Changes are looked for so often.
const PERIOD: Duration = Duration::from_millis(100);

/// How often it is seen whether the other scheduler still has its map.
const CHECK: Duration = Duration::from_secs(1);

/// Whom to tell, and in which numbers.
#[derive(Debug, Args)]
pub struct Options {
    /// The other scheduler's pinned map of task storage, such as scx_layered's --task-hint-map
    /// [default: nobody is told, `marks` lists who was found].
    #[arg(long, value_name = "PATH")]
    map: Option<PathBuf>,
    /// What stands for class launch there.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "map")]
    launch: u64,
    /// What stands for class handoff there.
    #[arg(long, value_name = "N", default_value_t = 2, requires = "map")]
    handoff: u64,
    /// Policy file, TOML: its rules say who has which class.
    #[arg(short, long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

/// Tells until SIGINT, SIGTERM or SIGHUP, until the other scheduler's map is gone, or until the kernel refuses.
pub fn run(options: &Options) -> Result<(), Failure> {
    let policy = policy::in_effect(options.policy.as_deref(), None).map_err(Failure::Input)?;
    let refuse_beside_the_scheduler = || match sched::is_loaded() {
        true => Err(anyhow!(
            "scx_gpuaware runs and schedules by its own marks: stop it first"
        )),
        false => Ok(()),
    };
    refuse_beside_the_scheduler()?;
    namespaces::check_root("feeding")?;
    sched::reload::bear_rescans()?;
    let _running = Running::start(Role::Feed)?;
    // It may have come before this became the one that runs, or from a container.
    refuse_beside_the_scheduler()?;
    let shutdown = Shutdown::watch(undo_a_killed_run)?;
    undo_a_killed_run();
    limits::raise_file_limit();
    let numbers = Numbers {
        launch: options.launch,
        handoff: options.handoff,
    };
    let mut feed = match &options.map {
        Some(map) => Some(Feed::open(map, numbers)?),
        None => None,
    };
    if let Some(feed) = &mut feed {
        feed.remember_at(Path::new(STATE));
    }
    let pins = Pins::default();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy.policy, pins, &mut object)?;
    match &options.map {
        Some(map) => info!("feeding {}", map.display()),
        None => info!("finding threads; nobody is told: see `scx_gpuaware marks`"),
    }
    let fed = follow(&mut identify, feed.as_mut(), &shutdown);
    // Also what was told before something failed.
    let taken_back = feed.map_or(Ok(()), |mut feed| feed.tell(&[]));
    Ok(fed.and(taken_back)?)
}

/// Tells until it is asked to end.
fn follow(
    identify: &mut Identify<'_>,
    mut feed: Option<&mut Feed>,
    shutdown: &Shutdown,
) -> Result<()> {
    let mut seen = None;
    let (mut next, mut next_check) = (Instant::now(), Instant::now());
    while !shutdown.is_asked() {
        let wait = identify.step_anyway();
        if let Some(feed) = &mut feed {
            if Instant::now() >= next {
                if let Some(marks) = identify.changed_marks(&mut seen)? {
                    feed.tell(&marks)?;
                }
                next = Instant::now() + PERIOD;
            }
            if Instant::now() >= next_check {
                feed.check()?;
                next_check = Instant::now() + CHECK;
            }
        }
        shutdown.sleep(wait.min(PERIOD));
    }
    Ok(())
}

/// See [`sched::undo_a_killed_run`].
fn undo_a_killed_run() {
    sched::undo_a_killed_run();
    if let Err(error) = feed::take_back(Path::new(STATE)) {
        warn!("{error:#}");
    }
}
