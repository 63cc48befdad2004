// SPDX-License-Identifier: GPL-2.0-only
//! From counts to figures, once a file has been read.

use super::analyzer::{Analyzer, TraceKind};
use super::event::{Api, IrqKind, Names, OffReason};
use super::figures::{
    AsCounted, Busiest, GiveBack, LostRow, Ours, Preemptor, Rates, Stretch, Study, ThreadRow,
};
use super::ratios::{per_1k, percent};
use super::read::Counter;
use super::tally::{Cause, Slice, Tallies, Tally};
use super::thread::Thread;

const TOP_PREEMPTORS: usize = 10;
const TOP_THREADS: usize = 20;

const OFF_CPU: [Cause; 5] = [
    Cause::Preempted,
    Cause::Waiting,
    Cause::Yielded,
    Cause::Asleep,
    Cause::Unknown,
];
const IRQS: [Cause; 3] = [Cause::HardIrq, Cause::SoftIrq, Cause::VectorIrq];
const BY_SCHEDULING: [Cause; 2] = [Cause::Preempted, Cause::Waiting];

/// What the trace was made of, and what the user said about it.
#[derive(Debug, Clone, Copy)]
pub struct Inputs {
    /// How it was made.
    pub trace_kind: TraceKind,
    /// Its length.
    pub duration_s: f64,
    /// The part of it in which rows count: from the first launch on.
    pub counted_s: f64,
    /// The part of it in which somebody may have launched. Longer than the former where launches
    /// are sampled, by the time from the last window without one to the first with one.
    pub launching_s: f64,
    /// Share of it in which launches were recorded, 0 to 1.
    pub sampled: f64,
    /// Tokens that were made meanwhile.
    pub tokens: Option<f64>,
    /// Tokens a second, measured elsewhere.
    pub tokens_per_s: Option<f64>,
}

impl Inputs {
    /// Launches in the whole trace by those in its windows; none where every one is recorded.
    fn estimate(&self, in_windows: u64) -> Option<f64> {
        (self.trace_kind.sampled && self.sampled > 0.0).then(|| in_windows as f64 / self.sampled)
    }
}

/// The studies' figures. Ratios are of the windows in which launches were recorded.
pub fn study(
    analyzer: &mut Analyzer,
    total: &Tallies,
    counters: &[(Counter, u64)],
    inputs: &Inputs,
    names: &Names,
) -> Study {
    let Tally { switches, irqs, .. } = total.windows;
    let launches = total.windows.launches();
    let irq_time_ms = total.all.handler_ns() as f64 / 1e6;
    let busiest = analyzer.take_busiest().map(|(id, pairs)| Busiest {
        id,
        comm: analyzer.name_of(id, names),
        pairs: pairs.finish(),
    });
    Study {
        launches,
        launches_estimate: inputs.estimate(launches),
        sched_per_1k: per_1k(switches, launches),
        soft_irq_per_1k: per_1k(irqs[IrqKind::Soft as usize], launches),
        hard_irq_per_1k: per_1k(irqs[IrqKind::Hard as usize], launches),
        irq_time_ms,
        irq_time_percent: percent(irq_time_ms / 1e3, inputs.counted_s),
        irqs: analyzer.irqs.breakdown(names),
        busiest,
        as_counted: as_counted(counters),
    }
}

fn as_counted(counters: &[(Counter, u64)]) -> Option<AsCounted> {
    let of = |wanted: Counter| {
        let found = counters.iter().filter(|(counter, _)| *counter == wanted);
        let counts: Vec<u64> = found.map(|&(_, count)| count).collect();
        (!counts.is_empty()).then(|| counts.iter().sum::<u64>())
    };
    let launches = of(Counter::DriverLaunches)? + of(Counter::RuntimeLaunches).unwrap_or_default();
    let ratio = |counter| of(counter).and_then(|count| per_1k(count, launches));
    Some(AsCounted {
        launches,
        sched_per_1k: ratio(Counter::Switches),
        soft_irq_per_1k: ratio(Counter::SoftIrqs),
        hard_irq_per_1k: ratio(Counter::HardIrqs),
        dropped: of(Counter::Dropped),
    })
}

