// SPDX-License-Identifier: GPL-2.0-only
//! The `scx_gpuaware` program: hands the command line to the part that does the work.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    scx_gpuaware::cli::main(scx_gpuaware::cli::Cli::parse())
}
