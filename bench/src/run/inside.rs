// SPDX-License-Identifier: GPL-2.0-only
//! The guest's side of a run: measures one block of the plan, cell by cell, and writes each result
//! at once. It runs on the host as well when the comparison is about the host.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::arm::Arm;
use crate::bpf;
use crate::interrupt;
use crate::plan::{Block, Plan, Turn};
use crate::record::neighbour::Neighbour;
use crate::record::{self, Cell, CellKey, Discarded, Measurement, RunDir};
use crate::run::cell::{self, Phases, Settings};
use crate::run::disturbed::{self, Budget, Usual};
use crate::run::facts;
use crate::run::places::Places;
use crate::run::progress::Progress;
use crate::run::scheduler::Attached;
use crate::workload::{Standing, driver};

/// A block that is being measured.
struct BlockRun<'a> {
    plan: &'a Plan,
    block: &'a Block,
    index: usize,
    run: &'a RunDir,
    target_dir: &'a Path,
    scratch: tempfile::TempDir,
    disk: Option<&'a Path>,
    progress: Progress,
    budget: Budget,
    /// Known once the block's cells have been measured.
    usual: Usual,
    places: Places,
    /// What the kernel took the time from at first.
    clock: Option<String>,
    /// A server that is slow to start, for the next cell that wants the same.
    standing: Option<Standing>,
}

/// Something that the arm needs is not there: a result, and no fault of the run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct CannotRun(String);

/// Runs block `index` of the plan in `run`. Failed cells are results; an error is a run that
/// cannot go on. `disk` is what fio may overwrite.
pub fn block(run: &RunDir, index: usize, target_dir: &Path, disk: Option<&Path>) -> Result<()> {
    let mut plan: Plan = record::read_json(&run.root().join("plan.json"))?;
    let scratch = tempfile::tempdir().context("cannot create a scratch folder")?;
    for (name, arm) in &mut plan.arms {
        *arm = arm.with_programs_in(target_dir);
        let files = scratch.path().join("arms").join(name);
        arm.write_files(&files)?;
        keep_settings(
            arm,
            &files,
            &run.logs().join(format!("{name}-settings.txt")),
        );
    }
    if std::env::var_os("GPUAWARE_LAB").is_some() {
        driver::install_in_guest(&target_dir.join("lab"), scratch.path())?;
    }
    let block = plan
        .blocks
        .get(index)
        .with_context(|| format!("the plan has no block {index}"))?;
    let facts = facts::of_this_machine();
    record::write_json(&run.root().join(format!("facts-block{index}.json")), &facts)?;
    let spent = run.cells()?.iter().map(|cell| cell.discarded.len()).sum();
    let mut block_run = BlockRun {
        plan: &plan,
        block,
        index,
        run,
        target_dir,
        scratch,
        disk,
        progress: Progress::new(&plan, run, index),
        budget: Budget::new(plan.matrix.cells(), spent),
        usual: Usual::default(),
        places: Places::of_this_machine(target_dir),
        clock: facts::clocksource(),
        standing: None,
    };
    let _counting = plan
        .matrix
        .bpf_stats
        .then(bpf::Counting::start)
        .transpose()?;
    block_run.warm_up()?;
    for round in &block.rounds {
        for turn in &round.turns {
            block_run.turn(round.round, turn)?;
        }
    }
    block_run.again_where_slow()?;
    if let Some(server) = block_run.standing.take() {
        server.end();
    }
    Ok(())
}

