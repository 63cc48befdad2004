// SPDX-License-Identifier: GPL-2.0-only
//! `llm_client`: an open loop of requests against an OpenAI-compatible server, measured as
//! `vllm bench serve` measures. One thread, as there.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use metrics::{Objectives, Outcome};
use plan::Planned;
use request::{Endpoint, Target};

mod metrics;
mod plan;
mod request;
mod sse;

/// Send requests at Poisson arrivals and report TTFT, TPOT, ITL, E2EL and goodput.
#[derive(Debug, Parser)]
#[command(
    name = "llm_client",
    version,
    after_help = "\
Prints one JSON document, in the names of `vllm bench serve --save-result --save-detailed`.
Exit codes: 0 done, failed requests are in the document; 1 the server cannot be reached; 2 bad usage."
)]
struct Options {
    /// The server, http only.
    #[arg(long, default_value = "http://127.0.0.1:8000", value_name = "URL")]
    base_url: String,

    #[arg(long, value_enum, default_value = "completions")]
    endpoint: Endpoint,

    /// The model to ask for [default: the server's first].
    #[arg(long)]
    model: Option<String>,

    /// Requests a second, whether earlier ones are answered or not.
    #[arg(long, value_name = "N", value_parser = positive)]
    request_rate: f64,

    /// Requests under way at once at most: others wait, and are timed from when they are sent [default: no limit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_concurrency: Option<u32>,

    /// Seconds in which requests are sent; their answers are waited for.
    #[arg(long, value_name = "S", value_parser = positive)]
    duration: f64,

    /// Requests before that, at the same rate, which are not counted.
    #[arg(long, default_value_t = 4, value_name = "N")]
    warmup_requests: usize,

    /// Factor on the lengths of prompts and answers.
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    length_scale: f64,

    /// Seed of arrivals and lengths.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// What a good request keeps, in ms: ttft:MS, tpot:MS, e2el:MS.
    #[arg(long, value_name = "NAME:MS", num_args = 1.., value_parser = objective)]
    goodput: Vec<(String, f64)>,

    /// Seconds that answers may take after the last request was sent; what is open then has failed.
    #[arg(long, default_value_t = 60.0, value_name = "S", value_parser = positive)]
    drain: f64,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if value > 0.0 && value <= 1e6 => Ok(value),
        _ => Err(format!(
            "expected a number above 0, at most 1000000, got {text:?}"
        )),
    }
}

fn objective(text: &str) -> Result<(String, f64), String> {
    let bad = || format!("expected ttft:MS, tpot:MS or e2el:MS, got {text:?}");
    let (name, value) = text.split_once(':').ok_or_else(bad)?;
    if !["ttft", "tpot", "e2el"].contains(&name) {
        return Err(bad());
    }
    Ok((name.to_owned(), positive(value).map_err(|_| bad())?))
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("llm_client: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let document = runtime.block_on(measure(options))?;
    writeln!(std::io::stdout(), "{document}").context("cannot write the report")
}

async fn measure(options: &Options) -> Result<serde_json::Value> {
    let target = Target::find(&options.base_url, options.endpoint, options.model.clone()).await?;
    let planned = |count: usize, seed| {
        plan::requests(count, options.request_rate, options.length_scale, seed)
    };
    let warmup = send_all(
        options,
        &target,
        planned(options.warmup_requests, !options.seed),
    )
    .await;
    if let Some(error) = warmup
        .0
        .iter()
        .map(|o| &o.error)
        .find(|error| !error.is_empty())
    {
        bail!("a request before the measured ones failed: {error}");
    }
    let count = (options.request_rate * options.duration).round().max(1.0) as usize;
    let requests = planned(count, options.seed);
    eprintln!("llm_client: measuring");
    let (outcomes, duration) = send_all(options, &target, requests).await;
    let given = |name: &str| {
        let found = options.goodput.iter().find(|(known, _)| known == name);
        found.map(|&(_, ms)| ms)
    };
    let objectives = Objectives {
        ttft_ms: given("ttft"),
        tpot_ms: given("tpot"),
        e2el_ms: given("e2el"),
    };
    let mut document = json!({"schema": 1, "workload": "llm_client", "model_id": target.model(),
        "request_rate": options.request_rate, "burstiness": 1.0, "seed": options.seed,
        "max_concurrency": options.max_concurrency,
        "length_scale": options.length_scale, "goodput_config": objectives});
    if let Some(map) = document.as_object_mut() {
        map.extend(metrics::figures(
            &outcomes,
            duration.as_secs_f64(),
            &objectives,
        ));
    }
    Ok(document)
}

/// Sends each request at its time and waits for all answers, or until the time for them is over.
async fn send_all(
    options: &Options,
    target: &Target,
    requests: Vec<Planned>,
) -> (Vec<Outcome>, Duration) {
    let began = Instant::now();
    let offered = requests.len();
    let places = options
        .max_concurrency
        .map(|places| Arc::new(Semaphore::new(places as usize)));
    let mut open = JoinSet::new();
    for planned in requests {
        tokio::time::sleep_until((began + planned.at).into()).await;
        let (target, places) = (target.clone(), places.clone());
        open.spawn(async move {
            // Nobody closes it.
            let _place = match &places {
                Some(places) => places.acquire().await.ok(),
                None => None,
            };
            target.send(&planned, began).await
        });
    }
    let deadline = Instant::now() + Duration::from_secs_f64(options.drain);
    let mut outcomes = Vec::with_capacity(offered);
    while let Ok(Some(joined)) = tokio::time::timeout_at(deadline.into(), open.join_next()).await {
        outcomes.push(joined.unwrap_or_else(|error| Outcome {
            error: error.to_string(),
            ..Outcome::default()
        }));
    }
    let duration = began.elapsed();
    // Every request that was offered counts, answered or not.
    outcomes.resize_with(offered, || Outcome {
        error: format!("no whole answer within {} s", options.drain),
        ..Outcome::default()
    });
    outcomes.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    (outcomes, duration)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_are_consistent_and_bounded() {
        Options::command().debug_assert();
        assert_eq!(objective("ttft:200"), Ok(("ttft".to_owned(), 200.0)));
        for bad in ["ttft", "ttft:0", "itl:5", "tpot:x"] {
            assert!(objective(bad).is_err(), "{bad}");
        }
        assert!(positive("0").is_err() && positive("nan").is_err());
    }
}
