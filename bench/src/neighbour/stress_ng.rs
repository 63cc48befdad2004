// SPDX-License-Identifier: GPL-2.0-only
//! stress-ng: workers of one kind, one per online CPU unless the matrix says otherwise; its metrics from its own YAML file.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::program::{Own, Terms};
use crate::process::Supervised;
use crate::procstat::ProcessStat;
use crate::record::neighbour::StressNg;

/// The size of the cache that streams go beyond. The machine's own is no measure: a virtual machine may be told of the
/// whole socket's, and one turn over several times that takes seconds.
const STREAM_L3: &str = "4m";

/// Busy loops of arithmetic.
pub(super) fn cpu(settings: &StressNg) -> Vec<String> {
    let workers = settings.workers.to_string();
    words(&["--cpu", &workers, "--cpu-method", &settings.method])
}

/// Loads and stores over more memory than the caches hold.
pub(super) fn stream() -> Vec<String> {
    words(&["--stream", "0", "--stream-l3-size", STREAM_L3])
}

/// Loads and stores all over the shared cache. Left alone, a worker wanders over the CPUs.
pub(super) fn cache() -> Vec<String> {
    words(&["--cache", "0", "--cache-no-affinity"])
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

pub(super) fn command(stressor: &[String], output: &Path, terms: &Terms) -> Command {
    let mut command = terms.command("stress-ng");
    command
        .args(stressor)
        .args(["--metrics", "--yaml"])
        .arg(output);
    command
}

pub(super) fn start(stressor: &[String], output: &Path, terms: &Terms) -> Result<Supervised> {
    let log =
        fs::File::create(output.with_extension("log")).context("cannot create stress-ng's log")?;
    let mut command = command(stressor, output, terms);
    command
        // It refuses to run where it cannot write, as in the lab's working directory.
        .current_dir(
            output
                .parent()
                .context("stress-ng's output has no folder")?,
        )
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share stress-ng's log")?)
        .stderr(log);
    terms.spawn("stress-ng", &mut command)
}

/// CPU time of the workers so far, in clock ticks; 0 while there are none.
pub(super) fn worker_ticks(leader: u32) -> Result<u64> {
    let children = fs::read_to_string(format!("/proc/{leader}/task/{leader}/children"))
        .context("cannot list stress-ng's workers")?;
    Ok(ticks_of(&children))
}

/// CPU time of the processes in a list, in clock ticks.
pub(super) fn ticks_of(pids: &str) -> u64 {
    pids.split_whitespace()
        // A worker may end between the two reads; the sum then misses it, which only waits longer.
        .filter_map(|pid| Some(ProcessStat::of(pid)?.own_ticks))
        .sum()
}

/// What of `--yaml` is read.
#[derive(Debug, Deserialize)]
struct Output {
    metrics: Vec<Metrics>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metrics {
    bogo_ops: f64,
    /// In seconds.
    wall_clock_time: f64,
}

/// Reads the metrics of the one kind of worker that ran: bogo-ops in all.
pub(super) fn parse(yaml: &str) -> Result<Own> {
    let Output { metrics } = serde_saphyr::from_str(yaml).context("not what --yaml writes")?;
    let [metrics] = &metrics[..] else {
        bail!(
            "expected metrics of one kind of worker, found {}",
            metrics.len()
        );
    };
    let seconds = metrics.wall_clock_time;
    if seconds.is_nan() || seconds <= 0.0 {
        bail!("wall-clock-time is {seconds}");
    }
    Ok(Own {
        total: metrics.bogo_ops,
        seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bogo_ops_of_an_interrupted_run() {
        let own = parse(include_str!("../../tests/data/neighbour/stress-ng.yaml")).unwrap();
        assert_eq!((own.total, own.seconds), (10_378.0, 1.477_526));
    }

    #[test]
    fn refuses_output_without_metrics() {
        for (yaml, expected) in [
            ("---\nsystem-info:\n      cpus: 2\n", "metrics"),
            (
                "metrics:\n    - stressor: cpu\n      bogo-ops: 12\n",
                "wall-clock-time",
            ),
            (
                "metrics:\n    - bogo-ops: 12\n      wall-clock-time: 0.0\n",
                "is 0",
            ),
            ("metrics: []\n", "found 0"),
        ] {
            let error = format!("{:#}", parse(yaml).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
