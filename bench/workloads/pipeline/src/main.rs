// SPDX-License-Identifier: GPL-2.0-only
//! `pipeline`: stages, threads and queues as a graph says, measured stage by stage, hand-over by hand-over, and from end
//! to end.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use engine::{Plan, Running};
use graph::{Graph, GraphError};

mod arrivals;
mod cache;
mod channel;
mod engine;
mod gpu;
mod graph;
mod item;
mod join;
mod queue;
mod recorder;
mod report;
mod route;
mod rpc;
mod samples;
mod source;
mod stage;
mod timing;
mod window;
mod worker;
#[cfg(test)]
mod yields;

/// Graphs that need no file.
const BUILT_IN: &[(&str, &str)] = &[
    ("audioquery", include_str!("../graphs/audioquery.toml")),
    (
        "audioquery-monolithic",
        include_str!("../graphs/audioquery-monolithic.toml"),
    ),
    ("preflmr", include_str!("../graphs/preflmr.toml")),
    (
        "preflmr-monolithic",
        include_str!("../graphs/preflmr-monolithic.toml"),
    ),
    (
        "vectraflow-p1",
        include_str!("../graphs/vectraflow-p1.toml"),
    ),
    (
        "vectraflow-p2",
        include_str!("../graphs/vectraflow-p2.toml"),
    ),
    ("windflow", include_str!("../graphs/windflow.toml")),
    ("windflow-fd", include_str!("../graphs/windflow-fd.toml")),
    ("windflow-sd", include_str!("../graphs/windflow-sd.toml")),
    ("windflow-tm", include_str!("../graphs/windflow-tm.toml")),
    ("windflow-wc", include_str!("../graphs/windflow-wc.toml")),
];

/// Run a graph of stages, threads and queues, and measure every stage and every hand-over.
#[derive(Debug, Parser)]
#[command(
    name = "pipeline",
    version,
    after_help = "\
Says `pipeline: started` when all threads are there, `pipeline: measuring` and `pipeline: measured` on stderr; prints one
JSON document on stdout at the end.
Exit codes: 0 done, failed items are in the document; 1 a thread, the GPU or the server failed; 2 bad usage or graph."
)]
struct Options {
    /// A built-in graph, or the path of a TOML file (docs/pipelines.md).
    #[arg(value_name = "NAME|PATH")]
    graph: String,

    /// Change a value of the graph, such as stage.source.arrive.rate=70; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// The server that all stages with http call, instead of the graph's.
    #[arg(long, value_name = "URL", value_parser = http_url)]
    base_url: Option<String>,

    /// Read and check the graph, and nothing else.
    #[arg(long)]
    check: bool,

    /// With --check: print the graph, every value in its place, as JSON.
    #[arg(long, requires = "check")]
    json: bool,

    /// Seconds that are measured.
    #[arg(long, default_value_t = 10.0, value_name = "S", value_parser = positive)]
    duration: f64,

    /// Seconds before that.
    #[arg(long, default_value_t = 1.0, value_name = "S", value_parser = positive)]
    warmup: f64,

    /// Seconds that items of the measured part may take after it; what is open then is unfinished.
    #[arg(long, default_value_t = 20.0, value_name = "S", value_parser = positive)]
    drain: f64,

    /// Seed of arrivals, keys and sizes.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// An objective for the time from end to end, in ms; may be repeated.
    #[arg(long, value_name = "MS", value_parser = positive)]
    slo_ms: Vec<f64>,

    /// Go on after the measured part until stdin ends.
    #[arg(long)]
    until_eof: bool,

    /// Measure nothing: print every second which thread did how many items on which CPU, until killed.
    #[arg(long, conflicts_with_all = ["until_eof", "slo_ms"])]
    watch: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && value <= 1e6 => Ok(value),
        _ => Err(format!(
            "expected a number above 0, at most 1000000, got {text:?}"
        )),
    }
}

fn http_url(text: &str) -> Result<String, String> {
    if text.starts_with("http://") {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err(format!("expected http://HOST:PORT, got {text:?}"))
    }
}

/// The graph's text cannot be read: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pipeline: error: {error:#}");
            let usage = error.is::<GraphError>() || error.is::<UsageError>();
            ExitCode::from(if usage { 2 } else { 1 })
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let mut graph = read(options)?;
    if let Some(url) = &options.base_url {
        let stages = graph.stages.iter_mut();
        stages
            .filter_map(|stage| stage.http.as_mut())
            .for_each(|http| http.url.clone_from(url));
    }
    if options.json {
        let graph = serde_json::json!(graph);
        writeln!(std::io::stdout(), "{graph}").context("cannot write the graph")?;
    }
    if options.check {
        return Ok(());
    }
    let plan = Plan {
        warmup: Duration::from_secs_f64(options.warmup),
        duration: Duration::from_secs_f64(options.duration),
        drain: Duration::from_secs_f64(options.drain),
        seed: options.seed,
        slo_ms: options.slo_ms.clone(),
        until_eof: options.until_eof,
    };
    let running = Running::start(graph.clone(), &plan)?;
    eprintln!("pipeline: started");
    if options.watch {
        return watch(&running);
    }
    let measured = running.measure(&plan)?;
    let asked = report::Asked {
        name: &options.graph,
        changes: &options.set,
        graph: &graph,
        plan: &plan,
    };
    let document = report::document(&asked, measured);
    writeln!(std::io::stdout(), "{document}").context("cannot write the report")
}

fn read(options: &Options) -> Result<Graph> {
    let name = options.graph.as_str();
    if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
        return Ok(graph::read(name, text, &options.set)?);
    }
    let known: Vec<&str> = BUILT_IN.iter().map(|(known, _)| *known).collect();
    let text = std::fs::read_to_string(Path::new(name)).map_err(|error| {
        let known = known.join(", ");
        UsageError(format!(
            "expected {known} or the path of a graph, got {name:?}: {error}"
        ))
    })?;
    Ok(graph::read(name, &text, &options.set)?)
}

fn watch(running: &Running) -> Result<()> {
    loop {
        std::thread::sleep(Duration::from_secs(1));
        running.must_live()?;
        let line = serde_json::json!(running.take_places());
        writeln!(std::io::stdout(), "{line}").context("cannot write where threads worked")?;
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_are_consistent_and_bounded() {
        Options::command().debug_assert();
        assert!(positive("0").is_err() && positive("nan").is_err());
        assert_eq!(http_url("http://h:1/"), Ok("http://h:1".to_owned()));
        assert!(http_url("https://h").is_err());
    }

    #[test]
    fn graphs_that_come_along_are_good() {
        for (name, text) in BUILT_IN {
            let graph = graph::read(name, text, &[]);
            assert!(graph.is_ok(), "{}", graph.unwrap_err());
        }
    }

    #[test]
    fn examples_of_the_documentation_are_good() {
        let page = include_str!("../../../../docs/pipelines.md");
        let blocks = page.split("```toml\n").skip(1);
        let examples = blocks.filter_map(|rest| rest.split("```").next());
        let examples: Vec<&str> = examples.collect();
        assert_eq!(examples.len(), 4);
        for text in examples {
            let graph = graph::read("docs/pipelines.md", text, &[]);
            assert!(graph.is_ok(), "{}", graph.unwrap_err());
        }
    }

    #[test]
    fn a_graph_that_is_not_there_is_bad_usage() {
        let options = Options::parse_from(["pipeline", "/no/such.toml"]);
        let error = read(&options).unwrap_err();
        assert!(error.is::<UsageError>(), "{error}");
        assert!(
            error.to_string().starts_with("expected audioquery, "),
            "{error}"
        );
    }
}
