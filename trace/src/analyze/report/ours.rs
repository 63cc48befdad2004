// SPDX-License-Identifier: GPL-2.0-only
//! Tables of one file with our definitions: rates, off-CPU split, latencies, stolen time, preemptors.

use super::table::Section;
use super::words::{NONE, count, count_or_estimate, durations, or_none, percent, short, time_us};
use crate::analyze::figures::{Analysis, LostRow, Rates};

pub fn sections(file: &Analysis) -> Vec<Section> {
    let mut sections = vec![rates(file), lost(file), latencies(file), stolen(file)];
    if !file.ours.preemptors.is_empty() {
        sections.push(preemptors(file));
    }
    sections.push(give_back(file));
    sections.push(threads(file));
    sections
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
        "a switch here is an off and its on; {} launches recorded of {} threads{}{}",
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
            count_or_estimate(row.launches, row.launches_estimate),
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
