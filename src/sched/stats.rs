// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler reports: the scx_stats server and the monitor that prints from it.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use scx_stats::prelude::*;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

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
    #[stat(desc = "launcher wakeups that got a CPU at once")]
    pub launch_wakeups: u64,
    #[stat(desc = "of these, on an idle preferred CPU")]
    pub launch_to_preferred: u64,
    #[stat(desc = "of these, by throwing background out")]
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
    #[stat(desc = "background wakeups that found an idle CPU")]
    pub background_direct: u64,
    #[stat(desc = "background tasks that queued")]
    pub background_queued: u64,
    #[stat(desc = "CPU time of background in microseconds")]
    pub background_run_us: u64,
    #[stat(desc = "times background got its minimum share from launchers")]
    pub background_turns: u64,
    #[stat(desc = "CPU time of background on preferred CPUs in microseconds")]
    pub lent_run_us: u64,
    #[stat(desc = "times a CPU was held idle for a launcher that sleeps")]
    pub holds: u64,
    #[stat(desc = "time that CPUs were held idle in microseconds")]
    pub hold_us: u64,
    #[stat(desc = "holds that ended before the launcher was back")]
    pub holds_expired: u64,
    #[stat(desc = "longest wait of a runnable task since the start in microseconds")]
    pub worst_wait_us: u64,
    #[stat(desc = "longest wait of a runnable launcher since the start in microseconds")]
    pub worst_launch_wait_us: u64,
    #[stat(desc = "launches that were probed")]
    pub probe_hits: u64,
    #[stat(desc = "times the launch probes were armed")]
    pub probe_windows: u64,
    #[stat(desc = "1 while the launch probes are armed")]
    pub probes_armed: u64,
    #[stat(desc = "libcuda files that are probed")]
    pub libraries: u64,
    #[stat(desc = "launching threads found by probes since the start")]
    pub launchers_found: u64,
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

impl Metrics {
    /// Counters since `before`; gauges and maxima as they are now.
    fn since(&self, before: &Self) -> Self {
        Self {
            launch_wakeups: self.launch_wakeups - before.launch_wakeups,
            launch_to_preferred: self.launch_to_preferred - before.launch_to_preferred,
            launch_preempts: self.launch_preempts - before.launch_preempts,
            launch_to_other: self.launch_to_other - before.launch_to_other,
            launch_queued: self.launch_queued - before.launch_queued,
            launch_run_us: self.launch_run_us - before.launch_run_us,
            handoff_wakeups: self.handoff_wakeups - before.handoff_wakeups,
            handoff_queued: self.handoff_queued - before.handoff_queued,
            handoff_run_us: self.handoff_run_us - before.handoff_run_us,
            guard_throttles: self.guard_throttles - before.guard_throttles,
            capped: self.capped - before.capped,
            background_direct: self.background_direct - before.background_direct,
            background_queued: self.background_queued - before.background_queued,
            background_run_us: self.background_run_us - before.background_run_us,
            background_turns: self.background_turns - before.background_turns,
            lent_run_us: self.lent_run_us - before.lent_run_us,
            holds: self.holds - before.holds,
            hold_us: self.hold_us - before.hold_us,
            holds_expired: self.holds_expired - before.holds_expired,
            probe_hits: self.probe_hits - before.probe_hits,
            probe_windows: self.probe_windows - before.probe_windows,
            ..self.clone()
        }
    }

    fn print(&self, out: &mut impl Write) -> Result<()> {
        writeln!(
            out,
            "launch: {:>6} woken ({} on idle preferred, {} preempting, {} elsewhere), {} queued, {:>6} ms run, worst wait {} us",
            self.launch_wakeups,
            self.launch_to_preferred,
            self.launch_preempts,
            self.launch_to_other,
            self.launch_queued,
            self.launch_run_us / 1000,
            self.worst_launch_wait_us,
        )?;
        writeln!(
            out,
            "background: {:>6} ms run ({} ms lent on CPUs {}), {} turns, worst wait {} ms",
            self.background_run_us / 1000,
            self.lent_run_us / 1000,
            self.preferred_cpus,
            self.background_turns,
            self.worst_wait_us / 1000,
        )?;
        writeln!(
            out,
            "holds: {} ({} ms, {} expired)   probes: {}, {} libraries, {} launchers found, {} hits in {} windows",
            self.holds,
            self.hold_us / 1000,
            self.holds_expired,
            if self.probes_armed == 1 {
                "armed"
            } else {
                "resting"
            },
            self.libraries,
            self.launchers_found,
            self.probe_hits,
            self.probe_windows,
        )?;
        Ok(())
    }
}

/// The server side: each client gets the counters since its previous request.
pub fn server_data() -> StatsServerData<(), Metrics> {
    let open: Box<dyn StatsOpener<(), Metrics>> = Box::new(move |(request, response)| {
        request.send(())?;
        let mut before = response.recv()?;
        let read: Box<dyn StatsReader<(), Metrics>> =
            Box::new(move |_args, (request, response)| {
                request.send(())?;
                let now = response.recv()?;
                let metrics = now.since(&before);
                before = now;
                metrics.to_json()
            });
        Ok(read)
    });
    StatsServerData::new()
        .add_meta(Metrics::meta())
        .add_ops("top", StatsOps { open, close: None })
}

/// Prints what the running scheduler reports, every `interval`, until `shutdown`.
///
/// # Errors
/// No scheduler runs, or it ended.
pub fn monitor(interval: Duration, shutdown: &Arc<AtomicBool>) -> Result<()> {
    scx_utils::monitor_stats::<Metrics>(
        &[],
        interval,
        || shutdown.load(Ordering::Relaxed),
        |metrics| metrics.print(&mut std::io::stdout()),
    )
}

/// Describes every metric (`--help-stats`).
///
/// # Errors
/// Standard output is closed.
pub fn describe() -> Result<()> {
    server_data().describe_meta(&mut std::io::stdout(), None)
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
