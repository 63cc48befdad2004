// SPDX-License-Identifier: GPL-2.0-only
//! What a run found, in text for people and in JSON. Pure. A count that was scaled is never shown
//! as a count: it is an estimate, and named one.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::outcome::{IrqTotal, Outcome, PreemptorTotal};
use crate::printable::printable;
use crate::schema::{End, EndedBy, Header, Kind, Launches};
use crate::thread::{Counters, Thread};

/// Version of the JSON's layout.
const VERSION: u32 = 1;
/// Rows that the text has of each table at most; JSON has all.
const MOST_ROWS: usize = 20;

/// The JSON.
#[derive(Serialize)]
struct Json<'a> {
    version: u32,
    header: &'a Header,
    end: &'a End,
    /// Share of the traced time in which launches were counted.
    sampled_fraction: f64,
    /// Of all threads, those that launch nothing too: no ratio per launch.
    totals: &'a Thread,
    threads: Vec<Row<'a>>,
    interrupts: Vec<JsonIrq<'a>>,
    preemptors: Vec<JsonPreemptor<'a>>,
    /// Preemptions that found no room among them.
    preemptions_without_name: u64,
    /// Interrupts that found no room in their table; the threads' counters have them.
    interrupts_without_name: u64,
}

#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    thread: &'a Thread,
    /// Launches counted in windows, divided by the sampled fraction; `null` if all were counted.
    launches_estimate: Option<f64>,
    /// How far the estimate may be off, by how much the windows differ; `null` with one window.
    launches_standard_error: Option<f64>,
    /// The estimate is too low: half of the launches came so soon after one another in the windows that
    /// their probes, microseconds each, held the thread up.
    launches_at_least: bool,
    /// Switches away in 1,000 launches, both counted in windows if launches were; `null` without
    /// launches.
    switches_per_1k_launches: Option<f64>,
}

#[derive(Serialize)]
struct JsonIrq<'a> {
    kind: Kind,
    number: u32,
    name: &'a str,
    count: u64,
    self_ns: u64,
    worst_ns: u64,
}

#[derive(Serialize)]
struct JsonPreemptor<'a> {
    victim_tgid: i32,
    comm: &'a str,
    count: u64,
    ns: u64,
}

impl<'a> Row<'a> {
    fn new(thread: &'a Thread, outcome: &Outcome) -> Self {
        // Of the thread's own time: before and after it there was nothing to launch.
        let fraction = thread.sampled_ns as f64 / thread.traced_ns.max(1) as f64;
        let sampled = outcome.header.launches != Launches::All && fraction > 0.0;
        let counters = &thread.counters;
        let launches = counters.all_launches() as f64;
        let window_ns = outcome.end.window_ns as f64 / outcome.end.windows.max(1) as f64;
        let windows = (thread.sampled_ns as f64 / window_ns.max(1.0)).round();
        let error = standard_error(thread, windows, fraction);
        Self {
            thread,
            launches_estimate: sampled.then_some(launches / fraction),
            launches_standard_error: error.filter(|_| sampled),
            launches_at_least: sampled && is_held_up(thread),
            switches_per_1k_launches: (launches > 0.0)
                .then(|| counters.window_switches as f64 / launches * 1000.0),
        }
    }
}

/// Does the thread launch so fast that probes of 0.5 to 20 us slow it?
fn is_held_up(thread: &Thread) -> bool {
    const DENSE_NS: u64 = 1 << 16;
    let typical = thread.histograms.interval_calm.bound_ns(0.5);
    typical.is_some_and(|bound_ns| bound_ns <= DENSE_NS)
}

/// Of the launches of a thread in all of the time, by those of so many windows that are a share
/// `fraction` of it.
fn standard_error(thread: &Thread, windows: f64, fraction: f64) -> Option<f64> {
    if windows < 2.0 || fraction <= 0.0 {
        return None;
    }
    let sum = thread.counters.all_launches() as f64;
    let deviations = thread.squared_launches? as f64 - sum * sum / windows;
    let variance = deviations.max(0.0) / (windows - 1.0);
    // The more of the time is counted, the less there is to estimate.
    Some((variance * windows * (1.0 - fraction)).sqrt() / fraction)
}

