// SPDX-License-Identifier: GPL-2.0-only
//! Genuine servers with an OpenAI-compatible API, for hosts with a GPU: vLLM, llama-server, or one that runs
//! already; asked by our client, `vllm bench serve` or aiperf.

mod command;
mod gpu_memory;
mod health;
mod local;
mod results;
mod standing;
mod vllm;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::child::Child;
use super::llm_server;
use super::place::Place;
use crate::arm::WorkloadSettings;
use crate::matrix::{Client, Requests, Served, Server};
use crate::procstat::{self, Tree};
use crate::record::{LlmClient, LlmServer, LlmServing};
pub use gpu_memory::{lacking as lacks_gpu_memory, wanted as gpu_memory};
use health::{START_TIMEOUT, address_of, wait_until_ready};
pub use standing::{Standing, may_stand};

/// For requests that hang: clients that are not ours wait for all answers, however long that takes.
const DRAIN_S_OF_OTHERS: f64 = 120.0;
/// Of such servers, where nobody chooses one.
const USUAL_PORT: u16 = 8000;
/// What the clients say just before their first measured request.
const VLLM_BENCH_MEASURING: &str = "Starting main benchmark run";
const AIPERF_MEASURING: &str = "AIPerf System is PROFILING";

/// How long a server may take until it answers; no time where it runs already.
pub fn start_limit(server: &Server) -> Duration {
    match server {
        Server::Vllm { .. } | Server::LlamaCpp => START_TIMEOUT,
        Server::Endpoint { .. } => Duration::ZERO,
    }
}

/// Has `text` read as what every client writes.
pub fn read_outputs(text: &str) {
    let asked = Requests {
        request_rate: 1.0,
        warmup_requests: 0,
        length_scale: 1.0,
        input_tokens: 1,
        output_tokens: 1,
        slo_ttft_ms: Some(1.0),
        slo_tpot_ms: Some(1.0),
    };
    let _ = results::vllm_bench(text, &asked);
    let _ = results::aiperf(text, &asked);
}

/// The commands of the server, unless it is an endpoint, and of the client.
pub fn commands(
    served: &Served,
    prefix: &[String],
    seconds: f64,
    place: Place,
) -> Result<Vec<Command>> {
    let base_url = match &served.server {
        Server::Endpoint { base_url } => base_url.clone(),
        _ => format!("http://127.0.0.1:{USUAL_PORT}"),
    };
    let server = command::server(served, prefix, USUAL_PORT, place)?;
    let client = command::client(served, &base_url, seconds, 1, place, Path::new("FOLDER"))?;
    Ok(server.into_iter().chain([client]).collect())
}

/// A client and, unless it is an endpoint, its server; dropping them kills them.
#[derive(Debug)]
pub struct Running {
    served: Served,
    server: Option<Standing>,
    /// The server stands on when the cell is over.
    stands: bool,
    client: Child,
    /// Takes what the client writes.
    folder: TempDir,
    threads: Option<Tree>,
}

impl Running {
    /// Starts the client, and before it the server, unless one stands.
    pub fn start(
        served: &Served,
        settings: &WorkloadSettings,
        seconds: f64,
        round: u32,
        place: Place,
        standing: Option<Standing>,
    ) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a folder for the client")?;
        let stands = standing.is_some();
        let server = match standing {
            Some(mut server) => {
                server.must_live()?;
                Some(server)
            }
            None => Standing::start(served, settings, place)?,
        };
        if let Server::Endpoint { base_url } = &served.server {
            wait_until_ready(None, base_url, "/v1/models")?;
        }
        let base_url = match (&server, &served.server) {
            (Some(server), _) => server.base_url(),
            (None, Server::Endpoint { base_url }) => base_url,
            (None, _) => bail!("no server was started"),
        };
        let mut command = command::client(served, base_url, seconds, round, place, folder.path())?;
        let client = Child::start(served.client.name(), &mut command)?;
        Ok(Self {
            served: served.clone(),
            server,
            stands,
            client,
            folder,
            threads: None,
        })
    }

    pub fn wait_until_measuring(&mut self) -> Result<()> {
        let sign = match self.served.client {
            Client::Llm => llm_server::MEASURING,
            Client::VllmBench => VLLM_BENCH_MEASURING,
            Client::Aiperf => AIPERF_MEASURING,
        };
        self.client.wait_for_words(sign, START_TIMEOUT)?;
        self.threads = self.server.as_ref().map(|server| Tree::of(server.pid()));
        Ok(())
    }

    /// Absent: somebody else has started it.
    pub fn server_pid(&self) -> Option<u32> {
        self.server.as_ref().map(Standing::pid)
    }

    pub fn wait_until_measured(&mut self, seconds: f64) -> Result<()> {
        let server = &mut self.server;
        let patience = match self.served.client {
            // Gives up what is not answered in time, by itself.
            Client::Llm => 0.0,
            Client::VllmBench | Client::Aiperf => DRAIN_S_OF_OTHERS,
        };
        self.client.wait_for_end(seconds + patience, || {
            server.as_mut().map_or(Ok(()), Standing::must_live)
        })
    }

    /// The client's account, and of the server what the kernel knows: it counts no launches itself. And the server, if
    /// it stands on.
    pub fn report(mut self) -> Result<(LlmServing, Option<Standing>)> {
        let now = self.server.as_ref().map(|server| Tree::of(server.pid()));
        let switches = procstat::switches_between(self.threads.as_ref(), now.as_ref());
        let pids = now.map(|tree| tree.pids()).unwrap_or_default();
        let launchers = self.server.as_ref().map(Standing::launchers);
        let mut standing = self.server.take();
        if !self.stands
            && let Some(server) = standing.take()
        {
            server.end();
        }
        let report = LlmServing {
            client: account(self.served, self.client, &self.folder)?,
            server: LlmServer {
                launches: 0,
                context_switches: switches,
                threads_detail: Vec::new(),
                pids,
                launchers: launchers.unwrap_or_default(),
                window_cpus: None,
                rest: serde_json::Map::new(),
            },
        };
        llm_server::check(&report)?;
        Ok((report, standing))
    }
}

fn account(served: Served, client: Child, folder: &TempDir) -> Result<LlmClient> {
    let read = |name: &str| {
        let file = folder.path().join(name);
        fs::read_to_string(&file)
            .with_context(|| format!("{} wrote no {name}", served.client.name()))
    };
    match served.client {
        Client::Llm => client.document(),
        Client::VllmBench => {
            results::vllm_bench(&read(command::VLLM_BENCH_RESULT)?, &served.requests)
        }
        Client::Aiperf => results::aiperf(&read(command::AIPERF_RESULT)?, &served.requests),
    }
}

/// The processes of a server that runs already, if it runs on this machine.
pub fn running_already(served: &Served) -> Vec<u32> {
    match &served.server {
        Server::Endpoint { base_url } => address_of(base_url)
            .map_or_else(|_| Vec::new(), |(_, address)| local::listeners(address)),
        Server::Vllm { .. } | Server::LlamaCpp => Vec::new(),
    }
}
