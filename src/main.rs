// SPDX-License-Identifier: GPL-2.0-only
//! The `scx_gpuaware` program: hands the command line to the part that does the work.

use std::process::ExitCode;

use scx_gpuaware::cli::{self, Cli};

fn main() -> ExitCode {
    // From make. Here and not in the library: another revision compiles this file only.
    let revision = option_env!("GPUAWARE_REVISION").filter(|revision| !revision.is_empty());
    cli::main(Cli::read(std::env::args_os(), revision).unwrap_or_else(|error| error.exit()))
}
