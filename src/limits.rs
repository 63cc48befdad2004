// SPDX-License-Identifier: GPL-2.0-only
//! What this process may use of the machine.

use std::io;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use log::warn;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// More than one look at the machine has open at a time.
const FREE_FILES: usize = 16;

/// Whoever looks at what is there, and goes by what is not, asks this first: a process that cannot be opened is no
/// process that has ended.
///
/// # Errors
/// Too few descriptors are free.
pub fn expect_free_files() -> Result<()> {
    let stderr = io::stderr();
    let open = || stderr.as_fd().try_clone_to_owned();
    let all: io::Result<Vec<_>> = (0..FREE_FILES).map(|_| open()).collect();
    all.map(drop)
        .with_context(|| format!("opening {FREE_FILES} files to look at the machine"))
}

/// Probes are armed and disarmed by this thread, within milliseconds, beside any noise: it shares
/// the CPUs by weight like everybody else, so it takes a large one.
pub fn raise_priority() {
    const NICE: i32 = -15;
    // SAFETY: takes and returns plain integers; 0 is the calling thread.
    let ret = unsafe { nix::libc::setpriority(nix::libc::PRIO_PROCESS, 0, NICE) };
    if ret != 0 {
        warn!("nice {NICE}: {}", std::io::Error::last_os_error());
    }
}

/// Each library that is probed takes some descriptors, each client of the statistics two. The soft limit is for programs
/// that use select().
pub fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        warn!("the limit of open files stays as it is: {error}");
    }
}
