// SPDX-License-Identifier: GPL-2.0-only
//! What the commands of gpuaware-sim do, and its exit codes: 0 all held, 1 something did not, 2 bad input.

#[macro_use]
#[path = "../../bench/src/print.rs"]
mod print;
mod flags;
#[path = "../../src/cli/overwritten.rs"]
mod overwritten;

use std::borrow::Cow;
use std::io::BufWriter;
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use gpuaware_sim::cell::CellSpec;
use gpuaware_sim::compare::{self, Peer};
use gpuaware_sim::costs::{self, Load, Names, Unit};
use gpuaware_sim::machine::Machine;
use gpuaware_sim::native::{self, METERED, Scheduler};
use gpuaware_sim::profiled::{self, How, Profiled, Setting};
use gpuaware_sim::replay::ReplaySpec;
use gpuaware_sim::report;
use gpuaware_sim::scenario::Scenario;
use gpuaware_sim::setup::Policy;
use gpuaware_sim::shrink;
use gpuaware_sim::simulation::{Outcome, Simulation};
use gpuaware_sim::situation::{self, Situation};
use gpuaware_sim::sysfs::Tree;
use gpuaware_sim::trace;
use gpuaware_trace::export::Format;
use gpuaware_trace::profile::Profile;
use overwritten::Overwritten;

use flags::{Also, Check, Cli, Command, Compare, Costs, Run, Timeline};

impl Cli {
    /// scx_gpuaware's object.
    fn gpuaware(&self) -> Result<Cow<'static, [u8]>> {
        Ok(match &self.bpf {
            Some(bpf) => native::compile_gpuaware(bpf, false)?.into(),
            None => Scheduler::Gpuaware.object().into(),
        })
    }

    /// The same, whose basic blocks are counted.
    fn metered(&self) -> Result<Cow<'static, [u8]>> {
        Ok(match &self.bpf {
            Some(bpf) => native::compile_gpuaware(bpf, true)?.into(),
            None => METERED.into(),
        })
    }
}

fn random(seed: u64, also: Also) -> Scenario {
    let mut scenario = Scenario::random(seed);
    if also.real_time {
        scenario = scenario.with_real_time();
    }
    if also.changes {
        scenario = scenario.with_changes();
    }
    if also.interleave {
        scenario = scenario.with_interleaving();
    }
    if also.cookies {
        scenario = scenario.with_cookies();
    }
    if also.threads {
        scenario = scenario.with_threads();
    }
    if also.interrupts {
        scenario = scenario.with_interrupts();
    }
    if also.yields {
        scenario = scenario.with_lent_yields();
    }
    scenario
}

const TIMED_RUNS: usize = 15;

fn costs(args: &Costs, object: &[u8]) -> Result<ExitCode> {
    let unit = if args.ns {
        println!(
            "Nanoseconds of this host for each time that somebody gets a CPU, without the kernel's functions:"
        );
        Unit::Nanoseconds { runs: TIMED_RUNS }
    } else {
        println!("Basic blocks entered for each time that somebody gets a CPU:");
        Unit::Blocks
    };
    let mut all = Vec::new();
    for load in [Load::Quiet, Load::Saturated] {
        let (sizes, length_ns) = (&[8, 32, 128, 512], args.ms * 1_000_000);
        let measured = costs::measure(object, unit, sizes, args.per_llc, load, length_ns)?;
        println!("\n{}", costs::table(load, &measured));
        if args.ns {
            println!("A call of\n{}", costs::per_call(load, &measured));
        }
        all.push((load, measured));
    }
    if args.ns {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "Functions that grow by more than {}, with those within them:",
        costs::GROWS
    );
    let names = Names::find(object, all.iter().flat_map(|(_, measured)| measured))?;
    for (load, measured) in &all {
        println!("\n{}", costs::growing(*load, measured, &names));
    }
    Ok(ExitCode::SUCCESS)
}

fn machine(text: &str) -> Result<Machine> {
    machine_and_hz(text).map(|(machine, _)| machine)
}