impl BlockRun<'_> {
    /// What an arm is warmed up with: its workloads in turn; the first arm beside the last neighbour, the noisiest, whose
    /// programs are warm then.
    fn warm_up_row(&self, at: usize, arm: &str) -> Option<(&str, Neighbour)> {
        let matrix = &self.plan.matrix;
        let noisiest = matrix.neighbours.last().filter(|_| at == 0).copied();
        let mut wanted = noisiest.into_iter().chain([Neighbour::None]);
        wanted.find_map(|neighbour| {
            let rows = matrix.each_row();
            let rows = rows.filter(|(_, beside, own)| (*beside, *own) == (neighbour, arm));
            let workloads: Vec<&str> = rows.map(|(workload, ..)| workload).collect();
            let turn = at.checked_rem(workloads.len())?;
            Some((workloads[turn], neighbour))
        })
    }

    /// One short cell for every arm that is thrown away: programs and pages are warm after it.
    fn warm_up(&mut self) -> Result<()> {
        let seconds = self.plan.matrix.warmup_seconds;
        if seconds == 0.0 || self.block.keys().all(|key| self.run.has(&key)) {
            return Ok(());
        }
        let began = Instant::now();
        for (at, name) in self.block.arms().into_iter().enumerate() {
            let arm = &self.plan.arms[name];
            if missing(arm, &self.plan.preferred).is_some() {
                continue;
            }
            let Some((workload, neighbour)) = self.warm_up_row(at, name) else {
                continue;
            };
            let key = CellKey {
                round: 0,
                arm: name.to_owned(),
                neighbour,
                workload: workload.to_owned(),
            };
            let mut standing = self.server_for(arm);
            let result = self.attach(arm, &key).and_then(|mut attached| {
                let mut phases = Phases::begin();
                self.measure(&key, seconds, attached.as_mut(), &mut standing, &mut phases)?;
                attached.map_or(Ok(()), Attached::stop)
            });
            self.standing = standing;
            interrupt::check()?;
            if let Err(error) = result {
                eprintln!("gpuaware-bench: warning: warming up {name}: {error:#}");
            }
        }
        eprintln!(
            "warmed up {} arms in {:.1} s",
            self.block.arms().len(),
            began.elapsed().as_secs_f64()
        );
        Ok(())
    }

    /// One arm's cells in one round.
    fn turn(&mut self, round: u32, turn: &Turn) -> Result<()> {
        let keys = turn
            .cells
            .iter()
            .map(|(neighbour, workload)| CellKey {
                round,
                arm: turn.arm.clone(),
                neighbour: *neighbour,
                workload: workload.clone(),
            })
            // What an earlier attempt at this block has measured stays.
            .filter(|key| !self.run.has(key));
        self.measure_all(&turn.arm, keys.map(|key| (key, Vec::new())).collect())
    }

    /// Cells in which the host was slower than usual, once it is known what is usual: once more, or marked.
    fn again_where_slow(&mut self) -> Result<()> {
        let cells = self.run.cells()?;
        self.usual = Usual::of(&cells);
        let index = self.index;
        let open = |cell: &Cell| cell.block == index && cell.disturbed.is_empty();
        for mut cell in cells.into_iter().filter(open) {
            let measurement = cell.measurement.as_ref();
            let slowdown =
                measurement.and_then(|m| self.usual.slowdown(cell.key.neighbour, &m.surroundings));
            let Some(reason) = slowdown else { continue };
            cell.disturbed.push(reason);
            let took = Duration::from_millis(cell.phases_ms.values().sum());
            self.progress.reopen(&cell.key);
            let arm = cell.key.arm.clone();
            if let Some(again) = self.keep(cell, took)? {
                self.measure_all(&arm, VecDeque::from([again]))?;
            }
        }
        Ok(())
    }

    /// Measures cells of one arm under its scheduler. A disturbed one goes to the end of the queue: by then the
    /// disturbance may be over.
    fn measure_all(
        &mut self,
        arm: &str,
        mut queue: VecDeque<(CellKey, Vec<Discarded>)>,
    ) -> Result<()> {
        if queue.is_empty() {
            return Ok(());
        }
        let arm = &self.plan.arms[arm];
        let unusable = missing(arm, &self.plan.preferred);
        let mut standing = self.server_for(arm);
        let mut attached = None;
        while let Some((key, discarded)) = queue.pop_front() {
            let began = Instant::now();
            let mut phases = Phases::begin();
            let result = match &unusable {
                Some(reason) => Err(CannotRun(reason.clone()).into()),
                None => self.attach_again(arm, &key, &mut attached).and_then(|()| {
                    phases.end_of("scheduler_start");
                    let seconds = self.plan.matrix.seconds;
                    self.measure(&key, seconds, attached.as_mut(), &mut standing, &mut phases)
                }),
            };
            // A cell that the user cut short says nothing about the arm.
            interrupt::check()?;
            if result.is_err() {
                // The next cell starts from nothing: a scheduler in an unknown state is dropped.
                attached = None;
            }
            let cell = self.cell(key, result, discarded, phases, began);
            queue.extend(self.keep(cell, began.elapsed())?);
        }
        self.standing = standing;
        if let Some(scheduler) = attached
            && let Err(error) = scheduler.stop()
        {
            eprintln!("gpuaware-bench: warning: {error:#}");
        }
        Ok(())
    }

    /// The server that stands, if the arm would have started it so; one that it would not is gone before its scheduler
    /// comes.
    fn server_for(&mut self, arm: &Arm) -> Option<Standing> {
        let standing = self.standing.take()?;
        if standing.suits(&arm.workload) {
            return Some(standing);
        }
        standing.end();
        None
    }

    fn attach(&self, arm: &Arm, key: &CellKey) -> Result<Option<Attached>> {
        let Some(scheduler) = &arm.scheduler else {
            return Ok(None);
        };
        let name = format!("{}-block{}-round{}.log", key.arm, self.index, key.round);
        Attached::start(scheduler, &self.run.logs().join(name)).map(Some)
    }

    fn attach_again(
        &self,
        arm: &Arm,
        key: &CellKey,
        attached: &mut Option<Attached>,
    ) -> Result<()> {
        if attached.is_none() {
            *attached = self.attach(arm, key)?;
        }
        Ok(())
    }

    fn measure(
        &self,
        key: &CellKey,
        seconds: f64,
        attached: Option<&mut Attached>,
        standing: &mut Option<Standing>,
        phases: &mut Phases,
    ) -> Result<Measurement> {
        let workloads = &self.plan.matrix.workloads;
        let settings = Settings {
            arm: &self.plan.arms[&key.arm],
            workload: workloads
                .iter()
                .find(|workload| workload.name == key.workload)
                .with_context(|| format!("the matrix has no workload {}", key.workload))?,
            neighbour: key.neighbour,
            seconds,
            round: key.round,
            target_dir: self.target_dir,
            preferred: &self.plan.preferred,
            scratch: self.scratch.path(),
            disk: self.disk,
            stress_ng: &self.plan.matrix.stress_ng,
            bpf_stats: self.plan.matrix.bpf_stats,
        };
        let measurement = cell::measure(&settings, attached, standing, phases)?;
        same_clock(self.clock.as_deref(), facts::clocksource().as_deref())?;
        Ok(measurement)
    }

    fn cell(
        &self,
        key: CellKey,
        result: Result<Measurement>,
        discarded: Vec<Discarded>,
        phases: Phases,
        began: Instant,
    ) -> Cell {
        let cannot_run = result.as_ref().is_err_and(anyhow::Error::is::<CannotRun>);
        let (measurement, failure) = match result {
            Ok(measurement) => (Some(measurement), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let surroundings = measurement.as_ref().map(|m| &m.surroundings);
        let mut disturbed = surroundings.map_or_else(Vec::new, disturbed::reasons);
        disturbed.extend(surroundings.and_then(|s| self.usual.slowdown(key.neighbour, s)));
        Cell {
            schema: record::SCHEMA,
            key,
            group: self.block.group.clone(),
            block: self.index,
            started_unix_ms: unix_ms().saturating_sub(began.elapsed().as_millis() as u64),
            failure,
            cannot_run,
            disturbed,
            discarded,
            measurement,
            phases_ms: phases.into_ms(),
        }
    }

    /// Writes the cell. If it is to be measured again, returns its key and all that is discarded then; what
    /// is written stays until that is done.
    fn keep(&mut self, cell: Cell, took: Duration) -> Result<Option<(CellKey, Vec<Discarded>)>> {
        let cell = self.places.strip_from(&cell)?;
        self.run.write_cell(&cell)?;
        let again = self.budget.again(&cell.disturbed, cell.discarded.len());
        eprintln!("{}", self.progress.line(&cell, took, again));
        let Some(measurement) = cell.measurement.filter(|_| again) else {
            return Ok(None);
        };
        let mut discarded = cell.discarded;
        discarded.push(Discarded {
            tokens_per_s: measurement.workload.tokens_per_s(),
            surroundings: measurement.surroundings,
            reasons: cell.disturbed,
        });
        Ok(Some((cell.key, discarded)))
    }
}

/// Writes what the arm's scheduler says of its settings into `file`: defaults are part of what was compared.
/// Where the arm's `files` lie for the run is no part of them.
fn keep_settings(arm: &Arm, files: &Path, file: &Path) {
    let settings = arm.scheduler.as_ref().and_then(|s| s.settings.as_ref());
    let Some([program, args @ ..]) = settings.map(Vec::as_slice) else {
        return;
    };
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output();
    let kept = match output {
        Ok(output) if output.status.success() => {
            let settings = String::from_utf8_lossy(&output.stdout);
            std::fs::write(file, settings.replace(&format!("{}/", files.display()), ""))
        }
        Ok(output) => Err(std::io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
        Err(error) => Err(error),
    };
    if let Err(error) = kept {
        eprintln!("gpuaware-bench: warning: the settings of {program} are not known: {error}");
    }
}

/// An error if the kernel gave its clock up since the block began: where another is read by system calls,
/// whoever asks for the time is slower than before, and no cell is comparable with those before.
fn same_clock(began: Option<&str>, now: Option<&str>) -> Result<()> {
    if began == now {
        return Ok(());
    }
    let word = |clock: Option<&str>| clock.unwrap_or("not known").to_owned();
    bail!(
        "the kernel's clock is {} now, it was {} when the boot's cells began",
        word(now),
        word(began)
    )
}

/// Milliseconds since 1970.
pub fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// Why the arm cannot run on this boot, if it cannot.
pub fn missing(arm: &Arm, preferred: &str) -> Option<String> {
    if let Some(scheduler) = &arm.scheduler
        && scheduler.command[0].contains('/')
        && !Path::new(&scheduler.command[0]).exists()
    {
        return Some(format!(
            "{} is not there: build it first",
            scheduler.command[0]
        ));
    }
    arm.needs.iter().find_map(|need| need.unmet(preferred))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_whose_program_is_missing_says_how_to_get_it() {
        let arm: Arm = toml::from_str(
            "description = \"x\"\nneeds = [\"program:scx_nobody_wrote_this\"]\n\
             [scheduler]\ncommand = [\"scx_nobody_wrote_this\"]\nops = \"x\"\n",
        )
        .unwrap();
        let reason = missing(&arm.with_programs_in(Path::new("/t")), "1");
        assert_eq!(
            reason.as_deref(),
            Some("scx_nobody_wrote_this is not installed: run make peers")
        );
        let there: Arm = toml::from_str("description = \"x\"\nneeds = [\"program:sh\"]\n").unwrap();
        assert_eq!(missing(&there, "1"), None);
    }

    #[test]
    fn a_clock_that_was_given_up_is_an_error() {
        assert!(same_clock(Some("tsc"), Some("tsc")).is_ok());
        assert!(same_clock(None, None).is_ok());
        let error = same_clock(Some("tsc"), Some("hpet")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the kernel's clock is hpet now, it was tsc when the boot's cells began"
        );
    }
}