/// Our figures.
pub fn ours(analyzer: &Analyzer, total: &Tallies, inputs: &Inputs, names: &Names) -> Ours {
    let windows = &total.windows;
    let launches = windows.unique_launches();
    let tokens = inputs
        .tokens
        .or(inputs.tokens_per_s.map(|rate| rate * inputs.duration_s));
    let tokens = tokens.filter(|&tokens| tokens > 0.0);
    let tells_why = inputs.trace_kind.tells_why();
    let rates = |units: f64| rates(total, tells_why, units);
    let launching = analyzer.launching().count();
    Ours {
        launches,
        graph_launches: windows.launches_by(Api::Graph),
        seen_twice: windows.seen_twice,
        launches_estimate: inputs.estimate(launches),
        switches_per_1k: per_1k(windows.all_offs(), launches),
        per_second: (inputs.counted_s > 0.0).then(|| rates(inputs.counted_s)),
        per_token: counted_tokens(inputs).map(rates),
        tokens,
        tokens_per_s: inputs
            .tokens_per_s
            .or(tokens
                .and_then(|tokens| (inputs.duration_s > 0.0).then(|| tokens / inputs.duration_s))),
        off_cpu: lost_rows(&total.all, &OFF_CPU, inputs.counted_s),
        stolen_by_irqs: lost_rows(&total.all, &IRQS, inputs.counted_s),
        run_queue_latency: analyzer.wakeups.summary(),
        preempted_for: analyzer.preemptions.summary(),
        intervals: analyzer.stolen.intervals(),
        stolen: analyzer.stolen.rows(),
        preemptors: preemptors(analyzer, names),
        give_back: give_back(&total.all, tells_why, inputs.counted_s),
        threads: threads(analyzer, total, names),
        launching_threads: launching as u64,
    }
}

/// Tokens that were made while rows counted.
fn counted_tokens(inputs: &Inputs) -> Option<f64> {
    let tokens = match (inputs.tokens, inputs.tokens_per_s) {
        (Some(tokens), _) if inputs.launching_s > 0.0 => {
            tokens * (inputs.counted_s / inputs.launching_s)
        }
        (_, Some(per_s)) => per_s * inputs.counted_s,
        _ => return None,
    };
    (tokens > 0.0).then_some(tokens)
}

fn rates(total: &Tallies, tells_why: bool, units: f64) -> Rates {
    let (tally, windows) = (&total.all, &total.windows);
    let launches = windows.unique_launches() as f64 * scale(total);
    let each = |count: u64| count as f64 / units;
    let known = |value: f64| tells_why.then_some(value);
    Rates {
        launches: launches / units,
        switches: each(tally.all_offs()),
        preemptions: known(each(tally.offs[OffReason::Preempted as usize])),
        hard_irqs: each(tally.irqs[IrqKind::Hard as usize]),
        soft_irqs: each(tally.irqs[IrqKind::Soft as usize]),
        irq_us: each(tally.lost_ns.sum(&IRQS)) / 1e3,
        waiting_us: known(each(tally.lost_ns.sum(&BY_SCHEDULING)) / 1e3),
    }
}

/// How many times the windows the counted time is: 1 where every launch is recorded.
fn scale(total: &Tallies) -> f64 {
    total.all.duration_ns as f64 / total.windows.duration_ns.max(1) as f64
}

fn lost_rows(tally: &Tally, causes: &[Cause], counted_s: f64) -> Vec<LostRow> {
    let whole = tally.lost_ns.sum(causes) as f64;
    let occurring = causes
        .iter()
        .filter(|&&cause| tally.lost_times.of(cause) > 0);
    occurring
        .map(|&cause| {
            let ns = tally.lost_ns.of(cause) as f64;
            LostRow {
                cause,
                times: tally.lost_times.of(cause),
                total_ms: ns / 1e6,
                ms_per_s: (counted_s > 0.0).then(|| ns / 1e6 / counted_s),
                share_percent: percent(ns, whole).unwrap_or_default(),
            }
        })
        .collect()
}

