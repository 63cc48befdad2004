// SPDX-License-Identifier: GPL-2.0-only
//! Flags and subcommands to validated values, errors to exit codes. Nothing else parses.

mod analyze;
mod doctor;
mod feed;
mod generate;
mod log;
mod marks;
mod output;
mod overwritten;
mod policy;
mod record;
mod seconds;
mod topology;
mod trace;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::log::warn;
use anyhow::{Result, bail};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::identify::Class;
use crate::policy::cpuset::CpuSet;
use crate::running::{Role, Running};
use crate::sched::reload::{self, PolicyFile};
use crate::sched::{self, Config, export, monitor, server};
use crate::shutdown::Shutdown;
use crate::top;
use crate::unread;

use output::{Failure, say};
use seconds::seconds;

/// A sched_ext scheduler that keeps GPU launch threads running beside noisy neighbours.
///
/// Without a subcommand it loads the scheduler and runs in the foreground until SIGINT or SIGTERM.
/// Threads that launch CUDA work are found by themselves; the policy, cgroups and `mark` add others.
#[derive(Debug, Parser)]
#[command(name = "scx_gpuaware", version)]
pub struct Cli {
    #[command(flatten)]
    run: Run,
    /// Log more, libbpf's debug output included.
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

impl Cli {
    /// Reads a command line, the program's name first. The git revision of the program is for `--version`.
    ///
    /// # Errors
    /// clap's, which also prints help and the version: [`clap::Error::exit`].
    pub fn read(
        args: impl IntoIterator<Item = OsString>,
        revision: Option<&str>,
    ) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        if let Some(revision) = revision {
            // clap keeps it for as long as the program runs.
            let version: &'static str =
                format!("{} ({revision})", env!("CARGO_PKG_VERSION")).leak();
            command = command.version(version);
        }
        let mut matches = command.try_get_matches_from_mut(args)?;
        // Not clap's args_conflicts_with_subcommands, which shuts out --verbose as well.
        let of_run = Run::augment_args(clap::Command::default());
        let written = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if let Some(subcommand) = matches.subcommand_name()
            && let Some(arg) = of_run
                .get_arguments()
                .find(|arg| written(arg.get_id().as_str()))
        {
            let name = arg.get_long().unwrap_or_default();
            let problem = format!("--{name} is for the scheduler, not for subcommand {subcommand}");
            return Err(command.error(ErrorKind::ArgumentConflict, problem));
        }
        Self::from_arg_matches_mut(&mut matches)
    }
}

