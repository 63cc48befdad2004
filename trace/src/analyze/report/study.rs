// SPDX-License-Identifier: GPL-2.0-only
//! Tables of one file with the studies' definitions: launch pairs, tails, bursts, interrupts.

use super::table::Section;
use super::words::{count, count_or_estimate, durations, fixed, or_none, percent, time_us};
use crate::analyze::event::IrqKind;
use crate::analyze::figures::{Analysis, Busiest};

pub fn sections(file: &Analysis) -> Vec<Section> {
    let mut sections = Vec::new();
    if let Some(busiest) = &file.study.busiest {
        sections.push(pairs(busiest));
        sections.push(tails(busiest));
        sections.push(bursts(busiest));
    }
    sections.push(irqs(file));
    sections.extend(as_counted(file));
    sections
}

fn pairs(busiest: &Busiest) -> Section {
    let pairs = &busiest.pairs;
    let mut section = Section::new(
        &format!("RQ1: launch pairs of {} ({})", busiest.comm, busiest.id),
        &["group", "pairs", "share", "P50", "P90", "P99", "max"],
    );
    section.notes.push(format!(
        "runtime {}, {} launches, {} context switches{}, off the CPU {} ({})",
        time_us(pairs.runtime_s * 1e6),
        count_or_estimate(pairs.launches, pairs.launches_estimate),
        count(pairs.switches),
        or_none(pairs.switches_per_s, |rate| format!(
            " ({} Hz)",
            fixed(rate, 2)
        )),
        time_us(pairs.off_cpu_ms * 1e3),
        or_none(pairs.off_cpu_percent, percent)
    ));
    let penalty = or_none(pairs.penalty_us, time_us);
    let impact = or_none(pairs.impact_s, |seconds| time_us(seconds * 1e6));
    let share = or_none(pairs.impact_percent, percent);
    let whole = match pairs.launches_estimate {
        Some(_) => "the windows",
        None => "the runtime",
    };
    section.notes.push(format!(
        "penalty: median of B - median of A = {penalty}; impact: pairs of B × penalty = {impact}, {share} of {whole}"
    ));
    if pairs.launches_estimate.is_some() {
        section.notes.push(format!(
            "pairs, impact, tails and bursts are of the windows in which launches were recorded, {} of the runtime",
            time_us(pairs.recorded_s * 1e6)
        ));
    }
    section.notes.push(
        "the penalty holds all that happened in a pair of group B: off the CPU above is the most that scheduling took"
            .to_owned(),
    );
    let b = pairs.with_switch_percent;
    for (name, summary, share) in [
        (
            "A: no context switch",
            &pairs.without_switch,
            b.map(|b| 100.0 - b),
        ),
        ("B: with a context switch", &pairs.with_switch, b),
    ] {
        let [p50, p90, p99, max] = durations(summary.as_ref());
        let pairs = summary.as_ref().map_or(0, |summary| summary.count);
        section.row([
            name.to_owned(),
            count(pairs),
            or_none(share, percent),
            p50,
            p90,
            p99,
            max,
        ]);
    }
    section
}

fn tails(busiest: &Busiest) -> Section {
    let mut section = Section::new(
        "RQ1: whose fault the tail is",
        &[
            "pairs at or above",
            "interval",
            "pairs",
            "with switch",
            "scheduler",
            "application",
        ],
    );
    for tail in &busiest.pairs.tails {
        section.row([
            format!("P{}", tail.percentile),
            time_us(tail.from_us),
            count(tail.pairs),
            count(tail.with_switch),
            percent(tail.scheduler_percent),
            percent(tail.application_percent),
        ]);
    }
    section
}

fn bursts(busiest: &Busiest) -> Section {
    let mut section = Section::new(
        "Bursts: 3 or more launches, each less than 100 µs after the one before",
        &[
            "bursts",
            "least launches",
            "mean",
            "most",
            "preempted inside",
            "gap P50",
            "gap P99",
        ],
    );
    match &busiest.pairs.bursts {
        Some(bursts) => {
            let [p50, _, p99, _] = durations(bursts.gap.as_ref());
            section.row([
                count(bursts.bursts),
                count(bursts.min_launches),
                fixed(bursts.mean_launches, 1),
                count(bursts.max_launches),
                format!(
                    "{} ({})",
                    count(bursts.preempted),
                    percent(bursts.preempted_percent)
                ),
                p50,
                p99,
            ]);
        }
        None => section.notes.push("none".to_owned()),
    }
    section
}

fn kind(kind: IrqKind) -> &'static str {
    match kind {
        IrqKind::Hard => "hard",
        IrqKind::Soft => "soft",
        IrqKind::Vector => "vector",
    }
}

fn irqs(file: &Analysis) -> Section {
    let mut section = Section::new(
        "RQ2, and RQ3's breakdown: interrupts on top of launching threads",
        &[
            "interrupt",
            "count",
            "of its kind",
            "total",
            "mean",
            "max",
            "without nested",
        ],
    );
    section.notes.push(format!(
        "IRQ time (hard + soft, as the trace says): {}, {} of the runtime from the first launch on",
        time_us(file.study.irq_time_ms * 1e3),
        or_none(file.study.irq_time_percent, percent)
    ));
    for row in &file.study.irqs {
        let name = if row.kind == IrqKind::Hard {
            format!("hard {} {}", row.number, row.name)
        } else {
            format!("{} {}", kind(row.kind), row.name)
        };
        section.row([
            name,
            count(row.count),
            or_none(row.count_percent, percent),
            time_us(row.total_us),
            or_none(row.mean_us, time_us),
            time_us(row.max_us),
            time_us(row.self_us),
        ]);
    }
    section
}

fn as_counted(file: &Analysis) -> Option<Section> {
    let counted = file.study.as_counted?;
    let mut section = Section::new(
        "As the studies published: from the tracer's summary",
        &["launches", "Sched/1K", "Soft IRQ/1K", "Hard IRQ/1K", "dropped"],
    )
    .note("launches and interrupts were counted before rows were dropped, switches after: the ratios mix two sets");
    let ratio = |value| or_none(value, |value| fixed(value, 1));
    section.row([
        count(counted.launches),
        ratio(counted.sched_per_1k),
        ratio(counted.soft_irq_per_1k),
        ratio(counted.hard_irq_per_1k),
        or_none(counted.dropped, count),
    ]);
    Some(section)
}
