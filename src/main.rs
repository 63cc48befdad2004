// SPDX-License-Identifier: GPL-2.0-only
//! The `scx_gpuaware` program: hands the command line to the part that does the work.

use std::process::ExitCode;

use scx_gpuaware::cli::{self, Cli};

fn main() -> ExitCode {
    cli::main(Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit()))
}
