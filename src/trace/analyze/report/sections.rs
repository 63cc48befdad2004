// SPDX-License-Identifier: GPL-2.0-only
//! What the tables say, terminal and HTML alike.

use super::Report;
use super::table::Section;
use super::words::{NONE, bytes, count, estimate, fixed, or_none, short, time_us};
use crate::trace::analyze::Summary;
use crate::trace::analyze::compare::{Comparison, DrawnFrom};
use crate::trace::analyze::event::IrqKind;
use crate::trace::analyze::figures::{Analysis, Busiest, LostRow, Rates};

/// All sections; `details`: those of each file too.
pub fn all(report: &Report, details: bool) -> Vec<Section> {
    let mut sections = vec![overview(report)];
    sections.extend(report.comparison.as_ref().map(comparison));
    for file in &report.files {
        sections.extend(trust(file));
    }
    if details {
        for file in &report.files {
            sections.extend(of_file(file));
        }
    } else {
        let mut hint = Section::new("Each file in detail", &[]);
        hint.notes.push(
            "launch pairs, tails, bursts, interrupts, stolen time: name one file, or use --html or --json"
                .to_owned(),
        );
        sections.push(hint);
    }
    sections
}

fn percent(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || size >= 0.095 => format!("{} %", fixed(value, 1)),
        _ => format!("{} %", short(value)),
    }
}

fn overview(report: &Report) -> Section {
    let mut section = Section::new(
        "The studies' figures",
        &[
            "file",
            "launches",
            "Sched/1K",
            "Soft IRQ/1K",
            "Hard IRQ/1K",
            "IRQ time",
            "runtime",
            "tok/s",
            "slowdown",
        ],
    );
    for file in &report.files {
        let study = &file.study;
        let slowdown = report.comparison.as_ref().and_then(|comparison| {
            let at = comparison
                .arms
                .iter()
                .position(|arm| arm.label == file.source.label)?;
            comparison.slowdown_percent[at]
        });
        let ratio = |value| or_none(value, |value| fixed(value, 1));
        section.row([
            file.source.label.clone(),
            count(study.launches),
            ratio(study.sched_per_1k),
            ratio(study.soft_irq_per_1k),
            ratio(study.hard_irq_per_1k),
            format!("{} ms", fixed(study.irq_time_ms, 2)),
            format!("{} s", fixed(file.source.duration_s, 2)),
            or_none(file.ours.tokens_per_s, |rate| fixed(rate, 2)),
            or_none(slowdown, |slowdown| {
                estimate(&slowdown).replacen(&short(slowdown.value), &fixed(slowdown.value, 1), 1)
                    + " %"
            }),
        ]);
    }
    section
}

fn trust(file: &Analysis) -> Option<Section> {
    let source = &file.source;
    let mut section = Section::new(&format!("{}: {}", source.label, source.file), &[]);
    let made = [
        source
            .scheduler
            .as_ref()
            .map(|name| format!("scheduler {name}")),
        source.kernel.as_ref().map(|name| format!("kernel {name}")),
        source.target.as_ref().map(|name| format!("of {name}")),
    ];
    let mut line = format!(
        "{}, {} events in {}",
        bytes(source.bytes),
        count(source.events),
        time_us(source.duration_s * 1e6)
    );
    for part in made.into_iter().flatten() {
        line += &format!(", {part}");
    }
    section.notes.push(line);
    section.notes.extend(source.remarks.iter().cloned());
    Some(section)
}

fn comparison(comparison: &Comparison) -> Section {
    let mut columns = vec![""];
    columns.extend(comparison.arms.iter().map(|arm| arm.label.as_str()));
    let mut section = Section::new("Beside one another", &columns);
    section.notes.push(format!(
        "× {}: 95 % bootstrap intervals in brackets; = the interval leaves no difference shown",
        comparison.arms[0].label
    ));
    if comparison
        .arms
        .iter()
        .any(|arm| arm.drawn_from == DrawnFrom::Slices)
    {
        section.notes.push(
            "fewer than 3 files of a label: its intervals are drawn from stretches of one run and say nothing about other runs"
                .to_owned(),
        );
    }
    for row in &comparison.rows {
        let mut cells = vec![row.name.to_owned()];
        cells.extend(row.arms.iter().map(|cell| {
            or_none(cell.as_ref(), |cell| {
                let mut text = estimate(&cell.figure);
                if let Some(times) = &cell.times_baseline {
                    let same = if cell.differs == Some(false) { "=" } else { "" };
                    text += &format!(" ×{}{same}", estimate(times));
                }
                text
            })
        }));
        section.rows.push(cells);
    }
    section
}