fn preemptors(analyzer: &Analyzer, names: &Names) -> Vec<Preemptor> {
    let whole: u64 = analyzer.preemptors.values().map(|(_, ns)| ns).sum();
    let mut rows: Vec<Preemptor> = analyzer
        .preemptors
        .iter()
        .map(|(&comm, &(times, ns))| Preemptor {
            comm: names.text(comm).to_owned(),
            times,
            total_ms: ns as f64 / 1e6,
            share_percent: percent(ns as f64, whole as f64).unwrap_or_default(),
        })
        .collect();
    rows.sort_by(|a, b| {
        b.total_ms
            .total_cmp(&a.total_ms)
            .then_with(|| a.comm.cmp(&b.comm))
    });
    rows.truncate(TOP_PREEMPTORS);
    rows
}

fn give_back(tally: &Tally, tells_why: bool, counted_s: f64) -> GiveBack {
    let ms = |causes: &[Cause]| tally.lost_ns.sum(causes) as f64 / 1e6;
    let by_scheduling_ms = tells_why.then(|| ms(&BY_SCHEDULING));
    let by_program_ms = tells_why.then(|| ms(&[Cause::Yielded]));
    let by_placement_ms = ms(&IRQS);
    let lost_ms = by_scheduling_ms
        .zip(by_program_ms)
        .map(|(scheduling, program)| scheduling + program + by_placement_ms);
    let at_most_ms = by_scheduling_ms.unwrap_or_else(|| ms(&[Cause::Unknown]));
    GiveBack {
        lost_ms,
        by_scheduling_ms,
        by_scheduling_percent: by_scheduling_ms
            .zip(lost_ms)
            .and_then(|(part, whole)| percent(part, whole)),
        by_placement_ms,
        by_program_ms,
        at_most_ms_per_s: (counted_s > 0.0).then(|| at_most_ms / counted_s),
    }
}

fn threads(analyzer: &Analyzer, total: &Tallies, names: &Names) -> Vec<ThreadRow> {
    let sampled = analyzer.trace_kind().sampled;
    let mut launching: Vec<(i32, &Thread)> = analyzer.launching().collect();
    launching.sort_by_key(|&(tid, thread)| (std::cmp::Reverse(thread.launches), tid));
    launching.truncate(TOP_THREADS);
    launching
        .into_iter()
        .map(|(tid, thread)| {
            let ms = |causes: &[Cause]| thread.lost_ns.sum(causes) as f64 / 1e6;
            ThreadRow {
                tid,
                tgid: thread.tgid,
                comm: names.text(thread.comm).to_owned(),
                launches: thread.launches,
                launches_estimate: sampled.then(|| thread.launches as f64 * scale(total)),
                switch_rows: thread.switches,
                preempted_ms: ms(&[Cause::Preempted]),
                waiting_ms: ms(&[Cause::Waiting]),
                irq_ms: ms(&IRQS),
                other_off_ms: ms(&[Cause::Yielded, Cause::Asleep, Cause::Unknown]),
                syncs: thread.syncs,
                sync_ms: thread.sync_ns as f64 / 1e6,
                sync_off_ms: thread.sync_off_ns as f64 / 1e6,
            }
        })
        .collect()
}

/// The slices as a timeline.
pub fn timeline(slices: &[Slice], trace_kind: TraceKind) -> Vec<Stretch> {
    let stretches = slices.iter().map(|slice| {
        let tally = &slice.tallies.all;
        let causes: &[Cause] = if trace_kind.tells_why() {
            &BY_SCHEDULING
        } else {
            &[Cause::Unknown]
        };
        Stretch {
            start_s: slice.start_ns as f64 / 1e9,
            length_s: tally.duration_ns as f64 / 1e9,
            launches: tally.launches(),
            recorded_s: slice.tallies.windows.duration_ns as f64 / 1e9,
            switches: tally.all_offs(),
            off_ms: tally.lost_ns.sum(causes) as f64 / 1e6,
            irq_ms: tally.lost_ns.sum(&IRQS) as f64 / 1e6,
        }
    });
    stretches.collect()
}
