// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler reports, and asking the one that runs for it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use scx_stats::prelude::*;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

/// A class. Counters since the previous report, gauges as they are.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
pub struct ClassMetrics {
    #[stat(desc = "tasks that run or wait for a CPU")]
    pub runnable: u64,
    #[stat(desc = "tasks that run")]
    pub running: u64,
    #[stat(desc = "times that it took a CPU from a lower class")]
    pub preempts: u64,
    #[stat(desc = "times that a higher class took its CPU")]
    pub preempted: u64,
    #[stat(desc = "CPU time on preferred CPUs in microseconds")]
    pub run_preferred_us: u64,
    #[stat(desc = "CPU time on other CPUs in microseconds")]
    pub run_other_us: u64,
    #[stat(desc = "longest wait of a runnable task since the start in microseconds")]
    pub worst_wait_us: u64,
    #[stat(desc = "name and thread id of who waited so long", _om_skip)]
    pub worst_waiter: String,
    #[stat(desc = "time from wakeup to run, all of them together, in microseconds")]
    pub wakeup_wait_us: u64,
    #[stat(
        desc = "wakeups by time to run: the n-th, from 0, below 2^(n + 10) ns, the last the rest"
    )]
    pub wakeup_waits: Vec<u64>,
}

/// A CPU. Times are since the start, all else is of the moment.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
pub struct CpuMetrics {
    #[stat(desc = "what runs: launch, handoff, background, kthread, other")]
    pub runs: String,
    #[stat(desc = "1 if launchers prefer it")]
    pub preferred: u64,
    #[stat(desc = "1 if interrupts take too much of it")]
    pub irq_heavy: u64,
    #[stat(desc = "smoothed part of its time in interrupts in percent")]
    pub irq_percent: f64,
    #[stat(desc = "time in hard interrupts in microseconds")]
    pub irq_hard_us: u64,
    #[stat(desc = "time in soft interrupts in microseconds")]
    pub irq_soft_us: u64,
}

/// Tasks that have a class for the same reason.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Stats)]
pub struct MarkMetrics {
    #[stat(desc = "the class")]
    pub class: String,
    #[stat(desc = "who said so")]
    pub source: String,
    #[stat(desc = "number of tasks")]
    pub tasks: u64,
}

