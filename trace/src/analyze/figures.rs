// SPDX-License-Identifier: GPL-2.0-only
//! What the analysis of one file says: the figures of the studies, ours beside them, and how far
//! they can be trusted. `docs/tracing.md` defines each.

use std::collections::BTreeMap;

use serde::Serialize;

use super::irqs::IrqRow;
use super::pairs::PairFigures;
use super::read::{Format, Problem};
use super::spread::Summary;
use super::tally::{Cause, Tallies};
use super::thread::StolenRow;

/// One file.
#[derive(Debug, Clone, Serialize)]
pub struct Analysis {
    /// Where it comes from and how far it can be trusted.
    pub source: Source,
    /// The definitions of the cuda_sched_trace studies.
    pub study: Study,
    /// Ours.
    pub ours: Ours,
    /// Equal stretches of time.
    pub timeline: Vec<Stretch>,
    /// What intervals are drawn from.
    #[serde(skip)]
    pub slices: Vec<Tallies>,
}

/// The file itself.
#[derive(Debug, Clone, Serialize)]
pub struct Source {
    /// As it was named.
    pub file: String,
    /// What it is called in tables; files with the same label are repeats.
    pub label: String,
    /// Its format.
    pub format: Format,
    /// Its size.
    pub bytes: u64,
    /// Its lines.
    pub lines: u64,
    /// Events in it.
    pub events: u64,
    /// Runs in it, one after the other.
    pub runs: u64,
    /// Whether all is there that the tracer saw.
    pub complete: bool,
    /// Events that the tracer lost, where it says so.
    pub lost: Option<u64>,
    /// The same by kind, and what has none by why it was missed.
    pub lost_by: BTreeMap<String, u64>,
    /// Time that it covers.
    pub duration_s: f64,
    /// The part of it, up to the end, in which rows count: from the first launch on.
    pub counted_s: f64,
    /// Share of that time in which launches were recorded, percent.
    pub sampled_percent: f64,
    /// The sched_ext scheduler that was loaded, where the trace says.
    pub scheduler: Option<String>,
    /// The kernel, where the trace says.
    pub kernel: Option<String>,
    /// Who was traced, where the trace says.
    pub target: Option<String>,
    /// Lines that could not be understood.
    pub malformed: u64,
    /// The first of them.
    pub problems: Vec<Problem>,
    /// What to know before trusting a figure.
    pub remarks: Vec<String>,
}

/// The figures of the studies.
#[derive(Debug, Clone, Serialize)]
pub struct Study {
    /// Launch rows.
    pub launches: u64,
    /// All of them, estimated from those in windows; none where every launch is recorded.
    pub launches_estimate: Option<f64>,
    /// Context switches per 1,000 launches; an off and an on are two.
    pub sched_per_1k: Option<f64>,
    /// Soft interrupts per 1,000 launches.
    pub soft_irq_per_1k: Option<f64>,
    /// Hard interrupts per 1,000 launches.
    pub hard_irq_per_1k: Option<f64>,
    /// Sum of the durations of hard and soft interrupts.
    pub irq_time_ms: f64,
    /// The same as a share of the time from the first launch on.
    pub irq_time_percent: Option<f64>,
    /// By source.
    pub irqs: Vec<IrqRow>,
    /// The process (cuda_sched_trace) or thread (ours) with the most launches.
    pub busiest: Option<Busiest>,
    /// The same ratios from what the tracer counted before it dropped, where its log is there.
    pub as_counted: Option<AsCounted>,
}

/// The process or thread with the most launches.
#[derive(Debug, Clone, Serialize)]
pub struct Busiest {
    /// PID or TID.
    pub id: i32,
    /// Its name.
    pub comm: String,
    /// Its launch pairs.
    #[serde(flatten)]
    pub pairs: PairFigures,
}

/// Ratios from cuda_sched_trace's summary: what the studies published.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AsCounted {
    /// Launches.
    pub launches: u64,
    /// Context switches per 1,000 launches.
    pub sched_per_1k: Option<f64>,
    /// Soft interrupts per 1,000 launches.
    pub soft_irq_per_1k: Option<f64>,
    /// Hard interrupts per 1,000 launches.
    pub hard_irq_per_1k: Option<f64>,
    /// Rows that were dropped.
    pub dropped: Option<u64>,
}

