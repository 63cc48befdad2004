// SPDX-License-Identifier: GPL-2.0-only
//! Runs a matrix: settles the plan, and boots a machine for every block of it (or stays on this one). Owns the host's side; `inside` owns the guest's.

mod cell;
mod claims;
mod commands;
mod disk;
mod disturbed;
mod facts;
mod inside;
mod kernel;
mod places;
mod preferred;
mod preflight;
mod progress;
mod scheduler;
mod settle;
mod simulated;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::claim::Claim;
use crate::cli::RunOptions;
use crate::datafile::DataError;
use crate::interrupt;
use crate::lab::{self, Lab};
use crate::plan::{Block, Plan, Where};
use crate::record::facts::{Facts, NOTED, SETTLED, differences};
use crate::record::{self, Cell, CellKey, RunDir};
use crate::watchdog;
use crate::words::in_words;
use crate::workload;
use disk::Disk;
use places::Places;
pub use progress::GUESSED_BOOT;

/// How often a block is tried: a lab that breaks down once must not cost the run.
const ATTEMPTS: u32 = 2;
/// A minute's load average above this is somebody else's work, which every figure would show.
const BUSY_LOAD: f64 = 0.7;

/// Of the machine that began the run.
const HOST_FACTS: &str = "facts-host.json";
/// Facts of what was built.
const BUILD: [&str; 4] = ["git revision", "gpuaware-bench", "programs", "scx_gpuaware"];

/// What a run has left.
pub struct Done {
    /// The folder of its results.
    pub folder: PathBuf,
    /// Whether every cell that can run here was measured.
    pub complete: bool,
}

/// `gpuaware-bench run`; `None`: it was a part of a run, or a dry one, which reports nothing.
pub fn main(options: &RunOptions) -> Result<Option<Done>> {
    watchdog::start()?;
    interrupt::watch()?;
    if let Some(index) = options.inside {
        let dir = options.output.as_deref().context("--inside needs -o")?;
        // The lab says to its guest where its scratch disk is.
        let disk = std::env::var_os("GPUAWARE_LAB_DISK").map(PathBuf::from);
        let target = options.folders.target()?;
        inside::block(&RunDir::open(dir)?, index, &target, disk.as_deref())?;
        return Ok(None);
    }
    if options.dry_run {
        let plan = settle::settle(options)?;
        let target = options.folders.target()?;
        let commands = commands::of(&plan, options.disk.as_deref(), &target);
        print!("{}{commands}", outline(&plan));
        return Ok(None);
    }
    let (plan, run, _claims) = match &options.resume {
        Some(dir) => resume(dir, options)?,
        None => begin(options)?,
    };
    let root = run.root();
    announce(&plan, root);
    let began = Instant::now();
    run.make_reserve()?;
    let disk = match plan.on {
        Where::Host => Disk::on_host(options.disk.as_deref(), &plan.matrix, root)?,
        Where::Lab | Where::Sim => None,
    };
    let complete = run_blocks(options, &plan, &run, disk.as_ref())?;
    drop(disk);
    run.drop_reserve();
    eprintln!("measured for {}", in_words(began.elapsed()));
    Ok(Some(Done {
        folder: root.to_owned(),
        complete,
    }))
}

/// A new run: its plan and the facts of the machine are written before its first cell.
fn begin(options: &RunOptions) -> Result<(Plan, RunDir, Vec<Claim>)> {
    let plan = settle::settle(options)?;
    can_run(&plan, options)?;
    let mut claims = claims::of_the_machine(&plan, &options.folders.target()?)?;
    let root = options
        .output
        .clone()
        .unwrap_or_else(|| default_output(&plan.name));
    let run = RunDir::create(&root)?;
    let root = root
        .canonicalize()
        .with_context(|| format!("cannot find {}", root.display()))?;
    claims.push(claims::folder(&root)?);
    if run.has_results()? {
        return Err(DataError::Usage(format!(
            "{0}: expected a folder without results, found some: choose another with -o, or go on with --resume {0}",
            root.display()
        ))
        .into());
    }
    let target = options.folders.target()?;
    write_beginning(&root, &plan, || facts::of_the_host(&target))?;
    Ok((plan, RunDir::open(&root)?, claims))
}

/// What of the options and of this machine keeps the plan from being run. Nothing is changed.
fn can_run(plan: &Plan, options: &RunOptions) -> Result<(), DataError> {
    disk::check(options.disk.as_deref(), plan.on)?;
    if plan.on == Where::Host {
        preflight::check(plan, &options.folders.target()?)?;
    }
    Ok(())
}

