// SPDX-License-Identifier: GPL-2.0-only
//! How the kernel schedules one thread: policy, nice, priority, and the slice that it asks EEVDF for.
//! `sched_setattr(2)`, for which neither libc nor the nix crate has a function.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use nix::libc;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// The slices that the kernel takes as they are; what is outside it moves to the nearer end.
pub const SLICE_US: RangeInclusive<u64> = 100..=100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    Other,
    Batch,
    Idle,
    Fifo,
    Rr,
}

/// What is to become of a thread; what is absent stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    pub policy: Option<Policy>,
    pub nice: Option<i32>,
    pub priority: Option<u32>,
    pub slice: Option<Duration>,
}

/// What the kernel says of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Absent: one that no arm sets, such as deadline.
    pub policy: Option<Policy>,
    pub nice: i32,
    pub priority: u32,
    /// Under EEVDF, from Linux 6.12 on.
    pub slice: Option<Duration>,
}

impl Policy {
    pub fn is_realtime(self) -> bool {
        matches!(self, Self::Fifo | Self::Rr)
    }

    fn number(self) -> libc::c_int {
        match self {
            Self::Other => libc::SCHED_OTHER,
            Self::Batch => libc::SCHED_BATCH,
            Self::Idle => libc::SCHED_IDLE,
            Self::Fifo => libc::SCHED_FIFO,
            Self::Rr => libc::SCHED_RR,
        }
    }

    fn of_number(number: u32) -> Option<Self> {
        let all = [Self::Other, Self::Batch, Self::Idle, Self::Fifo, Self::Rr];
        all.into_iter()
            .find(|policy| policy.number().cast_unsigned() == number)
    }
}

/// Changes a thread; 0: the calling one.
pub fn change(thread: Pid, change: Change) -> io::Result<()> {
    let mut attr = get(thread)?;
    if let Some(policy) = change.policy {
        attr.sched_policy = policy.number().cast_unsigned();
        // What the old policy had means nothing to the new one.
        (attr.sched_nice, attr.sched_priority, attr.sched_runtime) = (0, 0, 0);
    }
    attr.sched_nice = change.nice.unwrap_or(attr.sched_nice);
    attr.sched_priority = change.priority.unwrap_or(attr.sched_priority);
    attr.sched_runtime = match change.slice {
        Some(slice) => slice.as_nanos() as u64,
        None => attr.sched_runtime,
    };
    attr.sched_flags = 0;
    // SAFETY: the kernel reads `size` bytes from the pointer, which are there; nothing is kept of it.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setattr, thread.as_raw(), &raw const attr, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// How the kernel schedules a thread; 0: the calling one.
pub fn of(thread: Pid) -> io::Result<Attributes> {
    let attr = get(thread)?;
    let policy = Policy::of_number(attr.sched_policy);
    let fair = policy.is_some_and(|policy| !policy.is_realtime());
    let slice = Some(attr.sched_runtime).filter(|&ns| fair && ns > 0);
    Ok(Attributes {
        policy,
        nice: attr.sched_nice,
        priority: attr.sched_priority,
        slice: slice.map(Duration::from_nanos),
    })
}

fn get(thread: Pid) -> io::Result<libc::sched_attr> {
    const SIZE: u32 = size_of::<libc::sched_attr>() as u32;
    // SAFETY: all fields are integers, for which zero is a value.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most SIZE bytes to the pointer, which are there.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread.as_raw(),
            &raw mut attr,
            SIZE,
            0,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    attr.size = SIZE;
    Ok(attr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_becomes_what_it_is_told() {
        // In a thread of its own: what it becomes stays, and not everybody may take it back.
        let seen = std::thread::spawn(|| {
            let me = Pid::from_raw(0);
            let before = of(me).unwrap();
            let wanted = Change {
                policy: Some(Policy::Batch),
                nice: Some(before.nice + 1),
                ..Change::default()
            };
            change(me, wanted).unwrap();
            (before, of(me).unwrap())
        });
        let (before, now) = seen.join().unwrap();
        assert_eq!(before.policy, Some(Policy::Other));
        assert_eq!(
            (now.policy, now.nice),
            (Some(Policy::Batch), before.nice + 1)
        );
    }

    #[test]
    fn a_thread_that_is_not_there_is_an_error() {
        let error = of(Pid::from_raw(i32::MAX)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
