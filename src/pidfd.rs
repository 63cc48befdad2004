// SPDX-License-Identifier: GPL-2.0-only
//! File descriptors that stand for a process or a thread.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Of process `pid`; readable once it has ended, see [`has_ended`]. Linux 5.3 or newer.
///
/// # Errors
/// No such process (ESRCH), a thread of another process (EINVAL or ENOENT), an older kernel (ENOSYS).
pub fn of_process(pid: i32) -> io::Result<OwnedFd> {
    open(pid, 0)
}

/// Of process `pid`, which a user has named.
///
/// # Errors
/// There is none, it has ended, or it is no process but a thread of one.
pub fn of_running(pid: i32) -> Result<OwnedFd> {
    match of_process(pid) {
        Ok(process) if has_ended(&process) => {
            bail!("process {pid} has ended, though its parent has not waited for it yet")
        }
        Ok(process) => Ok(process),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOENT) if Path::new(&format!("/proc/{pid}")).exists() => {
                bail!("{pid} is a thread: expected the PID of its process")
            }
            // EINVAL before Linux 6.15: its process group or session goes on without it.
            Some(libc::ESRCH | libc::EINVAL | libc::ENOENT) => bail!("no process with PID {pid}"),
            _ => Err(error).with_context(|| format!("pidfd_open of process {pid}")),
        },
    }
}

/// Of thread `tid`.
///
/// # Errors
/// No such thread (ESRCH), a kernel before 6.9 (EINVAL).
pub fn of_thread(tid: i32) -> io::Result<OwnedFd> {
    // PIDFD_THREAD
    open(tid, libc::O_EXCL)
}

/// Has the process ended, with all its threads? Its folder in `/proc` stays until its parent has waited for it, and
/// its first thread may end before the others.
pub fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_nobody_has_waited_for_has_ended_all_the_same() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = of_process(child.id().cast_signed()).unwrap();
        assert!(!has_ended(&process));
        drop(child.stdin.take());
        while !has_ended(&process) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let folder = format!("/proc/{}", child.id());
        assert!(std::path::Path::new(&folder).exists(), "a zombie");
        child.wait().unwrap();
        assert!(of_process(child.id().cast_signed()).is_err());
    }

    #[test]
    fn a_thread_is_no_process() {
        let tid = std::thread::spawn(|| {
            let tid = nix::unistd::gettid();
            of_process(tid.as_raw()).map_err(|error| error.raw_os_error())
        });
        let error = tid.join().unwrap().unwrap_err();
        assert!(
            matches!(error, Some(libc::EINVAL | libc::ENOENT)),
            "{error:?}"
        );
    }
}
