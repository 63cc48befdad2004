// SPDX-License-Identifier: GPL-2.0-only
//! The `[[workload]]` table as it stands in a file: the keys of all programs in one, so that a mistake has
//! its line, and which program has which.

use std::num::NonZeroU32;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::driver::{Driver, Gpus};
use super::scalar::{Positive, names_a_file};
use super::served::{Client, Launches, Requests, Served, Server};
use super::workload::{
    CalledServer, GpuLaunch, LlmServer, Pipeline, Program, Recording, Sync, Trace, Workload,
};
use crate::record::neighbour::Neighbour;

/// Of the emulated driver.
const MAX_KERNELS: u32 = 128;

/// Every key optional but the name; a program that lacks one says so.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    name: String,
    #[serde(default)]
    program: ProgramName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<Trace>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    arms: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    neighbours: Vec<Neighbour>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sync: Option<Sync>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    driver: Option<Driver>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warmup_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_memory_utilization: Option<Positive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_rate: Option<Positive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_concurrency: Option<NonZeroU32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length_scale: Option<Positive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warmup_requests: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slo_ttft_ms: Option<Positive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slo_tpot_ms: Option<Positive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<Client>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokenizer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    graph: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    set: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpus: Option<Gpus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    concurrent_kernels: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProgramName {
    #[default]
    GpuLaunch,
    LlmServer,
    Vllm,
    LlamaServer,
    Endpoint,
    Pipeline,
    Recording,
}

use ProgramName::{
    Endpoint, GpuLaunch as Launch, LlamaServer, LlmServer as Llm, Pipeline as Pipe,
    Recording as Recorded, Vllm,
};

impl ProgramName {
    fn name(self) -> &'static str {
        match self {
            Launch => "gpu_launch",
            Llm => "llm_server",
            Vllm => "vllm",
            LlamaServer => "llama_server",
            Endpoint => "endpoint",
            Pipe => "pipeline",
            Recorded => "recording",
        }
    }
}

impl Keys {
    /// The first key that is given and that the program does not have.
    fn stray(&self) -> Option<&'static str> {
        let serving: &[ProgramName] = &[Llm, Vllm, LlamaServer, Endpoint];
        let genuine: &[ProgramName] = &[Vllm, LlamaServer, Endpoint];
        let keys: [(&'static str, bool, &[ProgramName]); 23] = [
            (
                "profile",
                self.profile.is_some(),
                &[Launch, Llm, Vllm, Pipe],
            ),
            ("sync", self.sync.is_some(), &[Launch, Llm]),
            ("driver", self.driver.is_some(), &[Launch, Llm, Vllm, Pipe]),
            (
                "args",
                !self.args.is_empty(),
                &[Launch, Llm, Vllm, LlamaServer, Pipe],
            ),
            ("warmup_tokens", self.warmup_tokens.is_some(), &[Launch]),
            (
                "gpu_memory_utilization",
                self.gpu_memory_utilization.is_some(),
                &[Llm, Vllm, Pipe],
            ),
            ("request_rate", self.request_rate.is_some(), serving),
            ("max_concurrency", self.max_concurrency.is_some(), &[Llm]),
            ("length_scale", self.length_scale.is_some(), serving),
            ("warmup_requests", self.warmup_requests.is_some(), serving),
            ("slo_ttft_ms", self.slo_ttft_ms.is_some(), serving),
            ("slo_tpot_ms", self.slo_tpot_ms.is_some(), serving),
            ("model", self.model.is_some(), genuine),
            ("base_url", self.base_url.is_some(), &[Endpoint]),
            ("client", self.client.is_some(), genuine),
            ("tokenizer", self.tokenizer.is_some(), genuine),
            ("input_tokens", self.input_tokens.is_some(), genuine),
            ("output_tokens", self.output_tokens.is_some(), genuine),
            ("graph", self.graph.is_some(), &[Pipe]),
            ("set", !self.set.is_empty(), &[Pipe]),
            ("gpus", self.gpus.is_some(), &[Launch, Pipe]),
            (
                "concurrent_kernels",
                self.concurrent_kernels.is_some(),
                &[Pipe],
            ),
            ("file", self.file.is_some(), &[Recorded]),
        ];
        let stray = keys
            .into_iter()
            .find(|(_, given, programs)| *given && !programs.contains(&self.program));
        stray.map(|(key, ..)| key)
    }

    fn profile(&mut self) -> Result<String, String> {
        let profile = self.profile.take();
        profile.ok_or_else(|| "profile: expected the name of one, got nothing".to_owned())
    }