/// And its ticks a second, if they were recorded.
fn machine_and_hz(text: &str) -> Result<(Machine, Option<u32>)> {
    if !Path::new(text).exists() {
        let machine = Machine::parse(text).context("there is no such file, nor is that a shape")?;
        return Ok((machine, None));
    }
    let read = std::fs::read_to_string(text).with_context(|| format!("reading {text}"))?;
    if !read.starts_with('{') {
        let machine = Tree::parse(&read).and_then(|tree| tree.machine());
        return Ok((machine.with_context(|| text.to_owned())?, None));
    }
    let profile = Profile::parse(&read).with_context(|| text.to_owned())?;
    let machine = profiled::machine(&profile.machine).with_context(|| text.to_owned())?;
    Ok((machine, profile.hz))
}

fn print(scenario: &Scenario, outcome: &Outcome) -> ExitCode {
    println!("{}", report::headline(scenario));
    print!("{}", report::table(outcome));
    if !outcome.stats.is_empty() {
        println!("{}", report::counters(outcome));
    }
    println!("{} events, hash {:016x}", outcome.nr_events, outcome.hash);
    match &outcome.failure {
        None => ExitCode::SUCCESS,
        Some(failure) => {
            eprintln!("FAILED {failure}");
            ExitCode::FAILURE
        }
    }
}

fn length_ns(seconds: f64) -> Result<u64> {
    let length_ns = seconds * 1e9;
    anyhow::ensure!(
        (1.0..=1e12).contains(&length_ns),
        "--seconds {seconds}: expected a length of up to 1000"
    );
    Ok(length_ns as u64)
}

fn compare(args: &Compare, gpuaware: &[u8]) -> Result<ExitCode> {
    let machine = machine(&args.machine)?;
    let peers = args.peer.iter().map(|path| Peer::compile(path));
    let peers: Vec<Peer> = peers.collect::<Result<_>>()?;
    let length_ns = length_ns(args.seconds)?;
    let compared = compare::compare(&machine, gpuaware, &peers, length_ns, args.seed)?;
    print!("{}", compare::table(&compared));
    let failed = compared.iter().any(|row| row.failure.is_some());
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Runs it, with scx_gpuaware or a peer as `own` has it.
fn simulate(scenario: &Scenario, own: &[u8], timeline: &Timeline) -> Result<Outcome> {
    let object = match scenario.scheduler {
        Scheduler::Gpuaware | Scheduler::Peer => own,
        other => other.object(),
    };
    let Some(path) = &timeline.perfetto else {
        return Simulation::with_object(scenario.clone(), object)?.run();
    };
    // Before the work: a folder that is not there is said at once.
    let file = Overwritten::open(path)?;
    let mut simulation = Simulation::with_object(scenario.clone(), object)?;
    simulation.keep_history();
    let outcome = simulation.run()?;
    let out = Box::new(BufWriter::new(file));
    trace::write(Format::Perfetto, out, scenario, &outcome.history)
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(outcome)
}

fn profile(path: &Path) -> Result<Profile> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Profile::parse(&text).with_context(|| path.display().to_string())
}

fn profiled(run: &Run, path: &Path) -> Result<Scenario> {
    let profile = profile(path)?;
    let machine = match &run.machine {
        Some(text) => machine(text)?,
        None => profiled::machine(&profile.machine).with_context(|| path.display().to_string())?,
    };
    let setting = Setting {
        policy: Policy::native(&machine),
        machine,
        scheduler: run.scheduler(),
        hz: run.hz.map(NonZero::get),
        length_ns: length_ns(run.seconds)?,
        seed: run.seed,
        how: How::default(),
    };
    let made = Profiled::new(&profile, setting).with_context(|| path.display().to_string())?;
    for note in &made.notes {
        eprintln!("gpuaware-sim: {note}");
    }
    println!("{}", profiled::table(&profile));
    Ok(made.scenario)
}

fn named(run: &Run) -> Result<Scenario> {
    let machine = machine(run.machine.as_deref().unwrap_or("8x2x1x2"))?;
    let length_ns = length_ns(run.seconds)?;
    let mut scenario = Scenario::named(run.workload, machine, run.scheduler(), length_ns, run.seed);
    if let Some(hz) = run.hz {
        scenario.costs.tick_ns = (1_000_000_000 / hz).max(1);
    }
    Ok(scenario)
}