/// Everything about one file.
pub fn of_file(file: &Analysis) -> Vec<Section> {
    let mut sections = Vec::new();
    if let Some(busiest) = &file.study.busiest {
        sections.push(pairs(busiest));
        sections.push(tails(busiest));
        sections.push(bursts(busiest));
    }
    sections.push(irqs(file));
    sections.extend(as_counted(file));
    sections.push(rates(file));
    sections.push(lost(file));
    sections.push(latencies(file));
    sections.push(stolen(file));
    if !file.ours.preemptors.is_empty() {
        sections.push(preemptors(file));
    }
    sections.push(give_back(file));
    sections.push(threads(file));
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
        count(pairs.launches),
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
    section.notes.push(format!(
        "penalty: median of B - median of A = {penalty}; impact: pairs of B × penalty = {impact}, {share} of the runtime"
    ));
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

fn durations(summary: Option<&Summary>) -> [String; 4] {
    let of = |figure: fn(&Summary) -> f64| or_none(summary, |summary| time_us(figure(summary)));
    [
        of(|summary| summary.p50_us),
        of(|summary| summary.p90_us),
        of(|summary| summary.p99_us),
        of(|summary| summary.max_us),
    ]
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
        "RQ2: interrupts on top of launching threads",
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
        "IRQ time (hard + soft, as the trace says): {}, {} of the runtime",
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

fn rates(file: &Analysis) -> Section {
    let ours = &file.ours;
    let mut section = Section::new(
        "Per second and per token",
        &[
            "each",
            "launches",
            "switches",
            "preemptions",
            "hard IRQs",
            "soft IRQs",
            "IRQ µs",
            "waiting µs",
        ],
    );
    section.notes.push(format!(
        "a switch here is an off and its on; {} launches of {} threads{}{}",
        count(ours.launches),
        count(ours.launching_threads),
        match ours.graph_launches {
            0 => String::new(),
            graphs => format!(", {} of them graphs of many kernels", count(graphs)),
        },
        match ours.seen_twice {
            0 => String::new(),
            twice => format!(
                "; {} more rows are the driver's of the same launch",
                count(twice)
            ),
        }
    ));
    if ours.per_token.is_none() {
        section
            .notes
            .push("per token: give --tokens or --tokens-per-second".to_owned());
    }
    let about = if ours.launches_estimate.is_some() {
        "~"
    } else {
        ""
    };
    let row = |name: &str, rates: &Rates| {
        [
            name.to_owned(),
            format!("{about}{}", short(rates.launches)),
            short(rates.switches),
            or_none(rates.preemptions, short),
            short(rates.hard_irqs),
            short(rates.soft_irqs),
            short(rates.irq_us),
            or_none(rates.waiting_us, short),
        ]
    };
    for (name, rates) in [("second", &ours.per_second), ("token", &ours.per_token)] {
        if let Some(rates) = rates {
            section.row(row(name, rates));
        }
    }
    section
}

fn lost(file: &Analysis) -> Section {
    let mut section = Section::new(
        "Off the CPU, and interrupted: launching threads",
        &["cause", "times", "total", "ms per s", "share of its kind"],
    )
    .note("the sum over all launching threads; interrupts without what is nested in them");
    let row = |row: &LostRow| {
        [
            row.cause.words().to_owned(),
            count(row.times),
            time_us(row.total_ms * 1e3),
            or_none(row.ms_per_s, short),
            percent(row.share_percent),
        ]
    };
    for lost in file.ours.off_cpu.iter().chain(&file.ours.stolen_by_irqs) {
        section.row(row(lost));
    }
    section
}

fn latencies(file: &Analysis) -> Section {
    let mut section = Section::new(
        "Run-queue latency",
        &["", "times", "P50", "P90", "P99", "max"],
    );
    for (name, summary) in [
        ("from wakeup to running", &file.ours.run_queue_latency),
        ("preempted, until running again", &file.ours.preempted_for),
    ] {
        let [p50, p90, p99, max] = durations(summary.as_ref());
        let times = or_none(summary.as_ref(), |summary| count(summary.count));
        section.row([name.to_owned(), times, p50, p90, p99, max]);
    }
    section
}

fn stolen(file: &Analysis) -> Section {
    let mut section = Section::new(
        "Time stolen in launch intervals, each from one launch of a thread to its next",
        &[
            "cause",
            "intervals hit",
            "share",
            "total",
            "of their time",
            "mean of all",
            "P99 of hit",
            "max",
        ],
    );
    section
        .notes
        .push(format!("{} intervals", count(file.ours.intervals)));
    for row in &file.ours.stolen {
        section.row([
            row.cause.words().to_owned(),
            count(row.intervals_hit),
            percent(row.hit_percent),
            time_us(row.total_ms * 1e3),
            percent(row.time_percent),
            time_us(row.mean_us),
            time_us(row.p99_of_hit_us),
            time_us(row.max_us),
        ]);
    }
    section
}

fn preemptors(file: &Analysis) -> Section {
    let mut section = Section::new(
        "Who preempted launching threads",
        &["thread", "times", "until it ran again", "share"],
    );
    for row in &file.ours.preemptors {
        section.row([
            row.comm.clone(),
            count(row.times),
            time_us(row.total_ms * 1e3),
            percent(row.share_percent),
        ]);
    }
    section
}

fn give_back(file: &Analysis) -> Section {
    let give = &file.ours.give_back;
    let mut section = Section::new(
        "Lost time, and who could give it back at most",
        &["", "total", "share of lost"],
    );
    let lost = give.lost_ms;
    let share = |part: Option<f64>| {
        let share = part.zip(lost).filter(|&(_, lost)| lost > 0.0);
        or_none(share, |(part, lost)| percent(part / lost * 100.0))
    };
    let ms = |value: Option<f64>| or_none(value, |ms| time_us(ms * 1e3));
    let placement = Some(give.by_placement_ms);
    for (name, value) in [
        (
            "a scheduler: preempted, or woken and waiting",
            give.by_scheduling_ms,
        ),
        (
            "placement of interrupts and threads: interrupted",
            placement,
        ),
        ("the program itself: yielded", give.by_program_ms),
        ("together", lost),
    ] {
        section.row([name.to_owned(), ms(value), share(value)]);
    }
    section.notes.push(match lost {
        Some(_) => format!(
            "scheduling could give back at most {} ms of each second",
            or_none(give.at_most_ms_per_s, short)
        ),
        None => format!(
            "the trace does not say why threads were off their CPUs: at most all of it, {} ms of each second",
            or_none(give.at_most_ms_per_s, short)
        ),
    });
    section
}

fn threads(file: &Analysis) -> Section {
    let mut section = Section::new(
        "Threads that launch",
        &[
            "thread",
            "launches",
            "preempted",
            "waiting",
            "interrupted",
            "otherwise off",
            "syncs",
            "in them",
            "of that off",
        ],
    );
    for row in &file.ours.threads {
        let ms = |ms: f64| time_us(ms * 1e3);
        section.row([
            format!("{} {}/{}", row.comm, row.tgid, row.tid),
            count(row.launches),
            ms(row.preempted_ms),
            ms(row.waiting_ms),
            ms(row.irq_ms),
            ms(row.other_off_ms),
            count(row.syncs),
            if row.syncs > 0 {
                ms(row.sync_ms)
            } else {
                NONE.to_owned()
            },
            if row.syncs > 0 {
                ms(row.sync_off_ms)
            } else {
                NONE.to_owned()
            },
        ]);
    }
    section
}
