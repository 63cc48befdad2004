// SPDX-License-Identifier: GPL-2.0-only
//! Noisy neighbours: started for one cell, waited for until they do work, asked again at the end
//! of the measured window, stopped for certain, and their own output read for what they got done.
//! It does not know what they disturb.

mod fio;
mod hackbench;
mod iperf3;
mod program;
mod rps;
mod stress_ng;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::arm::NeighbourSettings;
use crate::interrupt;
use crate::process::{Supervised, printed};
use crate::record::neighbour::{Kind, Neighbour, StressNg, Work};
use program::{Own, Terms};

const POLL: Duration = Duration::from_millis(10);
/// Long enough for emulated CPUs under full load; a neighbour that needs longer is broken.
const START_TIMEOUT: Duration = Duration::from_secs(15);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Where neighbours run.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Takes their output.
    pub scratch: &'a Path,
    /// What fio writes to.
    pub disk: Option<&'a Path>,
    /// The launcher's CPUs.
    pub preferred: &'a str,
    pub stress_ng: &'a StressNg,
}

/// The commands of `neighbour`'s programs, to be read: ports and the files of their output are others in a run.
pub fn commands(neighbour: Neighbour, settings: &NeighbourSettings, place: Place) -> Vec<Command> {
    let terms = Terms::on_paper(settings);
    let disk = place.disk.unwrap_or(Path::new("DISK"));
    let of = |kind: &Kind| {
        let output = place.scratch.join(format!("{}.out", kind.name()));
        let worker = |stressor: Vec<String>| vec![stress_ng::command(&stressor, &output, &terms)];
        match kind {
            Kind::StressNg => worker(stress_ng::cpu(place.stress_ng)),
            Kind::Stream => worker(stress_ng::stream()),
            Kind::Cache => worker(stress_ng::cache()),
            Kind::Hackbench => vec![hackbench::command(&terms)],
            Kind::Iperf3 => iperf3::commands(iperf3::USUAL_PORT, &terms).into(),
            Kind::Fio => vec![fio::command(disk, &output, &terms)],
            Kind::Recorded => Vec::new(),
        }
    };
    neighbour.kinds().iter().flat_map(of).collect()
}

/// One running program of a neighbour.
#[derive(Debug)]
struct Part {
    kind: Kind,
    process: Supervised,
    /// iperf3's other end: ends by itself with the client, else when this is dropped.
    _server: Option<Supervised>,
    output: PathBuf,
    /// The kernel's counter before the program began, and at the start of the measured window.
    before: u64,
    window_start: u64,
}

/// A neighbour that runs; dropping it kills all of it.
#[derive(Debug)]
pub struct Running {
    parts: Vec<Part>,
    /// After the programs: their cgroup must be empty to be removed.
    _terms: Terms,
    steering: Option<rps::Steering>,
    /// What it had brought about as the measured window began.
    steered: u64,
    disk: Option<PathBuf>,
    window_began: Instant,
}

impl Running {
    /// Starts the programs of `neighbour`, each once the one before it does work, and returns when
    /// all work.
    pub fn start(neighbour: Neighbour, settings: &NeighbourSettings, place: Place) -> Result<Self> {
        let terms = match neighbour {
            Neighbour::None => Terms::default(),
            _ => Terms::of(settings)?,
        };
        let steering = match neighbour {
            Neighbour::Irq => rps::Steering::to(place.preferred)?,
            _ => None,
        };
        let mut parts = Vec::new();
        for &kind in neighbour.kinds() {
            let mut part = Part::start(kind, &terms, place)?;
            part.wait_until_working(place.disk)?;
            parts.push(part);
        }
        Ok(Self {
            parts,
            _terms: terms,
            steering,
            steered: 0,
            disk: place.disk.map(Path::to_owned),
            window_began: Instant::now(),
        })
    }

    /// Notes where the kernel's counters stand as the measured window begins.
    pub fn window_begins(&mut self) -> Result<()> {
        for part in &mut self.parts {
            part.window_start = part.evidence(self.disk.as_deref())?;
        }
        if let Some(steering) = &self.steering {
            self.steered = steering.evidence()?;
        }
        self.window_began = Instant::now();
        Ok(())
    }

    /// As the measured window ends: everybody must be alive and must have done work in it.
    /// Then stops all and returns what they did.
    pub fn finish(mut self) -> Result<Vec<Work>> {
        let window = self.window_began.elapsed();
        let mut ends = Vec::new();
        for part in &mut self.parts {
            part.must_live()?;
            let end = part.evidence(self.disk.as_deref())?;
            if end <= part.window_start {
                bail!(
                    "{} did no work in the measured window ({} stood still)",
                    part.kind.name(),
                    part.kind.evidence_unit()
                );
            }
            ends.push(end);
        }
        if let Some(steering) = &self.steering
            && steering.evidence()? <= self.steered
        {
            bail!("no packet was received on the launcher's CPUs in the measured window");
        }
        for part in &mut self.parts {
            part.process.signal(Signal::SIGINT)?;
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut work = Vec::new();
        for (part, end) in self.parts.iter_mut().zip(ends) {
            part.process.wait_until(deadline)?;
            work.push(part.work(end, window)?);
        }
        Ok(work)
    }
}

impl Part {
    fn start(kind: Kind, terms: &Terms, place: Place) -> Result<Self> {
        let need_disk = || {
            place
                .disk
                .context("fio needs a disk or a file to write to: name one with --disk")
        };
        let output = place.scratch.join(format!("{}.out", kind.name()));
        // The last cell's output must not pass for this one's.
        let _ = fs::remove_file(&output);
        let worker = |stressor: &[String]| -> Result<_> {
            Ok((0, stress_ng::start(stressor, &output, terms)?, None))
        };
        let (before, process, server) = match kind {
            Kind::StressNg => worker(&stress_ng::cpu(place.stress_ng))?,
            Kind::Stream => worker(&stress_ng::stream())?,
            Kind::Cache => worker(&stress_ng::cache())?,
            Kind::Hackbench => (0, hackbench::start(&output, terms)?, None),
            Kind::Iperf3 => {
                let before = iperf3::loopback_bytes()?;
                let (client, server) = iperf3::start(&output, terms)?;
                (before, client, Some(server))
            }
            Kind::Fio => {
                let disk = need_disk()?;
                (
                    fio::disk_writes(disk, None)?,
                    fio::start(disk, &output, terms)?,
                    None,
                )
            }
            Kind::Recorded => bail!("what was recorded is simulated only"),
        };
        Ok(Self {
            kind,
            process,
            _server: server,
            output,
            before,
            window_start: before,
        })
    }

