// SPDX-License-Identifier: GPL-2.0-only
//! A workload of a matrix as data: which program, and how it is set. `crate::workload` runs it.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::driver::{Driver, Gpus};
use super::served::{Served, Server};
use crate::record::neighbour::Neighbour;

/// One workload of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    pub name: String,
    /// How its cells are traced; absent: not at all.
    pub trace: Option<Trace>,
    /// The arms and the neighbours of the matrix that it is measured with; empty: all of them.
    pub arms: Vec<String>,
    pub neighbours: Vec<Neighbour>,
    pub program: Program,
}

/// What `scx_gpuaware trace`, put before the workload's command, does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trace {
    /// Counts in the kernel; launches in windows.
    Summary,
    /// Records every event; launches in windows.
    Events,
    /// Records every event and every launch.
    AllLaunches,
    /// Not put before it: records the whole machine for the simulator while the workload is measured.
    Profile,
}

/// What runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Program {
    GpuLaunch(GpuLaunch),
    LlmServer(LlmServer),
    Served(Served),
    Pipeline(Pipeline),
    Recording(Recording),
}

/// gpu_launch in one profile: tokens as fast as it can.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuLaunch {
    pub profile: String,
    pub driver: Driver,
    /// How the launching thread waits for the GPU; absent: as the profile says.
    pub sync: Option<Sync>,
    /// A thread launches on each.
    pub gpus: Gpus,
    /// Tokens before the measured window begins.
    pub warmup_tokens: u32,
    /// More arguments for the program.
    pub args: Vec<String>,
}

/// llm_server in one profile, and llm_client, which sends requests at a rate of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmServer {
    pub profile: String,
    pub driver: Driver,
    pub sync: Option<Sync>,
    /// Share of the GPU's memory that the server takes, weights included.
    pub gpu_memory_utilization: f64,
    /// Requests a second, Poisson arrivals.
    pub request_rate: f64,
    /// Requests under way at most; absent: none waits for another.
    pub max_concurrency: Option<NonZeroU32>,
    /// Factor on the lengths of prompts and answers.
    pub length_scale: f64,
    /// Requests before the measured window begins.
    pub warmup_requests: u32,
    /// What a request must keep to count as good; absent: not asked for.
    pub slo_ttft_ms: Option<f64>,
    pub slo_tpot_ms: Option<f64>,
    /// More arguments for the server.
    pub args: Vec<String>,
}

/// pipeline with one graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// A built-in one, or the path of a file.
    pub graph: String,
    /// KEY=VALUE each: what is changed in it.
    pub set: Vec<String>,
    /// GPUs that the emulated driver has.
    pub gpus: NonZeroU32,
    /// Kernels that run side by side on each of them; absent: as many as that driver allows.
    pub concurrent_kernels: Option<u32>,
    pub driver: Driver,
    /// Whom the stages with http call; absent: whoever is at the URL that the graph names.
    pub server: Option<CalledServer>,
    /// More arguments for the program.
    pub args: Vec<String>,
}

/// The threads of a host that launch GPU work, as they were recorded. It is simulated only.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// What `scx_gpuaware trace --record-profile` has written.
    pub file: String,
}

/// llm_server, in the place of one on another machine.
#[derive(Debug, Clone, PartialEq)]
pub struct CalledServer {
    pub profile: String,
    pub gpu_memory_utilization: f64,
}

/// The driver's ways to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sync {
    Auto,
    Spin,
    Yield,
    Block,
}

impl Sync {
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Spin => "spin",
            Self::Yield => "yield",
            Self::Block => "block",
        }
    }
}

impl Workload {
    /// Whether there is a cell of it.
    pub fn is_measured(&self, neighbour: Neighbour, arm: &str) -> bool {
        let beside = self.neighbours.is_empty() || self.neighbours.contains(&neighbour);
        beside && self.has_arm(arm)
    }

    /// Whether it is measured under that arm of the matrix, beside whomever.
    pub fn has_arm(&self, arm: &str) -> bool {
        self.arms.is_empty() || self.arms.iter().any(|own| own == arm)
    }

    /// The file that it is recorded in, if it is.
    pub fn recording(&self) -> Option<&str> {
        match &self.program {
            Program::Recording(recording) => Some(&recording.file),
            _ => None,
        }
    }