/// Our figures, of threads that launch.
#[derive(Debug, Clone, Serialize)]
pub struct Ours {
    /// Launches, each once.
    pub launches: u64,
    /// Of these, graphs: many kernels each.
    pub graph_launches: u64,
    /// Runtime and driver rows of the same launch.
    pub seen_twice: u64,
    /// All launches, estimated from the sampled ones.
    pub launches_estimate: Option<f64>,
    /// Context switches, an off and its on being one, per 1,000 launches.
    pub switches_per_1k: Option<f64>,
    /// Every second.
    pub per_second: Option<Rates>,
    /// Every token, where their number was given.
    pub per_token: Option<Rates>,
    /// Tokens.
    pub tokens: Option<f64>,
    /// Tokens a second, given or from their number.
    pub tokens_per_s: Option<f64>,
    /// Where the time off the CPU went.
    pub off_cpu: Vec<LostRow>,
    /// Time stolen by interrupts, without what is nested.
    pub stolen_by_irqs: Vec<LostRow>,
    /// From wakeup to running.
    pub run_queue_latency: Option<Summary>,
    /// Preempted, until running again.
    pub preempted_for: Option<Summary>,
    /// Launch intervals, each of one thread.
    pub intervals: u64,
    /// What they lost, by cause.
    pub stolen: Vec<StolenRow>,
    /// Who preempted, the most time first.
    pub preemptors: Vec<Preemptor>,
    /// What a scheduler could give back.
    pub give_back: GiveBack,
    /// The busiest threads.
    pub threads: Vec<ThreadRow>,
    /// Threads that launch.
    pub launching_threads: u64,
}

/// Events of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rates {
    /// Launches, estimated where they are sampled.
    pub launches: f64,
    /// Times a thread left its CPU.
    pub switches: f64,
    /// Of these, preemptions; none where the trace does not tell.
    pub preemptions: Option<f64>,
    /// Hard interrupts.
    pub hard_irqs: f64,
    /// Soft interrupts.
    pub soft_irqs: f64,
    /// Time stolen by interrupts.
    pub irq_us: f64,
    /// Time off the CPU though runnable; none where the trace does not tell.
    pub waiting_us: Option<f64>,
}

/// Time lost to one cause.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LostRow {
    /// The cause.
    pub cause: Cause,
    /// How often.
    pub times: u64,
    /// How long, of all launching threads together.
    pub total_ms: f64,
    /// The same for each second from the first launch on.
    pub ms_per_s: Option<f64>,
    /// Share of all rows of its table.
    pub share_percent: f64,
}

/// Somebody who took the CPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Preemptor {
    /// Name of the thread.
    pub comm: String,
    /// How often.
    pub times: u64,
    /// Until the launching thread ran again.
    pub total_ms: f64,
    /// Share of all preempted time.
    pub share_percent: f64,
}

/// Lost time by who could give it back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GiveBack {
    /// Preempted, waiting, yielded, interrupted.
    pub lost_ms: Option<f64>,
    /// A scheduler: preempted, and waiting after a wakeup.
    pub by_scheduling_ms: Option<f64>,
    /// The same as a share of what was lost.
    pub by_scheduling_percent: Option<f64>,
    /// Whoever chooses CPUs for interrupts and for threads.
    pub by_placement_ms: f64,
    /// Nobody but the program: it called sched_yield.
    pub by_program_ms: Option<f64>,
    /// The most that scheduling could give back, for each second from the first launch on. Where the trace
    /// does not say why a thread was off its CPU, all of that time.
    pub at_most_ms_per_s: Option<f64>,
}

/// One thread that launches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadRow {
    /// Thread.
    pub tid: i32,
    /// Process.
    pub tgid: i32,
    /// Name.
    pub comm: String,
    /// Launches, each once.
    pub launches: u64,
    /// The same from the first launch on, where launches are sampled.
    pub launches_estimate: Option<f64>,
    /// Scheduler rows.
    pub switch_rows: u64,
    /// Preempted.
    pub preempted_ms: f64,
    /// Woken, waiting for a CPU.
    pub waiting_ms: f64,
    /// Interrupts on top of it.
    pub irq_ms: f64,
    /// Asleep, or off the CPU for a cause unknown.
    pub other_off_ms: f64,
    /// Calls that waited for the GPU.
    pub syncs: u64,
    /// Time in these.
    pub sync_ms: f64,
    /// The part of it off the CPU.
    pub sync_off_ms: f64,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stretch {
    /// When it begins, since the start.
    pub start_s: f64,
    /// Its length.
    pub length_s: f64,
    /// Launch rows in it.
    pub launches: u64,
    /// The part of its length in which launches were recorded.
    pub recorded_s: f64,
    /// Times a thread left its CPU.
    pub switches: u64,
    /// Time runnable but off the CPU; where the trace does not tell, all time off.
    pub off_ms: f64,
    /// Time stolen by interrupts.
    pub irq_ms: f64,
}
