// SPDX-License-Identifier: GPL-2.0-only
//! Launch pairs as the studies define them: consecutive launches with and without a context switch
//! between them, the penalty, the impact, whose fault the tail is, bursts.

use serde::Serialize;

use super::ratios;
use super::spread::{Spread, Summary};

/// Launches less than this apart belong to one burst: `bpf/trace_intf.h` has both for what the kernel counts.
pub const BURST_NS: u64 = 100_000;
/// Pairs that a burst has at least: three launches.
pub const MIN_BURST_PAIRS: u64 = 2;

/// Launch pairs of one process or thread, while they come in.
#[derive(Debug, Default)]
pub struct Pairs {
    launches: u64,
    switches: u64,
    first_ns: Option<i64>,
    last_ns: i64,
    /// Span of the runs before this one.
    earlier_ns: u64,
    /// Length of the windows since its first launch; none where every launch is recorded.
    windows_ns: Option<u64>,
    last_launch_ns: Option<i64>,
    /// Switches at the very moment that was reached: they count once time has moved on, because a
    /// pair has the switches strictly between its launches.
    edge: Vec<bool>,
    edge_ns: i64,
    switched: bool,
    off_since_ns: Option<i64>,
    off_in_pair_ns: u64,
    /// Off since, over the whole run.
    off_ns: Option<i64>,
    total_off_ns: u64,
    without: Spread,
    with: Spread,
    off_times: Spread,
    bursts: Bursts,
}

#[derive(Debug, Default)]
struct Bursts {
    pairs: u64,
    switched: bool,
    began_ns: i64,
    ended_ns: Option<i64>,
    sizes: Spread,
    preempted: u64,
    gaps: Spread,
}

impl Bursts {
    fn add(&mut self, from_ns: i64, interval_ns: u64, switched: bool) {
        if interval_ns >= BURST_NS {
            return self.end(from_ns);
        }
        if self.pairs == 0 {
            self.began_ns = from_ns;
        }
        self.pairs += 1;
        self.switched |= switched;
    }

    fn end(&mut self, at_ns: i64) {
        if self.pairs >= MIN_BURST_PAIRS {
            self.sizes.add(self.pairs + 1);
            self.preempted += u64::from(self.switched);
            if let Some(before_ns) = self.ended_ns.replace(at_ns) {
                self.gaps.add(self.began_ns.abs_diff(before_ns));
            }
        }
        self.pairs = 0;
        self.switched = false;
    }
}

impl Pairs {
    fn seen(&mut self, time_ns: i64) {
        self.first_ns.get_or_insert(time_ns);
        self.last_ns = time_ns;
    }

    /// Anything of the same process happened: it lasts at least until here.
    pub fn other(&mut self, time_ns: i64) {
        self.seen(time_ns);
    }

    /// A launch row.
    pub fn launch(&mut self, time_ns: i64) {
        self.seen(time_ns);
        self.launches += 1;
        if self.edge_ns != time_ns {
            self.settle();
        }
        if let Some(before_ns) = self.last_launch_ns {
            let interval_ns = time_ns.abs_diff(before_ns);
            if self.switched {
                self.with.add(interval_ns);
            } else {
                self.without.add(interval_ns);
            }
            if self.off_in_pair_ns > 0 {
                self.off_times.add(self.off_in_pair_ns);
            }
            self.bursts.add(before_ns, interval_ns, self.switched);
        }
        self.edge.clear();
        self.switched = false;
        self.off_since_ns = None;
        self.off_in_pair_ns = 0;
        self.last_launch_ns = Some(time_ns);
    }