    /// The command, shortened, for `list`.
    pub fn describe(&self) -> String {
        let traced = match self.trace {
            None => "",
            Some(Trace::Summary) => "traced, summary: ",
            Some(Trace::Events) => "traced, events: ",
            Some(Trace::AllLaunches) => "traced, events and all launches: ",
            Some(Trace::Profile) => "recorded for the simulator: ",
        };
        let program = self.program.describe();
        let own = |what: &str, names: Vec<&str>| match names.len() {
            0 => String::new(),
            _ => format!("; {what} {}", names.join(", ")),
        };
        let arms = own("only under", self.arms.iter().map(String::as_str).collect());
        let neighbours = self.neighbours.iter().map(|neighbour| neighbour.name());
        let neighbours = own("only beside", neighbours.collect());
        format!("{traced}{program}{arms}{neighbours}")
    }
}

impl Program {
    fn describe(&self) -> String {
        let sync = |sync: Option<Sync>| {
            sync.map(|sync| format!(" --sync {}", sync.name()))
                .unwrap_or_default()
        };
        match self {
            Self::GpuLaunch(launch) => {
                let gpus = match launch.gpus {
                    one if one == Gpus::default() => String::new(),
                    several => format!(" --gpus {several}"),
                };
                format!(
                    "gpu_launch --profile {}{}{gpus}",
                    launch.profile,
                    sync(launch.sync)
                )
            }
            Self::LlmServer(server) => format!(
                "llm_server --profile {}{} --gpu-memory-utilization {}, llm_client --request-rate {}",
                server.profile,
                sync(server.sync),
                server.gpu_memory_utilization,
                server.request_rate
            ),
            Self::Pipeline(pipeline) => {
                let changes = pipeline.set.iter().map(|change| format!(" --set {change}"));
                let server = pipeline.server.as_ref().map(|server| {
                    let CalledServer {
                        profile,
                        gpu_memory_utilization: share,
                    } = server;
                    format!(", llm_server --profile {profile} --gpu-memory-utilization {share}")
                });
                let changes: String = changes.chain(server).collect();
                format!("pipeline {}{changes}", pipeline.graph)
            }
            Self::Recording(recording) => format!("launchers of {}", recording.file),
            Self::Served(served) => {
                let what = match &served.server {
                    Server::Endpoint { base_url } => base_url.clone(),
                    Server::Vllm {
                        instead: Some(launches),
                        ..
                    } => format!("vllm {}, launching {}", served.model, launches.profile),
                    server => format!("{} {}", server.name(), served.model),
                };
                format!(
                    "{what}, {} --request-rate {}",
                    served.client.name(),
                    served.requests.request_rate
                )
            }
        }
    }
}

/// The list of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Vec<Workload>")]
pub struct Workloads(pub Vec<Workload>);

impl TryFrom<Vec<Workload>> for Workloads {
    type Error = &'static str;