fn run(run: &Run, own: &[u8]) -> Result<ExitCode> {
    let mut scenario = match &run.profile {
        Some(path) => profiled(run, path)?,
        None => named(run)?,
    };
    if run.bind {
        scenario.bind_launchers();
    }
    if run.interleave {
        scenario = scenario.with_interleaving();
    }
    let outcome = simulate(&scenario, own, &run.timeline)?;
    Ok(print(&scenario, &outcome))
}

fn check(check: &Check, object: &[u8]) -> Result<ExitCode> {
    let started = Instant::now();
    let (next, failed, events) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let first_failed = AtomicU64::new(u64::MAX);
    let one_after_the_other = || -> Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= check.count {
                return Ok(());
            }
            let seed = check.from.wrapping_add(at);
            let outcome = Simulation::with_object(random(seed, check.also), object)?.run()?;
            events.fetch_add(outcome.nr_events, Ordering::Relaxed);
            if let Some(failure) = outcome.failure {
                failed.fetch_add(1, Ordering::Relaxed);
                first_failed.fetch_min(seed, Ordering::Relaxed);
                println!("seed {seed}: {failure}");
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| scope.spawn(one_after_the_other))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let result = thread.join();
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    let failed = failed.into_inner();
    println!(
        "{} scenarios, {} events, {:.1} s, {failed} failed",
        check.count,
        events.into_inner(),
        started.elapsed().as_secs_f64()
    );
    match failed {
        0 => Ok(ExitCode::SUCCESS),
        _ => shrunk(first_failed.into_inner(), check.also, object),
    }
}

fn cell(gpuaware: &[u8]) -> Result<ExitCode> {
    let text = std::io::read_to_string(std::io::stdin()).context("reading stdin")?;
    let spec: CellSpec = serde_json::from_str(&text).context("stdin: expected a cell as JSON")?;
    let scenario = spec.scenario(machine(&spec.machine)?)?;
    let outcome = simulate(&scenario, gpuaware, &Timeline::default())?;
    if let Some(failure) = &outcome.failure {
        eprintln!("FAILED {failure}");
        return Ok(ExitCode::FAILURE);
    }
    println!("{}", spec.measurement(&outcome));
    Ok(ExitCode::SUCCESS)
}

/// The calls of each situation, with an empty line after each.
fn callbacks(object: &[u8]) -> Result<ExitCode> {
    let text = std::io::read_to_string(std::io::stdin()).context("reading stdin")?;
    let situations: Vec<Situation> =
        serde_json::from_str(&text).context("stdin: expected situations as JSON")?;
    for situation in situations {
        let scenario = situation.scenario(machine(&situation.machine)?)?;
        let mut simulation = Simulation::with_object(scenario, object)?;
        simulation.keep_calls();
        let outcome = simulation.run()?;
        if let Some(failure) = &outcome.failure {
            eprintln!("FAILED {failure}");
            return Ok(ExitCode::FAILURE);
        }
        println!("{}", situation::lines(&outcome.calls));
    }
    Ok(ExitCode::SUCCESS)
}

fn replay_profile(gpuaware: &[u8]) -> Result<ExitCode> {
    let text = std::io::read_to_string(std::io::stdin()).context("reading stdin")?;
    let spec: ReplaySpec =
        serde_json::from_str(&text).context("stdin: expected a replay as JSON")?;
    let profile = profile(&spec.profile)?;
    let machine = spec.machine.as_deref().map(machine).transpose()?;
    let made = spec
        .scenario(&profile, machine)
        .with_context(|| spec.profile.display().to_string())?;
    let outcome = simulate(&made.scenario, gpuaware, &Timeline::default())?;
    if let Some(failure) = &outcome.failure {
        eprintln!("FAILED {failure}");
        return Ok(ExitCode::FAILURE);
    }
    println!("{}", spec.result(&profile, &made, &outcome));
    Ok(ExitCode::SUCCESS)
}