    fn utilization(&self) -> Result<f64, String> {
        let utilization = self.gpu_memory_utilization.map_or(0.9, |share| share.0);
        if utilization > 1.0 {
            return Err(format!(
                "gpu_memory_utilization: expected a share above 0, at most 1, got {utilization}"
            ));
        }
        Ok(utilization)
    }

    fn rate(&self) -> Result<f64, String> {
        let rate = self.request_rate.map(|rate| rate.0);
        rate.ok_or_else(|| {
            "request_rate: expected the requests a second of the client, got nothing".to_owned()
        })
    }

    fn llm_server(mut self) -> Result<LlmServer, String> {
        Ok(LlmServer {
            profile: self.profile()?,
            driver: self.driver.unwrap_or_default(),
            sync: self.sync,
            gpu_memory_utilization: self.utilization()?,
            request_rate: self.rate()?,
            max_concurrency: self.max_concurrency,
            length_scale: self.length_scale.map_or(1.0, |scale| scale.0),
            warmup_requests: self.warmup_requests.unwrap_or(4),
            slo_ttft_ms: self.slo_ttft_ms.map(|slo| slo.0),
            slo_tpot_ms: self.slo_tpot_ms.map(|slo| slo.0),
            args: self.args,
        })
    }

    /// Of a vLLM without a model.
    fn launches(&self) -> Result<Option<Launches>, String> {
        match (&self.profile, self.driver) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(
                "driver: expected a profile too: without one vLLM runs the model, by whatever driver it finds"
                    .to_owned(),
            ),
            (Some(profile), driver) => Ok(Some(Launches {
                profile: profile.clone(),
                driver: driver.unwrap_or_default(),
            })),
        }
    }

    fn pipeline(self) -> Result<Pipeline, String> {
        let share = self.utilization()?;
        if self.profile.is_none() && self.gpu_memory_utilization.is_some() {
            return Err(
                "gpu_memory_utilization: expected a profile beside it, which says that there is a server, got none"
                    .to_owned(),
            );
        }
        let kernels = self.concurrent_kernels;
        if let Some(kernels) = kernels.filter(|kernels| !(1..=MAX_KERNELS).contains(kernels)) {
            return Err(format!(
                "concurrent_kernels: expected 1 to {MAX_KERNELS}, got {kernels}"
            ));
        }
        Ok(Pipeline {
            graph: self.graph.ok_or_else(|| {
                "graph: expected the name of one, or the path of a file, got nothing".to_owned()
            })?,
            set: self.set,
            gpus: match self.gpus.unwrap_or_default() {
                Gpus::Count(count) => count,
                all => {
                    return Err(format!(
                        "gpus: expected a number of emulated GPUs, got {all}"
                    ));
                }
            },
            concurrent_kernels: kernels,
            driver: self.driver.unwrap_or_default(),
            server: self.profile.map(|profile| CalledServer {
                profile,
                gpu_memory_utilization: share,
            }),
            args: self.args,
        })
    }

    fn served(self) -> Result<Served, String> {
        let requests = Requests {
            request_rate: self.rate()?,
            warmup_requests: self.warmup_requests.unwrap_or(4),
            length_scale: self.length_scale.map_or(1.0, |scale| scale.0),
            input_tokens: self.input_tokens.unwrap_or(256),
            output_tokens: self.output_tokens.unwrap_or(128),
            slo_ttft_ms: self.slo_ttft_ms.map(|slo| slo.0),
            slo_tpot_ms: self.slo_tpot_ms.map(|slo| slo.0),
        };
        let server = match self.program {
            Endpoint => Server::Endpoint {
                base_url: self.base_url.clone().ok_or_else(|| {
                    "base_url: expected the server's, such as \"http://127.0.0.1:8000\", got nothing"
                        .to_owned()
                })?,
            },
            LlamaServer => Server::LlamaCpp,
            _ => Server::Vllm {
                gpu_memory_utilization: self.utilization()?,
                instead: self.launches()?,
            },
        };
        let model = self.model.ok_or_else(|| {
            "model: expected what is served: a name, a folder or a GGUF file, got nothing"
                .to_owned()
        })?;
        Ok(Served {
            server,
            model,
            args: self.args,
            client: self.client.unwrap_or_default(),
            tokenizer: self.tokenizer,
            requests,
        })
    }
}

impl<'de> Deserialize<'de> for Workload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Keys::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Keys::from(self.clone()).serialize(serializer)
    }
}

impl TryFrom<Keys> for Workload {
    type Error = String;

