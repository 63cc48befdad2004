// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench`: boots the lab, runs comparisons, reports them.

use std::process::ExitCode;

use cli::{Cli, Command};

// First: the others print.
#[macro_use]
mod print;

mod arm;
mod bpf;
mod cgroup;
mod claim;
mod cli;
mod compare;
mod cpus;
mod datafile;
mod exec;
mod folders;
mod interrupt;
mod keep;
mod kernel_release;
mod lab;
mod list;
mod load;
mod matrix;
mod need;
mod neighbour;
mod plan;
mod pool;
mod process;
mod procstat;
mod program;
mod record;
mod replace;
mod replay;
mod report;
mod results;
mod run;
mod sched_attr;
mod simulator;
mod study;
mod tracer;
mod tune;
mod watchdog;
mod words;
mod workload;

/// The program: what the command line asks for, to its exit code. The git revision is for `--version`.
pub fn main(revision: Option<&str>) -> ExitCode {
    let asked = Cli::read(std::env::args_os(), revision).unwrap_or_else(|error| error.exit());
    let result = match asked.command {
        Command::List(folders) => list::main(&folders).map(|()| ExitCode::SUCCESS),
        Command::Run(options) => {
            run::main(&options).and_then(|done| done.map_or(Ok(ExitCode::SUCCESS), report_on))
        }
        Command::Tune(options) => tune::main(&options),
        Command::Report { dir, check } => {
            report::write(&dir, true).map(|passed| ExitCode::from(u8::from(check && !passed)))
        }
        Command::Keep {
            dir,
            output,
            latencies,
        } => keep::keep(&dir, &output, latencies.map(|most| most as usize))
            .map(|()| ExitCode::SUCCESS),
        Command::Compare(options) => compare::main(&options),
        Command::Replay(options) => replay::main(&options).map(|()| ExitCode::SUCCESS),
        Command::Pool(options) => pool::main(&options).map(|()| ExitCode::SUCCESS),
        Command::Results(options) => results::main(&options).map(|()| ExitCode::SUCCESS),
        Command::Lab(options) => lab::main(&options),
        Command::Exec(options) => exec::main(&options).map(|()| ExitCode::SUCCESS),
        Command::Watchdog => watchdog::main().map(|()| ExitCode::SUCCESS),
    };
    let code = result.unwrap_or_else(|error| {
        eprintln!("gpuaware-bench: error: {error:#}");
        // A data file or a name that the user gave is bad usage; all else failed while running.
        let usage = error.downcast_ref::<datafile::DataError>().is_some();
        ExitCode::from(if usage { 2 } else { 1 })
    });
    print::problem().map_or(code, |error| {
        eprintln!("gpuaware-bench: error: writing to standard output: {error}");
        ExitCode::from(1)
    })
}

/// What a run found; a run that is not complete failed.
fn report_on(done: run::Done) -> anyhow::Result<ExitCode> {
    report::write(&done.folder, true)?;
    Ok(ExitCode::from(u8::from(!done.complete)))
}

/// Has `text` read as all that other programs print and write; for the fuzzer in `bench/fuzz`.
pub fn read_outputs(text: &str) {
    neighbour::read_outputs(text);
    workload::read_outputs(text);
    let _ = cpus::parse_list(text);
}
