// SPDX-License-Identifier: GPL-2.0-only
//! The command line: flags to checked values.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::compare::CompareOptions;
use crate::exec::ExecOptions;
use crate::folders::Folders;
use crate::plan::Where;
use crate::pool::PoolOptions;
use crate::results::ResultsOptions;
use crate::{lab, matrix};

/// Compare ways to protect a GPU launch thread from noisy neighbours.
#[derive(Debug, Parser)]
#[command(
    name = "gpuaware-bench",
    version,
    after_help = "\
Exit codes: 0 done; 1 a run or some of its cells failed, compare found something worse, or report --check\nsomething impossible; 2 bad usage, matrix or arm file."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Explain every matrix: what it compares, how often, and about how long it takes.
    List(Folders),
    /// Run a matrix and report it.
    Run(RunOptions),
    /// Report a run again from its raw cells: table, report.md, report.html, summary.json.
    Report {
        /// The folder of the run.
        dir: PathBuf,

        /// End with exit code 1 if the report's own checks find something.
        #[arg(long)]
        check: bool,
    },
    /// Keep a run in the repository: its report, pictures, facts, and all cells in one file. Not from a changed tree.
    Keep {
        /// The folder of the run.
        dir: PathBuf,

        /// The folder to make.
        #[arg(short, long, value_name = "DIR")]
        output: PathBuf,
    },
    /// Say what became better or worse from one run of a matrix to another; exit code 1: something worse.
    Compare(CompareOptions),
    /// Say what an arm costs on a quiet machine, from the quiet cells of many runs together.
    Pool(PoolOptions),
    /// Write docs/results.md and the generated part of README.md anew, from the runs of bench/runs/index.toml.
    Results(ResultsOptions),
    /// Run a command in a virtual machine with a sched_ext kernel.
    Lab(lab::Options),
    /// Run a program with a slice of its own: what an arm puts before the workload.
    #[command(hide = true)]
    Exec(ExecOptions),
    /// Wait for the end of stdin, then undo what the runner that died has left.
    #[command(hide = true)]
    Watchdog,
}

#[derive(Debug, Args)]
pub struct RunOptions {
    /// A matrix of `gpuaware-bench list`, or the path of a matrix file.
    #[arg(required_unless_present_any = ["resume", "inside"])]
    pub matrix: Option<String>,

    /// Go on with the run in this folder, as it was planned: finished cells stay, failed ones are repeated.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["matrix", "output", "rounds", "seconds", "arms", "neighbours", "seed", "on", "kernel", "cpus"])]
    pub resume: Option<PathBuf>,

    /// With --resume: go on although the machine or the programs are others than at the start.
    #[arg(long, requires = "resume")]
    pub force: bool,

    /// Folder for raw results and reports [default: bench/runs/local/MATRIX-TIME].
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Rounds, instead of the matrix's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,

    /// Seconds measured in every cell, instead of the matrix's.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,

    /// Only these arms, and the baseline.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub arms: Vec<String>,

    /// Only these neighbours, and none.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub neighbours: Vec<String>,

    /// Seed of the order of the cells [default: the time].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Where the cells run.
    #[arg(long, value_enum, default_value_t = Where::Lab)]
    pub on: Where,

    /// The lab's kernel, instead of the matrix's.
    #[arg(long, value_name = "SERIES|PATH")]
    pub kernel: Option<String>,

    /// CPUs of the lab or of the simulated machine, instead of the matrix's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub cpus: Option<u32>,

    /// With --on sim: the machine, CPUS[xLLCS[xNODES[xTHREADS[xGPUS]]]] or the name of a file in tests/data/sysfs
    /// [default: --cpus or 2, with one cache].
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    pub machine: Option<String>,

    /// With --on host: what fio writes to, a file or a block device; WHAT IS IN IT IS LOST [default: a file in the
    /// output folder, of the matrix's disk_mib, removed at the end].
    #[arg(long, value_name = "PATH")]
    pub disk: Option<PathBuf>,

    /// Say what would be run and about how long it takes, and run nothing.
    #[arg(long, conflicts_with_all = ["resume", "output"])]
    pub dry_run: bool,

    #[command(flatten)]
    pub folders: Folders,

    /// Run one block of the plan in the output folder: what the lab's guest is told to do.
    #[arg(long, value_name = "BLOCK", hide = true)]
    pub inside: Option<usize>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .map_err(|_| format!("expected seconds, got {text:?}"))?;
    matrix::check_seconds(value)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn reads_lists_and_bounds() {
        let cli =
            Cli::try_parse_from(["b", "run", "demo", "--arms", "a,b", "--seconds", "2.5"]).unwrap();
        let Command::Run(options) = cli.command else {
            panic!("not run")
        };
        assert_eq!(options.arms, ["a", "b"]);
        assert_eq!(options.seconds, Some(2.5));
        assert!(Cli::try_parse_from(["b", "exec", "--slice-us", "100", "--", "true"]).is_ok());
        assert!(Cli::try_parse_from(["b", "exec", "--slice-us", "99", "--", "true"]).is_err());
        assert!(Cli::try_parse_from(["b", "run"]).is_err());
        assert!(Cli::try_parse_from(["b", "run", "--resume", "d"]).is_ok());
        assert!(Cli::try_parse_from(["b", "run", "--resume", "d", "--rounds", "3"]).is_err());
        assert!(Cli::try_parse_from(["b", "run", "demo", "--rounds", "0"]).is_err());
        assert!(Cli::try_parse_from(["b", "run", "demo", "--seconds", "nan"]).is_err());
    }
}
