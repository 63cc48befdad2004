// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench replay`: a host that was recorded, in the simulator, under EEVDF, the default policy and those of
//! files. Owns the runs and their table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::datafile::{self, DataError};
use crate::folders::Folders;
use crate::interrupt;
use crate::matrix;
use crate::report::format::{figure, percent};
use crate::report::table::{Align, Table};
use crate::simulator::{self, Chooser, Wish};
use gpuaware_stats::{Estimate, Scale, over_boots};

/// What was recorded, and what is tried with it.
#[derive(Debug, clap::Args)]
pub struct ReplayOptions {
    /// What `scx_gpuaware trace --record-profile` has written.
    profile: PathBuf,

    /// A policy to try beside EEVDF and the default policy; repeatable.
    #[arg(long, value_name = "FILE")]
    policy: Vec<PathBuf>,

    /// Another machine than the recorded one: CPUS[xLLCS[xNODES[xTHREADS[xGPUS]]]] or the name of a file in
    /// tests/data/sysfs.
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,

    /// Runs under each, with the seeds 1, 2, 3, …
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,

    /// Length of a run, simulated seconds.
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: f64,

    #[command(flatten)]
    folders: Folders,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text
        .parse()
        .map_err(|_| format!("expected seconds, got {text:?}"))?;
    matrix::check_seconds(value)
}

/// What the simulator's clock counts in: a wait of none has no logarithm.
const CLOCK_US: f64 = 1e-3;

/// What is set beside what.
struct Contender {
    name: String,
    scheduler: &'static str,
    policy: Map<String, Value>,
    /// As it is written, for the scheduler to choose preferred CPUs by.
    text: String,
}

/// What the simulator says of the tasks of a class. Times in µs, CPU time in CPUs.
#[derive(Debug, Clone, Deserialize)]
struct OfClass {
    tasks: usize,
    wait_p50_us: Option<f64>,
    wait_p99_us: Option<f64>,
    cpus: f64,
    work_cpus: f64,
    recorded_cpus: f64,
}

/// What it says of a run.
#[derive(Debug, Clone, Deserialize)]
struct Replayed {
    machine: String,
    notes: Vec<String>,
    launch: OfClass,
    background: OfClass,
}

/// Prints the table.
pub fn main(options: &ReplayOptions) -> Result<()> {
    let contenders = contenders(&options.policy)?;
    let profile = utf8(&options.profile)?;
    let target = options.folders.target()?;
    let threads = simulator::threads_of_recording(profile)?;
    let machine = options.machine.as_deref().map(simulator::place);
    let chooser = Chooser::of(machine.as_deref().unwrap_or(&options.profile), &target)?;
    let mut said = BTreeSet::new();
    let mut rows = Vec::new();
    for contender in &contenders {
        let mut runs = Vec::new();
        let policy = contender.text.clone();
        let preferred = chooser
            .preferred(&Wish { policy, threads })
            .map_err(|why| DataError::Usage(format!("--policy {}: {why}", contender.name)))?;
        for seed in 1..=options.repeats {
            interrupt::check()?;
            let spec = json!({
                "profile": profile,
                "machine": machine.as_ref().map(|place| place.to_string_lossy()),
                "scheduler": contender.scheduler,
                "policy": contender.policy,
                "preferred": preferred,
                "seconds": options.seconds,
                "seed": seed,
            });
            let value = simulator::replay(&spec, &target)?;
            let run: Replayed = serde_json::from_value(value)?;
            for note in run.notes.iter().filter(|note| !said.contains(*note)) {
                eprintln!("gpuaware-bench: {note}");
            }
            said.extend(run.notes.iter().cloned());
            runs.push(run);
        }
        rows.push((contender.name.as_str(), runs));
    }
    print!("{}", text(options, &rows));
    Ok(())
}

fn contenders(files: &[PathBuf]) -> Result<Vec<Contender>, DataError> {
    let named = |name: &str, scheduler| Contender {
        name: name.to_owned(),
        scheduler,
        policy: Map::new(),
        text: String::new(),
    };
    let mut all = vec![named("eevdf", "eevdf"), named("default", "gpuaware")];
    for file in files {
        let text = datafile::text(file)?;
        let policy = simulator::policy(&text)
            .map_err(|why| DataError::Usage(format!("--policy {}: {why}", file.display())))?;
        all.push(Contender {
            name: file.display().to_string(),
            scheduler: "gpuaware",
            policy,
            text,
        });
    }
    Ok(all)
}

