// SPDX-License-Identifier: GPL-2.0-only
//! The JSON document of a run. `docs/pipelines.md` says what its fields mean. Pure.

use serde_json::{Map, Value, json};

use crate::engine::{Measured, Plan};
use crate::graph::Graph;
use crate::recorder::Recorder;

/// What was asked for.
#[derive(Debug)]
pub struct Asked<'a> {
    pub name: &'a str,
    pub changes: &'a [String],
    pub graph: &'a Graph,
    pub plan: &'a Plan,
}

pub fn document(asked: &Asked<'_>, measured: Measured) -> Value {
    // What is part of a later result was worked on all the way to it.
    let carried = measured.outcomes.completed + measured.outcomes.absorbed;
    let mut document = json!({
        "schema": 1,
        "workload": "pipeline",
        "name": asked.name,
        "set": asked.changes,
        "graph": asked.graph,
        "seed": asked.plan.seed,
        "driver": {"device_name": measured.device_name},
        "seconds": measured.seconds,
        "measured_monotonic_ns": [measured.monotonic_ns.0, measured.monotonic_ns.1],
        "items_per_s": rate(carried, measured.seconds),
        "results_per_s": rate(measured.ends.latency.count(), measured.seconds),
        "slo": objectives(&measured),
        "stages": stages(asked.graph, &measured),
        "edges": edges(asked.graph, &measured),
        "threads": measured.threads.iter().map(thread_of).collect::<Vec<_>>(),
        "errors": measured.errors,
    });
    let Value::Object(map) = &mut document else {
        return document;
    };
    if let Value::Object(outcomes) = json!(measured.outcomes) {
        map.extend(outcomes);
    }
    map.extend(launching(&measured.threads));
    match &measured.llc_load_misses {
        Ok(misses) => map.insert("llc_load_misses".to_owned(), json!(misses)),
        Err(why) => map.insert("llc_load_misses_error".to_owned(), json!(why)),
    };
    map.insert("calling_detail".to_owned(), calling(&measured.threads));
    map.insert(
        "end_to_end_ms".to_owned(),
        measured.ends.latency.milliseconds(),
    );
    let samples = measured.ends.samples;
    map.insert("latency_every".to_owned(), json!(samples.every()));
    let (requests, us): (Vec<u64>, Vec<u64>) = samples.sorted().into_iter().unzip();
    map.insert("latency_request".to_owned(), json!(requests));
    map.insert("latency_us".to_owned(), json!(us));
    document
}

fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// Of all that was offered and should have come to an end: what failed or was unfinished has missed.
fn objectives(measured: &Measured) -> Vec<Value> {
    let outcomes = measured.outcomes;
    let expected = outcomes.completed + outcomes.failed + outcomes.unfinished;
    let kept = measured.kept.iter();
    kept.map(|&(ms, kept)| {
        let missed = expected.saturating_sub(kept);
        let share = (expected > 0).then(|| missed as f64 / expected as f64);
        json!({"ms": ms, "missed": missed, "miss_rate": share})
    })
    .collect()
}

fn stages(graph: &Graph, measured: &Measured) -> Map<String, Value> {
    let all = graph.stages.iter().zip(&measured.stages);
    all.map(|(stage, times)| {
        let figures = json!({
            "threads": stage.all_threads(),
            "items": times.items,
            "failed": times.failed,
            "batch_size": times.batch_size.numbers(),
            "service_ms": times.service.milliseconds(),
            "gpu_ms": times.gpu.milliseconds(),
            "rpc_ms": times.rpc.milliseconds(),
            "blocked_ms": times.blocked.milliseconds(),
        });
        (stage.name.clone(), figures)
    })
    .collect()
}

fn edges(graph: &Graph, measured: &Measured) -> Vec<Value> {
    let name = |place: usize| &graph.stages[place].name;
    let all = graph.edges.iter().zip(&measured.edges);
    all.map(|(edge, times)| {
        json!({
            "from": name(edge.from),
            "to": name(edge.to),
            "delay_ms": times.delay.milliseconds(),
            "age_ms": times.age.milliseconds(),
            "transfer_ms": times.transfer.milliseconds(),
        })
    })
    .collect()
}

fn thread_of(thread: &Recorder) -> Value {
    let (usage, launches) = thread.spent();
    let places = thread.places.lock();
    let places = places.map(|places| places.clone()).unwrap_or_default();
    json!({
        "tid": thread.tid,
        "name": thread.name,
        "launches": launches,
        "cpu_s": usage.cpu_s,
        "context_switches": usage.context_switches,
        "items_on_cpu": places,
    })
}

/// Threads that call a server, as those that launch.
fn calling(threads: &[Recorder]) -> Value {
    let all = threads.iter().filter_map(|thread| {
        let first_ns = thread.first_call_ns?;
        Some(json!({"tid": thread.tid, "first_call_monotonic_ns": first_ns, "name": thread.name}))
    });
    all.collect()
}

/// Of the threads that launch, in the words of gpu_launch.
fn launching(threads: &[Recorder]) -> Map<String, Value> {
    let all: Vec<(&Recorder, u64)> = threads
        .iter()
        .filter_map(|thread| Some((thread, thread.first_launch_ns?)))
        .collect();
    let spent = || all.iter().map(|(thread, _)| thread.spent());
    let seconds = |of: fn(&busy::CpuSeconds) -> f64| -> f64 {
        // The sum of no numbers at all would be -0.
        spent().fold(0.0, |sum, (usage, _)| sum + of(&usage.cpu_s))
    };
    let switches = |of: fn(&busy::Switches) -> i64| -> i64 {
        spent().map(|(usage, _)| of(&usage.context_switches)).sum()
    };
    let details: Vec<Value> = all
        .iter()
        .map(|(thread, first_ns)| {
            json!({"tid": thread.tid, "first_launch_monotonic_ns": first_ns, "name": thread.name})
        })
        .collect();
    let figures = json!({
        "launches": spent().map(|(_, launches)| launches).sum::<u64>(),
        "launches_in_all": threads.iter().map(|thread| thread.launches).sum::<u64>(),
        // The first failure ends the run, with an error and no document.
        "failures": 0,
        "cpu_s": {"user": seconds(|cpu| cpu.user), "sys": seconds(|cpu| cpu.sys)},
        "context_switches": {
            "voluntary": switches(|count| count.voluntary),
            "involuntary": switches(|count| count.involuntary),
        },
        "threads_detail": details,
    });
    match figures {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