/// Counters since the previous report, gauges as they are.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Metrics {
    #[stat(desc = "preferred CPUs, as a Linux list", _om_skip)]
    pub preferred_cpus: String,
    #[stat(
        desc = "CPUs that interrupts take too much of, as a Linux list",
        _om_skip
    )]
    pub irq_heavy_cpus: String,
    #[stat(desc = "why these CPUs are preferred", _om_skip)]
    pub preferred_reason: String,
    #[stat(
        desc = "changes of the preferred CPUs, by cause: cpuset, demand, irq, policy, other",
        _om_skip
    )]
    pub preferred_changes: BTreeMap<String, u64>,
    #[stat(desc = "the classes", _om_skip)]
    pub classes: BTreeMap<String, ClassMetrics>,
    #[stat(desc = "the CPUs that were online at the load, by number", _om_skip)]
    pub cpus: BTreeMap<u32, CpuMetrics>,
    #[stat(desc = "tasks that have a class; counted every 30 seconds", _om_skip)]
    pub marks: Vec<MarkMetrics>,
    #[stat(desc = "launcher wakeups that got a CPU at once")]
    pub launch_wakeups: u64,
    #[stat(desc = "of these, on an idle preferred CPU")]
    pub launch_to_preferred: u64,
    #[stat(desc = "of these, by throwing a lower class out")]
    pub launch_preempts: u64,
    #[stat(desc = "of these, on an idle CPU that is not preferred")]
    pub launch_to_other: u64,
    #[stat(desc = "launchers that had to queue behind launchers")]
    pub launch_queued: u64,
    #[stat(desc = "CPU time of launchers in microseconds")]
    pub launch_run_us: u64,
    #[stat(desc = "handoff wakeups that got a CPU at once")]
    pub handoff_wakeups: u64,
    #[stat(desc = "handoff tasks that had to queue")]
    pub handoff_queued: u64,
    #[stat(desc = "CPU time of handoff tasks in microseconds")]
    pub handoff_run_us: u64,
    #[stat(
        desc = "times a boosted task was put off because launch and handoff had used up their share"
    )]
    pub guard_throttles: u64,
    #[stat(desc = "times a task was put off because its cgroup had used up its cpu.max")]
    pub capped: u64,
    #[stat(
        desc = "cgroups since the load whose weight and limit do not hold: too many, or nested too deep"
    )]
    pub cgroups_left_out: u64,
    #[stat(desc = "background wakeups that found an idle CPU")]
    pub background_direct: u64,
    #[stat(desc = "background tasks that queued")]
    pub background_queued: u64,
    #[stat(desc = "CPU time of background in microseconds")]
    pub background_run_us: u64,
    #[stat(desc = "times background got its minimum share from launchers")]
    pub background_turns: u64,
    #[stat(
        desc = "background and throttled tasks that went to the head of background: they had waited too long"
    )]
    pub background_overdue: u64,
    #[stat(desc = "CPU time of background on preferred CPUs in microseconds")]
    pub lent_run_us: u64,
    #[stat(
        desc = "times a CPU was held idle for a launcher that sleeps, or runs on the same core"
    )]
    pub holds: u64,
    #[stat(desc = "time that CPUs were held idle in microseconds")]
    pub hold_us: u64,
    #[stat(desc = "of this, time that background was seen waiting for the CPU in microseconds")]
    pub hold_waste_us: u64,
    #[stat(desc = "holds that ended before the launcher was back")]
    pub holds_expired: u64,
    #[stat(desc = "longest wait of a runnable task since the start in microseconds")]
    pub worst_wait_us: u64,
    #[stat(desc = "longest wait of a runnable launcher since the start in microseconds")]
    pub worst_launch_wait_us: u64,
    #[stat(desc = "launches that were probed, and contexts that said nothing new")]
    pub probe_hits: u64,
    #[stat(desc = "times the launch probes were armed")]
    pub probe_windows: u64,
    #[stat(desc = "1 while the launch probes are armed")]
    pub probes_armed: u64,
    #[stat(
        desc = "what the launch probes do: off, looking, resting (armed, nobody runs into them), paused",
        _om_skip
    )]
    pub probe_state: String,
    #[stat(
        desc = "how long the launch probes are taken away the next time: grows while they find nothing new, in microseconds"
    )]
    pub probe_pause_us: u64,
    #[stat(desc = "libcuda, libamdhip64 and libcudart files that are probed")]
    pub libraries: u64,
    #[stat(desc = "launching threads found by probes since the start")]
    pub launchers_found: u64,
    #[stat(desc = "sightings that guard.trust_uids or guard.trust_devices did not let count")]
    pub sightings_refused: u64,
    #[stat(desc = "policies that have been in force since the start, this one included")]
    pub policy_generation: u64,
    #[stat(desc = "times that a policy was refused while an older one stayed in force")]
    pub policy_refused: u64,
    #[stat(
        desc = "why the last policy was refused; empty: it is in force",
        _om_skip
    )]
    pub policy_error: String,
}

impl ClassMetrics {
    fn since(&self, before: &Self) -> Self {
        let waits = self.wakeup_waits.iter().zip(&before.wakeup_waits);
        Self {
            preempts: self.preempts.saturating_sub(before.preempts),
            preempted: self.preempted.saturating_sub(before.preempted),
            run_preferred_us: self
                .run_preferred_us
                .saturating_sub(before.run_preferred_us),
            run_other_us: self.run_other_us.saturating_sub(before.run_other_us),
            wakeup_wait_us: self.wakeup_wait_us.saturating_sub(before.wakeup_wait_us),
            wakeup_waits: waits
                .map(|(now, before)| now.saturating_sub(*before))
                .collect(),
            ..self.clone()
        }
    }

    /// Its wakeups that have run.
    pub fn wakeups(&self) -> u64 {
        self.wakeup_waits.iter().sum()
    }

    /// CPU time, microseconds.
    pub fn run_us(&self) -> u64 {
        self.run_preferred_us + self.run_other_us
    }
}

impl Metrics {
    /// Class `name`, as far as it is known.
    pub fn class(&self, name: &str) -> ClassMetrics {
        self.classes.get(name).cloned().unwrap_or_default()
    }

