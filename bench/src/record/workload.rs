// SPDX-License-Identifier: GPL-2.0-only
//! What workloads report of themselves, and the few figures that all of them have.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

type Rest = serde_json::Map<String, serde_json::Value>;

/// A workload's own account of a cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "snake_case")]
pub enum WorkloadReport {
    GpuLaunch(GpuLaunch),
    LlmServing(LlmServing),
    Pipeline(Pipeline),
}

/// What gpu_launch prints. Fields that nothing here reads are kept as they are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GpuLaunch {
    pub tokens: u64,
    pub seconds: f64,
    pub tokens_per_s: f64,
    pub launches: u64,
    pub failures: u64,
    pub token_us: Vec<f64>,
    pub context_switches: Switches,
    pub threads_detail: Vec<LaunchThread>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// What llm_client and llm_server print.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LlmServing {
    pub client: LlmClient,
    pub server: LlmServer,
}

/// In the names of `vllm bench serve`; latencies in seconds, of successful requests only.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LlmClient {
    pub offered: u64,
    pub completed: u64,
    pub failed: u64,
    /// Requests that kept all objectives; absent: there was none.
    pub good: Option<u64>,
    pub ttfts: Vec<f64>,
    pub tpots: Vec<f64>,
    pub e2els: Vec<f64>,
    pub itls: Vec<Vec<f64>>,
    pub errors: Vec<String>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// The engine's thread in its whole life.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LlmServer {
    pub launches: u64,
    pub context_switches: Switches,
    pub threads_detail: Vec<LaunchThread>,
    /// Of a genuine server, which does not say which threads launch: its processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<i64>,
    /// Of one that launches in the place of a model: its threads that do, as they say themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launchers: Vec<i64>,
    /// CPUs that all threads of the server kept busy in the measured window; absent in older reports and of an
    /// endpoint that somebody else has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_cpus: Option<f64>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// What pipeline prints: docs/pipelines.md.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pipeline {
    pub offered: u64,
    pub completed: u64,
    pub failed: u64,
    pub unfinished: u64,
    pub seconds: f64,
    pub items_per_s: f64,
    /// From arrival to the end of the graph, and whose.
    pub latency_us: Vec<f64>,
    #[serde(default)]
    pub latency_request: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end_ms: Option<Box<Times>>,
    #[serde(default)]
    pub edges: Vec<Edge>,
    #[serde(default)]
    pub stages: BTreeMap<String, Stage>,
    #[serde(default)]
    pub slo: Vec<Objective>,
    pub errors: Vec<String>,
    /// Of its own launching threads, as all that follows.
    pub launches: u64,
    pub launches_in_all: u64,
    pub context_switches: Switches,
    pub threads_detail: Vec<LaunchThread>,
    /// Its threads that call a server.
    #[serde(default)]
    pub calling_detail: Vec<LaunchThread>,
    /// CPUs that all its threads kept busy in the measured window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_cpus: Option<f64>,
    /// Of all its threads, or why nobody counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_load_misses: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llc_load_misses_error: Option<String>,
    /// The server that it called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<LlmServer>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// Items on their way from one stage to another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Edge {
    pub from: String,
    pub to: String,
    pub delay_ms: Times,
    /// From the request's arrival until being ready to be handed over.
    pub age_ms: Times,
    /// Of whoever takes a message, copying it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_ms: Option<Times>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stage {
    /// Answers of the server that it calls.
    pub rpc_ms: Times,
    /// Of batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_ms: Option<Times>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<Times>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// A time from end to end that requests should keep.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Objective {
    pub ms: f64,
    /// Share of the requests; absent: there were none.
    pub miss_rate: Option<f64>,
    #[serde(flatten)]
    pub rest: Rest,
}

/// What was measured many times; without figures where there were too few.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    pub mean: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    #[serde(flatten)]
    pub rest: Rest,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    pub voluntary: u64,
    pub involuntary: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchThread {
    pub tid: i64,
    /// Of one that calls a server its first call.
    #[serde(alias = "first_call_monotonic_ns")]
    pub first_launch_monotonic_ns: u64,
    #[serde(flatten)]
    pub rest: Rest,
}