/// All threads as one.
fn total(threads: &[Thread]) -> Thread {
    let mut total = Thread::default();
    for thread in threads {
        total.add(thread);
    }
    total
}

/// The launching threads first, then those that ran most.
fn in_order(threads: &[Thread]) -> Vec<&Thread> {
    let mut threads: Vec<_> = threads.iter().collect();
    threads.sort_by_key(|thread| {
        let counters = &thread.counters;
        std::cmp::Reverse((counters.all_launches(), counters.on_cpu_ns))
    });
    threads
}

fn irqs_in_order(outcome: &Outcome) -> Vec<&IrqTotal> {
    let mut irqs: Vec<_> = outcome.irqs.iter().collect();
    irqs.sort_by_key(|irq| std::cmp::Reverse(irq.self_ns));
    irqs
}

fn preemptors_in_order(outcome: &Outcome) -> Vec<&PreemptorTotal> {
    let mut preemptors: Vec<_> = outcome.preemptors.iter().collect();
    preemptors.sort_by_key(|preemptor| std::cmp::Reverse(preemptor.ns));
    preemptors
}

/// The summary as JSON.
///
/// # Errors
/// None that is known.
pub fn json(outcome: &Outcome) -> Result<String> {
    let totals = total(&outcome.threads);
    let summary = Json {
        version: VERSION,
        header: &outcome.header,
        end: &outcome.end,
        sampled_fraction: outcome.end.sampled_fraction(&outcome.header),
        totals: &totals,
        threads: in_order(&outcome.threads)
            .into_iter()
            .map(|thread| Row::new(thread, outcome))
            .collect(),
        interrupts: irqs_in_order(outcome)
            .into_iter()
            .map(|irq| JsonIrq {
                kind: irq.kind,
                number: irq.number,
                name: irq.name.as_str(),
                count: irq.count,
                self_ns: irq.self_ns,
                worst_ns: irq.worst_ns,
            })
            .collect(),
        preemptors: preemptors_in_order(outcome)
            .into_iter()
            .map(|preemptor| JsonPreemptor {
                victim_tgid: preemptor.victim_tgid,
                comm: preemptor.comm.as_str(),
                count: preemptor.count,
                ns: preemptor.ns,
            })
            .collect(),
        preemptions_without_name: outcome.lost_preemptors,
        interrupts_without_name: outcome.lost_irqs,
    };
    serde_json::to_string_pretty(&summary).context("writing the summary")
}

/// The summary as text.
pub fn text(outcome: &Outcome) -> String {
    let mut out = head(outcome);
    threads(&mut out, outcome);
    launches(&mut out, outcome);
    irqs(&mut out, outcome);
    preemptors(&mut out, outcome);
    out
}

/// What was traced, how launches were counted, what was lost: it belongs above every figure.
pub fn head(outcome: &Outcome) -> String {
    let (header, end) = (&outcome.header, &outcome.end);
    let traced_ns = end.end_ns.saturating_sub(header.start_ns);
    let why = match end.ended_by {
        EndedBy::Command => "until the command ended",
        EndedBy::Target => "until every process ended",
        EndedBy::Duration => "as long as asked for",
        EndedBy::MaxSize => "until the file was full",
        EndedBy::Signal => "until stopped",
    };
    let scheduler = header.scheduler.as_deref().unwrap_or("the kernel's own");
    let launches = match header.launches {
        Launches::All => "every one counted".to_owned(),
        Launches::Sampled { .. } => format!(
            "sampled in {} windows, {} of {} ({:.2} %); estimates have a ~, or a >= where probes slowed the thread",
            end.windows,
            time(end.window_ns),
            time(traced_ns),
            end.sampled_fraction(header) * 100.0
        ),
    };
    format!(
        "traced     {}, {} {why}\nscheduler  {scheduler}, kernel {}, {} CPUs\nlaunches   \
         {launches}\nlost       {}\n",
        header.target,
        time(traced_ns),
        header.kernel,
        header.cpus,
        lost(outcome)
    )
}