    /// Counters since `before`; gauges and maxima as they are now. A scheduler that was loaded anew
    /// counts from zero.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            launch_wakeups: self.launch_wakeups.saturating_sub(before.launch_wakeups),
            launch_to_preferred: self
                .launch_to_preferred
                .saturating_sub(before.launch_to_preferred),
            launch_preempts: self.launch_preempts.saturating_sub(before.launch_preempts),
            launch_to_other: self.launch_to_other.saturating_sub(before.launch_to_other),
            launch_queued: self.launch_queued.saturating_sub(before.launch_queued),
            launch_run_us: self.launch_run_us.saturating_sub(before.launch_run_us),
            handoff_wakeups: self.handoff_wakeups.saturating_sub(before.handoff_wakeups),
            handoff_queued: self.handoff_queued.saturating_sub(before.handoff_queued),
            handoff_run_us: self.handoff_run_us.saturating_sub(before.handoff_run_us),
            guard_throttles: self.guard_throttles.saturating_sub(before.guard_throttles),
            capped: self.capped.saturating_sub(before.capped),
            background_direct: self
                .background_direct
                .saturating_sub(before.background_direct),
            background_queued: self
                .background_queued
                .saturating_sub(before.background_queued),
            background_run_us: self
                .background_run_us
                .saturating_sub(before.background_run_us),
            background_turns: self
                .background_turns
                .saturating_sub(before.background_turns),
            background_overdue: self
                .background_overdue
                .saturating_sub(before.background_overdue),
            lent_run_us: self.lent_run_us.saturating_sub(before.lent_run_us),
            holds: self.holds.saturating_sub(before.holds),
            hold_us: self.hold_us.saturating_sub(before.hold_us),
            hold_waste_us: self.hold_waste_us.saturating_sub(before.hold_waste_us),
            holds_expired: self.holds_expired.saturating_sub(before.holds_expired),
            probe_hits: self.probe_hits.saturating_sub(before.probe_hits),
            probe_windows: self.probe_windows.saturating_sub(before.probe_windows),
            sightings_refused: self
                .sightings_refused
                .saturating_sub(before.sightings_refused),
            preferred_changes: self
                .preferred_changes
                .iter()
                .map(|(cause, count)| {
                    let before = before.preferred_changes.get(cause).copied();
                    (cause.clone(), count.saturating_sub(before.unwrap_or(0)))
                })
                .collect(),
            classes: self
                .classes
                .iter()
                .map(|(name, class)| {
                    let before = before.classes.get(name);
                    let since = before.map_or_else(|| class.clone(), |before| class.since(before));
                    (name.clone(), since)
                })
                .collect(),
            ..self.clone()
        }
    }
}

/// What the server calls the counters since the start.
pub(super) const TOTALS: &str = "totals";

/// A client of the scheduler that runs.
pub struct Totals(StatsClient);

impl Totals {
    /// Connects.
    ///
    /// # Errors
    /// No scx_gpuaware runs here.
    pub fn connect() -> Result<Self> {
        const TIMEOUT_MS: u64 = 5000;
        let client = StatsClient::new().connect(Some(TIMEOUT_MS));
        client
            .map(Self)
            .context("scx_gpuaware does not run: start it first")
    }

    /// Counters since the start, gauges as they are.
    ///
    /// # Errors
    /// The scheduler has ended.
    pub fn read(&mut self) -> Result<Metrics> {
        let target = vec![("target".to_owned(), TOTALS.to_owned())];
        // As text: a broken pipe to the server must not look like one of our own output.
        self.0
            .request("stats", target)
            .map_err(|error| anyhow!("asking the scheduler for its statistics: {error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_deltas_and_maxima_are_not() {
        let before = Metrics {
            launch_wakeups: 10,
            worst_wait_us: 7,
            ..Metrics::default()
        };
        let now = Metrics {
            launch_wakeups: 15,
            worst_wait_us: 9,
            libraries: 1,
            ..Metrics::default()
        };
        let since = now.since(&before);
        assert_eq!(
            (since.launch_wakeups, since.worst_wait_us, since.libraries),
            (5, 9, 1)
        );
    }
}
