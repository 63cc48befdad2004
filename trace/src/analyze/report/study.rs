// SPDX-License-Identifier: GPL-2.0-only
//! Tables of one file with the studies' definitions: launch pairs, tails, bursts, interrupts.

use super::table::Section;
use super::words::{
    count, count_or_estimate, fixed, of_spread, or_none, percent, ratio, time_ms, time_us,
};
use crate::analyze::event::IrqKind;
use crate::analyze::figures::{Analysis, Busiest};
use crate::analyze::irqs::IrqRow;

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
    let b = pairs.with_switch_percent;
    let groups = [
        (
            "A: no context switch",
            b.map(|b| 100.0 - b),
            &pairs.without_switch,
        ),
        ("B: with a context switch", b, &pairs.with_switch),
    ];
    let mut section = Section::of(
        &format!("RQ1: launch pairs of {} ({})", busiest.comm, busiest.id),
        groups,
        &[
            ("group", &|&(name, ..)| name.to_owned()),
            ("pairs", &|(.., group)| {
                count(group.map_or(0, |group| group.count))
            }),
            ("share", &|&(_, share, _)| or_none(share, percent)),
            ("P50", &|(.., group)| of_spread(group, |group| group.p50_us)),
            ("P90", &|(.., group)| of_spread(group, |group| group.p90_us)),
            ("P99", &|(.., group)| of_spread(group, |group| group.p99_us)),
            ("max", &|(.., group)| of_spread(group, |group| group.max_us)),
        ],
    )
    .note(format!(
        "runtime {}, {} launches, {} context switches{}, off the CPU {} ({})",
        time_us(pairs.runtime_s * 1e6),
        count_or_estimate(pairs.launches, pairs.launches_estimate),
        count(pairs.switches),
        or_none(pairs.switches_per_s, |rate| format!(
            " ({} Hz)",
            fixed(rate, 2)
        )),
        time_ms(pairs.off_cpu_ms),
        or_none(pairs.off_cpu_percent, percent)
    ));
    let penalty = or_none(pairs.penalty_us, time_us);
    let impact = or_none(pairs.impact_s, |seconds| time_us(seconds * 1e6));
    let share = or_none(pairs.impact_percent, percent);
    let whole = match pairs.launches_estimate {
        Some(_) => "the windows",
        None => "the runtime",
    };
    section = section.note(format!(
        "penalty: median of B - median of A = {penalty}; impact: pairs of B × penalty = {impact}, {share} of {whole}"
    ));
    if pairs.launches_estimate.is_some() {
        section = section.note(format!(
            "pairs, impact, tails and bursts are of the windows in which launches were recorded, {} of the runtime",
            time_us(pairs.recorded_s * 1e6)
        ));
    }
    section.note(
        "the penalty holds all that happened in a pair of group B: off the CPU above is the most that scheduling took",
    )
}

fn tails(busiest: &Busiest) -> Section {
    Section::of(
        "RQ1: whose fault the tail is",
        &busiest.pairs.tails,
        &[
            ("pairs at or above", &|tail| format!("P{}", tail.percentile)),
            ("interval", &|tail| time_us(tail.from_us)),
            ("pairs", &|tail| count(tail.pairs)),
            ("with switch", &|tail| count(tail.with_switch)),
            ("scheduler", &|tail| percent(tail.scheduler_percent)),
            ("application", &|tail| percent(tail.application_percent)),
        ],
    )
}

fn bursts(busiest: &Busiest) -> Section {
    let section = Section::of(
        "Bursts: 3 or more launches, each less than 100 µs after the one before",
        &busiest.pairs.bursts,
        &[
            ("bursts", &|bursts| count(bursts.bursts)),
            ("least launches", &|bursts| count(bursts.min_launches)),
            ("mean", &|bursts| fixed(bursts.mean_launches, 1)),
            ("most", &|bursts| count(bursts.max_launches)),
            ("preempted inside", &|bursts| {
                let share = percent(bursts.preempted_percent);
                format!("{} ({share})", count(bursts.preempted))
            }),
            ("gap P50", &|bursts| {
                of_spread(&bursts.gap, |gap| gap.p50_us)
            }),
            ("gap P99", &|bursts| {
                of_spread(&bursts.gap, |gap| gap.p99_us)
            }),
        ],
    );
    match &busiest.pairs.bursts {
        Some(_) => section,
        None => section.note("none"),
    }
}

fn irqs(file: &Analysis) -> Section {
    let name = |row: &IrqRow| match row.kind {
        IrqKind::Hard => format!("hard {} {}", row.number, row.name),
        IrqKind::Soft => format!("soft {}", row.name),
        IrqKind::Vector => format!("vector {}", row.name),
    };
    Section::of(
        "RQ2, and RQ3's breakdown: interrupts on top of launching threads",
        &file.study.irqs,
        &[
            ("interrupt", &|row| name(row)),
            ("count", &|row| count(row.count)),
            ("of its kind", &|row| or_none(row.count_percent, percent)),
            ("total", &|row| time_us(row.total_us)),
            ("mean", &|row| or_none(row.mean_us, time_us)),
            ("max", &|row| time_us(row.max_us)),
            ("without nested", &|row| time_us(row.self_us)),
        ],
    )
    .note(format!(
        "IRQ time (hard + soft, as the trace says): {}, {} of the runtime from the first launch on",
        time_ms(file.study.irq_time_ms),
        or_none(file.study.irq_time_percent, percent)
    ))
}

fn as_counted(file: &Analysis) -> Option<Section> {
    let counted = file.study.as_counted.as_ref()?;
    let section = Section::of(
        "As the studies published: from the tracer's summary",
        [counted],
        &[
            ("launches", &|counted| count(counted.launches)),
            ("Sched/1K", &|counted| ratio(counted.sched_per_1k)),
            ("Soft IRQ/1K", &|counted| ratio(counted.soft_irq_per_1k)),
            ("Hard IRQ/1K", &|counted| ratio(counted.hard_irq_per_1k)),
            ("dropped", &|counted| or_none(counted.dropped, count)),
        ],
    );
    Some(section.note(
        "launches and interrupts were counted before rows were dropped, switches after: the ratios mix two sets",
    ))
}
