// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench`: boots the lab, runs comparisons, reports them.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod lab;

/// Compare ways to protect a GPU launch thread from noisy neighbours.
#[derive(Debug, Parser)]
#[command(name = "gpuaware-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command in a virtual machine with a sched_ext kernel.
    Lab(lab::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Lab(options) => lab::main(&options),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("gpuaware-bench: error: {error:#}");
            ExitCode::from(1)
        }
    }
}
