// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench tune`: the policy for this machine and workload, with the evidence. Looks, proposes, sifts, verifies,
//! decides; each step is a run that `report` reads. Knows the runner and the statistics; nobody knows it.

mod budget;
mod candidate;
mod checked;
mod decide;
mod folder;
pub mod goal;
mod live;
mod look;
mod outcome;
mod presift;
mod propose;
mod recording;
mod schedule;
mod score;
mod steps;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cli::{LiveOptions, TuneOptions};
use crate::datafile::{self, DataError};
use crate::lab::Lab;
use crate::matrix::Matrix;
use crate::plan::Where;
use crate::run;
use crate::simulator::{self, Chooser, Machine};
use crate::words::in_words;
use crate::{cpus, interrupt, record, watchdog};
use budget::Budget;
use candidate::{Candidate, DEFAULT, file_name};
use checked::checked;
use folder::{BASELINE, State, TuneDir, refusal};
use goal::On;
use live::Live;
use live::slo::Metric;
use look::{Place, Seen};
use propose::Kind;
use schedule::{MIN_ROUNDS, schedule};
use steps::Tuning;

/// Names of the tuning's other arms.
const RESERVED: [&str; 4] = [DEFAULT, BASELINE, "gpuaware", live::OLD];
/// The neighbours that run anyway, and those where the user names none.
const LIVE: &str = "live";
const NEIGHBOUR: &str = "heavy";

/// What a look at the machine may take: the lab boots for it, and a simulated one takes no time.
fn look_time(on: On) -> Duration {
    match on {
        On::Lab | On::Host => Duration::from_secs(60),
        On::Sim => Duration::ZERO,
    }
}

