// SPDX-License-Identifier: GPL-2.0-only
//! A workload of a matrix as data: which program, and how it is set. `crate::workload` runs it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::scalar::Positive;

/// One workload of a matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Keys", into = "Keys")]
pub struct Workload {
    pub name: String,
    pub program: Program,
}

/// What runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Program {
    GpuLaunch(GpuLaunch),
    LlmServer(LlmServer),
}

/// gpu_launch in one profile: tokens as fast as it can.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuLaunch {
    pub profile: String,
    /// How the launching thread waits for the GPU; absent: as the profile says.
    pub sync: Option<Sync>,
    /// Tokens before the measured window begins.
    pub warmup_tokens: u32,
    /// More arguments for the program.
    pub args: Vec<String>,
}

/// llm_server in one profile, and llm_client, which sends requests at a rate of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct LlmServer {
    pub profile: String,
    pub sync: Option<Sync>,
    /// Share of the GPU's memory that the server takes, weights included.
    pub gpu_memory_utilization: f64,
    /// Requests a second, Poisson arrivals.
    pub request_rate: f64,
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

/// The table as it stands in a file: the keys of all programs, so that a mistake has its line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    name: String,
    #[serde(default)]
    program: ProgramName,
    profile: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sync: Option<Sync>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warmup_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_memory_utilization: Option<Positive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_rate: Option<Positive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length_scale: Option<Positive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warmup_requests: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slo_ttft_ms: Option<Positive>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slo_tpot_ms: Option<Positive>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProgramName {
    #[default]
    GpuLaunch,
    LlmServer,
}

impl Keys {
    /// The first of the other programs' keys that is given.
    fn stray(&self) -> Option<&'static str> {
        let launch = [("warmup_tokens", self.warmup_tokens.is_some())];
        let serving = [
            (
                "gpu_memory_utilization",
                self.gpu_memory_utilization.is_some(),
            ),
            ("request_rate", self.request_rate.is_some()),
            ("length_scale", self.length_scale.is_some()),
            ("warmup_requests", self.warmup_requests.is_some()),
            ("slo_ttft_ms", self.slo_ttft_ms.is_some()),
            ("slo_tpot_ms", self.slo_tpot_ms.is_some()),
        ];
        let others: &[(&str, bool)] = match self.program {
            ProgramName::GpuLaunch => &serving,
            ProgramName::LlmServer => &launch,
        };
        let given = others.iter().find(|(_, given)| *given);
        given.map(|&(key, _)| key)
    }

    fn llm_server(self) -> Result<LlmServer, String> {
        let utilization = self.gpu_memory_utilization.map_or(0.9, |share| share.0);
        if utilization > 1.0 {
            return Err(format!(
                "gpu_memory_utilization: expected a share above 0, at most 1, got {utilization}"
            ));
        }
        let rate = self.request_rate.ok_or_else(|| {
            "request_rate: expected the requests a second of the client, got nothing".to_owned()
        })?;
        Ok(LlmServer {
            profile: self.profile,
            sync: self.sync,
            gpu_memory_utilization: utilization,
            request_rate: rate.0,
            length_scale: self.length_scale.map_or(1.0, |scale| scale.0),
            warmup_requests: self.warmup_requests.unwrap_or(4),
            slo_ttft_ms: self.slo_ttft_ms.map(|slo| slo.0),
            slo_tpot_ms: self.slo_tpot_ms.map(|slo| slo.0),
            args: self.args,
        })
    }
}

impl TryFrom<Keys> for Workload {
    type Error = String;

    fn try_from(keys: Keys) -> Result<Self, String> {
        if let Some(key) = keys.stray() {
            let program = match keys.program {
                ProgramName::GpuLaunch => "gpu_launch",
                ProgramName::LlmServer => "llm_server",
            };
            return Err(format!(
                "{key}: expected keys of {program}, which has no such: leave it out or name another program"
            ));
        }
        let name = keys.name.clone();
        let program = match keys.program {
            ProgramName::LlmServer => Program::LlmServer(keys.llm_server()?),
            ProgramName::GpuLaunch => Program::GpuLaunch(GpuLaunch {
                profile: keys.profile,
                sync: keys.sync,
                warmup_tokens: keys.warmup_tokens.unwrap_or(5),
                args: keys.args,
            }),
        };
        Ok(Self { name, program })
    }
}

impl From<Workload> for Keys {
    fn from(workload: Workload) -> Self {
        let mut keys = Self {
            name: workload.name,
            program: ProgramName::GpuLaunch,
            profile: String::new(),
            sync: None,
            args: Vec::new(),
            warmup_tokens: None,
            gpu_memory_utilization: None,
            request_rate: None,
            length_scale: None,
            warmup_requests: None,
            slo_ttft_ms: None,
            slo_tpot_ms: None,
        };
        match workload.program {
            Program::GpuLaunch(launch) => {
                keys.profile = launch.profile;
                keys.sync = launch.sync;
                keys.args = launch.args;
                keys.warmup_tokens = Some(launch.warmup_tokens);
            }
            Program::LlmServer(server) => {
                keys.program = ProgramName::LlmServer;
                keys.profile = server.profile;
                keys.sync = server.sync;
                keys.args = server.args;
                keys.gpu_memory_utilization = Some(Positive(server.gpu_memory_utilization));
                keys.request_rate = Some(Positive(server.request_rate));
                keys.length_scale = Some(Positive(server.length_scale));
                keys.warmup_requests = Some(server.warmup_requests);
                keys.slo_ttft_ms = server.slo_ttft_ms.map(Positive);
                keys.slo_tpot_ms = server.slo_tpot_ms.map(Positive);
            }
        }
        keys
    }
}

impl Workload {
    /// The command, shortened, for `list`.
    pub fn describe(&self) -> String {
        let sync = |sync: Option<Sync>| {
            sync.map(|sync| format!(" --sync {}", sync.name()))
                .unwrap_or_default()
        };
        match &self.program {
            Program::GpuLaunch(launch) => {
                format!(
                    "gpu_launch --profile {}{}",
                    launch.profile,
                    sync(launch.sync)
                )
            }
            Program::LlmServer(server) => format!(
                "llm_server --profile {}{} --gpu-memory-utilization {}, llm_client --request-rate {}",
                server.profile,
                sync(server.sync),
                server.gpu_memory_utilization,
                server.request_rate
            ),
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
            "name = \"a\"\nprofile = \"qwen3\"\nsync = \"spin\"\nwarmup_tokens = 9\nargs = [\"x\"]",
            "name = \"b\"\nprogram = \"llm_server\"\nprofile = \"chat\"\nrequest_rate = 4\n\
             gpu_memory_utilization = 0.6\nslo_ttft_ms = 200",
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
    }

    #[test]
    fn memory_utilization_is_a_share() {
        let text = "name = \"a\"\nprogram = \"llm_server\"\nprofile = \"q\"\nrequest_rate = 1\n\
                    gpu_memory_utilization = 90";
        let error = parse(text).unwrap_err();
        assert!(error.contains("at most 1, got 90"), "{error}");
    }
}
