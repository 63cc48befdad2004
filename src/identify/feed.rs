// SPDX-License-Identifier: GPL-2.0-only
//! What another scheduler is told: the class of a thread, as a number in a pinned map of task storage that is that
//! scheduler's. scx_layered's task hints are such a map. Owns no opinion on who has which class.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType};
use nix::libc;

use crate::bpf::intf;
use crate::pidfd;

use super::Class;

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
    /// Threads that have a number in it.
    told: HashSet<i32>,
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
            path: path.to_owned(),
            map,
            numbers,
            told: HashSet::new(),
        })
    }

    /// Writes the class of every thread that has one, and takes back what was said of others before.
    ///
    /// # Errors
    /// The kernel refuses, other than because a thread is gone.
    pub fn tell(&mut self, records: &[intf::gpuaware_mark_record]) -> Result<()> {
        let mut told = HashSet::new();
        for record in records {
            let class = Class::from_wire(record.class);
            let Some(number) = class.and_then(|class| self.numbers.of(class)) else {
                continue;
            };
            if let Some(thread) = thread(record.tid)? {
                let mut value = vec![0; self.map.value_size() as usize];
                value[..8].copy_from_slice(&number.to_ne_bytes());
                let key = thread.as_raw_fd().to_ne_bytes();
                self.unless_gone(self.map.update(&key, &value, MapFlags::ANY))?;
                told.insert(record.tid);
            }
        }
        for &tid in self.told.difference(&told) {
            if let Some(thread) = thread(tid)? {
                self.unless_gone(self.map.delete(&thread.as_raw_fd().to_ne_bytes()))?;
            }
        }
        self.told = told;
        Ok(())
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

/// `None`: the thread is gone.
fn thread(tid: i32) -> Result<Option<OwnedFd>> {
    match pidfd::of_thread(tid) {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            bail!("pidfd_open of thread {tid}: {error}: expected Linux 6.9 or newer")
        }
        Err(error) => Err(error).with_context(|| format!("pidfd_open of thread {tid}")),
    }
}

#[cfg(test)]
mod tests {
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