fn lost(outcome: &Outcome) -> String {
    let end = &outcome.end;
    if end.nr_lost() == 0 {
        return "nothing".to_owned();
    }
    let mut parts: Vec<_> = end
        .lost
        .iter()
        .map(|(kind, count)| {
            let counted = end.counted.get(kind).copied().unwrap_or_default();
            format!("{count} of {counted} {}", kind.name())
        })
        .collect();
    let missed = end.missed_by.iter();
    parts.extend(missed.map(|(why, count)| format!("{count} {why}")));
    parts.join(", ")
}

/// What stands before a column, its name, its width, and how its cell is made of a row. Figures are on the right: a
/// width below 0 is of text, on the left; of 0, the last one's.
type Column<'a, T> = (&'a str, &'a str, isize, &'a dyn Fn(&T) -> String);

/// The first rows, below an empty line and the names; how many more there are.
fn table<T>(out: &mut String, rows: &[T], of_what: &str, columns: &[Column<T>]) {
    let line = |cell: &dyn Fn(&Column<T>) -> String| {
        let cells = columns.iter().map(|column| {
            let &(before, _, width, _) = column;
            let (cell, room) = (cell(column), width.unsigned_abs());
            match width {
                0.. => format!("{before}{cell:>room$}"),
                _ => format!("{before}{cell:<room$}"),
            }
        });
        cells.collect::<String>() + "\n"
    };
    *out += "\n";
    *out += &line(&|&(_, name, ..)| name.to_owned());
    for row in rows.iter().take(MOST_ROWS) {
        *out += &line(&|(.., cell)| cell(row));
    }
    if rows.len() > MOST_ROWS {
        let _ = writeln!(out, "… and {} more {of_what}", rows.len() - MOST_ROWS);
    }
}

fn threads(out: &mut String, outcome: &Outcome) {
    let name = |thread: &Thread| match thread.threads {
        1 => printable(thread.comm.as_str()),
        more => format!("{} (x{more})", printable(thread.comm.as_str())),
    };
    let p99 = |thread: &Thread| thread.histograms.wakeup_wait.bound_ns(0.99);
    let rows = in_order(&outcome.threads);
    let rows: Vec<_> = rows.into_iter().map(|it| (it, &it.counters)).collect();
    let columns: [Column<(&Thread, &Counters)>; 13] = [
        ("", "THREAD", -16, &|(it, _)| name(it)),
        (" ", "TID", 8, &|(it, _)| it.tid.to_string()),
        (" ", "PID", 8, &|(it, _)| it.tgid.to_string()),
        ("  ", "on CPU", 8, &|(_, its)| time(its.on_cpu_ns)),
        (" ", "preempt.", 8, &|(_, its)| time(its.preempted_ns)),
        (" ", "yielded", 8, &|(_, its)| time(its.yielded_ns)),
        (" ", "asleep", 8, &|(_, its)| {
            time(its.asleep_ns + its.unknown_ns)
        }),
        (" ", "wait", 8, &|(_, its)| time(its.wakeup_wait_ns)),
        ("  ", "preempt.", 8, &|(_, its)| its.preempted.to_string()),
        (" ", "yielded", 8, &|(_, its)| its.yielded.to_string()),
        (" ", "blocked", 8, &|(_, its)| its.blocked.to_string()),
        ("  ", "wait p99<", 9, &|(it, _)| bound(p99(it))),
        (" ", "IRQ", 8, &|(_, its)| time(its.irq_ns())),
    ];
    table(out, &rows, "threads", &columns);
}

