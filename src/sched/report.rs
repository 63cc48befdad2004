// SPDX-License-Identifier: GPL-2.0-only
//! The statistics of the moment, from all who have some.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use log::warn;

use super::counters::{self, Counts, Runs};
use super::kernel;
use super::placement::Placement;
use super::reload::Standing;
use super::stats::{ClassMetrics, CpuMetrics, MarkMetrics, Metrics};
use crate::bpf::gpuaware::GpuawareSkel;
use crate::bpf::gpuaware::types::gpuaware_class_stats;
use crate::bpf::{intf, text};
use crate::identify::{Class, Identify, Sightings};
use crate::namespaces::has_initial_pids;

/// Who has statistics.
pub struct Parts<'a, 'obj> {
    pub skel: &'a GpuawareSkel<'obj>,
    pub placement: &'a Placement,
    pub marks: &'a [MarkMetrics],
    pub sightings: &'a Sightings,
    pub policies: &'a Standing,
}

/// The number of marks by class and source. Counting them walks all tasks of the machine, so readers
/// get the last count, and nothing is counted that nobody reads.
#[derive(Default)]
pub struct MarkCounts {
    counts: Vec<MarkMetrics>,
    /// When they were counted, time since the load.
    counted: Duration,
    /// What probes had seen then: threads that were marked, sightings that were refused.
    seen: (u64, u64),
    /// Until when readers are expected.
    read_until: Duration,
}

/// How old the counts may be.
const MARKS_INTERVAL: Duration = Duration::from_secs(30);
/// And where probes have seen something since.
const SIGHTINGS_INTERVAL: Duration = Duration::from_secs(5);
/// Who has read the counts is expected again for that long.
const READERS_STAY: Duration = Duration::from_secs(300);

impl MarkCounts {
    /// Counts again at `now`, if it is time and somebody may read it.
    pub fn follow(&mut self, now: Duration, identify: &Identify<'_>) {
        let age = now.saturating_sub(self.counted);
        let is_old = || age >= MARKS_INTERVAL || seen(identify) != self.seen;
        if now < self.read_until && age >= SIGHTINGS_INTERVAL && is_old() {
            self.count(now, identify);
        }
    }

    /// As of the last count; for a reader who comes unexpectedly, as of now.
    pub fn read(&mut self, now: Duration, identify: &Identify<'_>) -> &[MarkMetrics] {
        if now >= self.read_until {
            self.count(now, identify);
        }
        self.read_until = now + READERS_STAY;
        &self.counts
    }

    fn count(&mut self, now: Duration, identify: &Identify<'_>) {
        (self.counted, self.seen) = (now, seen(identify));
        let counts = identify.count_marks().unwrap_or_else(|error| {
            warn!("counting marks: {error:#}");
            BTreeMap::new()
        });
        let metrics = counts.into_iter().map(|((class, source), tasks)| {
            let (class, source) = (class.name().to_owned(), source.name());
            MarkMetrics {
                class,
                source,
                tasks,
            }
        });
        self.counts = metrics.collect();
    }
}

/// What changes the number of marks most often.
fn seen(identify: &Identify<'_>) -> (u64, u64) {
    let sightings = identify.sightings();
    (sightings.launchers_found, sightings.refused)
}

/// The statistics of the moment; counters since the load.
pub fn metrics(parts: &Parts<'_, '_>) -> Result<Metrics> {
    let placement = parts.placement;
    let sightings = parts.sightings;
    let online = placement.topology().online();
    let occupants = counters::occupants(&parts.skel.maps.cpu_ctxs, &online)?;
    let classes = classes(parts, &occupants)?;
    let class = |class: Class| classes.get(class.name()).cloned().unwrap_or_default();
    let (launch, handoff) = (class(Class::Launch), class(Class::Handoff));
    let background = class(Class::Background);
    let worst_waits = classes.values().map(|class| class.worst_wait_us);
    let counted = Metrics {
        preferred_cpus: placement.cpus().to_string(),
        preferred_reason: placement.reason().to_owned(),
        irq_heavy_cpus: placement.irq_heavy().to_string(),
        preferred_changes: (placement.changes().iter())
            .map(|(cause, count)| ((*cause).to_owned(), *count))
            .collect(),
        worst_wait_us: worst_waits.max().unwrap_or(0),
        worst_launch_wait_us: launch.worst_wait_us,
        launch_preempts: launch.preempts,
        launch_run_us: launch.run_us(),
        handoff_run_us: handoff.run_us(),
        background_run_us: background.run_us(),
        lent_run_us: background.run_preferred_us,
        classes,
        cpus: cpus(parts, &occupants)?,
        marks: parts.marks.to_vec(),
        probe_hits: sightings.launch_hits,
        probe_windows: sightings.windows,
        probes_armed: u64::from(sightings.armed),
        probe_state: sightings.phase.name().to_owned(),
        probe_pause_us: sightings.pause.as_micros() as u64,
        sightings_refused: sightings.refused,
        libraries: sightings.libraries as u64,
        launchers_found: sightings.launchers_found,
        cgroups_left_out: kernel::cgroups_left_out(parts.skel),
        policy_generation: parts.policies.generation,
        policy_refused: parts.policies.refused,
        policy_error: parts.policies.error.clone(),
        ..Metrics::default()
    };
    with_decisions(parts.skel, counted)
}