/// Writes what a run is resumed with. The plan is the last of it, as a folder that has one has begun: who stops a run
/// while programs are asked for the facts of the `host`, which takes seconds, leaves none.
fn write_beginning(root: &Path, plan: &Plan, host: impl FnOnce() -> Facts) -> Result<()> {
    let mut host = host();
    interrupt::check()?;
    if plan.on == Where::Sim {
        // What the machine is that simulates means nothing for the figures.
        host.retain(|name, _| BUILD.contains(&name.as_str()));
    }
    record::write_json(&root.join(HOST_FACTS), &host)?;
    record::write_json(&root.join("plan.json"), plan)
}

/// A run that was cut off: its plan, and what it has measured.
fn resume(dir: &Path, options: &RunOptions) -> Result<(Plan, RunDir, Vec<Claim>)> {
    let usage = |error: anyhow::Error| DataError::Usage(format!("--resume: {error:#}"));
    let root = dir
        .canonicalize()
        .with_context(|| format!("cannot find {}", dir.display()))
        .map_err(usage)?;
    let run = RunDir::open(&root).map_err(usage)?;
    if run.is_archived() {
        let expected = "--resume: expected a run that goes on, got one that is kept: its cells are all there will be";
        return Err(DataError::Usage(expected.to_owned()).into());
    }
    let first = claims::folder(&root)?;
    let plan: Plan = record::read_json(&root.join("plan.json"))?;
    can_run(&plan, options)?;
    let mut claims = claims::of_the_machine(&plan, &options.folders.target()?)?;
    claims.push(first);
    same_host(&root.join(HOST_FACTS), options)?;
    interrupt::check()?;
    run.remove_drafts()?;
    let forgotten = run.forget_failed()?;
    eprintln!(
        "{} of {} cells are measured; {forgotten} failed ones are repeated",
        run.cells()?.len(),
        plan.matrix.cells()
    );
    Ok((plan, run, claims))
}

/// Cells of two machines, or of two builds, are not one comparison: refuses them, or notes what is another now.
fn same_host(file: &Path, options: &RunOptions) -> Result<()> {
    let mut before: Facts = record::read_json(file)?;
    let now = facts::of_the_host(&options.folders.target()?);
    let settled = differences(SETTLED, &before, &now);
    let noted = differences(NOTED, &before, &now);
    if settled.is_empty() && noted.is_empty() {
        return Ok(());
    }
    if !settled.is_empty() && !options.force {
        let differences = settled.join("; ");
        return Err(DataError::Usage(format!(
            "--resume: expected what the run began with, but {differences}: begin a new run, or go on with --force, \
             which the facts will say"
        ))
        .into());
    }
    let all = [settled, noted].concat().join("; ");
    before.insert("resumed with".to_owned(), all);
    record::write_json(file, &before)
}

fn run_blocks(
    options: &RunOptions,
    plan: &Plan,
    run: &RunDir,
    disk: Option<&Disk>,
) -> Result<bool> {
    let places = Places::of_this_machine(&options.folders.target()?);
    for (index, block) in plan.blocks.iter().enumerate() {
        // Of a run that goes on: a boot would measure nothing, and its facts would be taken for those of the cells.
        if block.keys().all(|key| run.has(&key)) {
            continue;
        }
        for attempt in 1..=ATTEMPTS {
            let end = match interrupt::check() {
                Ok(()) => run_block(options, plan, index, run, disk)?,
                Err(_) => End::Interrupted,
            };
            // Here and not where they are written: however the block ended, and whoever wrote them.
            places.strip_files(&run.logs())?;
            let unmeasured: Vec<CellKey> = block.keys().filter(|key| !run.has(key)).collect();
            match end {
                End::Interrupted => {
                    // The one that was under way, by the plan's order.
                    let cut: Vec<CellKey> = unmeasured.into_iter().take(1).collect();
                    record_as_failed(plan, index, run, cut, "interrupted", false)?;
                    let cells = run.cells()?;
                    let kept = cells.iter().filter(|cell| cell.failure.is_none()).count();
                    let root = run.root().display();
                    eprintln!(
                        "gpuaware-bench: interrupted; {kept} finished cells are kept in {root}"
                    );
                    return Ok(false);
                }
                _ if unmeasured.is_empty() => break,
                // Nothing is gained by trying again what is not there.
                End::NoKernel(why) => {
                    eprintln!("gpuaware-bench: warning: {why}");
                    record_as_failed(plan, index, run, unmeasured, &why, true)?;
                    break;
                }
                End::Broken(why) => {
                    eprintln!(
                        "gpuaware-bench: warning: block {} of {}: {why}",
                        index + 1,
                        plan.blocks.len()
                    );
                    if attempt == ATTEMPTS {
                        record_as_failed(plan, index, run, unmeasured, &why, false)?;
                    }
                }
                End::Finished => {
                    let why = "the cell was left out";
                    record_as_failed(plan, index, run, unmeasured, why, false)?;
                    break;
                }
            }
        }
    }
    let failed = run
        .cells()?
        .iter()
        .filter(|cell| cell.measurement.is_none() && !cell.cannot_run)
        .count();
    Ok(failed == 0)
}

