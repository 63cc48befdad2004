// SPDX-License-Identifier: GPL-2.0-only
//! What the process may use. Without more of it everything works, later or for fewer.

use log::warn;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

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
