// SPDX-License-Identifier: GPL-2.0-only
//! Tells the guest what else its host does: a thread writes the host's counters into a file that the
//! guest sees. The guest cannot find out by itself that a compiler takes its CPUs half of their time.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

use super::pace::{Pace, thread_time};
use crate::load::Sample;

/// Where the guest finds the file's path.
pub const VARIABLE: &str = "GPUAWARE_LAB_HOST_LOAD";
const NAME: &str = "host-load";
/// Always as long, and written in one piece: a reader never sees half of it, and no cached length is wrong.
const LENGTH: usize = 512;
const INTERVAL: Duration = Duration::from_millis(400);
/// A look at all processes may cost at most this part of a CPU.
const COST: u32 = 100;

/// The file of a lab whose own files are in `dir`.
pub fn file(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Writes while it lives.
#[derive(Debug)]
pub struct HostLoad {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HostLoad {
    pub fn start(dir: &Path) -> Result<Self> {
        let path = file(dir);
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        write(&file, &Sample::take()?)?;
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut pause = INTERVAL;
            let mut pace = Pace::new();
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pace.look();
                // Its CPU time, not what it waits for busy CPUs.
                let began = thread_time();
                // The guest notices by the time in the file that nothing new came.
                let _ = look(&pace).and_then(|sample| write(&file, &sample));
                let took = thread_time().zip(began).map(|(now, began)| now - began);
                pause = INTERVAL.max(took.unwrap_or_default() * COST);
            }
        });
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for HostLoad {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look(pace: &Pace) -> Result<Sample> {
    Ok(Sample {
        pieces: pace.pieces,
        pieces_ns: pace.ns,
        loads_ns: pace.loads_ns,
        ..Sample::take()?
    })
}

fn write(file: &File, sample: &Sample) -> Result<()> {
    let mut text = serde_json::to_vec(sample)?;
    text.resize(LENGTH, b' ');
    file.write_all_at(&text, 0)?;
    Ok(())
}

/// In the guest: what the host last said. `None` outside the lab.
pub fn read() -> Option<Sample> {
    let path = std::env::var_os(VARIABLE)?;
    // O_DIRECT: the guest would serve what it has once read from its page cache.
    let mut file = File::options()
        .read(true)
        .custom_flags(nix::libc::O_DIRECT)
        .open(path)
        .ok()?;
    let mut text = String::with_capacity(LENGTH);
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn writes_at_once_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let load = HostLoad::start(dir.path()).unwrap();
        let read = || -> Sample {
            serde_json::from_str(&std::fs::read_to_string(file(dir.path())).unwrap()).unwrap()
        };
        let first = read();
        let deadline = Instant::now() + Duration::from_secs(10);
        while read().pieces == first.pieces {
            assert!(Instant::now() < deadline, "nothing new was written");
            thread::sleep(Duration::from_millis(20));
        }
        drop(load);
        assert_eq!(file(dir.path()).metadata().unwrap().len(), LENGTH as u64);
    }
}
