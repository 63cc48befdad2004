// SPDX-License-Identifier: GPL-2.0-only
//! What a trace says about launch paths: from its text to figures, in bounded memory. Pure: it reads
//! what it is given, and no file, clock or kernel. Definitions are in `docs/tracing.md`.
//!
//! `read` makes events of lines, `order` puts them in order, `analyzer` counts, `conclude` makes
//! `figures` of the counts, `compare` sets files beside one another, `report` shows them.

mod analyzer;
pub mod compare;
mod conclude;
mod event;
pub mod figures;
mod irqs;
mod order;
pub mod pairs;
pub mod ratios;
mod read;
pub mod report;
mod spread;
mod tally;
mod thread;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::BufRead;

use analyzer::{Analyzer, TraceKind};
use conclude::Inputs;
use event::Names;
use figures::{Analysis, Source};
pub use read::InputError;
use read::{Facts, Format, Item, Reader};
pub use spread::Summary;
use tally::{Slice, Tallies};

use crate::schema::Launches;

/// What the user says about a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct About {
    /// Its name, for messages.
    pub file: String,
    /// What it is called in tables.
    pub label: String,
    /// Tokens that were made while it was traced.
    pub tokens: Option<f64>,
    /// Tokens a second, measured with or without the tracer.
    pub tokens_per_s: Option<f64>,
}

/// Reads a trace to its end.
///
/// # Errors
/// It is no trace, of another version, mostly malformed, or cannot be read.
pub fn analyze(about: &About, input: impl BufRead) -> Result<Analysis, InputError> {
    let mut names = Names::default();
    let mut reader = Reader::open(&about.file, input)?;
    let mut analyzer: Option<Analyzer> = None;
    while let Some(item) = reader.next(&mut names)? {
        // The header, which comes first, says how launches were recorded.
        let analyzer = analyzer.get_or_insert_with(|| new_analyzer(&reader));
        match item {
            Item::Event(event) => analyzer.push(event),
            Item::Restart => analyzer.restart(),
        }
    }
    let mut analyzer = analyzer.unwrap_or_else(|| new_analyzer(&reader));
    let events_ns = analyzer.end();
    let duration_ns = traced_ns(reader.facts(), events_ns);
    let slices = std::mem::take(&mut analyzer.slices);
    let mut slices = slices.finish(analyzer.counting_since_ns(), duration_ns);
    if !analyzer.trace_kind().sampled {
        for Slice { tallies, .. } in &mut slices {
            tallies.windows.duration_ns = tallies.all.duration_ns;
        }
    }
    let mut total = Tallies::default();
    slices.iter().for_each(|slice| total.merge(&slice.tallies));
    let launching_ns = duration_ns.saturating_sub(analyzer.launching_since_ns());
    let inputs = Inputs {
        trace_kind: analyzer.trace_kind(),
        duration_s: duration_ns as f64 / 1e9,
        counted_s: total.all.duration_ns as f64 / 1e9,
        launching_s: launching_ns as f64 / 1e9,
        sampled: sampled(reader.facts(), &total),
        tokens: about.tokens,
        tokens_per_s: about.tokens_per_s,
    };
    let study = conclude::study(
        &mut analyzer,
        &total,
        &reader.facts().counters,
        &inputs,
        &names,
    );
    Ok(Analysis {
        study,
        ours: conclude::ours(&analyzer, &total, &inputs, &names),
        timeline: conclude::timeline(&slices, inputs.trace_kind),
        source: source(about, &reader, &analyzer, &inputs),
        slices: slices.into_iter().map(|slice| slice.tallies).collect(),
    })
}

fn new_analyzer<R: BufRead>(reader: &Reader<R>) -> Analyzer {
    let header = reader.facts().header.as_ref();
    let launches = header.map(|header| header.launches);
    let trace_kind = TraceKind {
        legacy: reader.format() == Format::LegacyCsv,
        sampled: matches!(launches, Some(Launches::Sampled { .. })),
    };
    Analyzer::new(trace_kind, header.map(|header| header.start_ns))
}

/// From the tracer's own clock where it says when it began and ended, else from the first event to
/// the last.
fn traced_ns(facts: &Facts, events_ns: u64) -> u64 {
    match (&facts.header, &facts.ends[..]) {
        (Some(header), [end]) if facts.runs == 1 => {
            end.end_ns.saturating_sub(header.start_ns).max(events_ns)
        }
        _ => events_ns,
    }
}

fn sampled(facts: &Facts, total: &Tallies) -> f64 {
    match (&facts.header, &facts.ends[..]) {
        (Some(header), [end]) if facts.runs == 1 => end.sampled_fraction(header),
        _ if total.all.duration_ns == 0 => 1.0,
        _ => total.windows.duration_ns as f64 / total.all.duration_ns as f64,
    }
}