fn launches(out: &mut String, outcome: &Outcome) {
    let launching = in_order(&outcome.threads).into_iter();
    let launching = launching.filter(|thread| thread.counters.all_launches() > 0);
    let rows: Vec<_> = launching
        .map(|thread| (Row::new(thread, outcome), &thread.counters))
        .collect();
    if rows.is_empty() {
        let _ = writeln!(out, "\nNo launch was seen.");
        return;
    }
    let per_1k = |row: &Row<'_>| {
        let mark = row.launches_estimate.map_or("", |_| "~");
        format!(
            "{mark}{:.1}",
            row.switches_per_1k_launches.unwrap_or_default()
        )
    };
    let calm = |row: &Row<'_>| row.thread.histograms.interval_calm.bound_ns(0.5);
    let disturbed = |row: &Row<'_>| row.thread.histograms.interval_disturbed.bound_ns(0.5);
    let disturbed_share = |its: &Counters| {
        let all = its.intervals_calm + its.intervals_disturbed;
        share(its.intervals_disturbed, all)
    };
    let columns: [Column<(Row<'_>, &Counters)>; 11] = [
        ("", "LAUNCHER", -16, &|(row, _)| {
            printable(row.thread.comm.as_str())
        }),
        (" ", "TID", 8, &|(row, _)| row.thread.tid.to_string()),
        ("  ", "launches", 9, &|(_, its)| its.launches.to_string()),
        (" ", "graphs", 7, &|(_, its)| its.graph_launches.to_string()),
        (" ", "syncs", 7, &|(_, its)| its.syncs.to_string()),
        (" ", "all launches", 20, &|(row, _)| all_launches(row)),
        (" ", "sw/1K", 10, &|(row, _)| per_1k(row)),
        ("  ", "calm p50<", 9, &|(row, _)| bound(calm(row))),
        (" ", "dist.p50<", 9, &|(row, _)| bound(disturbed(row))),
        (" ", "dist.", 8, &|(_, its)| disturbed_share(its)),
        ("  ", "lost between launches", 0, &|(_, its)| causes(its)),
    ];
    table(out, &rows, "launchers", &columns);
}

/// Counted, or estimated with its standard error.
fn all_launches(row: &Row<'_>) -> String {
    let mark = if row.launches_at_least { ">=" } else { "~" };
    match (row.launches_estimate, row.launches_standard_error) {
        (None, _) => row.thread.counters.all_launches().to_string(),
        (Some(about), None) => format!("{mark}{about:.0}"),
        (Some(about), Some(error)) => format!("{mark}{about:.0} ±{error:.0}"),
    }
}

/// What the time between launches was lost to.
fn causes(counters: &Counters) -> String {
    let causes = [
        ("preempted", counters.interval_preempted_ns),
        ("yielded", counters.interval_yielded_ns),
        ("asleep", counters.interval_asleep_ns),
        ("wait", counters.interval_wakeup_wait_ns),
        ("hard IRQ", counters.interval_hard_irq_ns),
        ("soft IRQ", counters.interval_soft_irq_ns),
        ("other IRQ", counters.interval_vector_irq_ns),
    ];
    let parts: Vec<_> = causes
        .into_iter()
        .filter(|&(_, ns)| ns > 0)
        .map(|(cause, ns)| format!("{cause} {}", time(ns)))
        .collect();
    if parts.is_empty() {
        return "nothing".to_owned();
    }
    parts.join(", ")
}

fn irqs(out: &mut String, outcome: &Outcome) {
    let rows = irqs_in_order(outcome);
    if rows.is_empty() {
        return;
    }
    let columns: [Column<&IrqTotal>; 6] = [
        ("", "INTERRUPT", -10, &|irq| irq.kind.name().to_owned()),
        (" ", "number", 6, &|irq| irq.number.to_string()),
        (" ", "name", -20, &|irq| printable(irq.name.as_str())),
        (" ", "count", 9, &|irq| irq.count.to_string()),
        (" ", "own time", 9, &|irq| time(irq.self_ns)),
        (" ", "longest", 9, &|irq| time(irq.worst_ns)),
    ];
    table(out, &rows, "sorts of interrupts", &columns);
    if outcome.lost_irqs > 0 {
        let _ = writeln!(out, "{} interrupts without a name", outcome.lost_irqs);
    }
}

fn preemptors(out: &mut String, outcome: &Outcome) {
    let rows = preemptors_in_order(outcome);
    if rows.is_empty() {
        return;
    }
    let columns: [Column<&PreemptorTotal>; 4] = [
        ("", "PREEMPTED BY", -16, &|by| printable(by.comm.as_str())),
        (" ", "victim", 8, &|by| by.victim_tgid.to_string()),
        (" ", "times", 9, &|by| by.count.to_string()),
        (" ", "time", 9, &|by| time(by.ns)),
    ];
    table(out, &rows, "preemptors", &columns);
    let lost = outcome.lost_preemptors;
    if lost > 0 {
        let _ = writeln!(out, "{lost} preemptions without a name");
    }
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.2} %", part as f64 / whole as f64 * 100.0)
}

fn bound(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), time)
}

/// A time with three digits and its unit.
fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = match value {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests;