fn describe(text: &str) -> Result<ExitCode> {
    let (machine, hz) = machine_and_hz(text)?;
    let says = serde_json::json!({
        "hz": hz,
        "cpus": machine.nr_cpus(),
        "cores": machine.nr_cores(),
        "nodes": machine.nr_nodes(),
        "gpus": machine.gpus.len(),
        "description": report::machine(&machine),
        "version": env!("CARGO_PKG_VERSION"),
    });
    println!("{says}");
    Ok(ExitCode::SUCCESS)
}

/// What was recorded is written as it was, with all that the model has nothing for.
fn sysfs(text: &str, folder: &Path) -> Result<ExitCode> {
    // A shape and a profile are that; what is wrong with either is said here, too.
    let machine = machine(text)?;
    let recorded = std::fs::read_to_string(text)
        .ok()
        .filter(|read| !read.starts_with('{'));
    let tree = match recorded {
        Some(read) => Tree::parse(&read).with_context(|| text.to_owned())?,
        None => Tree::of(&machine),
    };
    tree.write(folder)?;
    Ok(ExitCode::SUCCESS)
}

fn replay(
    scenario: &Scenario,
    verbose: bool,
    timeline: &Timeline,
    object: &[u8],
) -> Result<ExitCode> {
    if verbose {
        print!("{}", report::specs(scenario));
    }
    let outcome = simulate(scenario, object, timeline)?;
    if verbose && outcome.failure.is_some() {
        print!("{}", report::recent(&outcome));
    }
    Ok(print(scenario, &outcome))
}

fn shrunk(seed: u64, also: Also, object: &[u8]) -> Result<ExitCode> {
    let scenario = random(seed, also);
    let Some((parts, failure)) = shrink::shrink(&scenario, object)? else {
        println!("seed {seed} does not fail");
        return Ok(ExitCode::SUCCESS);
    };
    println!(
        "seed {seed} needs parts {parts} of {}: {failure}",
        shrink::nr_parts(&scenario)
    );
    let flag = |on: bool, flag: &'static str| if on { flag } else { "" };
    println!(
        "gpuaware-sim replay {seed}{}{}{}{}{}{}{} --parts {parts} --verbose",
        flag(also.real_time, " --real-time"),
        flag(also.changes, " --changes"),
        flag(also.interleave, " --interleave"),
        flag(also.cookies, " --cookies"),
        flag(also.threads, " --threads"),
        flag(also.interrupts, " --interrupts"),
        flag(also.yields, " --yields")
    );
    Ok(ExitCode::FAILURE)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Run(args) => match &args.peer {
            Some(peer) => native::compile_peer(peer).and_then(|object| run(args, &object)),
            None => cli.gpuaware().and_then(|object| run(args, &object)),
        },
        Command::Check(args) => cli.gpuaware().and_then(|object| check(args, &object)),
        Command::Compare(args) => cli.gpuaware().and_then(|object| compare(args, &object)),
        Command::Profile => cli.gpuaware().and_then(|object| replay_profile(&object)),
        Command::Cell => cli.gpuaware().and_then(|object| cell(&object)),
        Command::Callbacks => cli.gpuaware().and_then(|object| callbacks(&object)),
        Command::Machine { machine } => describe(machine),
        Command::Sysfs { machine, folder } => sysfs(machine, folder),
        Command::Costs(args) if args.ns => cli.gpuaware().and_then(|object| costs(args, &object)),
        Command::Costs(args) => cli.metered().and_then(|object| costs(args, &object)),
        Command::Replay {
            seed,
            also,
            verbose,
            parts,
            timeline,
        } => cli.gpuaware().and_then(|object| {
            let scenario = random(*seed, *also);
            let scenario = match parts {
                Some(parts) => {
                    parts.check(&scenario)?;
                    shrink::only(&scenario, parts)
                }
                None => scenario,
            };
            replay(&scenario, *verbose, timeline, &object)
        }),
        Command::Shrink { seed, also } => cli
            .gpuaware()
            .and_then(|object| shrunk(*seed, *also, &object)),
    };
    let code = result.unwrap_or_else(|error| {
        eprintln!("gpuaware-sim: {error:#}");
        ExitCode::from(2)
    });
    print::problem().map_or(code, |error| {
        eprintln!("gpuaware-sim: writing to standard output: {error}");
        ExitCode::from(1)
    })
}
