// SPDX-License-Identifier: GPL-2.0-only
//! A core of this machine for each CPU of the guest.
//!
//! An idle vCPU sleeps, and this machine's scheduler likes to wake it beside who woke it, another
//! vCPU that goes on running. It then waits for up to a slice while the core that it had is idle:
//! the guest sees a wakeup of an idle CPU that takes 4 ms. On a core of its own it runs at once.

use std::fs;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Pid;

use crate::cpus;

/// Pins the vCPUs of the QEMU at the other end of `socket` to the cores that it may use, one each. Does nothing where there
/// are not as many of the one as of the other: with fewer cores two vCPUs must be able to change places.
///
/// # Errors
/// The threads cannot be read or the kernel refuses; the guest runs all the same.
pub fn pin(socket: &UnixStream) -> Result<()> {
    let qemu = getsockopt(socket, sockopt::PeerCredentials)?.pid();
    let cores = cpus::allowed(Pid::from_raw(qemu))?;
    let vcpus = vcpus_of(qemu)?;
    if vcpus.len() != cores.len() {
        return Ok(());
    }
    for ((_, thread), core) in vcpus.into_iter().zip(cores) {
        cpus::allow(thread, &[core])?;
    }
    Ok(())
}

/// Number and thread of each vCPU, in order.
fn vcpus_of(qemu: i32) -> Result<Vec<(usize, Pid)>> {
    let folder = format!("/proc/{qemu}/task");
    let mut found = Vec::new();
    for task in fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))? {
        let task = task?;
        // One that has ended meanwhile is no vCPU.
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let thread = task.file_name().to_string_lossy().parse();
        if let (Some(number), Ok(thread)) = (vcpu_number(&name), thread) {
            found.push((number, Pid::from_raw(thread)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// QEMU calls its threads so where `-name` has `debug-threads=on`.
fn vcpu_number(name: &str) -> Option<usize> {
    let (number, _accelerator) = name.strip_prefix("CPU ")?.split_once('/')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_vcpus_by_their_names() {
        assert_eq!(vcpu_number("CPU 0/TCG\n"), Some(0));
        assert_eq!(vcpu_number("CPU 11/KVM\n"), Some(11));
        for other in [
            "qemu-system-x86\n",
            "CPU x/TCG\n",
            "CPU 1\n",
            "IO mon_iothread\n",
            "",
        ] {
            assert_eq!(vcpu_number(other), None, "{other:?}");
        }
    }
}
