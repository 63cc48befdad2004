// SPDX-License-Identifier: GPL-2.0-only
//! Folders that one process works in at a time. The kernel gives a claim up however the process ends.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::datafile::DataError;

/// The folder is this process's while this lives.
pub type Claim = Flock<File>;

/// Claims `folder`. `taken` is what to say if somebody else has it: what was expected, and the way out.
///
/// # Errors
/// Somebody else has it, or it cannot be opened.
pub fn claim(folder: &Path, taken: &str) -> Result<Claim> {
    let shown = folder.display();
    let file = File::open(folder).with_context(|| format!("cannot open {shown}"))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(claim) => Ok(claim),
        Err((_, Errno::EWOULDBLOCK)) => Err(DataError::Usage(format!("{shown}: {taken}")).into()),
        Err((_, errno)) => Err(errno).with_context(|| format!("cannot lock {shown}")),
    }
}
