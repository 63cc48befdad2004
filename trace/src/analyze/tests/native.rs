// SPDX-License-Identifier: GPL-2.0-only
//! Our own traces.

use std::collections::BTreeMap;

use super::{analysis, near};
use crate::analyze::figures::Analysis;
use crate::analyze::tally::Cause;
use crate::export::{self, Format};
use crate::schema::{Comm, End, EndedBy, Header, Kind, Launches, Line, Name, Reason, Record};

fn header(launches: Launches) -> Header {
    Header {
        schema: 1,
        program: "0.1.0".to_owned(),
        clock: "CLOCK_MONOTONIC".to_owned(),
        start_ns: 1_000_000,
        start_unix_ns: 0,
        kernel: "6.18".to_owned(),
        scheduler: Some("gpuaware".to_owned()),
        cpus: 2,
        target: "command a b".to_owned(),
        launches,
    }
}

fn end(window_us: u64, lost: &[(Kind, u64)]) -> End {
    End {
        ended_by: EndedBy::Command,
        end_ns: 1_000_000 + 21_000_000,
        window_ns: window_us * 1000,
        windows: 1,
        counted: BTreeMap::new(),
        lost: lost.iter().copied().collect(),
        missed: 0,
        missed_by: BTreeMap::new(),
    }
}

fn record(us: u64, kind: Kind) -> Record {
    Record {
        tid: 11,
        tgid: 10,
        comm: Comm::new("engine, core"),
        ..Record::new(1_000_000 + us * 1000, kind)
    }
}

fn switch_out(us: u64, reason: Reason, by: &str) -> Record {
    Record {
        reason: Some(reason),
        other_tid: Some(99),
        other_comm: Some(Comm::new(by)),
        ..record(us, Kind::SwitchOut)
    }
}

fn switch_in(us: u64, reason: Reason, off_us: u64, wait_us: u64) -> Record {
    Record {
        reason: Some(reason),
        duration_ns: Some(off_us * 1000),
        wait_ns: Some(wait_us * 1000),
        ..record(us, Kind::SwitchIn)
    }
}

fn soft_irq(us: u64, duration_us: u64, self_us: u64) -> Record {
    Record {
        irq: Some(3),
        irq_name: Some(Name::new("NET_RX")),
        duration_ns: Some(duration_us * 1000),
        self_ns: Some(self_us * 1000),
        ..record(us, Kind::SoftIrq)
    }
}

/// Four launches in the 20 ms from the first to the end; between them preempted 300 µs and 100 µs, asleep 500 µs of which it
/// waited 200 µs for a CPU, yielded 50 µs, interrupted 40 µs.
fn records() -> Vec<Record> {
    vec![
        record(1000, Kind::Launch),
        switch_out(1100, Reason::Preempted, "hog"),
        switch_in(1400, Reason::Preempted, 300, 300),
        soft_irq(1900, 60, 40),
        record(2000, Kind::Launch),
        switch_out(2100, Reason::Blocked, "swapper/0"),
        switch_in(2600, Reason::Blocked, 500, 200),
        record(3000, Kind::Launch),
        switch_out(3100, Reason::Yielded, "kworker"),
        switch_in(3150, Reason::Yielded, 50, 50),
        switch_out(3200, Reason::Preempted, "kworker"),
        switch_in(3300, Reason::Preempted, 100, 100),
        record(4000, Kind::Launch),
        Record {
            tid: 12,
            ..switch_out(5000, Reason::Preempted, "hog")
        },
    ]
}

fn ndjson(launches: Launches, records: &[Record], end: Option<End>) -> String {
    let lines = std::iter::once(Line::Header(header(launches)))
        .chain(
            records
                .iter()
                .cloned()
                .map(|one| Line::Record(Box::new(one))),
        )
        .chain(end.map(Line::End));
    let lines = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n");
    lines.collect()
}

