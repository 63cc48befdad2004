// SPDX-License-Identifier: GPL-2.0-only
//! One thread: its launches, the time it lost between them and to what. Owns what lasts from one
//! event to the next; the totals are the caller's.

use serde::Serialize;

use super::event::{Api, Name, OffCpu, OffReason};
use super::ratios::percent;
use super::spread::Spread;
use super::tally::{ByCause, Cause};

/// libcudart calls libcuda within microseconds; the probe on each sees the launch.
const SEEN_TWICE_NS: u64 = 1_000_000;

/// A thread, while its events come in.
#[derive(Debug, Default)]
pub struct Thread {
    /// Its process.
    pub tgid: i32,
    /// Its last name.
    pub comm: Name,
    /// Launches, each once.
    pub launches: u64,
    /// Scheduler rows.
    pub switches: u64,
    /// Time lost since its first launch.
    pub lost_ns: ByCause,
    /// Calls that waited for the GPU and ended.
    pub syncs: u64,
    /// Time in these.
    pub sync_ns: u64,
    /// The part of it off the CPU.
    pub sync_off_ns: u64,
    runtime_row: Option<(u64, i64)>,
    last_launch_ns: Option<i64>,
    interval: ByCause,
    off: Option<(i64, OffReason, Option<Name>)>,
    sync_since_ns: Option<i64>,
    sync_off_now_ns: u64,
}

/// An absence that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffCpuPeriod {
    /// How long, and why.
    pub off_cpu: OffCpu,
    /// Who had the CPU first.
    pub by: Option<Name>,
}

impl OffCpuPeriod {
    /// Its parts.
    pub fn parts(&self) -> [(Cause, u64); 2] {
        let OffCpu {
            why,
            off_ns,
            wait_ns,
        } = self.off_cpu;
        match why {
            OffReason::Blocked => [(Cause::Asleep, off_ns - wait_ns), (Cause::Waiting, wait_ns)],
            other => [(Cause::of_reason(other), off_ns), (Cause::Waiting, 0)],
        }
    }
}

/// What a launch row was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launched {
    /// A launch; the interval since the one before, if there was one.
    New(Option<Interval>),
    /// The driver's row of a launch whose runtime row came just before.
    SeenTwice,
}

/// From one launch of a thread to its next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Its length.
    pub length_ns: u64,
    /// Time lost in it.
    pub lost_ns: ByCause,
}

impl Thread {
    /// A launch row.
    pub fn launch(&mut self, time_ns: i64, api: Api, shape: u64) -> Launched {
        let before = self.runtime_row.take();
        if api == Api::Driver
            && before.is_some_and(|(same, at_ns)| {
                same == shape && time_ns.abs_diff(at_ns) <= SEEN_TWICE_NS
            })
        {
            return Launched::SeenTwice;
        }
        if api == Api::Runtime {
            self.runtime_row = Some((shape, time_ns));
        }
        self.launches += 1;
        let lost_ns = std::mem::take(&mut self.interval);
        let before_ns = self.last_launch_ns.replace(time_ns);
        Launched::New(before_ns.map(|before_ns| Interval {
            length_ns: time_ns.abs_diff(before_ns),
            lost_ns,
        }))
    }

    /// Whether it has launched.
    pub fn launches(&self) -> bool {
        self.launches > 0
    }

    /// It left the CPU.
    pub fn off(&mut self, time_ns: i64, why: OffReason, by: Option<Name>) {
        self.switches += 1;
        self.off = Some((time_ns, why, by));
    }

    /// It came back; `off_cpu` is what the trace says about the time in between.
    pub fn on(&mut self, time_ns: i64, off_cpu: Option<OffCpu>) -> Option<OffCpuPeriod> {
        self.switches += 1;
        let off = self.off.take();
        let off_cpu = match (off_cpu, off) {
            (Some(off_cpu), _) => off_cpu,
            (None, Some((since_ns, why, _))) => {
                let off_ns = time_ns.abs_diff(since_ns);
                // Without a wakeup nobody knows which part of a sleep was waiting.
                let wait_ns = match why {
                    OffReason::Preempted | OffReason::Yielded => off_ns,
                    OffReason::Blocked | OffReason::Unknown => 0,
                };
                OffCpu {
                    why,
                    off_ns,
                    wait_ns,
                }
            }
            (None, None) => return None,
        };
        let period = OffCpuPeriod {
            off_cpu,
            by: off.and_then(|(_, _, by)| by),
        };
        for (cause, ns) in period.parts() {
            self.lose(cause, ns);
        }
        if let Some(since_ns) = self.sync_since_ns {
            self.sync_off_now_ns += off_cpu.off_ns.min(time_ns.abs_diff(since_ns));
        }
        Some(period)
    }

    /// It lost time.
    pub fn lose(&mut self, cause: Cause, ns: u64) {
        if self.launches() {
            self.lost_ns.add(cause, ns);
            self.interval.add(cause, ns);
        }
    }

    /// It begins to wait for the GPU.
    pub fn sync_enter(&mut self, time_ns: i64) {
        self.sync_since_ns = Some(time_ns);
        self.sync_off_now_ns = 0;
    }

    /// The GPU is done.
    pub fn sync_exit(&mut self, time_ns: i64) {
        if let Some(since_ns) = self.sync_since_ns.take() {
            self.syncs += 1;
            self.sync_ns += time_ns.abs_diff(since_ns);
            self.sync_off_ns += self.sync_off_now_ns;
        }
    }

