// SPDX-License-Identifier: GPL-2.0-only
//! A process beside the runner that cleans up when the runner dies without doing so: by SIGKILL, by a second Ctrl-C, by
//! the kernel for memory. It waits for the end of its stdin, which comes however the runner ends; what it was told
//! and not released of by then is undone.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cgroup::removal;
use crate::replace::replace;

/// The one of this process. Nobody else holds the pipe to it, which is closed on exec.
static WATCHDOG: OnceLock<Mutex<Child>> = OnceLock::new();
/// What is done when the runner is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cleanup {
    /// A process group: it is killed.
    Group(i32),
    /// The folder of a cgroup: who is in it is killed, and it is removed.
    Cgroup(PathBuf),
    /// A file: it is removed.
    Remove(PathBuf),
    /// A file of the kernel's: this is written into it.
    File { path: PathBuf, text: String },
    /// A file that others read at any time: this takes its place.
    Replace { path: PathBuf, text: String },
}

#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Register(Cleanup),
    Release(Cleanup),
}

/// Starts it. Before this, and in programs that never do, nobody cleans up.
///
/// # Errors
/// This program cannot be started again.
pub fn start() -> Result<()> {
    if WATCHDOG.get().is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let child = Command::new(program)
        .arg("watchdog")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // In a group of its own: Ctrl-C and a kill of the runner's group do not reach it.
        .process_group(0)
        .spawn()
        .context("cannot start the watchdog")?;
    // Two that start it at once: the one that came too late ends, because its pipe is closed.
    let _ = WATCHDOG.set(Mutex::new(child));
    Ok(())
}

/// A cleanup that the watchdog has while this lives.
#[derive(Debug)]
pub struct Guarded(Cleanup);

impl Guarded {
    pub fn new(cleanup: Cleanup) -> Self {
        send(&Message::Register(cleanup.clone()));
        Self(cleanup)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        send(&Message::Release(self.0.clone()));
    }
}

fn send(message: &Message) {
    let Some(watchdog) = WATCHDOG.get() else {
        return;
    };
    let mut watchdog = watchdog.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(pipe) = &mut watchdog.stdin else {
        return;
    };
    let sent = serde_json::to_string(message)
        .map_err(io::Error::other)
        .and_then(|line| pipe.write_all((line + "\n").as_bytes()));
    if let Err(error) = sent {
        eprintln!(
            "gpuaware-bench: warning: the watchdog was not told ({error}): nobody cleans up after a kill -9"
        );
    }
}

/// `gpuaware-bench watchdog`: reads cleanups until the runner ends, then does those that are left.
pub fn main() -> Result<()> {
    // A service manager sends one to all processes of a unit at once: the runner's end is what counts.
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::default())
            .with_context(|| format!("cannot handle signal {signal}"))?;
    }
    let mut cleanups: Vec<Cleanup> = Vec::new();
    for line in BufReader::new(std::io::stdin()).lines() {
        let line = line.context("cannot read from the runner")?;
        // Half a line: the runner died over it.
        let Ok(message) = serde_json::from_str::<Message>(&line) else {
            continue;
        };
        match message {
            Message::Register(cleanup) => cleanups.push(cleanup),
            Message::Release(cleanup) => {
                if let Some(at) = cleanups.iter().rposition(|known| *known == cleanup) {
                    cleanups.remove(at);
                }
            }
        }
    }
    // Processes before the cgroups that they are in.
    cleanups.sort_by_key(|cleanup| !matches!(cleanup, Cleanup::Group(_)));
    for cleanup in &cleanups {
        if let Err(error) = undo(cleanup) {
            eprintln!("gpuaware-bench: warning: after the runner's death: {error:#}");
        }
    }
    Ok(())
}

fn undo(cleanup: &Cleanup) -> Result<()> {
    match cleanup {
        Cleanup::Group(leader) => {
            // ESRCH: the group has ended already, which is fine.
            let _ = killpg(Pid::from_raw(*leader), Signal::SIGKILL);
            Ok(())
        }
        Cleanup::Cgroup(folder) => removal::kill_and_remove(folder),
        Cleanup::Remove(path) => {
            let _ = fs::remove_file(path);
            Ok(())
        }
        Cleanup::File { path, text } => fs::write(path, text)
            .with_context(|| format!("cannot put {} back to {text:?}", path.display())),
        Cleanup::Replace { path, text } => replace(path, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written() {
        let cleanup = Cleanup::File {
            path: "/sys/x y".into(),
            text: "00000003\n".to_owned(),
        };
        let line = serde_json::to_string(&Message::Register(cleanup.clone())).unwrap();
        assert!(!line.contains('\n'), "{line}");
        let Ok(Message::Register(back)) = serde_json::from_str(&line) else {
            panic!("not what was written: {line}")
        };
        assert_eq!(back, cleanup);
    }

    #[test]
    fn files_are_put_back_and_folders_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rps_cpus");
        fs::write(&path, "2\n").unwrap();
        undo(&Cleanup::File {
            path: path.clone(),
            text: "0\n".to_owned(),
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "0\n");
        undo(&Cleanup::Replace {
            path: path.clone(),
            text: "4\n".to_owned(),
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "4\n");
        let folder = dir.path().join("group");
        fs::create_dir(&folder).unwrap();
        undo(&Cleanup::Cgroup(folder.clone())).unwrap();
        assert!(!folder.exists());
        undo(&Cleanup::Cgroup(folder)).unwrap();
    }
}
