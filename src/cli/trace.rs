// SPDX-License-Identifier: GPL-2.0-only
//! `trace`.

use std::ffi::OsString;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use gpuaware_trace::export::{self, Format, Sink};
use gpuaware_trace::outcome::Outcome;
use gpuaware_trace::schema::{Header, Launches};
use gpuaware_trace::summary;

use crate::namespaces;
use crate::sched;
use crate::shutdown::Shutdown;
use crate::trace::session::{self, Plan};
use crate::trace::target::{Target, find_cgroup};
use crate::unread::{self, Unread};

use super::output::{Failure, say};
use super::overwritten::Overwritten;
use super::record;
use super::seconds::seconds;

/// What to trace and how.
#[derive(Debug, Args)]
pub struct Trace {
    /// Write here instead of to standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// text and json: a summary, cheap. The others: every event.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    format: Output,
    /// Trace this process and what it starts, until it ends; may be repeated.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Vec<i32>,
    /// Trace this cgroup and those below it: its folder, or its path below the hierarchy.
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    cgroup: Option<PathBuf>,
    /// Record all threads of this host for the simulator, without names, into this file: see docs/tracing.md.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "format", "pid", "cgroup", "all_launches", "max_size", "buffer", "command"])]
    record_profile: Option<PathBuf>,
    /// Record every launch, not only those in windows. Costs microseconds a launch.
    #[arg(long)]
    all_launches: bool,
    /// Length of a window in which launches are recorded, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60_000), conflicts_with = "all_launches")]
    window_ms: u64,
    /// One such window in each period of this length, at a random place in it, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=3_600_000), conflicts_with = "all_launches")]
    every_ms: u64,
    /// End after SEC seconds.
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    duration: Option<Duration>,
    /// End when the file has this size, such as 500M [default: no limit].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// Size of the buffer between kernel and file, rounded up to a power of 2.
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = size)]
    buffer: u64,
    /// Start this and trace it; without it and without a target: every process that launches.
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["pid", "cgroup"])]
    command: Vec<OsString>,
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A summary for people.
    Text,
    /// A summary as JSON.
    Json,
    /// Events, our CSV.
    Csv,
    /// Events, one JSON object a line.
    Ndjson,
    /// Events, for ui.perfetto.dev.
    Perfetto,
    /// Events, the CSV of cuda_sched_trace; with --all-launches only.
    LegacyCsv,
}

impl Output {
    /// The format of events, if it is one.
    fn events(self) -> Option<Format> {
        match self {
            Self::Text | Self::Json => None,
            Self::Csv => Some(Format::Csv),
            Self::Ndjson => Some(Format::Ndjson),
            Self::Perfetto => Some(Format::Perfetto),
            Self::LegacyCsv => Some(Format::LegacyCsv),
        }
    }
}

/// Traces and writes what came of it.
pub fn run(args: &Trace) -> Result<(), Failure> {
    let plan = plan(args).map_err(Failure::Input)?;
    if let Some(path) = &args.record_profile {
        return record::run(path, &plan);
    }
    let shutdown = Shutdown::watch(|| {})?;
    // Before tracing: a file that cannot be written is no news for the end.
    let out = open(args, &shutdown).map_err(Failure::Input)?;
    namespaces::check_root("tracing")?;
    Ok(trace(args, &plan, out, &shutdown)?)
}

fn trace(args: &Trace, plan: &Plan, out: Box<dyn Write>, shutdown: &Shutdown) -> Result<()> {
    let mut out = Some(out);
    let begin_file = |header: &Header| -> Result<Option<Box<dyn Sink>>> {
        match args.format.events() {
            Some(format) => out
                .take()
                .map(|out| export::begin(format, out, header))
                .transpose(),
            None => Ok(None),
        }
    };
    let outcome = session::run(plan, begin_file, &mut |_| Ok(()), shutdown)?;
    match (args.format, out) {
        (Output::Text, Some(mut out)) => finish(&mut out, &summary::text(&outcome))?,
        (Output::Json, Some(mut out)) => finish(&mut out, &(summary::json(&outcome)? + "\n"))?,
        _ => say(&summary::head(&outcome)),
    }
    judge_command(&outcome)
}

fn finish(out: &mut dyn Write, text: &str) -> Result<()> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("writing the summary")
}

/// A command that failed is a failure: what was traced is not what was meant.
fn judge_command(outcome: &Outcome) -> Result<()> {
    match outcome.command {
        Some(status) if !status.success() => bail!("the command failed: {status}"),
        _ => Ok(()),
    }
}