pub fn main(options: &TuneOptions) -> Result<ExitCode> {
    watchdog::start()?;
    interrupt::watch()?;
    let (dir, state) = match (&options.resume, options.live.attach) {
        (None, None) => begin(options)?,
        (None, Some(pid)) => return beside(pid, options),
        (Some(folder), attach) => match (TuneDir::open(folder)?, attach) {
            (dir, Some(pid)) if dir.is_live() => return live::resume(&dir, pid),
            (dir, None) if !dir.is_live() => {
                let state = dir.read_state()?;
                (dir, state)
            }
            (_, attach) => {
                let without = if attach.is_some() { "out" } else { "" };
                return Err(DataError::Usage(format!(
                    "--resume: expected with{without} --attach PID, as the tuning was begun"
                ))
                .into());
            }
        },
    };
    let mut tuning = Tuning {
        dir,
        state,
        folders: &options.folders,
        force: options.force,
    };
    let finalists = tuning.sift()?;
    let proof = tuning.verify(&finalists)?;
    let outcome = outcome::Outcome::new(&tuning.state, &finalists, &proof);
    outcome.write(&tuning.dir)?;
    let policy = tuning.dir.root.join("policy.toml");
    let target = options.folders.target()?;
    if let Some(why) = refusal(&policy, &tuning.state.seen.online, &target)? {
        bail!("the policy that was found is refused, which should not be: {why}");
    }
    println!("\n{}", outcome.verdict());
    if options.explain {
        for line in outcome.explain() {
            println!("- {line}");
        }
    }
    for name in ["policy.toml", "report.md", "report.html"] {
        println!("{}", tuning.dir.root.join(name).display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Beside production: candidates are tried on top of the policy in force.
fn beside(pid: u32, options: &TuneOptions) -> Result<ExitCode> {
    if options.neighbours.iter().any(|name| name != LIVE) {
        let expected =
            "--neighbours: expected live with --attach: the neighbours are those that run";
        return Err(DataError::Usage(expected.to_owned()).into());
    }
    let flags = &options.live;
    let target = options.folders.target()?;
    let (Some(policy), Some(metric)) = (flags.policy.clone(), metric(flags, &target)) else {
        let expected =
            "--attach: expected --policy with it, and --slo-command, --url or --slo-prometheus";
        return Err(DataError::Usage(expected.to_owned()).into());
    };
    let live = Live {
        pid,
        policy,
        socket: flags.stats_socket.clone(),
        metric,
        slo_worse: flags.slo_worse,
        slo_for: flags.slo_for,
    };
    let cpus = cpus::online();
    let mut candidates = own_candidates(&options.candidate, &cpus::format_list(&cpus), &target)?;
    if candidates.is_empty() {
        let place = Place {
            on: Where::Host,
            cpus: cpus.len(),
            kernel: "",
            target: &target,
        };
        let seen = look::look(&place)?;
        say(&seen);
        candidates = propose::propose(&seen, Kind::Launcher);
    }
    let output = options
        .output
        .clone()
        .unwrap_or_else(|| run::default_output("tune"));
    let dir = TuneDir::create(&output)?;
    live::tune(live, candidates, options.budget, &dir)
}

/// What is watched, as the command line has it.
fn metric(flags: &LiveOptions, target: &Path) -> Option<Metric> {
    let command = flags.slo_command.clone().map(Metric::Command);
    let endpoint = flags.url.clone().map(|url| Metric::Endpoint {
        client: target.join("release/llm_client"),
        url,
        latency: flags.latency,
    });
    let asked = flags.slo_prometheus.clone().zip(flags.slo_query.clone());
    let prometheus = asked.map(|(url, query)| Metric::Prometheus { url, query });
    command.or(endpoint).or(prometheus)
}

/// What the user asks for, checked.
struct Asked {
    /// MATRIX/NAME.
    workload: String,
    matrix: Matrix,
    cpus: usize,
    /// Of the machine that is simulated.
    name: Option<String>,
    /// Chooses its preferred CPUs.
    chooser: Option<Chooser>,
    /// What the simulator sifts with in place of `matrix`.
    recorded: Option<Matrix>,
    own: Vec<Candidate>,
    target: PathBuf,
}

/// What can be refused is refused here, before anything boots.
fn asked(options: &TuneOptions) -> Result<Asked> {
    let recorded = recorded(options)?;
    let (source, mut matrix, recorded) = match (&options.workload, recorded) {
        (None, Some(recorded)) => ("recorded".to_owned(), recorded, None),
        (wanted, recorded) => {
            let wanted = wanted.as_deref().unwrap_or_default();
            let (source, mut matrix) = workload::find(wanted, &options.folders)?;
            matrix.neighbours = workload::neighbours(&named_neighbours(options)?)?;
            (source, matrix, recorded)
        }
    };
    let target = options.folders.target()?;
    let name = (options.machine.clone()).or_else(|| matrix.recorded_machine().map(str::to_owned));
    let simulated = simulated(options.on, name.as_deref(), &target)?;
    if simulated.is_some() {
        for &neighbour in &matrix.neighbours {
            simulator::knows(&matrix.workloads[0], neighbour)
                .map_err(|lacks| DataError::Usage(format!("--on sim: {lacks}")))?;
        }
    }
    let cpus = how_many(options, &mut matrix, simulated.as_ref())?;
    let of_recording = recorded.as_ref().and_then(Matrix::recorded_machine);
    if let Some(file) = of_recording {
        let had = Machine::find(file, &target)?.cpus;
        if had != cpus {
            return Err(DataError::Usage(format!(
                "--recording: expected one of {cpus} CPUs, as the machine has that is tuned for, got one of {had}"
            ))
            .into());
        }
    }
    let online = cpus::format_list(&match options.on {
        On::Host => cpus::online(),
        On::Lab | On::Sim => cpus::first(cpus),
    });
    let costs = steps::costs(&matrix, options.on);
    // One candidate is the least that is tried.
    schedule(
        1,
        options.budget.saturating_sub(look_time(options.on)),
        &costs,
    )
    .map_err(|least| too_short(options, least))?;
    Ok(Asked {
        workload: format!("{source}/{}", matrix.workloads[0].name),
        own: own_candidates(&options.candidate, &online, &target)?,
        matrix,
        cpus,
        chooser: match (&simulated, &name) {
            (Some(_), Some(name)) => Some(Chooser::of(&simulator::place(name), &target)?),
            _ => None,
        },
        name,
        recorded,
        target,
    })
}

/// The matrix of the recording that the user names: what is tuned for, or what the simulator sifts with.
fn recorded(options: &TuneOptions) -> Result<Option<Matrix>> {
    let Some(file) = &options.recording else {
        return Ok(None);
    };
    let expected = match (&options.workload, options.on) {
        (None, On::Lab | On::Host) => {
            "with --on sim: what was recorded is simulated only; with --workload as well, it is what the simulator sifts with"
        }
        (Some(_), On::Sim) => "without --workload: with --on sim it is what is tuned for",
        (None, On::Sim) if !options.neighbours.is_empty() => {
            "without --neighbours: a recording has its own"
        }
        _ => {
            simulator::check_recording(&file.display().to_string())?;
            return Ok(Some(workload::recorded(file, &options.folders)?));
        }
    };
    Err(DataError::Usage(format!("--recording: expected {expected}")).into())
}

/// The machine that is tuned for, where it is not at hand.
fn simulated(on: On, name: Option<&str>, target: &Path) -> Result<Option<Machine>, DataError> {
    match (name, on) {
        (Some(name), On::Sim) => Machine::find(name, target).map(Some),
        (None, On::Sim) => Err(DataError::Usage(
            "--machine: expected the one that --on sim is to tune for, got nothing".to_owned(),
        )),
        (Some(_), On::Lab | On::Host) => Err(DataError::Usage(
            "--machine: expected with --on sim: others are machines of their own".to_owned(),
        )),
        (None, _) => Ok(None),
    }
}

/// The machine is looked at, and the steps are planned.
fn begin(options: &TuneOptions) -> Result<(TuneDir, State)> {
    let asked = asked(options)?;
    let root = options
        .output
        .clone()
        .unwrap_or_else(|| run::default_output("tune"));
    let dir = TuneDir::create(&root)?;
    dir.write_references(&options.folders)?;
    eprintln!("tuning for {} in {}", asked.workload, dir.root.display());
    let budget = Budget::begin(options.budget);
    let place = Place {
        on: options.on.cells(),
        cpus: asked.cpus,
        kernel: &asked.matrix.lab.kernel,
        target: &asked.target,
    };
    budget.say("look");
    let seen = match &asked.chooser {
        Some(chooser) => look::simulated(chooser)?,
        None => look::look(&place)?,
    };
    say(&seen);
    if !seen.problems.is_empty() {
        bail!(
            "the scheduler cannot do its work there: {}",
            seen.problems.join("; ")
        );
    }
    let shipped = proposals(options, &asked.matrix, &seen)?;
    let own: BTreeSet<String> = asked.own.iter().map(|one| one.name.clone()).collect();
    let candidates = [asked.own, shipped].concat();
    let machine = checked::Machine {
        seen: &seen,
        target: &asked.target,
        simulated: match &asked.chooser {
            Some(chooser) => Some((chooser, simulator::threads(&asked.matrix.workloads[0])?)),
            None => None,
        },
    };
    let (candidates, mut dropped) = checked(candidates, &RESERVED, &dir, &machine)?;
    let recorded = match asked.recorded {
        None if asked.chooser.is_none() => {
            recording::record(&asked.matrix, options.on, &budget, &options.folders, &dir)?
        }
        recorded => recorded,
    };
    let before = presift::Presift {
        matrix: &asked.matrix,
        recorded: recorded.as_ref(),
        seen: &seen,
        prefer: options.prefer,
        folders: &options.folders,
        target: &asked.target,
        budget: &budget,
        on: options.on,
    };
    let (mut candidates, worse) = before.sift(candidates, &own, &dir)?;
    dropped.extend(worse);
    let costs = steps::costs(&asked.matrix, options.on);
    // A look that took longer than it should does not end it.
    let left = budget.left().max(costs.verify(1, MIN_ROUNDS));
    let schedule =
        schedule(candidates.len(), left, &costs).map_err(|least| too_short(options, least))?;
    let late = candidates.split_off(candidates.len() - schedule.left_out);
    let why = "no time: a longer --budget tries it";
    dropped.extend(late.into_iter().map(|late| (late.name, why.to_owned())));
    say_proposals(&candidates, &dropped);
    let state = State {
        schema: record::SCHEMA,
        workload: asked.workload,
        matrix: asked.matrix,
        budget_s: options.budget.as_secs_f64(),
        prefer: options.prefer,
        on: options.on,
        machine: asked.name,
        seen,
        candidates,
        dropped,
        schedule,
        scores: BTreeMap::new(),
        done: Vec::new(),
        spent_s: budget.spent().as_secs_f64(),
    };
    dir.write_state(&state)?;
    Ok((dir, state))
}

fn say_proposals(candidates: &[Candidate], dropped: &[(String, String)]) {
    for candidate in candidates {
        eprintln!("propose: {}: {}", candidate.name, candidate.why);
    }
    for (name, why) in dropped {
        eprintln!("propose: not {name}: {why}");
    }
}

fn named_neighbours(options: &TuneOptions) -> Result<Vec<String>, DataError> {
    if options.neighbours.iter().any(|name| name == LIVE) {
        let expected = "--neighbours: expected live with --attach PID only: a workload of a matrix runs beside those of the bench";
        return Err(DataError::Usage(expected.to_owned()));
    }
    Ok(match options.neighbours.as_slice() {
        [] => vec![NEIGHBOUR.to_owned()],
        names => names.to_vec(),
    })
}

fn say(seen: &Seen) {
    eprintln!("look: {}", seen.words());
    for warning in &seen.warnings {
        eprintln!("look: doctor warns: {warning}");
    }
}

/// CPUs of the place where candidates are tried.
fn how_many(
    options: &TuneOptions,
    matrix: &mut Matrix,
    simulated: Option<&Machine>,
) -> Result<usize, DataError> {
    match (options.on, options.cpus) {
        (On::Host, Some(_)) => Err(DataError::Usage(
            "--cpus: expected with --on lab: a host has the CPUs that it has".to_owned(),
        )),
        (On::Sim, Some(_)) => Err(DataError::Usage(
            "--cpus: expected with --on lab: --machine says how many a simulated one has"
                .to_owned(),
        )),
        (On::Host, None) => Ok(cpus::online().len()),
        (On::Sim, None) => {
            let cpus = simulated.map_or(0, |machine| machine.cpus);
            matrix.lab.cpus = u32::try_from(cpus).ok();
            Ok(cpus)
        }
        (On::Lab, asked) => {
            matrix.lab.cpus = asked.or(matrix.lab.cpus);
            let own = matrix.lab.cpus.map(|cpus| cpus as usize);
            Ok(own.unwrap_or_else(|| Lab::default().cpus))
        }
    }
}

fn too_short(options: &TuneOptions, least: Duration) -> DataError {
    DataError::Usage(format!(
        "--budget: expected at least {}, the time to look at the machine and to verify one candidate beside the default, got {}",
        in_words(least + look_time(options.on)),
        in_words(options.budget)
    ))
}

/// The user's own: one that is refused is the user's mistake.
fn own_candidates(files: &[PathBuf], online: &str, target: &Path) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    for file in files {
        let policy = datafile::text(file)?;
        if let Some(why) = refusal(file, online, target)? {
            return Err(DataError::Usage(format!("--candidate: {why}")).into());
        }
        let stem = file.file_stem().context("a policy file without a name")?;
        all.push(Candidate {
            name: file_name(&stem.to_string_lossy()),
            why: "the user's own".to_owned(),
            policy,
        });
    }
    let names: BTreeSet<&String> = all.iter().map(|candidate| &candidate.name).collect();
    let reserved = RESERVED
        .iter()
        .any(|name| names.contains(&(*name).to_owned()));
    if names.len() != all.len() || reserved {
        let expected = format!(
            "--candidate: expected files with names of their own, none of them {}",
            RESERVED.join(", ")
        );
        return Err(DataError::Usage(expected).into());
    }
    Ok(all)
}

/// The shipped policies that are for such a machine, and what follows from what was seen.
fn proposals(options: &TuneOptions, matrix: &Matrix, seen: &Seen) -> Result<Vec<Candidate>> {
    let kind = workload::kind(matrix);
    let folder = options.folders.policies();
    let mut all = Vec::new();
    for name in datafile::names(&folder)? {
        if propose::fits(&name, seen, kind) {
            all.push(Candidate {
                policy: datafile::text(&folder.join(format!("{name}.toml")))?,
                why: "a shipped policy for such a machine".to_owned(),
                name,
            });
        }
    }
    all.extend(propose::propose(seen, kind));
    Ok(all)
}