enum End {
    Finished,
    Interrupted,
    /// The arms' own kernel cannot be had here.
    NoKernel(String),
    Broken(String),
}

fn run_block(
    options: &RunOptions,
    plan: &Plan,
    index: usize,
    run: &RunDir,
    disk: Option<&Disk>,
) -> Result<End> {
    let block = &plan.blocks[index];
    let target = options.folders.target()?;
    let here = match plan.on {
        Where::Host => Some(inside::block(run, index, &target, disk.map(Disk::path))),
        Where::Sim => Some(simulated::block(plan, index, run, &target)),
        Where::Lab => None,
    };
    match here {
        Some(Ok(())) => return Ok(End::Finished),
        Some(Err(_)) if interrupt::check().is_err() => return Ok(End::Interrupted),
        Some(Err(error)) => return Err(error),
        None => {}
    }
    if let Some(kernel) = &block.kernel
        && let Err(error) = lab::prepare(kernel)
    {
        return Ok(End::NoKernel(format!(
            "the lab has no kernel {kernel}: {error:#}"
        )));
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let words = [
        program.to_string_lossy().into_owned(),
        "run".to_owned(),
        plan.name.clone(),
        "--inside".to_owned(),
        index.to_string(),
        "-o".to_owned(),
        run.root().to_string_lossy().into_owned(),
        "--target-dir".to_owned(),
        target.to_string_lossy().into_owned(),
    ];
    eprintln!(
        "booting the lab ({} of {}): {}",
        index + 1,
        plan.blocks.len(),
        block.arms().join(", ")
    );
    match lab_for(plan, block, run.root()).run(&words) {
        Ok(0) => Ok(End::Finished),
        // The guest ends so as well where something there sent it a signal: that is no wish of the user's.
        Ok(_) | Err(_) if interrupt::check().is_err() => Ok(End::Interrupted),
        Ok(124) => Ok(End::Broken("the lab ran into its time limit".to_owned())),
        Ok(code) => Ok(End::Broken(format!(
            "the runner in the lab ended with exit code {code}"
        ))),
        Err(error) => Ok(End::Broken(format!("{error:#}"))),
    }
}

fn lab_for(plan: &Plan, block: &Block, output: &Path) -> Lab {
    let settings = &plan.matrix.lab;
    let cells = block.keys().count() as u32;
    // Generous: a time limit is for machines that hang, not for slow ones.
    let cell = plan.matrix.seconds() * 2 + Duration::from_secs(20);
    let workloads = plan.matrix.workloads.iter();
    let start: Duration = workloads.map(workload::start_limit).sum();
    let timeout = Duration::from_secs(180) + cell * cells + start * block.arms().len() as u32;
    Lab {
        kernel: block.kernel.as_ref().unwrap_or(&settings.kernel).clone(),
        cpus: plan.cpus,
        boot_args: block.boot_args.clone(),
        timeout,
        rw_dirs: vec![output.to_owned()],
        disk_mib: settings.disk_mib,
        disk_driver: settings.disk_driver,
        memory_mib: settings.memory_mib,
        ..Lab::default()
    }
}

fn record_as_failed(
    plan: &Plan,
    index: usize,
    run: &RunDir,
    keys: Vec<CellKey>,
    why: &str,
    cannot_run: bool,
) -> Result<()> {
    for key in keys {
        run.write_cell(&Cell {
            schema: record::SCHEMA,
            key,
            group: plan.blocks[index].group.clone(),
            block: index,
            started_unix_ms: inside::unix_ms(),
            failure: Some(why.to_owned()),
            cannot_run,
            measurement: None,
            disturbed: Vec::new(),
            discarded: Vec::new(),
            phases_ms: BTreeMap::new(),
        })?;
    }
    Ok(())
}

/// What a plan is of, and about how long it takes.
fn outline(plan: &Plan) -> String {
    let matrix = &plan.matrix;
    let boots = match plan.on {
        Where::Lab => plan.blocks.len() as u32,
        Where::Host | Where::Sim => 0,
    };
    let time = match &plan.machine {
        Some(machine) => format!("simulated on {machine}"),
        None => format!(
            "about {}",
            in_words(matrix.about() + progress::GUESSED_BOOT * boots)
        ),
    };
    format!(
        "{}: {}\n{} rounds of {} cells of {} s, {boots} boots, seed {}, launcher's CPUs {} of {}: {time}\n",
        plan.name,
        matrix.description,
        matrix.rounds,
        matrix.cells() / matrix.rounds as usize,
        matrix.seconds,
        plan.seed,
        plan.preferred,
        plan.cpus
    )
}

fn announce(plan: &Plan, root: &Path) {
    eprintln!("{}", outline(plan).trim_end());
    eprintln!("raw results: {}", root.display());
    if plan.on != Where::Sim
        && let Some(load) = facts::load_average().filter(|&load| load > BUSY_LOAD)
    {
        eprintln!(
            "gpuaware-bench: warning: this machine is busy (load average {load}): the figures will be disturbed"
        );
    }
}

/// bench/runs/local/NAME-TIME (UTC) in the repository, else below the working directory.
pub fn default_output(name: &str) -> PathBuf {
    let now = time::OffsetDateTime::now_utc();
    let stamp = format!(
        "{name}-{:04}{:02}{:02}-{:02}{:02}{:02}",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second()
    );
    crate::folders::bench_dir()
        .unwrap_or_else(|| PathBuf::from("bench"))
        .join("runs/local")
        .join(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folders::Folders;
    use crate::matrix::Matrix;
    use crate::plan::samples;

    #[test]
    fn a_folder_has_a_plan_once_all_is_there_that_a_resumed_run_needs() {
        let dir = tempfile::tempdir().unwrap();
        let [facts, written] = [HOST_FACTS, "plan.json"].map(|name| dir.path().join(name));
        let plan = samples::plan();
        // Where no facts can be written there is no plan either.
        std::fs::create_dir(&facts).unwrap();
        write_beginning(dir.path(), &plan, Facts::new).unwrap_err();
        assert!(!written.exists());
        std::fs::remove_dir(&facts).unwrap();
        let host = || {
            assert!(!written.exists(), "a run that is stopped now has not begun");
            Facts::new()
        };
        write_beginning(dir.path(), &plan, host).unwrap();
        assert!(facts.is_file() && written.is_file());
    }

    #[test]
    fn a_disk_that_cannot_be_is_refused_before_failed_cells_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = samples::plan();
        plan.on = Where::Lab;
        let run = RunDir::create(dir.path()).unwrap();
        write_beginning(dir.path(), &plan, Facts::new).unwrap();
        let keys = plan.blocks[0].keys().take(1).collect();
        record_as_failed(&plan, 0, &run, keys, "interrupted", false).unwrap();
        let options = RunOptions {
            disk: Some("/dev/null".into()),
            ..RunOptions::rest_of(dir.path().to_owned(), false, Folders::default())
        };
        let error = resume(dir.path(), &options).unwrap_err();
        assert!(error.downcast_ref::<DataError>().is_some(), "{error:#}");
        assert!(
            error
                .to_string()
                .starts_with("--disk: expected with --on host")
        );
        assert_eq!(run.cells().unwrap().len(), 1);
    }

    #[test]
    fn the_lab_has_time_for_a_server_of_each_arm_to_start() {
        let mut plan = samples::plan();
        let limit = |plan: &Plan| lab_for(plan, &plan.blocks[0], Path::new("/")).timeout;
        let without = limit(&plan);
        let served = Matrix::parse(
            "description = \"d\"\nrounds = 1\nseconds = 1\nneighbours = [\"none\"]\narms = [\"eevdf\"]\n[[workload]]\n\
             name = \"c\"\nprogram = \"vllm\"\nmodel = \"m\"\nrequest_rate = 4\nclient = \"vllm_bench\"\n",
        );
        plan.matrix.workloads.extend(served.workloads);
        let arms = plan.blocks[0].arms().len() as u32;
        // Ten minutes were too few.
        assert!(limit(&plan) >= without + Duration::from_secs(1200) * arms);
    }
}