/// Adds how often the scheduler decided what.
fn with_decisions(skel: &GpuawareSkel<'_>, rest: Metrics) -> Result<Metrics> {
    let counts = Counts::read(&skel.maps.stats)?;
    let count = |stat| counts.of(stat);
    let us = |stat| count(stat) / 1000;
    Ok(Metrics {
        launch_wakeups: count(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_WAKEUPS),
        launch_to_preferred: count(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_TO_PREFERRED),
        launch_to_other: count(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_TO_OTHER),
        launch_queued: count(intf::gpuaware_stat_GPUAWARE_STAT_LAUNCH_QUEUED),
        handoff_wakeups: count(intf::gpuaware_stat_GPUAWARE_STAT_HANDOFF_WAKEUPS),
        handoff_queued: count(intf::gpuaware_stat_GPUAWARE_STAT_HANDOFF_QUEUED),
        background_direct: count(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_DIRECT),
        background_queued: count(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_QUEUED),
        background_turns: count(intf::gpuaware_stat_GPUAWARE_STAT_BACKGROUND_TURNS),
        background_overdue: count(intf::gpuaware_stat_GPUAWARE_STAT_OVERDUE),
        guard_throttles: count(intf::gpuaware_stat_GPUAWARE_STAT_GUARD_THROTTLES),
        capped: count(intf::gpuaware_stat_GPUAWARE_STAT_CAPPED),
        holds: count(intf::gpuaware_stat_GPUAWARE_STAT_HOLDS),
        hold_us: us(intf::gpuaware_stat_GPUAWARE_STAT_HOLD_NS),
        hold_waste_us: us(intf::gpuaware_stat_GPUAWARE_STAT_HOLD_WASTE_NS),
        holds_expired: count(intf::gpuaware_stat_GPUAWARE_STAT_HOLDS_EXPIRED),
        ..rest
    })
}

fn cpus(parts: &Parts<'_, '_>, occupants: &[(u32, Runs)]) -> Result<BTreeMap<u32, CpuMetrics>> {
    let placement = parts.placement;
    let online = placement.topology().online();
    let verdicts = placement.irq_verdicts();
    let irq_times = counters::irq_times(&parts.skel.maps.irq_ctxs, &online)?;
    let cpus = irq_times.into_iter().zip(occupants);
    Ok(cpus
        .map(|((cpu, irq), (_, runs))| {
            let verdict = verdicts.of(cpu).unwrap_or_default();
            let metrics = CpuMetrics {
                runs: runs.name().to_owned(),
                preferred: u64::from(placement.cpus().contains(cpu)),
                irq_heavy: u64::from(verdict.heavy),
                irq_percent: verdict.load_percent,
                irq_hard_us: irq.hard_ns / 1000,
                irq_soft_us: irq.soft_ns / 1000,
            };
            (cpu, metrics)
        })
        .collect())
}

fn classes(
    parts: &Parts<'_, '_>,
    occupants: &[(u32, Runs)],
) -> Result<BTreeMap<String, ClassMetrics>> {
    let running = |runs| occupants.iter().filter(|(_, found)| *found == runs).count() as u64;
    let waiting = counters::waiting(parts.skel)?;
    [
        (Class::Launch, Runs::Launch, waiting.launch),
        (Class::Handoff, Runs::Handoff, waiting.handoff),
        (Class::Background, Runs::Background, waiting.background),
    ]
    .into_iter()
    .map(|(class, runs, waiting)| {
        let counted = counters::of_class(&parts.skel.maps.class_stats, class.wire())?;
        let running = running(runs);
        let metrics = class_metrics(&counted, running, running + waiting);
        Ok((class.name().to_owned(), metrics))
    })
    .collect()
}

/// `NAME (TID)`, in a container `NAME`; empty where nobody has waited.
fn worst_waiter(counted: &gpuaware_class_stats) -> String {
    let name = text(&counted.worst_waiter);
    match counted.worst_waiter_tid {
        0 => String::new(),
        tid if has_initial_pids("/".as_ref()) => format!("{} ({tid})", name.escape_debug()),
        // In a container the kernel's number is another thread's, or nobody's.
        _ => name.escape_debug().to_string(),
    }
}

fn class_metrics(counted: &gpuaware_class_stats, running: u64, runnable: u64) -> ClassMetrics {
    ClassMetrics {
        runnable,
        running,
        preempts: counted.preempts,
        preempted: counted.preempted,
        run_preferred_us: counted.run_preferred_ns / 1000,
        run_other_us: counted.run_other_ns / 1000,
        worst_wait_us: counted.worst_wait_ns / 1000,
        worst_waiter: worst_waiter(counted),
        wakeup_wait_us: counted.wakeup_wait_ns / 1000,
        wakeup_waits: counted.wakeup_waits.to_vec(),
    }
}
