// SPDX-License-Identifier: GPL-2.0-only
//! What a command prints, what it says beside it, and how it fails.

use std::io::{self, Write};

use anyhow::{Context, Result};

/// An error with its exit code.
pub enum Failure {
    /// Bad usage, policy or input: 2.
    Input(anyhow::Error),
    /// Everything else: 1.
    Runtime(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Runtime(error)
    }
}

/// Prints what was asked for. Where nobody reads it any more, what remains to be done is done, and its exit code
/// counts.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing to standard output"),
    }
}

/// Says something beside it, whether anybody listens or not: `eprint!` panics then.
pub fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
