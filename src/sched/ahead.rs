// SPDX-License-Identifier: GPL-2.0-only
//! The loading thread, ahead of ordinary ones while the kernel takes the scheduler.
//!
//! The kernel moves every task to the new scheduler's class one by one, the caller among them, and that
//! class comes after the one that the others are still in: where those leave no CPU idle, the caller is
//! never run again and the machine hangs (seen on 6.18 with one CPU and a busy loop). Real-time threads are
//! not moved.

use nix::errno::Errno;
use nix::libc;

/// The calling thread is SCHED_FIFO while this lives.
pub struct Ahead(());

impl Ahead {
    /// Fails without CAP_SYS_NICE, or where real-time threads get no time (`cpu.rt_runtime_us`).
    pub fn start() -> nix::Result<Self> {
        set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)?;
        Ok(Self(()))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Err(error) = set_policy(libc::SCHED_OTHER, 0) {
            log::warn!("the loading thread stays SCHED_FIFO: {error}");
        }
    }
}

/// Leaves the nice value as it is.
fn set_policy(policy: libc::c_int, priority: libc::c_int) -> nix::Result<()> {
    // SAFETY: sched_param is plain data for which zero is valid.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: `param` is valid for the call, which is about the calling thread.
    Errno::result(unsafe { libc::sched_setscheduler(0, policy, &raw const param) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_as_an_ordinary_thread() {
        // SAFETY: reads the calling thread's policy.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        if let Ok(ahead) = Ahead::start() {
            assert_ne!(policy(), before);
            drop(ahead);
        }
        assert_eq!(policy(), before);
    }
}