#[derive(Debug, Args)]
struct Run {
    /// Policy file, TOML; read again on SIGHUP and when it changes.
    #[arg(short, long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// CPUs that launchers prefer, such as 2-3,8 [default: what `topology` shows for one thread].
    #[arg(long, value_name = "LIST")]
    preferred_cpus: Option<CpuSet>,
    /// Print statistics every SEC seconds while scheduling.
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    stats: Option<Duration>,
    /// Only print the statistics of the scheduler that runs, every SEC seconds.
    #[arg(long, value_name = "SEC", value_parser = seconds, conflicts_with = "stats")]
    monitor: Option<Duration>,
    /// Serve the statistics to Prometheus at http://ADDR:PORT/metrics, on a loopback address only.
    #[arg(long, value_name = "ADDR:PORT", value_parser = export::http::loopback)]
    metrics: Option<SocketAddr>,
    /// Describe the statistics and exit.
    #[arg(long)]
    help_stats: bool,
    /// Size of the kernel's debug dump if it throws the scheduler out, bytes; 0: kernel default.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    exit_dump_len: u32,
    /// How to log to standard error.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = log::Format::Text)]
    log_format: log::Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put a thread or a process into a class, until it or the scheduler ends, or it is unmarked.
    Mark {
        /// What to treat it as.
        #[arg(long, value_enum)]
        class: Class,
        #[command(flatten)]
        target: marks::Target,
    },
    /// Take the mark of a thread or a process away.
    Unmark {
        #[command(flatten)]
        target: marks::Target,
    },
    /// List the tasks that have a class, and why.
    Marks {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Look for libcuda, launching threads and names again, everywhere, now. SIGUSR1 does it too.
    Rescan,
    /// Check, show and write policies.
    #[command(subcommand)]
    Policy(policy::Action),
    /// List CPUs, GPUs and network cards, and which CPUs are preferred and why.
    Topology(topology::Options),
    /// Look for what stands in the way of scx_gpuaware on this host.
    Doctor(doctor::Doctor),
    /// Show the scheduler that runs on the whole terminal: CPUs, classes, threads, events.
    Top {
        /// Look every SEC seconds.
        #[arg(long, value_name = "SEC", value_parser = seconds, default_value = "1")]
        interval: Duration,
    },
    /// Find threads as the scheduler does, and tell another scheduler their class.
    Feed(feed::Options),
    /// Record what the scheduler and interrupts do to threads that launch, under any scheduler.
    Trace(trace::Trace),
    /// Say what the scheduler and interrupts did to launch paths, from traces.
    Analyze(analyze::Analyze),
    /// Write man pages and shell completions.
    #[command(hide = true)]
    Generate(generate::Generate),
}

/// Runs what the command line asks for.
pub fn main(cli: Cli) -> ExitCode {
    log::start(cli.verbose, cli.run.log_format);
    let result = match cli.command {
        None => run(&cli.run, cli.verbose),
        Some(Command::Mark { class, target }) => {
            marks::mark(&target, Some(class)).map_err(Failure::from)
        }
        Some(Command::Unmark { target }) => marks::mark(&target, None).map_err(Failure::from),
        Some(Command::Marks { json }) => marks::list(json).map_err(Failure::from),
        Some(Command::Rescan) => marks::rescan().map_err(Failure::from),
        Some(Command::Policy(action)) => policy::run(&action),
        Some(Command::Topology(options)) => topology::run(&options),
        Some(Command::Doctor(args)) => doctor::run(&args).map_err(Failure::from),
        Some(Command::Top { interval }) => show(interval).map_err(Failure::from),
        Some(Command::Feed(options)) => explain_bpf(feed::run(&options), cli.run.log_format),
        Some(Command::Trace(args)) => explain_bpf(trace::run(&args), cli.run.log_format),
        Some(Command::Analyze(args)) => analyze::run(&args),
        Some(Command::Generate(args)) => {
            generate::run(&args, &Cli::command()).map_err(Failure::from)
        }
    };
    let (error, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Input(error)) => (error, 2),
        Err(Failure::Runtime(error)) => (error, 1),
    };
    if has_lost_its_reader(&error) {
        return ExitCode::SUCCESS;
    }
    log::say_error(&error, cli.run.log_format);
    ExitCode::from(code)
}

