// SPDX-License-Identifier: GPL-2.0-only
//! Identification at work in a test, beside whatever the machine does.

use std::sync::RwLockWriteGuard;
use std::time::{Duration, Instant};

use scx_gpuaware::identify::Identify;
use scx_gpuaware::identify::marks::{Mark, Pins};

use crate::bpffs::Bpffs;
use crate::process::{NEVER, alone_with_cuda};
use crate::tier;

/// Where a test runs identification: alone with CUDA, pinning where nobody else does.
pub struct Place {
    bpffs: Bpffs,
    _alone: RwLockWriteGuard<'static, ()>,
}

impl Place {
    /// `None`: the tier cannot run here, and said so.
    pub fn new() -> Option<Self> {
        tier::root().then(|| Self {
            _alone: alone_with_cuda(),
            bpffs: Bpffs::mount(),
        })
    }

    pub fn pins(&self) -> Pins {
        Pins::at(&self.bpffs.pins())
    }
}

/// Runs `check` beside identification until it returns true.
pub fn identify_until(
    identify: &mut Identify<'_>,
    check: impl FnMut(&Identify<'_>) -> bool,
) -> bool {
    identify_within(identify, NEVER, check)
}

/// The same, at most for `limit`, where that is what the test judges.
pub fn identify_within(
    identify: &mut Identify<'_>,
    limit: Duration,
    mut check: impl FnMut(&Identify<'_>) -> bool,
) -> bool {
    let end = Instant::now() + limit;
    loop {
        // Also once after a pause that the machine made too long.
        let is_last = Instant::now() >= end;
        let wait = identify.step().expect("a step of identification");
        if check(identify) {
            return true;
        }
        if is_last {
            return false;
        }
        std::thread::sleep(wait.min(Duration::from_millis(20)));
    }
}

pub fn marks_of(pins: &Pins, pid: i32) -> Vec<Mark> {
    let marks = pins.list().expect("listing marks");
    marks.into_iter().filter(|mark| mark.tgid == pid).collect()
}