    /// A scheduler row: off the CPU, or on.
    pub fn switch(&mut self, time_ns: i64, off: bool) {
        self.seen(time_ns);
        self.switches += 1;
        match (off, self.off_ns) {
            (true, _) => self.off_ns = Some(time_ns),
            (false, Some(since_ns)) => {
                self.total_off_ns += time_ns.abs_diff(since_ns);
                self.off_ns = None;
            }
            (false, None) => {}
        }
        if self.edge_ns != time_ns {
            self.settle();
            self.edge_ns = time_ns;
        }
        if self
            .last_launch_ns
            .is_some_and(|launch_ns| time_ns > launch_ns)
        {
            self.edge.push(off);
        }
    }

    fn settle(&mut self) {
        for off in std::mem::take(&mut self.edge) {
            if off {
                self.off_since_ns = Some(self.edge_ns);
                self.switched = true;
            } else if let Some(since_ns) = self.off_since_ns.take() {
                self.off_in_pair_ns += self.edge_ns.abs_diff(since_ns);
            }
        }
    }

    /// Launches that come next are no pair with those before.
    pub fn interrupt(&mut self) {
        if let Some(last_ns) = self.last_launch_ns.take() {
            self.bursts.end(last_ns);
        }
        self.bursts.ended_ns = None;
        self.edge.clear();
        self.switched = false;
        self.off_since_ns = None;
        self.off_in_pair_ns = 0;
    }

    /// A window of that length ends: launches that come next are no pair with those before.
    pub fn end_window(&mut self, window_ns: u64) {
        self.interrupt();
        *self.windows_ns.get_or_insert(0) += window_ns;
    }

    /// Another run begins: times start anew.
    pub fn restart(&mut self) {
        self.interrupt();
        if let Some(first_ns) = self.first_ns.take() {
            self.earlier_ns += self.last_ns.abs_diff(first_ns);
        }
        self.off_ns = None;
        self.edge_ns = i64::MIN;
    }

    /// Launches so far.
    pub fn launches(&self) -> u64 {
        self.launches
    }

    /// The figures.
    pub fn finish(mut self) -> PairFigures {
        self.restart();
        let runtime_s = self.earlier_ns as f64 / 1e9;
        let windows_s = self.windows_ns.map(|ns| ns as f64 / 1e9);
        // Pairs are of the windows, and so is the time that they are a share of.
        let recorded_s = windows_s.unwrap_or(runtime_s);
        let all = self.without.union(&self.with);
        let penalty = |percent| {
            let with = self.with.percentile(percent)?;
            Some((with - self.without.percentile(percent)?) / 1e3)
        };
        let penalty_us = penalty(50.0);
        let impact_s = penalty_us.map(|us| ratios::impact_s(self.with.count(), us));
        let off_cpu_s = self.total_off_ns as f64 / 1e9;
        PairFigures {
            runtime_s,
            recorded_s,
            launches: self.launches,
            launches_estimate: windows_s
                .filter(|&windows_s| windows_s > 0.0)
                .map(|windows_s| self.launches as f64 * runtime_s / windows_s),
            switches: self.switches,
            switches_per_s: (runtime_s > 0.0).then(|| self.switches as f64 / runtime_s),
            off_cpu_ms: off_cpu_s * 1e3,
            off_cpu_percent: ratios::percent(off_cpu_s, runtime_s),
            pairs: all.count(),
            with_switch_percent: ratios::percent(self.with.count() as f64, all.count() as f64),
            without_switch: self.without.summary(),
            with_switch: self.with.summary(),
            off_cpu_in_pair: self.off_times.summary(),
            penalty_us,
            penalty_p90_us: penalty(90.0),
            impact_s,
            impact_percent: impact_s.and_then(|impact| ratios::percent(impact, recorded_s)),
            tails: [95, 99]
                .into_iter()
                .filter_map(|percent| tail(percent, &all, &self.with))
                .collect(),
            bursts: burst_figures(&self.bursts),
            bins_without: self.without.bins(),
            bins_with: self.with.bins(),
        }
    }
}

