// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench exec`: becomes another program with a slice of its own under EEVDF. A prefix for arms, because
//! util-linux's chrt sets a slice in recent versions only.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use nix::unistd::Pid;

use crate::sched_attr::{self, Change, SLICE_US};

#[derive(Debug, Args)]
pub struct ExecOptions {
    /// How long it wants to run at a time, in microseconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(SLICE_US))]
    slice_us: u64,

    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Returns only with an error.
pub fn main(options: &ExecOptions) -> Result<()> {
    let change = Change {
        slice: Some(Duration::from_micros(options.slice_us)),
        ..Change::default()
    };
    sched_attr::change(Pid::from_raw(0), change).context("cannot set the slice")?;
    let [program, args @ ..] = &options.command[..] else {
        return Ok(());
    };
    let error = Command::new(program).args(args).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}