    /// Launches may be missing from here on: the next one has none before it.
    pub fn interrupt(&mut self) {
        self.runtime_row = None;
        self.last_launch_ns = None;
        self.interval = ByCause::default();
        self.sync_since_ns = None;
    }

    /// Another run begins.
    pub fn restart(&mut self) {
        self.interrupt();
        self.off = None;
    }
}

/// Time lost in launch intervals, while they come in.
#[derive(Debug, Default)]
pub struct Stolen {
    intervals: u64,
    length_ns: u64,
    hit: ByCause,
    lost_ns: ByCause,
    spread: [Spread; Cause::ALL.len()],
}

impl Stolen {
    /// One interval more.
    pub fn add(&mut self, interval: &Interval) {
        self.intervals += 1;
        self.length_ns += interval.length_ns;
        for cause in Cause::ALL {
            // An absence may have begun before the first launch.
            let ns = interval.lost_ns.of(cause).min(interval.length_ns);
            if ns > 0 {
                self.hit.add(cause, 1);
                self.lost_ns.add(cause, ns);
                self.spread[cause as usize].add(ns);
            }
        }
    }

    /// One row a cause that occurs.
    pub fn rows(&self) -> Vec<StolenRow> {
        let share = |part: f64, whole: f64| percent(part, whole).unwrap_or_default();
        Cause::ALL
            .into_iter()
            .filter(|&cause| self.hit.of(cause) > 0)
            .map(|cause| {
                let lost_ns = self.lost_ns.of(cause) as f64;
                let spread = self.spread[cause as usize].summary();
                StolenRow {
                    cause,
                    intervals_hit: self.hit.of(cause),
                    hit_percent: share(self.hit.of(cause) as f64, self.intervals as f64),
                    total_ms: lost_ns / 1e6,
                    time_percent: share(lost_ns, self.length_ns as f64),
                    mean_us: lost_ns / self.intervals.max(1) as f64 / 1e3,
                    p99_of_hit_us: spread.map_or(0.0, |spread| spread.p99_us),
                    max_us: spread.map_or(0.0, |spread| spread.max_us),
                }
            })
            .collect()
    }

    /// Launch intervals.
    pub fn intervals(&self) -> u64 {
        self.intervals
    }
}

/// What launch intervals lost to one cause.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StolenRow {
    /// The cause.
    pub cause: Cause,
    /// Intervals with any of it.
    pub intervals_hit: u64,
    /// The same as a share of all intervals.
    pub hit_percent: f64,
    /// Time lost in all.
    pub total_ms: f64,
    /// The same as a share of the intervals' length.
    pub time_percent: f64,
    /// Time lost in an interval, on average of all.
    pub mean_us: f64,
    /// 99th percentile of those with any.
    pub p99_of_hit_us: f64,
    /// The worst.
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_seen_by_both_probes_is_one() {
        let mut thread = Thread::default();
        assert_eq!(thread.launch(1000, Api::Runtime, 7), Launched::New(None));
        assert_eq!(thread.launch(1900, Api::Driver, 7), Launched::SeenTwice);
        // The same kernel again, by the driver alone.
        let next = thread.launch(3000, Api::Driver, 7);
        assert!(matches!(
            next,
            Launched::New(Some(Interval {
                length_ns: 2000,
                ..
            }))
        ));
        assert_eq!(thread.launches, 2);
    }

    #[test]
    fn a_sleep_has_a_part_that_is_waiting() {
        let mut thread = Thread::default();
        thread.launch(0, Api::Driver, 1);
        thread.off(100, OffReason::Blocked, None);
        let off_cpu = OffCpu {
            why: OffReason::Blocked,
            off_ns: 900,
            wait_ns: 300,
        };
        thread.on(1000, Some(off_cpu));
        let Launched::New(Some(interval)) = thread.launch(1100, Api::Driver, 1) else {
            panic!("an interval");
        };
        assert_eq!(interval.lost_ns.of(Cause::Asleep), 600);
        assert_eq!(interval.lost_ns.of(Cause::Waiting), 300);
        assert_eq!(interval.length_ns, 1100);
    }

    #[test]
    fn time_off_the_cpu_inside_a_sync_is_told_apart() {
        let mut thread = Thread::default();
        thread.launch(0, Api::Driver, 1);
        thread.sync_enter(1000);
        thread.off(1100, OffReason::Unknown, None);
        thread.on(1700, None);
        thread.sync_exit(2000);
        thread.off(2100, OffReason::Unknown, None);
        thread.on(2200, None);
        assert_eq!(
            (thread.syncs, thread.sync_ns, thread.sync_off_ns),
            (1, 1000, 600)
        );
        assert_eq!(thread.lost_ns.of(Cause::Unknown), 700);
    }

    #[test]
    fn an_interval_loses_no_more_than_its_length() {
        let mut stolen = Stolen::default();
        let mut lost_ns = ByCause::default();
        lost_ns.add(Cause::Preempted, 5000);
        stolen.add(&Interval {
            length_ns: 1000,
            lost_ns,
        });
        stolen.add(&Interval {
            length_ns: 3000,
            lost_ns: ByCause::default(),
        });
        let [row] = stolen.rows()[..] else {
            panic!("one cause");
        };
        assert_eq!((row.intervals_hit, row.hit_percent), (1, 50.0));
        assert_eq!((row.time_percent, row.mean_us), (25.0, 0.5));
    }
}