    fn try_from(list: Vec<Workload>) -> Result<Self, &'static str> {
        let names: BTreeSet<_> = list.iter().map(|workload| &workload.name).collect();
        if list.is_empty() || names.len() != list.len() {
            return Err("expected at least one [[workload]], every name once");
        }
        Ok(Self(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Workload, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
    }

    #[test]
    fn a_plan_carries_what_the_file_said() {
        for text in [
            "name = \"a\"\nprofile = \"qwen3\"\nsync = \"spin\"\ndriver = \"real\"\ntrace = \"all_launches\"\nwarmup_tokens = 9\nargs = [\"x\"]",
            "name = \"i\"\nprofile = \"qwen3\"\ngpus = \"all\"",
            "name = \"j\"\nprofile = \"qwen3\"\ngpus = 2",
            "name = \"b\"\nprogram = \"llm_server\"\nprofile = \"chat\"\nrequest_rate = 4\nmax_concurrency = 1\n\
             gpu_memory_utilization = 0.6\nslo_ttft_ms = 200",
            "name = \"c\"\nprogram = \"vllm\"\nmodel = \"m\"\nrequest_rate = 4\nclient = \"vllm_bench\"",
            "name = \"f\"\nprogram = \"vllm\"\nmodel = \"made\"\nprofile = \"eager\"\ndriver = \"emulated\"\nrequest_rate = 4",
            "name = \"d\"\nprogram = \"llama_server\"\nmodel = \"/m.gguf\"\nrequest_rate = 1\nargs = [\"-c\", \"4096\"]",
            "name = \"e\"\nprogram = \"endpoint\"\nmodel = \"m\"\nbase_url = \"http://h:1\"\nrequest_rate = 1\n\
             client = \"aiperf\"\ntokenizer = \"/t\"\noutput_tokens = 64\nslo_tpot_ms = 20",
            "name = \"f\"\nprogram = \"pipeline\"\ngraph = \"windflow\"\nset = [\"stage.sink.cpu.us=5\"]\ngpus = 4\n\
             concurrent_kernels = 1\narms = [\"eevdf\"]\nneighbours = [\"none\"]\nargs = [\"--slo-ms\", \"200\"]",
            "name = \"h\"\nprogram = \"recording\"\nfile = \"host.json\"",
            "name = \"g\"\nprogram = \"pipeline\"\ngraph = \"vectraflow-p1\"\nprofile = \"chat\"\n\
             gpu_memory_utilization = 0.6\ndriver = \"emulated\"",
        ] {
            let workload = parse(text).unwrap();
            let json = serde_json::to_string(&workload).unwrap();
            assert_eq!(serde_json::from_str::<Workload>(&json).unwrap(), workload);
        }
    }

    #[test]
    fn keys_of_another_program_are_refused() {
        let error = parse("name = \"a\"\nprofile = \"q\"\nrequest_rate = 4").unwrap_err();
        assert!(
            error.starts_with("request_rate: expected keys of gpu_launch"),
            "{error}"
        );
        let error = parse("name = \"a\"\nprogram = \"llm_server\"\nprofile = \"q\"").unwrap_err();
        assert!(error.starts_with("request_rate: expected"), "{error}");
        let error =
            |text: &str| parse(&format!("name = \"a\"\nrequest_rate = 1\n{text}")).unwrap_err();
        assert!(error("program = \"vllm\"").starts_with("model: expected what is served"));
        assert!(
            error("program = \"llama_server\"\nprofile = \"q\"")
                .starts_with("profile: expected keys of llama_server")
        );
        let alone = error("program = \"vllm\"\nmodel = \"m\"\ndriver = \"real\"");
        assert!(
            alone.starts_with("driver: expected a profile too"),
            "{alone}"
        );
        assert!(error("program = \"endpoint\"\nmodel = \"m\"").starts_with("base_url: expected"));
        let error = |text: &str| {
            parse(&format!("name = \"a\"\nprogram = \"pipeline\"\n{text}")).unwrap_err()
        };
        assert!(error("").starts_with("graph: expected"));
        let bare = parse("name = \"a\"\nprogram = \"recording\"").unwrap_err();
        assert!(bare.starts_with("file: expected"), "{bare}");
        assert!(
            error("graph = \"windflow\"\nsync = \"spin\"")
                .starts_with("sync: expected keys of pipeline")
        );
        assert!(
            error("graph = \"windflow\"\ngpus = \"all\"")
                .starts_with("gpus: expected a number of emulated GPUs, got all")
        );
        let none = parse("name = \"a\"\nprofile = \"q\"\ngpus = 0").unwrap_err();
        assert!(
            none.contains("expected a number of GPUs, at least 1, or \"all\""),
            "{none}"
        );
        assert!(
            error("graph = \"windflow\"\nconcurrent_kernels = 0")
                .starts_with("concurrent_kernels: expected 1 to 128, got 0")
        );
        assert!(
            error("graph = \"windflow\"\ngpu_memory_utilization = 0.6")
                .starts_with("gpu_memory_utilization: expected a profile beside it")
        );
    }

    #[test]
    fn memory_utilization_is_a_share() {
        let text = "name = \"a\"\nprogram = \"llm_server\"\nprofile = \"q\"\nrequest_rate = 1\n\
                    gpu_memory_utilization = 90";
        let error = parse(text).unwrap_err();
        assert!(error.contains("at most 1, got 90"), "{error}");
    }
}
