// SPDX-License-Identifier: GPL-2.0-only
//! QEMU's main loop, ahead of the guest's CPUs.
//!
//! Under emulation every timer of the guest expires in QEMU's main thread. When all vCPUs are busy
//! and there are as many as cores, this machine's scheduler lets that thread wait for a slice, and a
//! guest that sleeps 0.6 ms wakes after 4. So the main thread, and it alone, goes before the vCPUs.

use std::os::unix::net::UnixStream;

use nix::sys::socket::{getsockopt, sockopt};

/// Puts the main thread of the QEMU at the other end of `socket` ahead of ordinary threads, while
/// its threads are all started: none of them inherits it.
///
/// Fails without CAP_SYS_NICE (or an RLIMIT_RTPRIO); the guest runs all the same, with timers
/// that are late under load.
pub fn put_first(socket: &UnixStream) -> nix::Result<()> {
    let qemu = getsockopt(socket, sockopt::PeerCredentials)?;
    // SAFETY: sched_param is plain data for which zero is valid.
    let mut param: nix::libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = 1;
    let policy = nix::libc::SCHED_FIFO | nix::libc::SCHED_RESET_ON_FORK;
    // SAFETY: `param` is valid for the call, which changes nothing of this process's.
    nix::errno::Errno::result(unsafe {
        nix::libc::sched_setscheduler(qemu.pid(), policy, &raw const param)
    })
    .map(drop)
}
