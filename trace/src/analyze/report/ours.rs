// SPDX-License-Identifier: GPL-2.0-only
//! Tables of one file with our definitions: rates, off-CPU split, latencies, stolen time, preemptors.

use super::table::Section;
use super::words::{
    count, count_or_estimate, of_spread, or_none, percent, short, time_ms, time_us,
};
use crate::analyze::figures::{Analysis, Rates, ThreadRow};

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
    let about = match ours.launches_estimate {
        Some(_) => "~",
        None => "",
    };
    let units = [("second", &ours.per_second), ("token", &ours.per_token)];
    let known = |(name, rates): (&'static str, &Option<Rates>)| Some((name, (*rates)?));
    let section = Section::of(
        "Per second and per token",
        units.into_iter().filter_map(known),
        &[
            ("each", &|&(name, _)| name.to_owned()),
            ("launches", &|(_, each)| {
                format!("{about}{}", short(each.launches))
            }),
            ("switches", &|(_, each)| short(each.switches)),
            ("preemptions", &|(_, each)| or_none(each.preemptions, short)),
            ("hard IRQs", &|(_, each)| short(each.hard_irqs)),
            ("soft IRQs", &|(_, each)| short(each.soft_irqs)),
            ("IRQ µs", &|(_, each)| short(each.irq_us)),
            ("waiting µs", &|(_, each)| or_none(each.waiting_us, short)),
        ],
    )
    .note(format!(
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
    match ours.per_token {
        Some(_) => section,
        None => section.note("per token: give --tokens or --tokens-per-second"),
    }
}

fn lost(file: &Analysis) -> Section {
    Section::of(
        "Off the CPU, and interrupted: launching threads",
        file.ours.off_cpu.iter().chain(&file.ours.stolen_by_irqs),
        &[
            ("cause", &|row| row.cause.words().to_owned()),
            ("times", &|row| count(row.times)),
            ("total", &|row| time_ms(row.total_ms)),
            ("ms per s", &|row| or_none(row.ms_per_s, short)),
            ("share of its kind", &|row| percent(row.share_percent)),
        ],
    )
    .note("the sum over all launching threads; interrupts without what is nested in them")
}

fn latencies(file: &Analysis) -> Section {
    let rows = [
        ("from wakeup to running", &file.ours.run_queue_latency),
        ("preempted, until running again", &file.ours.preempted_for),
    ];
    Section::of(
        "Run-queue latency",
        rows,
        &[
            ("", &|&(name, _)| name.to_owned()),
            ("times", &|(_, all)| {
                or_none(all.as_ref(), |all| count(all.count))
            }),
            ("P50", &|(_, all)| of_spread(all, |all| all.p50_us)),
            ("P90", &|(_, all)| of_spread(all, |all| all.p90_us)),
            ("P99", &|(_, all)| of_spread(all, |all| all.p99_us)),
            ("max", &|(_, all)| of_spread(all, |all| all.max_us)),
        ],
    )
}

fn stolen(file: &Analysis) -> Section {
    Section::of(
        "Time stolen in launch intervals, each from one launch of a thread to its next",
        &file.ours.stolen,
        &[
            ("cause", &|row| row.cause.words().to_owned()),
            ("intervals hit", &|row| count(row.intervals_hit)),
            ("share", &|row| percent(row.hit_percent)),
            ("total", &|row| time_ms(row.total_ms)),
            ("of their time", &|row| percent(row.time_percent)),
            ("mean of all", &|row| time_us(row.mean_us)),
            ("P99 of hit", &|row| time_us(row.p99_of_hit_us)),
            ("max", &|row| time_us(row.max_us)),
        ],
    )
    .note(format!("{} intervals", count(file.ours.intervals)))
}

fn preemptors(file: &Analysis) -> Section {
    Section::of(
        "Who preempted launching threads",
        &file.ours.preemptors,
        &[
            ("thread", &|row| row.comm.clone()),
            ("times", &|row| count(row.times)),
            ("until it ran again", &|row| time_ms(row.total_ms)),
            ("share", &|row| percent(row.share_percent)),
        ],
    )
}

fn give_back(file: &Analysis) -> Section {
    let give = &file.ours.give_back;
    let share = |part: Option<f64>| {
        let share = part.zip(give.lost_ms).filter(|&(_, lost)| lost > 0.0);
        or_none(share, |(part, lost)| percent(part / lost * 100.0))
    };
    let rows = [
        (
            "a scheduler: preempted, or woken and waiting",
            give.by_scheduling_ms,
        ),
        (
            "placement of interrupts and threads: interrupted",
            Some(give.by_placement_ms),
        ),
        ("the program itself: yielded", give.by_program_ms),
        ("together", give.lost_ms),
    ];
    let most = or_none(give.at_most_ms_per_s, short);
    Section::of(
        "Lost time, and who could give it back at most",
        rows,
        &[
            ("", &|&(name, _)| name.to_owned()),
            ("total", &|&(_, ms)| or_none(ms, time_ms)),
            ("share of lost", &|&(_, ms)| share(ms)),
        ],
    )
    .note(match give.lost_ms {
        Some(_) => format!("scheduling could give back at most {most} ms of each second"),
        None => format!(
            "the trace does not say why threads were off their CPUs: at most all of it, {most} ms of each second"
        ),
    })
}

fn threads(file: &Analysis) -> Section {
    let in_syncs = |row: &ThreadRow, ms| or_none((row.syncs > 0).then_some(ms), time_ms);
    Section::of(
        "Threads that launch",
        &file.ours.threads,
        &[
            ("thread", &|row| {
                format!("{} {}/{}", row.comm, row.tgid, row.tid)
            }),
            ("launches", &|row| {
                count_or_estimate(row.launches, row.launches_estimate)
            }),
            ("preempted", &|row| time_ms(row.preempted_ms)),
            ("waiting", &|row| time_ms(row.waiting_ms)),
            ("interrupted", &|row| time_ms(row.irq_ms)),
            ("otherwise off", &|row| time_ms(row.other_off_ms)),
            ("syncs", &|row| count(row.syncs)),
            ("in them", &|row| in_syncs(row, row.sync_ms)),
            ("of that off", &|row| in_syncs(row, row.sync_off_ms)),
        ],
    )
}
