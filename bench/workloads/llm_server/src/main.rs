// SPDX-License-Identifier: GPL-2.0-only
//! `llm_server`: the CPU side of an LLM server. Threads and queues are vLLM's; the model is a number
//! of kernel launches a step, so that it runs on any driver, real or emulated.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use busy::Sync;
use clap::Parser;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use engine::{Engine, EngineReport, Message};
use profile::{Profile, UsageError};

mod api;
mod engine;
mod profile;
mod protocol;
mod schedule;
mod text;

/// How often the server looks whether its engine still lives.
const ENGINE_POLL: Duration = Duration::from_millis(200);

/// Serve the OpenAI API with an engine that launches GPU work as an LLM's does, and no LLM.
#[derive(Debug, Parser)]
#[command(
    name = "llm_server",
    version,
    after_help = "\
Says `llm_server: listening on ADDRESS` on stderr; SIGINT or SIGTERM ends it with a JSON report on stdout.
Exit codes: 0 clean end; 1 a driver call failed; 2 bad usage or profile."
)]
struct Options {
    /// What a step costs: a built-in profile (chat), or the path of a TOML file.
    #[arg(long, default_value = "chat", value_name = "NAME|PATH")]
    profile: String,

    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: std::net::IpAddr,

    /// Port to listen on; 0: any free one.
    #[arg(long, default_value_t = 8000)]
    port: u16,

    /// Share of the GPU's memory for weights and KV cache, above 0 to 1.
    #[arg(long, default_value_t = 0.9, value_parser = share)]
    gpu_memory_utilization: f64,

    /// How the engine waits for the GPU, instead of the profile's way.
    #[arg(long, value_enum)]
    sync: Option<Sync>,

    /// Threads that serve HTTP.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    api_threads: u32,

    /// The model's name for clients.
    #[arg(long, default_value = "emulated", value_name = "NAME")]
    served_model_name: String,
}

/// The JSON document at the end.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    workload: &'static str,
    profile: Profile,
    gpu_memory_utilization: f64,
    #[serde(flatten)]
    engine: EngineReport,
}

fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text
        .parse()
        .map_err(|_| format!("expected a share such as 0.9, got {text:?}"))?;
    if value > 0.0 && value <= 1.0 {
        Ok(value)
    } else {
        Err(format!("expected a share above 0, at most 1, got {value}"))
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("llm_server: error: {error:#}");
            let usage = error.downcast_ref::<UsageError>().is_some();
            ExitCode::from(if usage { 2 } else { 1 })
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let mut profile = Profile::read(&options.profile)?;
    profile.sync = options.sync.unwrap_or(profile.sync);
    let (to_engine, messages) = channel();
    let (to_detokenizer, tokens) = channel();
    let (to_tokenizer, requests) = channel();
    let engine = Engine::start(
        profile.clone(),
        options.gpu_memory_utilization,
        messages,
        to_detokenizer,
    )?;
    let texts = text::Threads::start(engine.max_model_len, requests, to_engine.clone(), tokens)?;
    let server = Arc::new(api::Server {
        model: options.served_model_name.clone(),
        requests: Mutex::new(to_tokenizer),
        gauge: Arc::clone(&engine.gauge),
        kv_blocks: engine.kv_blocks,
        max_model_len: engine.max_model_len,
        next_id: AtomicU64::new(1),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.api_threads as usize)
        // vLLM's process title.
        .thread_name("VLLM::APIServer")
        .enable_all()
        .build()
        .context("cannot start the API's threads")?;
    let address = SocketAddr::new(options.host, options.port);
    let served = runtime.block_on(serve(address, server, &engine));
    // Ends what still streams; the tokenizer's queue closes with it, then the engine's.
    runtime.shutdown_timeout(Duration::from_secs(1));
    // The engine may be dead already; then its error is what counts.
    let _ = to_engine.send(Message::Stop);
    drop(to_engine);
    let engine = engine.finish()?;
    served?;
    texts.finish()?;
    let report = Report {
        schema: 1,
        workload: "llm_server",
        profile,
        gpu_memory_utilization: options.gpu_memory_utilization,
        engine,
    };
    let report = serde_json::to_string(&report).context("cannot write the report")?;
    writeln!(std::io::stdout(), "{report}").context("cannot write the report")
}

/// Serves until a signal comes.
async fn serve(address: SocketAddr, server: Arc<api::Server>, engine: &Engine) -> Result<()> {
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let local = listener.local_addr().context("no local address")?;
    eprintln!("llm_server: listening on {local}");
    // A token that waits for the next one to fill a packet would be late by the round trip.
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    // Connections are accepted by the API's threads, as all of HTTP: this one only waits for the end.
    let serving = tokio::spawn(axum::serve(listener, api::router(server)).into_future());
    let mut poll = tokio::time::interval(ENGINE_POLL);
    tokio::select! {
        served = serving => served.context("the API panicked")?.context("cannot serve"),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        () = async {
            while !engine.is_dead() {
                poll.tick().await;
            }
        } => bail!("the engine is dead"),
    }
}