impl Pipeline {
    /// Whether arrivals become more or fewer on the way, as in a surge.
    pub fn has_phases(&self) -> bool {
        let stages = self.rest.get("graph").map(|graph| &graph["stages"]);
        let mut stages = stages.and_then(|all| all.as_array()).into_iter().flatten();
        stages.any(|stage| {
            stage["arrive"]["phases"]
                .as_array()
                .is_some_and(|all| all.len() > 1)
        })
    }
}

impl WorkloadReport {
    /// Tokens a second of one stream: of all that a launcher did, or what a user of a server sees
    /// between tokens. A server's total is settled by the arrivals and would say nothing. Of a pipeline items.
    pub fn tokens_per_s(&self) -> f64 {
        match self {
            Self::GpuLaunch(launch) => launch.tokens_per_s,
            Self::Pipeline(pipeline) => pipeline.items_per_s,
            Self::LlmServing(LlmServing { client, .. }) => {
                let sum: f64 = client.tpots.iter().sum();
                if sum > 0.0 {
                    client.tpots.len() as f64 / sum
                } else {
                    0.0
                }
            }
        }
    }

    /// Every token's latency; of a server the time since the one before (ITL), of a pipeline an item's from end to end.
    pub fn token_ms(&self) -> Vec<f64> {
        match self {
            Self::GpuLaunch(launch) => launch.token_us.iter().map(|us| us / 1e3).collect(),
            Self::Pipeline(pipeline) => pipeline.latency_us.iter().map(|us| us / 1e3).collect(),
            Self::LlmServing(serving) => {
                let all = serving.client.itls.iter().flatten();
                all.map(|seconds| seconds * 1e3).collect()
            }
        }
    }

    pub fn launches(&self) -> u64 {
        match self {
            Self::GpuLaunch(launch) => launch.launches,
            Self::Pipeline(pipeline) => pipeline.launches,
            Self::LlmServing(serving) => serving.server.launches,
        }
    }

    /// Launches of the whole run, also those before and after the measured part; absent in older reports.
    pub fn launches_in_all(&self) -> Option<u64> {
        match self {
            Self::GpuLaunch(launch) => launch.rest.get("launches_in_all")?.as_u64(),
            Self::Pipeline(pipeline) => Some(pipeline.launches_in_all),
            Self::LlmServing(serving) => Some(serving.server.launches),
        }
    }

    /// Of the launching threads.
    pub fn context_switches(&self) -> Switches {
        match self {
            Self::GpuLaunch(launch) => launch.context_switches,
            Self::Pipeline(pipeline) => pipeline.context_switches,
            Self::LlmServing(serving) => serving.server.context_switches,
        }
    }

    pub fn launch_threads(&self) -> &[LaunchThread] {
        match self {
            Self::GpuLaunch(launch) => &launch.threads_detail,
            Self::Pipeline(pipeline) => &pipeline.threads_detail,
            Self::LlmServing(serving) => &serving.server.threads_detail,
        }
    }

    /// The class that a scheduler should find by itself, and the threads that should have it: those that launch, of a
    /// pipeline where none does those that call a server.
    pub fn threads_to_find(&self) -> (&'static str, &[LaunchThread]) {
        match self {
            Self::Pipeline(pipeline) if pipeline.threads_detail.is_empty() => {
                ("handoff", &pipeline.calling_detail)
            }
            _ => ("launch", self.launch_threads()),
        }
    }

    /// A pipeline that neither launches nor calls.
    pub fn has_nobody_to_find(&self) -> bool {
        matches!(self, Self::Pipeline(_)) && self.threads_to_find().1.is_empty()
    }

    /// The processes of a server that does not say which of its threads launch.
    pub fn server_pids(&self) -> &[i64] {
        match self {
            Self::GpuLaunch(_) | Self::Pipeline(_) => &[],
            Self::LlmServing(serving) => &serving.server.pids,
        }
    }

    /// Of these its threads that are known to launch.
    pub fn server_launchers(&self) -> &[i64] {
        match self {
            Self::GpuLaunch(_) | Self::Pipeline(_) => &[],
            Self::LlmServing(serving) => &serving.server.launchers,
        }
    }

    /// CPUs that the launcher kept busy in the measured window: its launching threads, of a server or a pipeline all. The
    /// engine's CPU time in its whole life, which a server reports, is another thing.
    pub fn launcher_cpus(&self) -> Option<f64> {
        match self {
            Self::GpuLaunch(launch) => self
                .cpu_s()
                .filter(|_| launch.seconds > 0.0)
                .map(|cpu_s| cpu_s / launch.seconds),
            Self::LlmServing(serving) => serving.server.window_cpus,
            Self::Pipeline(pipeline) => pipeline.window_cpus,
        }
    }

