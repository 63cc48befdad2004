// SPDX-License-Identifier: GPL-2.0-only
//! File descriptors that stand for a process or a thread.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::libc;

/// Of process `pid`; readable once it has ended. Linux 5.3 or newer.
///
/// # Errors
/// No such process (ESRCH), an older kernel (ENOSYS).
pub fn of_process(pid: i32) -> io::Result<OwnedFd> {
    open(pid, 0)
}

/// Of thread `tid`.
///
/// # Errors
/// No such thread (ESRCH), a kernel before 6.9 (EINVAL).
pub fn of_thread(tid: i32) -> io::Result<OwnedFd> {
    // PIDFD_THREAD
    open(tid, libc::O_EXCL)
}

fn open(id: i32, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the system call takes two numbers and touches no memory of this process.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, flags) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for this process, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
