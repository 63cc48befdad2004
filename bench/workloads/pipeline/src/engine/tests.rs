// SPDX-License-Identifier: GPL-2.0-only
//! Whole runs, short ones: what must hold however busy the machine is.

use super::*;
use crate::graph;
use crate::yields;

fn plan(duration_ms: u64, drain_ms: u64) -> Plan {
    Plan {
        warmup: Duration::from_millis(50),
        duration: Duration::from_millis(duration_ms),
        drain: Duration::from_millis(drain_ms),
        seed: 1,
        slo_ms: vec![60_000.0],
        until_eof: false,
    }
}

fn run(text: &str, plan: &Plan) -> (Graph, Measured) {
    let graph = graph::read("g.toml", text, &[]).unwrap();
    let running = Running::start(graph.clone(), plan).unwrap();
    let measured = running.measure(plan).unwrap();
    for thread in &measured.threads {
        let name = &thread.name;
        assert!(!yields::has_yielded(name), "{name} does not sleep at once");
    }
    (graph, measured)
}

const FILTER: &str = r#"description = "d"
[stage.source]
arrive = { loop = "open", rate = 1000, gaps = "even" }
[stage.filter]
from = ["source"]
threads = 2
emit = 0.5
[stage.sink]
from = ["filter"]
"#;

#[test]
fn every_item_has_one_outcome() {
    let (_, measured) = run(FILTER, &plan(300, 20_000));
    let Outcomes {
        offered,
        completed,
        failed,
        filtered,
        absorbed,
        unfinished,
    } = measured.outcomes;
    assert!((299..=301).contains(&offered), "{offered}");
    assert_eq!((failed, absorbed, unfinished), (0, 0, 0));
    assert_eq!(completed + filtered, offered);
    assert!((75..225).contains(&filtered), "{filtered}");
    assert_eq!(measured.ends.latency.count(), completed);
    assert_eq!(measured.kept, [(60_000.0, completed)]);
    assert_eq!(measured.edges[0].delay.count(), offered);
    assert_eq!(measured.edges[1].delay.count(), completed);
    let names: Vec<&str> = measured
        .threads
        .iter()
        .map(|thread| thread.name.as_str())
        .collect();
    assert_eq!(names, ["source0", "filter0", "filter1", "sink0"]);
}

#[test]
fn what_a_stage_cannot_take_is_offered_and_unfinished() {
    let text = FILTER.replace("emit = 0.5", "cpu = { us = 50000, clock = \"wall\" }");
    let (_, measured) = run(&text, &plan(300, 50));
    let outcomes = measured.outcomes;
    assert!((299..=301).contains(&outcomes.offered), "{outcomes:?}");
    assert!(outcomes.unfinished > 250, "{outcomes:?}");
}

#[test]
fn both_halves_of_a_request_meet_again() {
    let text = r#"description = "d"
[stage.source]
arrive = { loop = "closed", clients = 3 }
[stage.text]
from = ["source"]
[stage.vision]
from = ["source"]
threads = 2
message = { bytes = [1000, 2000] }
[stage.cross]
from = ["text", "vision"]
threads = 2
join = { by = "request" }
batch = { max = 4 }
"#;
    let (graph, measured) = run(text, &plan(200, 20_000));
    let outcomes = measured.outcomes;
    assert!(outcomes.offered > 3, "{outcomes:?}");
    assert_eq!(outcomes.completed, outcomes.offered, "{outcomes:?}");
    assert_eq!(measured.ends.latency.count(), outcomes.completed);
    for (edge, times) in graph.edges.iter().zip(&measured.edges) {
        assert_eq!(times.delay.count(), outcomes.offered, "{edge:?}");
        let has_message = graph.stages[edge.from].name == "vision";
        let copies = if has_message { outcomes.offered } else { 0 };
        assert_eq!(times.transfer.count(), copies, "{edge:?}");
    }
}

/// Batches of the stage `filter` of `FILTER` with these keys: how many there were, and the largest.
fn batches(keys: &str) -> (u64, f64) {
    let text = FILTER
        .replace("threads = 2", keys)
        .replace("emit = 0.5", "");
    let (_, measured) = run(&text, &plan(100, 20_000));
    assert_eq!(measured.outcomes.completed, measured.outcomes.offered);
    let sizes = &measured.stages[1].batch_size;
    (sizes.count(), sizes.numbers()["max"].as_f64().unwrap())
}

#[test]
fn fixed_batches_wait_to_be_full_and_opportunistic_ones_take_what_there_is_up_to_their_cap() {
    // 100 items; what is left at the end is a batch as well.
    let (count, largest) = batches("batch = { max = 10, gather = \"fixed\", wait_ms = 10000 }");
    assert!((9..=12).contains(&count), "{count}");
    assert_eq!(largest, 10.0);
    // Three times as much comes as it can do.
    let cpu = "cpu = { us = 3000, clock = \"wall\" }\nbatch = { max = 4 }";
    let (count, largest) = batches(cpu);
    assert!(count >= 25, "{count}");
    assert_eq!(largest, 4.0);
}

#[test]
fn threads_that_join_later_are_loaded_before_their_first_item_or_hold_it_up() {
    let unfinished = |preload: bool| {
        let grow = format!(
            "route = \"request\"\ngrow = {{ at_item = 100, threads = 1, load_ms = 1500, preload = {preload} }}"
        );
        let text = FILTER
            .replace("threads = 2", &grow)
            .replace("emit = 0.5", "");
        let (_, measured) = run(&text, &plan(300, if preload { 20_000 } else { 100 }));
        measured.outcomes.unfinished
    };
    // Every other of the last 250.
    assert!(unfinished(false) > 50);
    assert_eq!(unfinished(true), 0);
}

#[test]
fn of_a_window_one_item_goes_on() {
    let text = FILTER.replace("emit = 0.5", "window = { by = \"all\", every_items = 5 }");
    let (_, measured) = run(&text.replace("threads = 2", ""), &plan(300, 2000));
    let outcomes = measured.outcomes;
    assert!(outcomes.absorbed >= 230, "{outcomes:?}");
    assert!((59..=61).contains(&outcomes.completed), "{outcomes:?}");
}

#[test]
fn a_server_that_does_not_answer_is_failures_over_what_was_offered() {
    let http = "http = { url = \"http://127.0.0.1:1\", model = \"m\" }";
    let text = FILTER.replace("emit = 0.5", http).replace("1000", "20");
    let (_, measured) = run(&text, &plan(300, 20_000));
    let outcomes = measured.outcomes;
    assert!(outcomes.offered > 3, "{outcomes:?}");
    assert_eq!(outcomes.failed, outcomes.offered, "{outcomes:?}");
    assert!(!measured.errors.is_empty());
}

#[test]
fn threads_are_named_after_their_stage_and_say_where_they_worked() {
    let graph = graph::read("g.toml", &FILTER.replace("source", "origin"), &[]).unwrap();
    let running = Running::start(graph, &plan(300, 50)).unwrap();
    let has_worked = || running.take_places()["origin0"].values().sum::<u64>() > 0;
    let deadline = Instant::now() + Duration::from_secs(20);
    while !has_worked() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(POLL);
    }
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    assert!(
        names
            .map(|name| name.trim().to_owned())
            .any(|name| name == "origin0")
    );
    running.shared.quit.store(true, Relaxed);
}