    fn try_from(mut keys: Keys) -> Result<Self, String> {
        if let Some(key) = keys.stray() {
            let program = keys.program.name();
            return Err(format!(
                "{key}: expected keys of {program}, which has no such: leave it out or name another program"
            ));
        }
        let (name, trace) = (keys.name.clone(), keys.trace);
        if !names_a_file(&name) {
            return Err(format!("name: expected one without a slash, got {name:?}"));
        }
        let arms = std::mem::take(&mut keys.arms);
        let neighbours = std::mem::take(&mut keys.neighbours);
        let program = match keys.program {
            Llm => Program::LlmServer(keys.llm_server()?),
            Vllm | LlamaServer | Endpoint => Program::Served(keys.served()?),
            Pipe => Program::Pipeline(keys.pipeline()?),
            Recorded => Program::Recording(Recording {
                file: keys.file.ok_or_else(|| {
                    "file: expected what scx_gpuaware trace --record-profile has written, got nothing"
                        .to_owned()
                })?,
            }),
            Launch => Program::GpuLaunch(GpuLaunch {
                profile: keys.profile()?,
                driver: keys.driver.unwrap_or_default(),
                sync: keys.sync,
                gpus: keys.gpus.unwrap_or_default(),
                warmup_tokens: keys.warmup_tokens.unwrap_or(5),
                args: keys.args,
            }),
        };
        Ok(Self {
            name,
            trace,
            arms,
            neighbours,
            program,
        })
    }
}

/// The default stays unwritten.
fn given<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

impl From<Workload> for Keys {
    fn from(workload: Workload) -> Self {
        let keys = match workload.program {
            Program::GpuLaunch(launch) => Self {
                profile: Some(launch.profile),
                driver: given(launch.driver),
                sync: launch.sync,
                gpus: given(launch.gpus),
                args: launch.args,
                warmup_tokens: Some(launch.warmup_tokens),
                ..Self::default()
            },
            Program::LlmServer(server) => Self {
                program: Llm,
                profile: Some(server.profile),
                driver: given(server.driver),
                sync: server.sync,
                args: server.args,
                gpu_memory_utilization: Some(Positive(server.gpu_memory_utilization)),
                request_rate: Some(Positive(server.request_rate)),
                max_concurrency: server.max_concurrency,
                length_scale: Some(Positive(server.length_scale)),
                warmup_requests: Some(server.warmup_requests),
                slo_ttft_ms: server.slo_ttft_ms.map(Positive),
                slo_tpot_ms: server.slo_tpot_ms.map(Positive),
                ..Self::default()
            },
            Program::Served(served) => Self::from(served),
            Program::Pipeline(pipeline) => Self::from(pipeline),
            Program::Recording(recording) => Self {
                program: Recorded,
                file: Some(recording.file),
                ..Self::default()
            },
        };
        Self {
            name: workload.name,
            trace: workload.trace,
            arms: workload.arms,
            neighbours: workload.neighbours,
            ..keys
        }
    }
}

impl From<Pipeline> for Keys {
    fn from(pipeline: Pipeline) -> Self {
        let server = pipeline.server;
        Self {
            program: Pipe,
            gpu_memory_utilization: (server.as_ref())
                .map(|server| Positive(server.gpu_memory_utilization)),
            profile: server.map(|server| server.profile),
            graph: Some(pipeline.graph),
            set: pipeline.set,
            gpus: Some(Gpus::Count(pipeline.gpus)),
            concurrent_kernels: pipeline.concurrent_kernels,
            driver: given(pipeline.driver),
            args: pipeline.args,
            ..Self::default()
        }
    }
}

impl From<Served> for Keys {
    fn from(served: Served) -> Self {
        let mut instead = None;
        let (program, utilization, base_url) = match served.server {
            Server::Vllm {
                gpu_memory_utilization: share,
                instead: launches,
            } => {
                instead = launches;
                (Vllm, Some(Positive(share)), None)
            }
            Server::LlamaCpp => (LlamaServer, None, None),
            Server::Endpoint { base_url } => (Endpoint, None, Some(base_url)),
        };
        let requests = served.requests;
        Self {
            program,
            driver: instead.as_ref().and_then(|launches| given(launches.driver)),
            profile: instead.map(|launches| launches.profile),
            gpu_memory_utilization: utilization,
            base_url,
            model: Some(served.model),
            args: served.args,
            client: Some(served.client),
            tokenizer: served.tokenizer,
            request_rate: Some(Positive(requests.request_rate)),
            warmup_requests: Some(requests.warmup_requests),
            length_scale: Some(Positive(requests.length_scale)),
            input_tokens: Some(requests.input_tokens),
            output_tokens: Some(requests.output_tokens),
            slo_ttft_ms: requests.slo_ttft_ms.map(Positive),
            slo_tpot_ms: requests.slo_tpot_ms.map(Positive),
            ..Self::default()
        }
    }
}