/// A reader that has seen enough, as `head` has, is no error, wherever a write to it failed.
fn has_lost_its_reader(error: &anyhow::Error) -> bool {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

fn run(args: &Run, verbose: bool) -> Result<(), Failure> {
    if args.help_stats {
        return Ok(server::describe()?);
    }
    if let Some(interval) = args.monitor {
        let shutdown = Shutdown::watch(|| {})?;
        let out = unread::stdout(&shutdown)?;
        return Ok(monitor::monitor(interval, out, &shutdown)?);
    }
    let asked = reload::hear()?;
    // Everything is validated before anything is changed.
    let policy = policy::in_effect(args.policy.as_deref(), args.preferred_cpus.as_ref())
        .map_err(Failure::Input)?;
    let config = Config {
        exit_dump_len: args.exit_dump_len,
        metrics: args.metrics,
        verbose,
    };
    let explain = || explain(args.log_format, None);
    sched::check().inspect_err(|_| explain())?;
    let _running = Running::start(Role::Scheduler)?;
    let shutdown = Shutdown::watch_but_hangup(sched::undo_a_killed_run)?;
    if let Some(interval) = args.stats {
        // Nobody waits for its end: it sleeps for whole intervals.
        std::thread::spawn(move || {
            if let Err(error) = monitor::print_every(interval)
                && !has_lost_its_reader(&error)
            {
                warn!("statistics: {error:#}");
            }
        });
    }
    let result = sched::run(&config, policy, policy_file(args), asked, &shutdown);
    Ok(result.inspect_err(|_| explain())?)
}

fn show(interval: Duration) -> Result<()> {
    if !sched::is_loaded() {
        bail!("scx_gpuaware does not schedule: start it first");
    }
    let shutdown = Shutdown::watch(top::let_go)?;
    top::run(interval, &shutdown)
}

/// Says what keeps BPF programs from being loaded, beside the error of a command that loads some.
fn explain_bpf(result: Result<(), Failure>, format: log::Format) -> Result<(), Failure> {
    result.inspect_err(|failure| {
        if matches!(failure, Failure::Runtime(_)) {
            explain(format, Some(&doctor::OF_BPF));
        }
    })
}

/// Says what is wrong with the host, beside the error that ended the start.
fn explain(format: log::Format, checks: Option<&[&str]>) {
    let problems = doctor::problems(checks);
    if problems.is_empty() {
        return;
    }
    match format {
        log::Format::Text => say(&format!(
            "scx_gpuaware: doctor says of this host:\n{problems}"
        )),
        log::Format::Json => {
            warn!(event = "doctor", problems = problems; "doctor says of this host: {problems}");
        }
    }
}

/// The policy file of the command line, to be followed.
fn policy_file(args: &Run) -> Option<PolicyFile> {
    let path = args.policy.clone()?;
    let (file, flag) = (path.clone(), args.preferred_cpus.clone());
    let read = Box::new(move || policy::in_effect(Some(&file), flag.as_ref()));
    Some(PolicyFile { path, read })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    fn read(args: &str) -> Result<Cli, clap::Error> {
        Cli::read(args.split(' ').map(OsString::from), None)
    }

    #[test]
    fn the_version_names_the_revision() {
        let args = ["scx_gpuaware", "--version"].map(OsString::from);
        let said = Cli::read(args, Some("0123abc")).unwrap_err().to_string();
        let expected = concat!("scx_gpuaware ", env!("CARGO_PKG_VERSION"), " (0123abc)\n");
        assert_eq!(said, expected);
    }

    #[test]
    fn verbose_goes_before_and_after_a_subcommand() {
        for args in ["-v", "-v marks", "marks -v", "policy show --verbose"] {
            assert!(
                read(&format!("scx_gpuaware {args}")).unwrap().verbose,
                "{args}"
            );
        }
        assert!(!read("scx_gpuaware marks").unwrap().verbose);
    }

    #[test]
    fn what_is_for_the_scheduler_goes_with_no_subcommand() {
        for args in [
            "-p a.toml marks",
            "--stats 1 policy show",
            "--help-stats marks",
        ] {
            let error = read(&format!("scx_gpuaware {args}")).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(
                error.to_string().contains("is for the scheduler"),
                "{error}"
            );
        }
        assert!(read("scx_gpuaware policy show -p a.toml").is_ok());
    }

    #[test]
    fn rejects_a_bad_cpu_list_and_says_what_is_expected() {
        let error = Cli::try_parse_from(["scx_gpuaware", "--preferred-cpus", "3-1"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("backwards"), "{error}");
    }

    #[test]
    fn mark_needs_exactly_one_target() {
        let parse = |args: &str| Cli::try_parse_from(args.split(' ')).is_ok();
        assert!(parse("scx_gpuaware mark --class launch --tid 3"));
        assert!(!parse("scx_gpuaware mark --class launch"));
        assert!(!parse("scx_gpuaware mark --class launch --tid 3 --pid 4"));
        assert!(!parse("scx_gpuaware mark --class nonsense --tid 3"));
        assert!(!parse("scx_gpuaware mark --class launch --tid 0"));
    }
}
