// SPDX-License-Identifier: GPL-2.0-only
//! Flags and commands.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use gpuaware_sim::native::Scheduler;
use gpuaware_sim::scenario::Workload;
use gpuaware_sim::shrink::Parts;

/// Runs scx_gpuaware's own BPF source in a model of the kernel, on machines that nobody has at hand.
#[derive(Parser)]
#[command(version)]
pub struct Cli {
    /// Compile scx_gpuaware from this folder, another checkout's bpf/, in place of the one that was built in
    #[arg(long, global = true, value_name = "DIR")]
    pub bpf: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Runs a workload on a machine and prints what came of it
    Run(Run),
    /// Runs random scenarios and looks at what must hold; prints the seeds of those where it does not, and what the first
    /// of them needs to fail
    Check(Check),
    /// Runs launchers beside neighbours under each scheduler, and sets side by side what everybody got done
    Compare(Compare),
    /// Counts what a scheduling decision of scx_gpuaware costs on machines of 8 to 512 CPUs, and names what grows
    Costs(Costs),
    /// Runs a cell that gpuaware-bench describes as JSON on stdin, and prints its measurement as JSON
    Cell,
    /// Runs situations that a test describes as JSON on stdin, and prints each call of a callback: its name, when it was
    /// in microseconds, the CPU, the task or -1, and the flags
    Callbacks,
    /// Runs a recorded profile that gpuaware-bench describes as JSON on stdin, and prints what came of it as JSON
    Profile,
    /// Prints what a machine is, as JSON
    Machine {
        /// CPUS[xLLCS[xNODES[xTHREADS[xGPUS]]]], or a file that tests/data/sysfs/record.sh or scx_gpuaware trace
        /// --record-profile has written
        machine: String,
    },
    /// Writes a machine's files of sysfs below a folder, for scx_gpuaware topology --sysfs to choose CPUs there
    Sysfs {
        /// As for `machine`
        machine: String,
        /// New: nothing is written over
        folder: PathBuf,
    },
    /// Repeats the random scenario of a seed, the same to the last event, also on a timeline
    Replay {
        /// Seed, as `check` prints it
        seed: u64,
        #[command(flatten)]
        also: Also,
        /// Print each task and cgroup first, and at the end the last events before a failure
        #[arg(long)]
        verbose: bool,
        /// Only these parts of it, as `shrink` prints them: tasks, then changes, real-time tasks and interrupts
        #[arg(long, value_name = "LIST")]
        parts: Option<Parts>,
        #[command(flatten)]
        timeline: Timeline,
    },
    /// Leaves out of a scenario that fails what the failure does not need, and prints how to replay the rest
    Shrink {
        /// Seed, as `check` prints it
        seed: u64,
        #[command(flatten)]
        also: Also,
    },
}

#[derive(Args)]
pub struct Run {
    /// What runs
    #[arg(value_enum, default_value = "noisy")]
    pub workload: Workload,
    /// In place of these: what scx_gpuaware trace --record-profile has recorded of a host
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    pub profile: Option<PathBuf>,
    /// CPUS[xLLCS[xNODES[xTHREADS[xGPUS]]]], or a file that tests/data/sysfs/record.sh or scx_gpuaware trace
    /// --record-profile has written
    /// [default: the profile's, else 8x2x1x2]
    #[arg(long)]
    pub machine: Option<String>,
    /// Bind each launcher to the node of its GPU
    #[arg(long)]
    pub bind: bool,
    /// Scheduler
    #[arg(long, value_enum, default_value = "gpuaware")]
    pub scheduler: Scheduler,
    /// In place of these: the BPF source of another project's scheduler, in a checkout of its own
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scheduler", "bpf"])]
    pub peer: Option<PathBuf>,
    /// Length, in simulated seconds
    #[arg(long, value_name = "SEC", default_value_t = 1.0)]
    pub seconds: f64,
    /// Seed of what varies: how long tasks run and sleep
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Ticks a second: 250 or 1000, say [default: the profile's, else 250]
    #[arg(long)]
    pub hz: Option<NonZero<u64>>,
    /// Callbacks of other CPUs come in between, at kfuncs, helpers and atomic operations
    #[arg(long)]
    pub interleave: bool,
    #[command(flatten)]
    pub timeline: Timeline,
}

impl Run {
    pub fn scheduler(&self) -> Scheduler {
        match self.peer {
            Some(_) => Scheduler::Peer,
            None => self.scheduler,
        }
    }
}

#[derive(Args, Default)]
pub struct Timeline {
    /// Write who ran, waited and slept when, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub perfetto: Option<PathBuf>,
}

#[derive(Args)]
pub struct Check {
    /// Number of scenarios
    #[arg(default_value_t = 1000)]
    pub count: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    pub from: u64,
    #[command(flatten)]
    pub also: Also,
}

/// What random scenarios have besides tasks.
#[derive(Args, Clone, Copy)]
pub struct Also {
    /// With real-time and deadline tasks that take CPUs
    #[arg(long)]
    pub real_time: bool,
    /// With changes of nice values, marks, cgroups, limits, affinities and policies while tasks run
    #[arg(long)]
    pub changes: bool,
    /// With callbacks of other CPUs within callbacks, at kfuncs, helpers and atomic operations
    #[arg(long)]
    pub interleave: bool,
    /// With core scheduling: a CPU takes another task that waits there than the scheduler's choice
    #[arg(long)]
    pub cookies: bool,
    /// With pairs that are threads of a process, and launchers among them
    #[arg(long)]
    pub threads: bool,
    /// With interrupts that take time of some CPUs, and ksoftirqd there
    #[arg(long)]
    pub interrupts: bool,
    /// With CPUs that are lent by who waits by sched_yield()
    #[arg(long)]
    pub yields: bool,
}

#[derive(Args)]
pub struct Compare {
    /// CPUS[xLLCS[xNODES[xTHREADS[xGPUS]]]], or a file that tests/data/sysfs/record.sh or scx_gpuaware trace
    /// --record-profile has written
    #[arg(long, default_value = "128x16x2x2x8")]
    pub machine: String,
    /// Beside these: the BPF source of another project's scheduler, in a checkout of its own
    #[arg(long, value_name = "FILE")]
    pub peer: Vec<PathBuf>,
    /// Length of each run, in simulated seconds
    #[arg(long, value_name = "SEC", default_value_t = 1.0)]
    pub seconds: f64,
    /// Seed of what varies: how long tasks run and sleep
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args)]
pub struct Costs {
    /// Nanoseconds of this host in place of basic blocks, the least of fifteen runs: nothing else should run
    #[arg(long)]
    pub ns: bool,
    /// CPUs that share a last-level cache
    #[arg(long, default_value_t = 8)]
    pub per_llc: usize,
    /// Length, in simulated milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    pub ms: u64,
}
