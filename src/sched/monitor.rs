// SPDX-License-Identifier: GPL-2.0-only
//! The statistics in lines for people: `--stats` and `--monitor`.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use scx_stats::prelude::StatsClient;

use super::stats::{ClassMetrics, MarkMetrics, Metrics};
use crate::shutdown::Shutdown;

/// Prints what the scheduler that runs reports to `out`, every `interval`, until `shutdown`.
///
/// # Errors
/// No scheduler runs, or it ended; `out` cannot be written.
pub fn monitor(interval: Duration, mut out: impl Write, shutdown: &Shutdown) -> Result<()> {
    let client = StatsClient::new().connect(None);
    let mut client = client.context("scx_gpuaware does not run: start it first")?;
    while !shutdown.is_asked() {
        // As text: a broken pipe to the server must not look like one of `out`.
        let metrics: Metrics = client
            .request("stats", Vec::new())
            .map_err(|error| anyhow!("no statistics: scx_gpuaware has ended: {error:#}"))?;
        print(&metrics, &mut out)?;
        shutdown.sleep(interval);
    }
    Ok(())
}

/// The same beside the scheduler, to standard output, for as long as the program lives: the scheduler may not answer
/// yet, or may be starting anew.
///
/// # Errors
/// Standard output is closed.
pub fn print_every(interval: Duration) -> Result<()> {
    let print = |metrics| print(&metrics, &mut std::io::stdout());
    scx_utils::monitor_stats::<Metrics>(&[], interval, || false, print)
}

fn print(metrics: &Metrics, out: &mut impl Write) -> Result<()> {
    let mut text = Vec::new();
    tasks(metrics, &mut text)?;
    machine(metrics, &mut text)?;
    identification(metrics, &mut text)?;
    out.write_all(&text)
        .and_then(|()| out.flush())
        .context("writing the statistics")
}

fn tasks(now: &Metrics, out: &mut impl Write) -> Result<()> {
    writeln!(
        out,
        "launch: {:>6} woken ({} on idle preferred, {} preempting, {} elsewhere), {} queued, {:>6} ms run, worst wait {}",
        now.launch_wakeups,
        now.launch_to_preferred,
        now.launch_preempts,
        now.launch_to_other,
        now.launch_queued,
        now.launch_run_us / 1000,
        worst_wait(&now.class("launch")),
    )?;
    writeln!(
        out,
        "handoff: {:>6} woken, {} queued, {:>6} ms run, worst wait {}",
        now.handoff_wakeups,
        now.handoff_queued,
        now.handoff_run_us / 1000,
        worst_wait(&now.class("handoff")),
    )?;
    writeln!(
        out,
        "background: {:>6} ms run ({} ms lent on CPUs {}), {} turns, {} overdue, worst wait {}",
        now.background_run_us / 1000,
        now.lent_run_us / 1000,
        now.preferred_cpus,
        now.background_turns,
        now.background_overdue,
        worst_wait(&now.class("background")),
    )?;
    Ok(())
}

/// With who it was, if somebody has waited.
fn worst_wait(class: &ClassMetrics) -> String {
    let waited = Duration::from_micros(class.worst_wait_us);
    match class.worst_waiter.as_str() {
        "" => format!("{waited:?}"),
        waiter => format!("{waited:?} by {waiter}"),
    }
}

fn machine(now: &Metrics, out: &mut impl Write) -> Result<()> {
    writeln!(
        out,
        "holds: {} ({} ms, {} ms of them wasted, {} expired)   put off: {} by guard.max_share, {} by cpu.max",
        now.holds,
        now.hold_us / 1000,
        now.hold_waste_us / 1000,
        now.holds_expired,
        now.guard_throttles,
        now.capped,
    )?;
    let heavy = match now.irq_heavy_cpus.as_str() {
        "" => "none",
        cpus => cpus,
    };
    let worst = now
        .cpus
        .iter()
        .max_by(|(_, left), (_, right)| left.irq_percent.total_cmp(&right.irq_percent));
    let worst = worst.map_or_else(String::new, |(cpu, metrics)| {
        format!(", most on CPU {cpu}: {:.1} %", metrics.irq_percent)
    });
    writeln!(out, "interrupts: heavy on CPUs {heavy}{worst}")?;
    Ok(())
}

fn identification(now: &Metrics, out: &mut impl Write) -> Result<()> {
    writeln!(
        out,
        "probes: {}, next pause {} ms, {} libraries, {} launchers found, {} hits in {} windows",
        now.probe_state,
        now.probe_pause_us / 1000,
        now.libraries,
        now.launchers_found,
        now.probe_hits,
        now.probe_windows,
    )?;
    let mark = |mark: &MarkMetrics| format!("{} {} by {}", mark.tasks, mark.class, mark.source);
    let marks: Vec<_> = now.marks.iter().map(mark).collect();
    let marks = match marks.is_empty() {
        true => "none".to_owned(),
        false => marks.join(", "),
    };
    writeln!(
        out,
        "marks: {marks}   {} sightings refused",
        now.sightings_refused
    )?;
    let error = match now.policy_error.as_str() {
        "" => String::new(),
        error => format!(", the last one: {error}"),
    };
    writeln!(
        out,
        "policy: generation {}, {} refused{error}",
        now.policy_generation, now.policy_refused,
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_has_its_line() {
        let mark = MarkMetrics {
            class: "launch".to_owned(),
            source: "uprobe".to_owned(),
            tasks: 2,
        };
        let metrics = Metrics {
            handoff_queued: 41,
            guard_throttles: 42,
            hold_waste_us: 43_000,
            irq_heavy_cpus: "3-4".to_owned(),
            marks: vec![mark],
            sightings_refused: 44,
            probe_pause_us: 45_000,
            policy_generation: 46,
            policy_refused: 1,
            policy_error: "p.toml:1: error".to_owned(),
            ..Metrics::default()
        };
        let mut out = Vec::new();
        print(&metrics, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for expected in [
            "handoff:      0 woken, 41 queued",
            "43 ms of them wasted",
            "42 by guard.max_share",
            "heavy on CPUs 3-4",
            "2 launch by uprobe   44 sightings refused",
            "next pause 45 ms",
            "generation 46, 1 refused, the last one: p.toml:1: error",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }
}
