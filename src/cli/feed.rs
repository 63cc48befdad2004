// SPDX-License-Identifier: GPL-2.0-only
//! `feed`: identification at work for a scheduler that is not this one.

use std::fs::File;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use log::info;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::identify::Identify;
use crate::identify::feed::{Feed, Numbers};
use crate::identify::marks::Pins;
use crate::namespaces;
use crate::sched;

use super::{Failure, read_policy, shutdown_flag};

/// Held while one runs; the kernel lets go of it however that ends.
const LOCK: &str = "/run/scx_gpuaware/feed.lock";
/// Changes are looked for so often.
const PERIOD: Duration = Duration::from_millis(100);

/// Whom to tell, and in which numbers.
#[derive(Debug, Args)]
pub struct Options {
    /// The other scheduler's pinned map of task storage, such as scx_layered's --task-hint-map.
    #[arg(long, value_name = "PATH")]
    map: PathBuf,
    /// What stands for class launch there.
    #[arg(long, value_name = "N", default_value_t = 1)]
    launch: u64,
    /// What stands for class handoff there.
    #[arg(long, value_name = "N", default_value_t = 2)]
    handoff: u64,
    /// Policy file, TOML: its rules say who has which class.
    #[arg(short, long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

/// Tells until SIGINT or SIGTERM, or until the kernel refuses.
pub fn run(options: &Options) -> Result<(), Failure> {
    let policy = read_policy(options.policy.as_deref(), None).map_err(Failure::Input)?;
    let shutdown = shutdown_flag()?;
    if sched::is_loaded() {
        return Err(anyhow::anyhow!(
            "scx_gpuaware runs and schedules by its own marks: stop it first"
        )
        .into());
    }
    namespaces::check_root("feeding")?;
    let _lock = lock(Path::new(LOCK))?;
    let numbers = Numbers {
        launch: options.launch,
        handoff: options.handoff,
    };
    let mut feed = Feed::open(&options.map, numbers)?;
    let pins = Pins::default();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy.policy, pins, &mut object)?;
    let mut seen = None;
    info!("feeding {}", options.map.display());
    let mut next = Instant::now();
    while !shutdown.load(Ordering::Relaxed) {
        let wait = identify.step()?;
        if Instant::now() >= next {
            if let Some(marks) = identify.changed_marks(&mut seen)? {
                feed.tell(&marks)?;
            }
            next = Instant::now() + PERIOD;
        }
        std::thread::sleep(wait.min(PERIOD));
    }
    Ok(feed.tell(&[])?)
}

fn lock(path: &Path) -> Result<Flock<File>> {
    let shown = path.display();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let file = File::create(path).with_context(|| format!("opening {shown}: feed needs root"))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((_, Errno::EWOULDBLOCK)) => bail!("{shown} is locked: another scx_gpuaware feed runs"),
        Err((_, errno)) => Err(errno).with_context(|| format!("locking {shown}")),
    }
}

/// Does one run?
pub fn is_running() -> bool {
    let file = File::open(LOCK).ok();
    let locked = file.map(|file| Flock::lock(file, FlockArg::LockSharedNonblock));
    matches!(locked, Some(Err((_, Errno::EWOULDBLOCK))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/feed.lock");
        let first = lock(&path).unwrap();
        let error = lock(&path).unwrap_err().to_string();
        assert!(error.ends_with("another scx_gpuaware feed runs"), "{error}");
        drop(first);
        lock(&path).unwrap();
    }
}
