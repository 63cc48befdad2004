// SPDX-License-Identifier: GPL-2.0-only
//! The lab: a virtual machine with a sched_ext kernel over this machine's file system.

use std::process::ExitCode;

/// What to boot and what to run in it.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Command to run in the guest, as root.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Boots the lab and runs the command.
pub fn main(_options: &Options) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the lab is being built")
}
