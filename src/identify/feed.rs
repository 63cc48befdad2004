// SPDX-License-Identifier: GPL-2.0-only
//! What another scheduler is told: the class of a thread, as a number in a pinned map of task storage that is that
//! scheduler's. scx_layered's task hints are such a map. Owns no opinion on who has which class.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapInfo, MapType};
use nix::libc;
use nix::unistd::gettid;
use serde::{Deserialize, Serialize};

use crate::bpf::intf;
use crate::pidfd;

use super::class::Class;

/// The numbers that stand for the classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub launch: u64,
    pub handoff: u64,
}

impl Numbers {
    /// `None`: whoever has this class is told nothing.
    fn of(self, class: Class) -> Option<u64> {
        match class {
            Class::Launch => Some(self.launch),
            Class::Handoff => Some(self.handoff),
            Class::Background => None,
        }
    }
}

/// The map of one other scheduler.
#[derive(Debug)]
pub struct Feed {
    path: PathBuf,
    map: MapHandle,
    numbers: Numbers,
    /// Threads that have a number in it, and which.
    told: BTreeMap<i32, u64>,
    /// Where that is remembered should this process be killed.
    state: Option<PathBuf>,
}

/// What a run that was killed has told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Left {
    map: PathBuf,
    told: BTreeMap<i32, u64>,
}

impl Feed {
    /// Opens the map that is pinned at `path`: its values begin with an unsigned number of 64 bits, in the byte
    /// order of the machine; the rest of a value is written as zeros.
    ///
    /// # Errors
    /// No such map, no map of task storage, values that are too short, not enough rights.
    pub fn open(path: &Path, numbers: Numbers) -> Result<Self> {
        let shown = path.display();
        let map = MapHandle::from_pinned_path(path).with_context(|| {
            format!("opening {shown}: expected a pinned map: does the other scheduler run?")
        })?;
        if map.map_type() != MapType::TaskStorage || map.value_size() < 8 {
            bail!(
                "{shown}: expected a map of task storage with values of 8 bytes or more, got {:?} with {}",
                map.map_type(),
                map.value_size()
            );
        }
        Ok(Self {
            path: std::path::absolute(path).with_context(|| format!("finding {shown}"))?,
            map,
            numbers,
            told: BTreeMap::new(),
            state: None,
        })
    }