fn tail(percentile: u8, all: &Spread, with: &Spread) -> Option<Tail> {
    let from_ns = all.tail_from(f64::from(percentile))?;
    let pairs = all.at_least(from_ns);
    let with_switch = with.at_least(from_ns);
    let scheduler_percent = ratios::percent(with_switch as f64, pairs as f64)?;
    Some(Tail {
        percentile,
        from_us: from_ns / 1e3,
        pairs,
        with_switch,
        scheduler_percent,
        application_percent: 100.0 - scheduler_percent,
    })
}

fn burst_figures(bursts: &Bursts) -> Option<BurstFigures> {
    let count = bursts.sizes.count();
    let sizes = bursts.sizes.summary()?;
    Some(BurstFigures {
        bursts: count,
        // The spread is of counts here, not of nanoseconds.
        min_launches: (bursts.sizes.percentile(0.0)?).round() as u64,
        max_launches: (sizes.max_us * 1e3).round() as u64,
        mean_launches: sizes.mean_us * 1e3,
        preempted: bursts.preempted,
        preempted_percent: ratios::percent(bursts.preempted as f64, count as f64)?,
        gap: bursts.gaps.summary(),
    })
}

/// What the studies report of the busiest process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairFigures {
    /// From its first row to its last.
    pub runtime_s: f64,
    /// The part of it in which launches were recorded: windows, where they are sampled. Launches,
    /// pairs, impact and bursts are of this time, switches and time off the CPU of all.
    pub recorded_s: f64,
    /// Launch rows.
    pub launches: u64,
    /// Launches in the whole runtime, where they are sampled.
    pub launches_estimate: Option<f64>,
    /// Scheduler rows: an off and an on are two.
    pub switches: u64,
    /// The same a second.
    pub switches_per_s: Option<f64>,
    /// Time between each off and its on.
    pub off_cpu_ms: f64,
    /// The same as a share of the runtime.
    pub off_cpu_percent: Option<f64>,
    /// Consecutive launches.
    pub pairs: u64,
    /// Group B as a share of all pairs.
    pub with_switch_percent: Option<f64>,
    /// Group A: intervals without a switch.
    pub without_switch: Option<Summary>,
    /// Group B: intervals with one.
    pub with_switch: Option<Summary>,
    /// Time off the CPU in pairs that have any.
    pub off_cpu_in_pair: Option<Summary>,
    /// Median of B - median of A.
    pub penalty_us: Option<f64>,
    /// 90th percentile of B - 90th percentile of A.
    pub penalty_p90_us: Option<f64>,
    /// Pairs of group B × penalty.
    pub impact_s: Option<f64>,
    /// The same as a share of the time in which launches were recorded.
    pub impact_percent: Option<f64>,
    /// Of the longest pairs, those with a switch.
    pub tails: Vec<Tail>,
    /// Launches that follow one another closely; none where there are none.
    pub bursts: Option<BurstFigures>,
    /// Group A, `(bin, pairs)`: bin `b` begins at `10^(b/8)` ns.
    pub bins_without: Vec<(i32, u64)>,
    /// Group B, likewise.
    pub bins_with: Vec<(i32, u64)>,
}

/// Pairs at or above a percentile of all.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tail {
    /// Which percentile.
    pub percentile: u8,
    /// Where it lies.
    pub from_us: f64,
    /// Pairs there.
    pub pairs: u64,
    /// Of these, those of group B.
    pub with_switch: u64,
    /// The same as a share.
    pub scheduler_percent: f64,
    /// The rest.
    pub application_percent: f64,
}

/// Three or more launches, each less than 100 µs after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BurstFigures {
    /// How many.
    pub bursts: u64,
    /// Launches of the smallest.
    pub min_launches: u64,
    /// Launches of the greatest.
    pub max_launches: u64,
    /// Launches of one on average.
    pub mean_launches: f64,
    /// Bursts with a context switch inside.
    pub preempted: u64,
    /// The same as a share.
    pub preempted_percent: f64,
    /// From the last launch of one to the first of the next.
    pub gap: Option<Summary>,
}
