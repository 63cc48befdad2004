// SPDX-License-Identifier: GPL-2.0-only
//! What is counted and what is estimated, as people and programs read it.

use std::collections::BTreeMap;

use super::*;
use crate::schema::{Comm, Name};

fn outcome(launches: Launches) -> Outcome {
    let mut thread = Thread {
        tid: 12,
        tgid: 10,
        threads: 1,
        ..Thread::default()
    };
    (thread.traced_ns, thread.sampled_ns) = (2_000_000_000, 20_000_000);
    thread.comm = Comm::new("engine");
    thread.counters.launches = 500;
    thread.counters.window_switches = 50;
    // In the windows 200 and 300.
    thread.squared_launches = Some(200 * 200 + 300 * 300);
    // All the time, which is another set than the launches of the windows.
    thread.counters.preempted = 4000;
    thread.counters.blocked = 1000;
    Outcome {
        header: Header {
            schema: 1,
            program: "0".to_owned(),
            clock: "CLOCK_MONOTONIC".to_owned(),
            start_ns: 0,
            start_unix_ns: 0,
            kernel: "6.18".to_owned(),
            scheduler: None,
            cpus: 2,
            target: "process 10".to_owned(),
            launches,
        },
        end: End {
            ended_by: EndedBy::Duration,
            end_ns: 2_000_000_000,
            window_ns: 20_000_000,
            windows: 2,
            counted: BTreeMap::from([(Kind::Launch, 500)]),
            lost: BTreeMap::new(),
            missed: 0,
            missed_by: BTreeMap::new(),
        },
        threads: vec![thread],
        irqs: Vec::new(),
        preemptors: Vec::new(),
        lost_preemptors: 0,
        lost_irqs: 0,
        command: None,
    }
}

/// Every table has rows, one more than the text shows.
fn busy() -> Outcome {
    let mut outcome = outcome(Launches::Sampled {
        window_ns: 10_000_000,
        period_ns: 1_000_000_000,
    });
    let first = outcome.threads[0].clone();
    outcome.threads = (1..=MOST_ROWS as u64 + 1)
        .map(|at| {
            let mut thread = first.clone();
            let counters = &mut thread.counters;
            (thread.tid, thread.threads) = (at as i32, 1 + at % 2);
            (counters.launches, counters.graph_launches) = (at * 10 % 70, at % 3);
            (counters.on_cpu_ns, counters.asleep_ns) = (at * 1_234_567, at * 99);
            (counters.wakeup_wait_ns, counters.syncs) = (at * 1_000, at);
            (counters.intervals_calm, counters.intervals_disturbed) = (at * 9, at % 4);
            (counters.interval_preempted_ns, counters.hard_irq_ns) = (at % 5 * 777, at * 31);
            thread.histograms.wakeup_wait.buckets[(at % 30) as usize] = 3;
            thread.histograms.interval_calm.buckets[(at % 24) as usize] = 5;
            thread
        })
        .collect();
    let kinds = [Kind::HardIrq, Kind::SoftIrq, Kind::VectorIrq];
    for at in 1..=MOST_ROWS as u64 + 1 {
        let comm = format!("hog-{at}");
        outcome.irqs.push(IrqTotal {
            kind: kinds[(at % 3) as usize],
            number: at as u32,
            name: Name::new(&comm),
            count: at * 3,
            self_ns: at * 54_321,
            worst_ns: at * 4_321,
        });
        outcome.preemptors.push(PreemptorTotal {
            victim_tgid: 10,
            comm: Comm::new(&comm),
            count: at,
            ns: at * 65_432,
        });
    }
    (outcome.lost_irqs, outcome.lost_preemptors) = (3, 4);
    outcome
}

#[test]
fn text_and_json_are_to_the_letter_what_they_were() {
    let mut busy = busy();
    let mut found = text(&busy);
    busy.threads.truncate(1);
    busy.irqs.truncate(2);
    busy.preemptors.truncate(2);
    for line in json(&busy).unwrap().lines() {
        // Buckets.
        if line.trim().trim_end_matches(',').parse::<u64>().is_err() {
            found += &format!("{line}\n");
        }
    }
    assert!(found == include_str!("busy.txt"), "{found}");
}