    /// Fails once the path leads to another map or to none: the other scheduler has ended, or was started anew, and nobody
    /// reads what is told to the map of before.
    ///
    /// # Errors
    /// See above.
    pub fn check(&self) -> Result<()> {
        let id = |map: &MapHandle| MapInfo::new(map.as_fd()).map(|info| info.info.id).ok();
        let now = MapHandle::from_pinned_path(&self.path).ok();
        if now.and_then(|now| id(&now)) != id(&self.map) {
            bail!(
                "{}: the map that was fed is not there any more: start feed again when the other scheduler runs",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Remembers at `state` what it tells: see [`take_back`].
    pub fn remember_at(&mut self, state: &Path) {
        self.state = Some(state.to_owned());
    }

    /// Writes the class of every thread that has one, and takes back what was said of others before.
    ///
    /// # Errors
    /// The kernel refuses, other than because a thread is gone.
    pub fn tell(&mut self, records: &[intf::gpuaware_mark_record]) -> Result<()> {
        let mut told = BTreeMap::new();
        for record in records {
            let class = Class::from_wire(record.class);
            if let Some(number) = class.and_then(|class| self.numbers.of(class)) {
                told.insert(record.tid, number);
            }
        }
        // Before the first write: from here on a kill can be undone.
        let mut both = self.told.clone();
        both.extend(&told);
        if both != self.told {
            self.remember(&both)?;
        }
        for (&tid, number) in &told {
            if let Some(thread) = thread(tid)? {
                let mut value = vec![0; self.map.value_size() as usize];
                value[..8].copy_from_slice(&number.to_ne_bytes());
                let key = thread.as_raw_fd().to_ne_bytes();
                self.unless_gone(self.map.update(&key, &value, MapFlags::ANY))?;
            }
        }
        for tid in self.told.keys().filter(|tid| !told.contains_key(tid)) {
            if let Some(thread) = thread(*tid)? {
                self.unless_gone(self.map.delete(&thread.as_raw_fd().to_ne_bytes()))?;
            }
        }
        if told != both {
            self.remember(&told)?;
        }
        self.told = told;
        Ok(())
    }

    fn remember(&self, told: &BTreeMap<i32, u64>) -> Result<()> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        let left = Left {
            map: self.path.clone(),
            told: told.clone(),
        };
        let draft = state.with_extension("json.new");
        let write = || -> io::Result<()> {
            if left.told.is_empty() {
                return std::fs::remove_file(state);
            }
            std::fs::write(&draft, serde_json::to_vec(&left)?)?;
            std::fs::rename(&draft, state)
        };
        match write() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("writing {}", state.display()))
            }
            _ => Ok(()),
        }
    }

    fn unless_gone(&self, result: libbpf_rs::Result<()>) -> Result<()> {
        match result {
            // ESRCH comes without a kind of its own.
            Err(error)
                if error.kind() != ErrorKind::NotFound
                    && !error.to_string().contains("No such process") =>
            {
                Err(error).with_context(|| format!("writing to {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Undoes what a killed run wrote into the other scheduler's map; the file `state` lists it. Entries that somebody else
/// has changed since stay, and so do those of threads that have got the same id.
///
/// # Errors
/// The file is not what it should be, the kernel refuses.
pub fn take_back(state: &Path) -> Result<()> {
    let shown = state.display();
    let text = match std::fs::read(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text.with_context(|| format!("reading {shown}"))?,
    };
    let left: Left = serde_json::from_slice(&text).with_context(|| {
        format!("{shown}: expected what an earlier feed has told: remove the file")
    })?;
    // Where the map is gone, all is.
    if let Ok(map) = MapHandle::from_pinned_path(&left.map) {
        for (tid, number) in left.told {
            let Some(thread) = thread(tid)? else { continue };
            let key = thread.as_raw_fd().to_ne_bytes();
            let found = map.lookup(&key, MapFlags::ANY).unwrap_or_default();
            if found.is_some_and(|value| value.starts_with(&number.to_ne_bytes())) {
                // It may have ended by now.
                let _ = map.delete(&key);
            }
        }
    }
    std::fs::remove_file(state).with_context(|| format!("removing {shown}"))
}

/// `None`: the thread is gone.
fn thread(tid: i32) -> Result<Option<OwnedFd>> {
    match pidfd::of_thread(tid) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        // Before Linux 6.15 also of one that has ended and whose process group or session goes on.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            if pidfd::of_thread(gettid().as_raw()).is_ok() {
                return Ok(None);
            }
            bail!("pidfd_open of thread {tid}: {error}: expected Linux 6.9 or newer")
        }
        Err(error) => Err(error).with_context(|| format!("pidfd_open of thread {tid}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn only_launch_and_handoff_have_a_number() {
        let numbers = Numbers {
            launch: 7,
            handoff: 9,
        };
        assert_eq!(numbers.of(Class::Launch), Some(7));
        assert_eq!(numbers.of(Class::Handoff), Some(9));
        assert_eq!(numbers.of(Class::Background), None);
    }

    #[test]
    fn who_has_ended_is_gone_though_its_process_group_goes_on() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!"]).process_group(0);
        let mut shell = shell.stdout(Stdio::piped()).spawn().unwrap();
        let mut left = String::new();
        let mut lines = BufReader::new(shell.stdout.take().unwrap());
        lines.read_line(&mut left).unwrap();
        shell.wait().unwrap();
        let gone = thread(shell.id().cast_signed());
        let left = Pid::from_raw(left.trim().parse().unwrap());
        kill(left, Signal::SIGKILL).unwrap();
        assert!(gone.unwrap().is_none());
    }

    #[test]
    fn says_what_it_expects_where_there_is_no_map() {
        let numbers = Numbers {
            launch: 1,
            handoff: 2,
        };
        let error = Feed::open(Path::new("/nonexistent/hints"), numbers).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("/nonexistent/hints: expected a pinned map"),
            "{error}"
        );
    }
}
