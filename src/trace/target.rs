// SPDX-License-Identifier: GPL-2.0-only
//! Who is traced: a command, processes, a cgroup, or every process that launches. Always with what
//! they start.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::pidfd;
use crate::proc::mounts::Mounts;
use crate::proc::numbers_in;

use super::kernel::Kernel;

/// Who is traced.
#[derive(Debug, Clone)]
pub enum Target {
    /// A program to start, and its arguments.
    Command(Vec<OsString>),
    /// Processes that run.
    Processes(Vec<i32>),
    /// A cgroup and those below it: its folder.
    Cgroup(PathBuf),
    /// Every process from its first call into libcuda that is seen.
    Launchers,
}

impl Target {
    /// In words, for the file.
    pub fn describe(&self) -> String {
        match self {
            Self::Command(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                format!("command {}", words.join(" "))
            }
            Self::Processes(pids) => {
                let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
                format!("process {}", pids.join(", "))
            }
            Self::Cgroup(path) => format!("cgroup {}", path.display()),
            Self::Launchers => "every process that launches".to_owned(),
        }
    }

    /// Id of the cgroup, 0 if it is none.
    ///
    /// # Errors
    /// No such cgroup.
    pub fn cgroup_id(&self) -> Result<u64> {
        let Self::Cgroup(path) = self else {
            return Ok(0);
        };
        let metadata =
            std::fs::metadata(path).with_context(|| format!("no cgroup {}", path.display()))?;
        Ok(metadata.ino())
    }

    /// Begins to trace what runs already; who has ended meanwhile is passed over.
    ///
    /// # Errors
    /// No memory.
    pub fn begin(&self, kernel: &Kernel<'_>) -> Result<()> {
        match self {
            Self::Processes(pids) => pids
                .iter()
                .try_for_each(|&pid| trace_process(kernel, pid).map(drop)),
            Self::Cgroup(path) => trace_cgroup(kernel, path),
            Self::Command(_) | Self::Launchers => Ok(()),
        }
    }

    /// What its end is seen by. Of a command, see [`Started`].
    ///
    /// # Errors
    /// No such process, or no process but a thread; no such cgroup.
    pub fn watch(&self) -> Result<Watch> {
        Ok(match self {
            Self::Processes(pids) => Watch::Processes(
                pids.iter()
                    .map(|&pid| pidfd::of_running(pid))
                    .collect::<Result<_>>()?,
            ),
            Self::Cgroup(path) => Watch::Cgroup(path.clone(), self.cgroup_id()?),
            Self::Command(_) | Self::Launchers => Watch::Nothing,
        })
    }
}

/// Sees the end of a target.
#[derive(Debug)]
pub enum Watch {
    /// They have ended, whatever they have started since, and whether or not somebody has waited for them.
    Processes(Vec<OwnedFd>),
    /// Its folder is gone: another cgroup of its name has another id.
    Cgroup(PathBuf, u64),
    /// It does not end by itself.
    Nothing,
}

impl Watch {
    /// Is nothing left that could be traced?
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Processes(processes) => processes.iter().all(pidfd::has_ended),
            Self::Cgroup(path, id) => {
                !std::fs::metadata(path).is_ok_and(|folder| folder.ino() == *id)
            }
            Self::Nothing => false,
        }
    }
}

/// The folder of a cgroup that the user names by its path, or by its path below the hierarchy.
///
/// # Errors
/// There is none.
pub fn find_cgroup(name: &Path) -> Result<PathBuf> {
    let mounts = Mounts::of_this_process().context("reading mounts")?;
    let root = (mounts.cgroup2()).context("no cgroup v2 hierarchy is mounted")?;
    let below = root.join(name.strip_prefix("/").unwrap_or(name));
    let folders = [name.to_path_buf(), below];
    folders
        .into_iter()
        .find(|folder| folder.join("cgroup.procs").exists())
        .with_context(|| {
            format!(
                "no cgroup {}: expected a folder with a cgroup.procs, or its path below {}",
                name.display(),
                root.display()
            )
        })
}

/// Traces all threads of process `tgid` that there are; returns how many.
///
/// # Errors
/// No memory.
pub fn trace_process(kernel: &Kernel<'_>, tgid: i32) -> Result<usize> {
    let mut nr_traced = 0;
    // A thread that is not traced yet may start another one behind our back: look twice.
    for _ in 0..2 {
        nr_traced = 0;
        for tid in numbers_in(Path::new(&format!("/proc/{tgid}/task"))) {
            nr_traced += usize::from(kernel.trace_task(tid)?);
        }
    }
    Ok(nr_traced)
}

fn trace_cgroup(kernel: &Kernel<'_>, folder: &Path) -> Result<()> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let text = |file: &str| std::fs::read_to_string(folder.join(file));
        let numbers = |line: &str| line.parse().ok();
        if let Ok(processes) = text("cgroup.procs") {
            for pid in processes.lines().filter_map(numbers) {
                trace_process(kernel, pid)?;
            }
        } else {
            // A threaded one has threads of its own, of processes that are elsewhere. One that is gone has none.
            let threads = text("cgroup.threads").unwrap_or_default();
            for tid in threads.lines().filter_map(numbers) {
                kernel.trace_task(tid)?;
            }
        }
        let below = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(below.map(|entry| entry.path()).filter(|path| path.is_dir()));
    }
    Ok(())
}

/// A command that was started. Told to end when dropped.
pub struct Started {
    child: Child,
    /// `None`: the kernel gives none.
    pidfd: Option<OwnedFd>,
}

impl Started {
    /// Starts the command, traced from its first instruction on.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(words: &[OsString], kernel: &mut Kernel<'_>) -> Result<Self> {
        let Some((program, args)) = words.split_first() else {
            bail!("expected a command after --");
        };
        kernel.set_spawner(nix::unistd::gettid().as_raw());
        let child = Command::new(program).args(args).spawn();
        kernel.set_spawner(0);
        let child = child.with_context(|| format!("starting {}", program.to_string_lossy()))?;
        let pidfd = i32::try_from(child.id()).ok();
        let pidfd = pidfd.and_then(|pid| pidfd::of_process(pid).ok());
        Ok(Self { child, pidfd })
    }

    /// Waits for its end, a signal to us, or until `time` is up.
    pub fn wait(&self, time: Duration) {
        let Some(pidfd) = &self.pidfd else {
            return std::thread::sleep(time);
        };
        let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        // Rounded up: one that ends too soon would turn in circles.
        let timeout = PollTimeout::try_from(time + Duration::from_micros(999));
        // EINTR is the signal.
        let _ = poll(&mut fds, timeout.unwrap_or(PollTimeout::MAX));
    }

    /// How it ended, if it has.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Whoever has sent a signal to us waits for us.
        const PATIENCE: Duration = Duration::from_millis(500);
        if self.status().is_some() {
            return;
        }
        let pid = i32::try_from(self.child.id()).unwrap_or(i32::MAX);
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        let end = Instant::now() + PATIENCE;
        while self.status().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
