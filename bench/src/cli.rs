// SPDX-License-Identifier: GPL-2.0-only
//! The command line: flags to checked values.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::compare::CompareOptions;
use crate::exec::ExecOptions;
use crate::folders::Folders;
use crate::plan::Where;
use crate::pool::PoolOptions;
use crate::replay::ReplayOptions;
use crate::results::ResultsOptions;
use crate::tune::goal::{self, Latency, On, Prefer, share};
use crate::{cpus, kernel_release, lab, matrix};

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

impl Cli {
    /// Reads a command line, the program's name first.
    ///
    /// # Errors
    /// clap's, which also prints help and the version: [`clap::Error::exit`].
    pub fn read(
        args: impl IntoIterator<Item = OsString>,
        revision: Option<&str>,
    ) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        if let Some(revision) = revision.filter(|revision| !revision.is_empty()) {
            // clap keeps it for as long as the program runs.
            let version = format!("{} ({revision})", env!("CARGO_PKG_VERSION")).leak();
            command = command.version(&*version);
        }
        Self::from_arg_matches_mut(&mut command.try_get_matches_from(args)?)
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Explain every matrix: what it compares, how often, and about how long it takes.
    List(Folders),
    /// Run a matrix and report it.
    Run(RunOptions),
    /// Find the policy for a workload on a machine, prove it beside the default, and write it with the evidence.
    Tune(TuneOptions),
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

        /// At most so many latencies of requests a cell, chosen by a hash. A p99 needs 459.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(459..))]
        latencies: Option<u32>,
    },
    /// Say what became better or worse from one run of a matrix to another; exit code 1: something worse.
    Compare(CompareOptions),
    /// Say what an arm costs on a quiet machine, from the quiet cells of many runs together.
    Pool(PoolOptions),
    /// Write docs/results.md and the generated part of README.md anew, from the runs of bench/runs/index.toml.
    Results(ResultsOptions),
    /// Try policies on a host that scx_gpuaware trace --record-profile has recorded, in the simulator.
    Replay(ReplayOptions),
    /// Run a command in a virtual machine with a sched_ext kernel.
    Lab(lab::Options),
    /// Run a program with a slice of its own: what an arm puts before the workload.
    #[command(hide = true)]
    Exec(ExecOptions),
    /// Wait for the end of stdin, then undo what the runner that died has left.
    #[command(hide = true)]
    Watchdog,
}

#[derive(Debug, Default, Args)]
pub struct RunOptions {
    /// A matrix of `gpuaware-bench list`, or the path of a matrix file.
    #[arg(required_unless_present_any = ["resume", "inside"])]
    pub matrix: Option<String>,

    /// Go on with the run in this folder, as it was planned: finished cells stay, failed ones are repeated.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["matrix", "output", "rounds", "seconds", "arms", "neighbours", "seed", "on", "kernel", "cpus", "preferred"])]
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
    #[arg(long, value_name = "SERIES|PATH", value_parser = kernel_release::named)]
    pub kernel: Option<String>,

    /// CPUs of the lab or of the simulated machine, instead of the matrix's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub cpus: Option<u32>,

    /// The launcher's CPUs, instead of the matrix's: a list, or auto, the last quarter; on a host as many as that has,
    /// which `scx_gpuaware topology` would choose.
    #[arg(long, value_name = "LIST|auto", value_parser = cpus::list_or_auto)]
    pub preferred: Option<String>,

    /// With --on sim: the machine, CPUS[xLLCS[xNODES[xTHREADS[xGPUS]]]] or the name of a file in tests/data/sysfs
    /// [default: that of the matrix's recording, else --cpus or 2, with one cache].
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    pub machine: Option<String>,

    /// With --on sim: callbacks cost what their own code takes on a CPU that is not emulated, as they always do for a
    /// recording [default: what they take in the lab].
    #[arg(long, conflicts_with = "resume")]
    pub native: bool,

    /// With --on host: what fio writes to, a file or a block device; WHAT IS IN IT IS LOST [default: a file in the
    /// output folder, of the matrix's disk_mib, removed at the end].
    #[arg(long, value_name = "PATH")]
    pub disk: Option<PathBuf>,

    /// Say what would be run and about how long it takes, with --on host each command too, and run nothing.
    #[arg(long, conflicts_with_all = ["resume", "output"])]
    pub dry_run: bool,

    #[command(flatten)]
    pub folders: Folders,

    /// Run one block of the plan in the output folder: what the lab's guest is told to do.
    #[arg(long, value_name = "BLOCK", hide = true)]
    pub inside: Option<usize>,
}

impl RunOptions {
    /// A run of a matrix file into a folder.
    pub fn of_file(matrix: &Path, output: PathBuf, on: Where, folders: Folders) -> Self {
        Self {
            matrix: Some(matrix.to_string_lossy().into_owned()),
            output: Some(output),
            on,
            folders,
            ..Self::default()
        }
    }

    /// What is left of the run in a folder.
    pub fn rest_of(folder: PathBuf, force: bool, folders: Folders) -> Self {
        Self {
            resume: Some(folder),
            force,
            folders,
            ..Self::default()
        }
    }
}

#[derive(Debug, Args)]
pub struct TuneOptions {
    /// What is tuned for: a workload of a matrix, NAME or MATRIX/NAME, such as qwen3, eager, chat, seed-windflow/wc-1
    /// [NAME alone: demo's before the others'].
    #[arg(long, required_unless_present_any = ["recording", "resume", "attach"])]
    pub workload: Option<String>,