/// As the tracer writes it.
fn written(format: Format, records: &[Record], end: &End) -> String {
    let mut out = Vec::new();
    let mut sink = export::begin(format, Box::new(&mut out), &header(Launches::All)).unwrap();
    for record in records {
        sink.record(record).unwrap();
    }
    sink.end(end).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn our_figures_of_our_trace_by_hand() {
    let text = ndjson(Launches::All, &records(), Some(end(20_000, &[])));
    let Analysis {
        source,
        study,
        ours,
        ..
    } = analysis(&text);
    assert!(source.complete, "{:?}", source.remarks);
    near(source.duration_s, 0.021);
    // From the first launch on.
    near(source.counted_s, 0.020);
    assert_eq!(study.launches_estimate, None);
    // 8 scheduler rows of the launching thread; the other thread never launched.
    near(study.sched_per_1k.unwrap(), 2000.0);
    near(ours.switches_per_1k.unwrap(), 1000.0);
    near(ours.per_second.unwrap().preemptions.unwrap(), 100.0);
    near(ours.per_token.unwrap().waiting_us.unwrap(), 300.0);
    let lost: Vec<_> = ours
        .off_cpu
        .iter()
        .chain(&ours.stolen_by_irqs)
        .map(|row| (row.cause, row.times, (row.total_ms * 1e3).round()))
        .collect();
    assert_eq!(
        lost,
        [
            (Cause::Preempted, 2, 400.0),
            (Cause::Waiting, 1, 200.0),
            (Cause::Yielded, 1, 50.0),
            (Cause::Asleep, 1, 300.0),
            (Cause::SoftIrq, 1, 40.0),
        ]
    );
    near(ours.run_queue_latency.unwrap().p50_us, 200.0);
    near(ours.preempted_for.unwrap().p50_us, 200.0);
    let preemptors: Vec<_> = ours
        .preemptors
        .iter()
        .map(|row| (row.comm.as_str(), row.times, row.share_percent))
        .collect();
    assert_eq!(preemptors, [("hog", 1, 75.0), ("kworker", 1, 25.0)]);
    let preempted = ours.stolen[0];
    assert_eq!(
        (preempted.cause, preempted.intervals_hit),
        (Cause::Preempted, 2)
    );
    near(preempted.hit_percent, 200.0 / 3.0);
    near(preempted.time_percent, 400.0 / 3000.0 * 100.0);
    near(preempted.mean_us, 400.0 / 3.0);
    // Lost: 400 + 200 + 50 + 40 µs; a scheduler could give back 600 of them.
    let give = ours.give_back;
    near(give.lost_ms.unwrap(), 0.690);
    near(give.by_scheduling_percent.unwrap(), 600.0 / 690.0 * 100.0);
    near(give.at_most_ms_per_s.unwrap(), 30.0);
}

#[test]
fn a_thread_with_the_id_of_one_that_launched_is_another() {
    let of_next = |record: Record| Record {
        comm: Comm::new("next"),
        ..record
    };
    let mut records = records();
    records.extend([
        record(6000, Kind::ThreadExit),
        of_next(switch_out(7000, Reason::Preempted, "hog")),
        of_next(switch_in(8000, Reason::Preempted, 1000, 1000)),
        of_next(record(9000, Kind::Launch)),
    ]);
    let read = analysis(&ndjson(Launches::All, &records, Some(end(20_000, &[]))));
    // Its switches come before its launch, and no interval is between the launches of two.
    near(read.study.sched_per_1k.unwrap(), 8.0 / 5.0 * 1000.0);
    assert_eq!(read.study.busiest.unwrap().pairs.pairs, 3);
    let threads = read.ours.threads.iter();
    let threads: Vec<_> = threads.map(|it| (it.tid, &*it.comm, it.launches)).collect();
    assert_eq!(threads, [(11, "engine, core", 4), (11, "next", 1)]);
}

#[test]
fn csv_and_ndjson_of_the_tracer_say_the_same() {
    let end = end(20_000, &[]);
    let by_hand = analysis(&ndjson(Launches::All, &records(), Some(end.clone())));
    for format in [Format::Csv, Format::Ndjson] {
        let read = analysis(&written(format, &records(), &end));
        for part in ["study", "ours", "timeline"] {
            let of = |analysis: &Analysis| serde_json::to_value(analysis).unwrap()[part].clone();
            assert_eq!(of(&by_hand), of(&read), "{format:?} {part}");
        }
        assert_eq!(read.ours.threads[0].comm, "engine, core");
        assert!(read.source.complete, "{:?}", read.source.remarks);
    }
}

#[test]
fn legacy_csv_of_the_tracer_has_the_studies_figures() {
    let read = analysis(&written(Format::LegacyCsv, &records(), &end(20_000, &[])));
    assert_eq!(read.source.malformed, 0, "{:?}", read.source.problems);
    near(read.study.sched_per_1k.unwrap(), 2000.0);
    near(read.study.soft_irq_per_1k.unwrap(), 250.0);
    let pairs = read.study.busiest.unwrap().pairs;
    assert_eq!((pairs.pairs, pairs.with_switch.unwrap().count), (3, 3));
    near(pairs.off_cpu_ms, 0.950);
    assert!(read.source.complete, "{:?}", read.source.remarks);
    // What was lost goes with the file.
    let lossy = end(20_000, &[(Kind::SwitchOut, 5), (Kind::Launch, 2)]);
    let read = analysis(&written(Format::LegacyCsv, &records(), &lossy));
    assert_eq!((read.source.lost, read.source.complete), (Some(7), false));
    assert_eq!(read.source.malformed, 0, "{:?}", read.source.problems);
}

#[test]
fn ratios_of_sampled_launches_are_of_the_windows_alone() {
    let sampled = Launches::Sampled {
        window_ns: 2_000_000,
        period_ns: 20_000_000,
    };
    let mut records = records();
    records.insert(0, record(900, Kind::WindowOpen));
    let close = records
        .iter()
        .position(|one| one.event == Kind::SwitchOut && one.tid == 11);
    // The window closes after the first launch and opens before the second, so no interval spans it.
    records.insert(close.unwrap(), record(1050, Kind::WindowClose));
    let open = records
        .iter()
        .position(|one| one.time_ns == 3_000_000)
        .unwrap();
    records.insert(open, record(1950, Kind::WindowOpen));
    records.push(record(4050, Kind::WindowClose));
    let analysis = analysis(&ndjson(sampled, &records, Some(end(2250, &[]))));
    assert_eq!(analysis.ours.intervals, 2);
    // 6 of the 8 scheduler rows are in a window, with 4 launches.
    near(analysis.study.sched_per_1k.unwrap(), 1500.0);
    near(analysis.source.sampled_percent, 225.0 / 21.0);
    near(analysis.ours.launches_estimate.unwrap(), 4.0 / 2.25 * 21.0);
    // What is always recorded is counted in all of the time from that first window on.
    near(
        analysis.ours.per_second.unwrap().preemptions.unwrap(),
        2.0 / 0.0201,
    );
}

/// Two seconds with windows of 10 ms at 200, 500 and 1500 ms, nothing launched in the first one. In
/// each of the others seven pairs: six of 1 ms, one of 2 ms with a preemption in it. And in every
/// tenth of a second a preemption of 10 ms.
fn sampled_two_seconds() -> String {
    let mut records: Vec<Record> = (0..20)
        .flat_map(|tenth| {
            let us = tenth * 100_000 + 50_000;
            [
                switch_out(us, Reason::Preempted, "hog"),
                switch_in(us + 10_000, Reason::Preempted, 10_000, 10_000),
            ]
        })
        .collect();
    for us in [200_000, 500_000, 1_500_000] {
        records.push(record(us, Kind::WindowOpen));
        records.push(record(us + 10_000, Kind::WindowClose));
    }
    for us in [500_000, 1_500_000] {
        let launches = [0, 1, 2, 3, 5, 6, 7, 8].map(|ms| record(us + ms * 1000, Kind::Launch));
        records.extend(launches);
        records.push(switch_out(us + 3500, Reason::Preempted, "hog"));
        records.push(switch_in(us + 4000, Reason::Preempted, 500, 500));
    }
    // A window is open before what happens in it.
    records.sort_by_key(|record| (record.time_ns, record.event != Kind::WindowOpen));
    let sampled = Launches::Sampled {
        window_ns: 10_000_000,
        period_ns: 1_000_000_000,
    };
    let end = End {
        end_ns: 1_000_000 + 2_000_000_000,
        windows: 3,
        ..end(30_000, &[])
    };
    ndjson(sampled, &records, Some(end))
}

#[test]
fn impact_of_sampled_pairs_is_a_share_of_the_windows() {
    let analysis = analysis(&sampled_two_seconds());
    let pairs = analysis.study.busiest.unwrap().pairs;
    assert_eq!((pairs.launches, pairs.pairs), (16, 14));
    near(pairs.penalty_us.unwrap(), 1000.0);
    near(pairs.impact_s.unwrap(), 0.002);
    near(pairs.recorded_s, 0.020);
    near(pairs.impact_percent.unwrap(), 10.0);
    // Switches are of all of the runtime, from the first launch to the last row, at 1.96 s.
    near(pairs.runtime_s, 1.46);
    assert_eq!(pairs.switches, 2 * 17);
    near(pairs.launches_estimate.unwrap(), 16.0 / 0.020 * 1.46);
    near(analysis.study.launches_estimate.unwrap(), 16.0 / 0.015);
}

#[test]
fn rates_of_sampled_launches_are_of_the_time_in_which_rows_count() {
    let analysis = analysis(&sampled_two_seconds());
    near(analysis.source.counted_s, 1.5);
    let second = analysis.ours.per_second.unwrap();
    near(second.preemptions.unwrap(), 17.0 / 1.5);
    near(second.waiting_us.unwrap(), 151_000.0 / 1.5);
    near(second.launches, 16.0 / 0.020);
    // Two tokens in 1.79 s: until 0.21 s nobody launched, from 0.5 s on rows count.
    let token = analysis.ours.per_token.unwrap();
    near(token.preemptions.unwrap(), 17.0 / (2.0 * 1.5 / 1.79));
    near(analysis.ours.off_cpu[0].ms_per_s.unwrap(), 151.0 / 1.5);
    near(analysis.ours.threads[0].launches_estimate.unwrap(), 1200.0);
    near(analysis.timeline[0].start_s, 0.5);
}

#[test]
fn what_was_lost_is_said() {
    let text = ndjson(
        Launches::All,
        &records(),
        Some(end(20_000, &[(Kind::SwitchOut, 7)])),
    );
    let lossy = analysis(&text).source;
    assert_eq!((lossy.lost, lossy.complete), (Some(7), false));
    assert!(
        lossy.remarks[0].contains("lost 7 events (7 switch_out)"),
        "{:?}",
        lossy.remarks
    );
    let unended = analysis(&ndjson(Launches::All, &records(), None)).source;
    assert!(!unended.complete);
    assert!(
        unended.remarks[0].contains("no end record"),
        "{:?}",
        unended.remarks
    );
    let text = ndjson(Launches::All, &records(), Some(end(20_000, &[])));
    let cut = analysis(&text[..text.len() - 40]).source;
    assert!(
        cut.remarks[0].starts_with("t.csv:16: partial"),
        "{:?}",
        cut.remarks
    );
}