fn source<R: BufRead>(
    about: &About,
    reader: &Reader<R>,
    analyzer: &Analyzer,
    inputs: &Inputs,
) -> Source {
    let facts = reader.facts();
    let (lines, bytes) = reader.read();
    let lost = lost(facts);
    let header = facts.header.as_ref();
    let ended = header.is_none() || facts.ends.len() as u64 == facts.runs;
    Source {
        file: about.file.clone(),
        label: about.label.clone(),
        format: reader.format(),
        bytes,
        lines,
        events: analyzer.events,
        runs: facts.runs,
        complete: ended
            && facts.cut_at.is_none()
            && facts.malformed == 0
            && lost.unwrap_or_default() == 0,
        lost,
        lost_by: lost_by(facts),
        duration_s: inputs.duration_s,
        counted_s: inputs.counted_s,
        sampled_percent: inputs.sampled * 100.0,
        scheduler: header.and_then(|header| header.scheduler.clone()),
        kernel: header.map(|header| header.kernel.clone()),
        target: header.map(|header| header.target.clone()),
        malformed: facts.malformed,
        problems: facts.problems.clone(),
        remarks: remarks(about, reader, analyzer, inputs),
    }
}

fn lost(facts: &Facts) -> Option<u64> {
    let dropped = facts
        .counters
        .iter()
        .filter_map(|&(counter, count)| (counter == read::Counter::Dropped).then_some(count));
    if facts.ends.is_empty() {
        // A summary without that line is of a run that dropped nothing.
        return (!facts.counters.is_empty()).then(|| dropped.sum());
    }
    Some(facts.ends.iter().map(|end| end.nr_lost()).sum())
}

/// What to know before trusting a figure, the gravest first.
fn remarks<R: BufRead>(
    about: &About,
    reader: &Reader<R>,
    analyzer: &Analyzer,
    inputs: &Inputs,
) -> Vec<String> {
    let facts = reader.facts();
    let file = &about.file;
    let lost = lost(facts).unwrap_or_default();
    let unended = facts.header.is_some() && (facts.ends.len() as u64) < facts.runs;
    let of_file = [
        facts.cut_at.map(|line| format!(
            "{file}:{line}: partial: the last line has no end and was left out; the file was cut short"
        )),
        unended.then(|| format!(
            "{file}: partial: no end record: the tracer was killed or the disk was full; what it lost is not known"
        )),
        facts.problems.first().map(|first| format!(
            "{file}:{}: partial: {}; {} malformed lines were left out",
            first.line, first.reason, facts.malformed
        )),
        (lost > 0).then(|| format!(
            "partial: the tracer lost {lost} events{}; every count is too low by as many",
            lost_kinds(facts)
        )),
        (facts.runs > 1).then(|| format!(
            "{} runs in one file: no launch pair spans two of them",
            facts.runs
        )),
        inputs.trace_kind.sampled.then(|| format!(
            "launches were recorded in windows, {:.2} % of the time: ratios per launch are of the windows, figures marked ~ are estimates",
            inputs.sampled * 100.0
        )),
    ];
    let of_events = [
        (
            analyzer.late(),
            "events came far out of order; their times were moved up to their neighbours'",
        ),
        (
            analyzer.irqs.unpaired(),
            "interrupt entries or exits lack the other half: dropped rows",
        ),
        (
            facts.unknown_kinds,
            "records of kinds that this version does not know were passed over",
        ),
    ];
    let of_events = of_events.into_iter().filter(|&(count, _)| count > 0);
    let of_file = of_file
        .into_iter()
        .flatten()
        .chain(manner_remarks(analyzer));
    of_file
        .chain(of_events.map(|(count, what)| format!("{count} {what}")))
        .collect()
}

/// Losses by kind; those without a kind by why they were missed, where the trace says.
fn lost_by(facts: &Facts) -> BTreeMap<String, u64> {
    let mut by = BTreeMap::<String, u64>::new();
    for end in &facts.ends {
        for (kind, count) in &end.lost {
            *by.entry(kind.name().to_owned()).or_default() += count;
        }
        for (why, count) in &end.missed_by {
            *by.entry(format!("missed_{why}")).or_default() += count;
        }
        let said: u64 = end.missed_by.values().sum();
        if end.missed > said {
            *by.entry("missed".to_owned()).or_default() += end.missed - said;
        }
    }
    by
}

fn lost_kinds(facts: &Facts) -> String {
    let by = lost_by(facts);
    if by.is_empty() {
        return String::new();
    }
    let kinds = by.iter().map(|(kind, count)| format!("{count} {kind}"));
    format!(" ({})", kinds.collect::<Vec<_>>().join(", "))
}

fn manner_remarks(analyzer: &Analyzer) -> Vec<String> {
    let mut remarks = Vec::new();
    let launching = analyzer.launching();
    let (all, unseen) = launching.fold((0, 0), |(all, unseen), (_, thread)| {
        (all + 1, unseen + u64::from(thread.switches == 0))
    });
    if analyzer.trace_kind().legacy {
        remarks.push(
            "cuda_sched_trace does not say why a thread left its CPU: no off-CPU split, no run-queue latency, no preemptors"
                .to_owned(),
        );
        if unseen > 0 {
            remarks.push(format!(
                "{unseen} of {all} launching threads have no scheduler row: cuda_sched_trace sees main threads only"
            ));
        }
    }
    if all == 0 {
        remarks.push("no launch in the trace: no ratio per launch, no launch pair".to_owned());
    }
    let (rows, launches) = analyzer.not_followed;
    if rows + launches > 0 {
        remarks.push(format!(
            "too many threads to follow: {rows} rows left out, {launches} launches left out of the launch pairs"
        ));
    }
    remarks
}