#[test]
fn a_scaled_count_is_called_an_estimate() {
    let sampled = outcome(Launches::Sampled {
        window_ns: 10_000_000,
        period_ns: 1_000_000_000,
    });
    let text = text(&sampled);
    // 500 in 1 % of the time: about 50,000. Two windows that differ by 100 from one another: the
    // sum of two has a standard error of 100, and 99 % of the time is not counted.
    assert!(text.contains("~50000 ±9950"), "{text}");
    // 50 switches in these windows, with 500 launches.
    assert!(text.contains("~100.0"), "{text}");
    assert!(text.contains("(1.00 %)"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&json(&sampled).unwrap()).unwrap();
    let thread = &json["threads"][0];
    assert_eq!(
        thread["counters"]["launches"], 500,
        "the count stays a count"
    );
    assert_eq!(thread["launches_estimate"], 50_000.0);
    assert_eq!(thread["switches_per_1k_launches"], 100.0);
    // Of threads that launch and others together there is no such ratio.
    assert!(json["totals"].get("switches_per_1k_launches").is_none());
    assert_eq!(json["totals"]["counters"]["launches"], 500);
}

#[test]
fn a_thread_is_estimated_by_its_own_time() {
    let mut sampled = outcome(Launches::Sampled {
        window_ns: 10_000_000,
        period_ns: 1_000_000_000,
    });
    // It began late: the same windows are a larger share of its time.
    sampled.threads[0].traced_ns = 1_000_000_000;
    let json: serde_json::Value = serde_json::from_str(&json(&sampled).unwrap()).unwrap();
    assert_eq!(json["threads"][0]["launches_estimate"], 25_000.0);
    assert_eq!(json["sampled_fraction"], 0.01);
}

#[test]
fn an_estimate_that_probes_made_too_low_says_so() {
    let mut sampled = outcome(Launches::Sampled {
        window_ns: 10_000_000,
        period_ns: 1_000_000_000,
    });
    // Most intervals are 8 to 16 us: a probe of 12 us is most of them.
    sampled.threads[0].histograms.interval_calm.buckets[14] = 90;
    sampled.threads[0].histograms.interval_calm.buckets[24] = 10;
    let (printed, json) = (text(&sampled), json(&sampled).unwrap());
    assert!(printed.contains(">=50000 ±9950"), "{printed}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["threads"][0]["launches_at_least"], true);
    sampled.threads[0].histograms.interval_calm.buckets[14] = 0;
    assert!(text(&sampled).contains("~50000"));
}

#[test]
fn a_full_count_is_not() {
    let full = outcome(Launches::All);
    let text = text(&full);
    assert!(text.contains("every one counted"), "{text}");
    assert!(!text.contains('~') && text.contains("100.0"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&json(&full).unwrap()).unwrap();
    assert_eq!(
        json["threads"][0]["launches_estimate"],
        serde_json::Value::Null
    );
}

#[test]
fn losses_are_shown_by_kind() {
    let mut outcome = outcome(Launches::All);
    assert!(text(&outcome).contains("lost       nothing"));
    outcome.end.lost.insert(Kind::Launch, 7);
    outcome.end.missed = 3;
    let missed = [("too_deep", 1), ("unseen_switch", 2)];
    outcome.end.missed_by = missed.map(|(why, count)| (why.to_owned(), count)).into();
    let text = text(&outcome);
    assert!(
        text.contains("7 of 500 launch, 1 too_deep, 2 unseen_switch"),
        "{text}"
    );
}

#[test]
fn a_row_is_a_line_whatever_threads_call_themselves() {
    let mut outcome = outcome(Launches::All);
    let lines = text(&outcome).lines().count();
    outcome.threads[0].comm = Comm::new("a\n\x1b[2J  7");
    outcome.preemptors.push(PreemptorTotal {
        victim_tgid: 10,
        comm: Comm::new("b\x1b]0;c\x07"),
        count: 1,
        ns: 1,
    });
    let text = text(&outcome);
    assert!(
        text.contains("a\\n\\u{1b}[2J") && text.contains("b\\u{1b}]0;c"),
        "{text}"
    );
    assert!(
        !text.contains(|c: char| c != '\n' && c.is_control()),
        "{text:?}"
    );
    assert_eq!(
        text.lines().count(),
        lines + 3,
        "an empty line, a head, a preemptor:\n{text}"
    );
}

#[test]
fn times_have_three_digits() {
    let times = [999, 1_500, 12_340, 123_400_000, 4_000_000_000].map(time);
    assert_eq!(times, ["999 ns", "1.50 us", "12.3 us", "123 ms", "4.00 s"]);
}