    fn wait_until_working(&mut self, disk: Option<&Path>) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.works(disk)? {
            interrupt::check()?;
            if Instant::now() >= deadline {
                bail!(
                    "{} did no work within {} s ({}: {} before, {} now)",
                    self.kind.name(),
                    START_TIMEOUT.as_secs(),
                    self.kind.evidence_unit(),
                    self.before,
                    self.evidence(disk)?
                );
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn evidence(&self, disk: Option<&Path>) -> Result<u64> {
        match self.kind {
            Kind::StressNg | Kind::Stream | Kind::Cache => {
                stress_ng::worker_ticks(self.process.pid())
            }
            Kind::Hackbench => hackbench::worker_ticks(self.process.pid()),
            Kind::Iperf3 => iperf3::loopback_bytes(),
            Kind::Fio => {
                let disk = disk.context("fio runs without a disk")?;
                fio::disk_writes(disk, Some(self.process.pid()))
            }
            Kind::Recorded => Ok(0),
        }
    }

    fn works(&mut self, disk: Option<&Path>) -> Result<bool> {
        self.must_live()?;
        let threshold = match self.kind {
            Kind::StressNg | Kind::Stream | Kind::Cache | Kind::Hackbench => 2,
            Kind::Iperf3 => 1 << 20,
            Kind::Fio => 64,
            Kind::Recorded => 0,
        };
        Ok(self.evidence(disk)?.saturating_sub(self.before) >= threshold)
    }

    fn must_live(&mut self) -> Result<()> {
        let Some(status) = self.process.ended()? else {
            return Ok(());
        };
        let output = printed(&self.output);
        let log = printed(&self.output.with_extension("log"));
        let last = log
            .lines()
            .chain(output.lines())
            .rfind(|line| !line.trim().is_empty());
        bail!(
            "{} died during the cell ({status}){}",
            self.kind.name(),
            last.map(|line| format!(": {}", line.trim()))
                .unwrap_or_default()
        )
    }

    /// What it did in the measured window, from its own output and the counter at the window's end.
    fn work(&self, end: u64, window: Duration) -> Result<Work> {
        let own = self.own()?;
        let window_evidence = end - self.window_start;
        let total_evidence = end - self.before;
        let share = window_evidence as f64 / total_evidence as f64;
        Ok(Work {
            kind: self.kind,
            rate: own.total * share / window.as_secs_f64().max(1e-6),
            unit: self.kind.unit().to_owned(),
            own_total: own.total,
            own_seconds: own.seconds,
            window_evidence,
            total_evidence,
            evidence_unit: self.kind.evidence_unit().to_owned(),
        })
    }

    fn own(&self) -> Result<Own> {
        let text = fs::read_to_string(&self.output)
            .with_context(|| format!("cannot read what {} printed", self.kind.name()))?;
        read_output(self.kind, &text)
            .with_context(|| format!("cannot make sense of what {} printed", self.kind.name()))
    }
}

fn read_output(kind: Kind, text: &str) -> Result<Own> {
    match kind {
        Kind::StressNg | Kind::Stream | Kind::Cache => stress_ng::parse(text),
        Kind::Hackbench => hackbench::parse(text),
        Kind::Iperf3 => iperf3::parse(text),
        Kind::Fio => fio::parse(text),
        Kind::Recorded => bail!("it prints nothing"),
    }?
    .checked()
}

/// Has `text` read as the output of every program.
pub fn read_outputs(text: &str) {
    for kind in [Kind::StressNg, Kind::Hackbench, Kind::Iperf3, Kind::Fio] {
        let _ = read_output(kind, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(neighbour: Neighbour, stress_ng: &StressNg) -> Result<Running> {
        let dir = tempfile::tempdir().unwrap();
        let place = Place {
            scratch: dir.path(),
            disk: None,
            preferred: "1",
            stress_ng,
        };
        Running::start(neighbour, &NeighbourSettings::default(), place)
    }

    #[test]
    fn none_starts_nothing() {
        let mut running = start(Neighbour::None, &StressNg::default()).unwrap();
        running.window_begins().unwrap();
        assert!(running.finish().unwrap().is_empty());
    }

    #[test]
    fn says_that_fio_needs_a_disk() {
        let error = start(Neighbour::Heavy, &StressNg::default()).unwrap_err();
        assert!(error.to_string().contains("--disk"), "{error:#}");
    }
}