fn plan(args: &Trace) -> Result<Plan> {
    let target = if !args.command.is_empty() {
        Target::Command(args.command.clone())
    } else if let Some(cgroup) = &args.cgroup {
        Target::Cgroup(find_cgroup(cgroup).context("--cgroup")?)
    } else if args.pid.is_empty() {
        Target::Launchers
    } else {
        Target::Processes(args.pid.clone())
    };
    if !args.pid.is_empty() {
        target.watch().context("--pid")?;
    }
    if args.window_ms > args.every_ms {
        bail!(
            "--window-ms {} is longer than --every-ms {}: expected a window shorter than its \
             period, or --all-launches",
            args.window_ms,
            args.every_ms
        );
    }
    if args.format == Output::LegacyCsv && !args.all_launches {
        bail!(
            "--format legacy-csv: its columns cannot say that launches were sampled, so that ratios \
             made of them would be wrong; expected with --all-launches, or another format"
        );
    }
    let launches = if args.all_launches {
        Launches::All
    } else {
        Launches::Sampled {
            window_ns: args.window_ms * 1_000_000,
            period_ns: args.every_ms * 1_000_000,
        }
    };
    Ok(Plan {
        target,
        launches,
        buffer_bytes: args
            .format
            .events()
            .map(|_| buffer_bytes(args))
            .transpose()?,
        duration: args.duration,
        max_bytes: args.max_size,
        scheduler: sched::loaded(),
    })
}

fn buffer_bytes(args: &Trace) -> Result<u32> {
    const RANGE: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;
    if !RANGE.contains(&args.buffer) {
        bail!("--buffer: expected a size from 64K to 1G");
    }
    u32::try_from(args.buffer.next_power_of_two()).context("--buffer")
}

fn open(args: &Trace, shutdown: &Arc<Shutdown>) -> Result<Box<dyn Write>> {
    if args.max_size.is_some() && args.format.events().is_none() {
        bail!(
            "--max-size: a summary has no size to limit; expected with --format csv and the like"
        );
    }
    if let Some(path) = &args.output {
        let file = Unread::new(Overwritten::open(path)?, shutdown);
        return Ok(Box::new(BufWriter::with_capacity(1 << 20, file)));
    }
    if args.format.events().is_none() {
        // Beside what a command prints, as `time` does.
        return Ok(match args.command.is_empty() {
            true => Box::new(unread::stdout(shutdown)?),
            false => Box::new(std::io::stderr()),
        });
    }
    if !args.command.is_empty() {
        bail!("events would mix with what the command prints: give a file with -o");
    }
    if args.format == Output::Perfetto && std::io::stdout().is_terminal() {
        bail!("a Perfetto trace is binary: give a file with -o");
    }
    let stdout = unread::stdout(shutdown)?;
    Ok(Box::new(BufWriter::with_capacity(1 << 20, stdout)))
}

/// Bytes, with a suffix of K, M or G.
fn size(text: &str) -> Result<u64, String> {
    let expected = || format!("expected a size such as 64K, 500M or 2G, not {text:?}");
    let (digits, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 10),
        Some(digits) if text.ends_with('M') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| expected())?;
    let bytes = number.checked_mul(1 << shift).filter(|&bytes| bytes > 0);
    bytes.ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    fn parses(args: &str) -> bool {
        Cli::try_parse_from(args.split(' ')).is_ok()
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("3G"), Ok(3 << 30));
        assert_eq!(size("7"), Ok(7));
        for bad in ["", "M", "0", "-1", "1T", "99999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_sort_of_target_at_a_time() {
        assert!(parses("scx_gpuaware trace"));
        assert!(parses("scx_gpuaware trace --pid 1 --pid 2 --format csv"));
        assert!(parses("scx_gpuaware trace -o out -- sleep 1"));
        assert!(!parses("scx_gpuaware trace --pid 1 --cgroup /x"));
        assert!(!parses("scx_gpuaware trace --pid 1 -- sleep 1"));
        assert!(!parses("scx_gpuaware trace --all-launches --window-ms 5"));
        assert!(!parses("scx_gpuaware trace --format xml"));
        assert!(parses("scx_gpuaware trace --record-profile f --duration 1"));
        assert!(!parses(
            "scx_gpuaware trace --record-profile f --format csv"
        ));
        assert!(!parses("scx_gpuaware trace --record-profile f -- sleep 1"));
    }
}