    /// Instead: a host that was recorded, in the simulator. What `scx_gpuaware trace --record-profile` has written.
    /// Beside a workload: what the simulator sifts with, before anything is tried for real.
    #[arg(long, value_name = "FILE")]
    pub recording: Option<PathBuf>,

    /// What runs beside it; quiet cells are measured besides. With --attach: live, whatever runs there
    /// [default: heavy].
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub neighbours: Vec<String>,

    /// About how long it may take, all together: 90s, 30m, 2h.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = goal::duration)]
    pub budget: Duration,

    /// What is worth more. It may cost up to 10 % of the other; without this nothing may become worse.
    #[arg(long, value_enum)]
    pub prefer: Option<Prefer>,

    /// Where candidates are tried [with --recording alone: sim].
    #[arg(
        long,
        value_enum,
        default_value_t,
        default_value_ifs([
            ("workload", ArgPredicate::IsPresent, "lab"),
            ("recording", ArgPredicate::IsPresent, "sim"),
        ])
    )]
    pub on: On,

    /// The lab's CPUs, instead of the matrix's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub cpus: Option<u32>,

    /// With --on sim: the machine that is tuned for, CPUS[xLLCS[xNODES[xTHREADS[xGPUS]]]] or the name of a file in
    /// tests/data/sysfs [with --recording: the recorded one].
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// A policy of your own to try, with pins for example; repeatable. It is tried before all others.
    #[arg(long, value_name = "FILE")]
    pub candidate: Vec<PathBuf>,

    /// Say in at most ten lines why.
    #[arg(long)]
    pub explain: bool,

    /// Folder for everything: policy.toml, report.md, report.html, the runs [default: bench/runs/local/tune-TIME].
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Go on with the tuning in this folder, as it was planned: what is measured stays.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["workload", "recording", "neighbours", "budget", "prefer", "on", "cpus", "machine", "candidate", "output"])]
    pub resume: Option<PathBuf>,

    /// With --resume: go on although the machine or the programs are others than at the start.
    #[arg(long, requires = "resume", conflicts_with = "attach")]
    pub force: bool,

    #[command(flatten)]
    pub live: LiveOptions,

    #[command(flatten)]
    pub folders: Folders,
}

/// Tuning beside production.
#[derive(Debug, Args)]
pub struct LiveOptions {
    /// Tune beside this process, the production workload, under the scheduler that runs. The old policy is in force
    /// again at the end, whatever ends it; nothing is installed. With --resume: go on beside this one.
    #[arg(long, value_name = "PID", conflicts_with_all = ["workload", "recording", "prefer", "on", "cpus", "machine", "explain"])]
    pub attach: Option<u32>,

    /// With --attach: the policy file that the scheduler runs with.
    #[arg(
        long,
        value_name = "FILE",
        requires = "attach",
        conflicts_with = "resume"
    )]
    pub policy: Option<PathBuf>,

    /// With --attach: prints what the workload's users see as a number, such as a latency: less is better. Asked ten
    /// times a second at most.
    #[arg(
        long,
        value_name = "COMMAND",
        requires = "attach",
        group = "slo",
        conflicts_with = "resume"
    )]
    pub slo_command: Option<String>,

    /// With --attach: that number is a latency of this OpenAI endpoint, the median of short requests of the tuning's
    /// own, five a second.
    #[arg(
        long,
        value_name = "URL",
        requires = "attach",
        group = "slo",
        conflicts_with = "resume"
    )]
    pub url: Option<String>,

    /// With --url: which one.
    #[arg(long, value_enum, default_value_t, requires = "url")]
    pub latency: Latency,

    /// With --attach: that number is what a Prometheus server, http://HOST:PORT, answers to --slo-query.
    #[arg(
        long,
        value_name = "URL",
        requires = "slo_query",
        group = "slo",
        conflicts_with = "resume"
    )]
    pub slo_prometheus: Option<String>,

    /// With --slo-prometheus: a query with one number as its answer.
    #[arg(long, value_name = "PROMQL", requires = "slo_prometheus")]
    pub slo_query: Option<String>,

    /// With --attach: a candidate is given up when that number is worse by more than this…
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share, conflicts_with = "resume")]
    pub slo_worse: f64,

    /// …for as long as this.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = goal::duration, conflicts_with = "resume")]
    pub slo_for: Duration,

    /// With --attach: where the scheduler's statistics are.
    #[arg(
        long,
        value_name = "SOCKET",
        default_value = "/var/run/scx/root/stats",
        conflicts_with = "resume"
    )]
    pub stats_socket: PathBuf,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .map_err(|_| format!("expected seconds, got {text:?}"))?;
    matrix::check_seconds(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_version_names_the_revision() {
        let said = |revision| {
            let args = ["gpuaware-bench", "--version"].map(OsString::from);
            Cli::read(args, revision).unwrap_err().to_string()
        };
        let plain = concat!("gpuaware-bench ", env!("CARGO_PKG_VERSION"));
        assert_eq!(said(Some("0123abc")), format!("{plain} (0123abc)\n"));
        assert_eq!(said(Some("")), format!("{plain}\n"));
        assert_eq!(said(None), format!("{plain}\n"));
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
        assert!(Cli::try_parse_from(["b", "run", "demo", "--kernel", "v6.12"]).is_err());
        assert!(Cli::try_parse_from(["b", "run", "demo", "--kernel", "./vmlinuz"]).is_ok());
    }
}