/// The simulator is told in JSON where the profile is.
fn utf8(profile: &Path) -> Result<&str, DataError> {
    profile.to_str().ok_or_else(|| {
        DataError::Usage(format!(
            "PROFILE: expected a path in UTF-8, got {profile:?}: call the file something else"
        ))
    })
}

/// A figure of each run, as far as it has one.
fn over_runs(
    runs: &[Replayed],
    scale: Scale,
    of: impl Fn(usize, &Replayed) -> Option<f64>,
) -> Option<Estimate> {
    let values = runs.iter().enumerate();
    let values: Vec<(u32, f64)> = values
        .filter_map(|(at, run)| Some((at as u32, of(at, run)?)))
        .collect();
    over_boots(&values, scale)
}

fn ratio(above: f64, below: f64) -> Option<f64> {
    (above > 0.0 && below > 0.0).then(|| above / below)
}

fn text(options: &ReplayOptions, rows: &[(&str, Vec<Replayed>)]) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("policy", Left),
        ("launch p50 µs", Right),
        ("p99 µs", Right),
        ("CPU % of recorded", Right),
        ("background p99 µs", Right),
        ("work % of eevdf", Right),
    ]);
    let Some((_, eevdf)) = rows.first() else {
        return String::new();
    };
    for (name, runs) in rows {
        let wait = |of: fn(&Replayed) -> Option<f64>| {
            let wait = |_, run: &Replayed| of(run).map(|us| us.max(CLOCK_US));
            figure(over_runs(runs, Scale::Log, wait), 1, true)
        };
        let cpu = |_, run: &Replayed| ratio(run.launch.cpus, run.launch.recorded_cpus);
        let work = |at: usize, run: &Replayed| {
            let baseline = &eevdf.get(at)?.background;
            ratio(run.background.work_cpus, baseline.work_cpus)
        };
        table.rows.push(vec![
            (*name).to_owned(),
            wait(|run| run.launch.wait_p50_us),
            wait(|run| run.launch.wait_p99_us),
            percent(over_runs(runs, Scale::Log, cpu), 1, true),
            wait(|run| run.background.wait_p99_us),
            percent(over_runs(runs, Scale::Log, work), 1, true),
        ]);
    }
    let mut text = String::new();
    if let Some(first) = eevdf.first() {
        text += &format!(
            "Simulated, not measured, on a machine of {}: {} launchers, {} others, {} runs of {} s each\n\n",
            first.machine,
            first.launch.tasks,
            first.background.tasks,
            options.repeats,
            options.seconds
        );
        if first.launch.tasks == 0 {
            text += "Nobody was seen to launch: only the background's columns say something.\n\n";
        }
    }
    text + &table.to_text()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn of_class(wait_us: f64, cpus: f64) -> OfClass {
        OfClass {
            tasks: 1,
            wait_p50_us: Some(wait_us),
            wait_p99_us: Some(10.0 * wait_us),
            cpus,
            work_cpus: cpus,
            recorded_cpus: 0.5,
        }
    }

    fn runs(wait_us: f64, cpus: f64) -> Vec<Replayed> {
        [0.99, 1.0, 1.01]
            .map(|by| Replayed {
                machine: "2 CPUs, 1 caches".to_owned(),
                notes: Vec::new(),
                launch: of_class(by * wait_us, cpus),
                background: of_class(5.0, by * cpus),
            })
            .to_vec()
    }

    #[test]
    fn a_path_that_is_no_text_is_refused() {
        let path = Path::new(OsStr::from_bytes(b"/p\xff.json"));
        let error = utf8(path).unwrap_err().to_string();
        assert!(error.contains("in UTF-8, got \"/p\\xFF.json\""), "{error}");
        assert_eq!(utf8(Path::new("p.json")).unwrap(), "p.json");
    }

    #[test]
    fn a_table_has_a_row_for_each_policy_and_intervals_over_seeds() {
        let options = ReplayOptions {
            profile: "p.json".into(),
            policy: Vec::new(),
            machine: None,
            repeats: 3,
            seconds: 2.0,
            folders: Folders::default(),
        };
        let rows = [("eevdf", runs(100.0, 0.25)), ("default", runs(1.0, 0.5))];
        let text = text(&options, &rows);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(row("eevdf").contains("100.0 [97.5–102.5]"), "{text}");
        assert!(row("eevdf").contains("50.0"), "{text}");
        assert!(row("default").ends_with("200.0 [200.0–200.0]"), "{text}");
        assert!(text.contains("1 launchers"), "{text}");
    }
}
