// SPDX-License-Identifier: GPL-2.0-only
//! Genuine servers as data: what serves, and which client asks. `crate::workload` runs them.

use serde::{Deserialize, Serialize};

use super::driver::Driver;

/// A server with an OpenAI-compatible API, and a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    pub server: Server,
    /// What the server loads, or what a running one is asked for: a name, a folder or a GGUF file.
    pub model: String,
    /// More arguments for the server.
    pub args: Vec<String>,
    pub client: Client,
    /// A client that counts tokens itself needs one where the model's name is not enough.
    pub tokenizer: Option<String>,
    pub requests: Requests,
}

/// What vLLM's worker launches instead of a model's step: `bench/workloads/vllm_emulated`.
#[derive(Debug, Clone, PartialEq)]
pub struct Launches {
    /// Name of a profile there.
    pub profile: String,
    pub driver: Driver,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Server {
    /// `vllm serve`, with its share of the GPU's memory.
    Vllm {
        gpu_memory_utilization: f64,
        /// Absent: the model runs.
        instead: Option<Launches>,
    },
    /// llama.cpp's.
    LlamaCpp,
    /// One that runs already; no arm can be applied to it.
    Endpoint { base_url: String },
}

/// What asks. Their definitions of TTFT, TPOT and ITL are the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Client {
    /// Ours.
    #[default]
    #[serde(rename = "llm_client")]
    Llm,
    /// `vllm bench serve`.
    VllmBench,
    Aiperf,
}

/// What is asked: Poisson arrivals, so many a second.
#[derive(Debug, Clone, PartialEq)]
pub struct Requests {
    pub request_rate: f64,
    pub warmup_requests: u32,
    /// llm_client: factor on the lengths of prompts and answers.
    pub length_scale: f64,
    /// The other clients: lengths in tokens, all alike.
    pub input_tokens: u32,
    pub output_tokens: u32,
    /// What a request must keep to count as good; absent: not asked for.
    pub slo_ttft_ms: Option<f64>,
    pub slo_tpot_ms: Option<f64>,
}

impl Requests {
    /// So many in a measured window: the clients that are not ours are told their number.
    pub fn count(&self, seconds: f64) -> u32 {
        (self.request_rate * seconds).ceil().max(1.0) as u32
    }
}

impl Server {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Vllm { .. } => "vllm",
            Self::LlamaCpp => "llama-server",
            Self::Endpoint { .. } => "endpoint",
        }
    }
}

impl Client {
    pub fn name(self) -> &'static str {
        match self {
            Self::Llm => "llm_client",
            Self::VllmBench => "vllm bench serve",
            Self::Aiperf => "aiperf",
        }
    }
}