    /// CPU time of the launching threads.
    pub fn cpu_s(&self) -> Option<f64> {
        let rest = match self {
            Self::GpuLaunch(launch) => &launch.rest,
            Self::LlmServing(serving) => &serving.server.rest,
            Self::Pipeline(pipeline) => &pipeline.rest,
        };
        let cpu = rest.get("cpu_s")?;
        Some(cpu.get("user")?.as_f64()? + cpu.get("sys")?.as_f64()?)
    }

    pub fn pipeline(&self) -> Option<&Pipeline> {
        match self {
            Self::Pipeline(pipeline) => Some(pipeline),
            Self::GpuLaunch(_) | Self::LlmServing(_) => None,
        }
    }

    /// The client's account, if the workload is a server.
    pub fn client(&self) -> Option<&LlmClient> {
        match self {
            Self::GpuLaunch(_) | Self::Pipeline(_) => None,
            Self::LlmServing(serving) => Some(&serving.client),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_fields_that_it_does_not_know() {
        let json = r#"{"schema":1,"workload":"gpu_launch","profile":"qwen3","tokens":1,"seconds":1.0,
            "tokens_per_s":1.0,"launches":950,"failures":0,"token_us":[7123],
            "context_switches":{"voluntary":1,"involuntary":2},
            "threads_detail":[{"tid":12,"first_launch_monotonic_ns":5,"tokens":1}]}"#;
        let parsed: WorkloadReport = serde_json::from_str(json).unwrap();
        let back = serde_json::to_value(&parsed).unwrap();
        assert_eq!(back["profile"], "qwen3");
        assert_eq!(back["workload"], "gpu_launch");
        assert_eq!(back["threads_detail"][0]["tokens"], 1);
    }

    #[test]
    fn a_pipelines_speed_is_in_items() {
        let json = r#"{"schema":1,"workload":"pipeline","name":"windflow","offered":4,"completed":3,"failed":1,
            "unfinished":0,"seconds":2.0,"items_per_s":1.5,"latency_us":[1000,2000,3000],"errors":["503"],
            "launches":0,"launches_in_all":0,"context_switches":{"voluntary":0,"involuntary":0},
            "threads_detail":[],"cpu_s":{"user":0,"sys":0},
            "edges":[{"from":"a","to":"b","delay_ms":{"count":3,"mean":0.5,"p90":1.0},"age_ms":{"count":3}}]}"#;
        let parsed: WorkloadReport = serde_json::from_str(json).unwrap();
        assert!((parsed.tokens_per_s() - 1.5).abs() < 1e-9);
        assert_eq!(parsed.token_ms(), [1.0, 2.0, 3.0]);
        assert!(parsed.client().is_none() && parsed.launcher_cpus().is_none());
        assert!(parsed.has_nobody_to_find());
        let back = serde_json::to_value(&parsed).unwrap();
        let edge = &back["edges"][0];
        assert_eq!(
            (&edge["age_ms"]["count"], &edge["delay_ms"]["p90"]),
            (&3.into(), &1.0.into())
        );
    }

    #[test]
    fn a_servers_speed_is_what_a_stream_gets() {
        let json = r#"{"workload":"llm_serving","client":{"offered":3,"completed":2,"failed":1,"good":null,
            "ttfts":[0.1,0.2],"tpots":[0.01,0.03],"e2els":[0.12,0.26],"itls":[[0.01,0.01],[0.03,0.03]],
            "errors":["503"],"duration":1.0},
            "server":{"launches":10,"context_switches":{"voluntary":1,"involuntary":2},
            "threads_detail":[],"cpu_s":{"user":0.5,"sys":0.25}}}"#;
        let parsed: WorkloadReport = serde_json::from_str(json).unwrap();
        assert!((parsed.tokens_per_s() - 50.0).abs() < 1e-9);
        assert_eq!(parsed.token_ms(), [10.0, 10.0, 30.0, 30.0]);
        assert_eq!((parsed.launches(), parsed.cpu_s()), (10, Some(0.75)));
        assert_eq!(parsed.launcher_cpus(), None, "not in a life, in the window");
        assert_eq!(parsed.client().unwrap().failed, 1);
    }
}
