// SPDX-License-Identifier: GPL-2.0-only
//! What programs say of themselves through a pinned map: `hints/gpuaware.h`, `hints/gpuaware.py`.

use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags};
use log::warn;

use crate::bpf::identify::IdentifySkel;

use super::marks::Pins;
use super::programs::run_iterator;
use super::rest::{Rest, cpu_time};

/// The hints that were taken so far.
#[derive(Debug, Default)]
pub struct Hints {
    calls_seen: u64,
    /// From going through all tasks: members of a group may hint in a loop.
    rest: Rest,
}

impl Hints {
    /// Takes new hints at `now`, if there are any and it is time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn follow(&mut self, now: Duration, skel: &IdentifySkel<'_>) -> Result<()> {
        if !self.rest.is_over(now) {
            return Ok(());
        }
        let calls = skel.maps.hint_calls.lookup(&[0; 4], MapFlags::ANY);
        let calls = calls.context("looking for hints")?;
        let calls = calls.and_then(|bytes| bytes.try_into().ok());
        let calls = calls.map_or(0, u64::from_ne_bytes);
        if calls == self.calls_seen {
            return Ok(());
        }
        let start = cpu_time();
        let taken = run_iterator(&skel.progs.take_hints);
        self.rest.begin(now, cpu_time().saturating_sub(start));
        if taken.is_ok() {
            self.calls_seen = calls;
        }
        taken
    }
}

/// Lets members of group `gid` hint; `None`: only root. Where somebody has removed the pins nobody is let in.
///
/// # Errors
/// The kernel refuses.
pub fn grant(pins: &Pins, gid: Option<u32>) -> Result<()> {
    let mode = if gid.is_some() { 0o660 } else { 0o600 };
    for pin in [pins.hints(), pins.hint_calls()] {
        let let_in = |pin: &Path| -> io::Result<()> {
            chown(pin, Some(0), Some(gid.unwrap_or(0)))?;
            std::fs::set_permissions(pin, std::fs::Permissions::from_mode(mode))
        };
        match let_in(&pin) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                warn!(
                    "{}: somebody has removed it: threads that have not opened it yet cannot give hints",
                    pin.display()
                );
                return Ok(());
            }
            done => done.with_context(|| format!("setting who may write to {}", pin.display()))?,
        }
    }
    Ok(())
}
