// SPDX-License-Identifier: GPL-2.0-only
//! What all programs of neighbours have in common: how they are started, and what they say of themselves.

use std::process::Command;

use anyhow::Result;

use crate::cgroup::Cgroup;
use crate::process::Supervised;

/// Starts a program of a neighbour in the cgroup that it is confined to, if it is.
pub fn spawn(name: &str, command: &mut Command, cgroup: Option<&Cgroup>) -> Result<Supervised> {
    if let Some(cgroup) = cgroup {
        cgroup.take(command)?;
    }
    Supervised::spawn(name, command)
}

/// What a program reports of itself when it has ended: how much it did, and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Own {
    pub total: f64,
    pub seconds: f64,
}
