// SPDX-License-Identifier: GPL-2.0-only
//! What the genuine clients write, as what ours reports: latencies of single requests in seconds, failures
//! over the requests offered, goodput. Pure.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::matrix::Requests;
use crate::record::LlmClient;

/// One answered request.
#[derive(Debug, Clone, PartialEq)]
struct Answered {
    ttft: f64,
    e2el: f64,
    /// Without a second token there is none.
    tpot: Option<f64>,
    itls: Vec<f64>,
}

/// What `vllm bench serve --save-result --save-detailed` writes, as far as it is read.
#[derive(Debug, Deserialize)]
struct VllmBench {
    output_lens: Vec<u64>,
    ttfts: Vec<f64>,
    itls: Vec<Vec<f64>>,
    /// Since 2026; before, a request ends with its last token.
    latencies: Option<Vec<f64>>,
    /// Empty text: none.
    errors: Vec<String>,
}

/// Lists in it have an entry a request, also of those that failed.
pub fn vllm_bench(json: &str, asked: &Requests) -> Result<LlmClient> {
    let all: VllmBench =
        serde_json::from_str(json).context("what vllm bench serve wrote is not understood")?;
    let count = all.errors.len();
    if [all.output_lens.len(), all.ttfts.len(), all.itls.len()] != [count; 3] {
        bail!("what vllm bench serve wrote has lists of different lengths");
    }
    let answered = (0..count)
        .filter(|&at| all.errors[at].is_empty())
        .map(|at| {
            let (ttft, itls) = (all.ttfts[at], all.itls[at].clone());
            let latency = all.latencies.as_ref().and_then(|list| list.get(at));
            let e2el = latency.copied().unwrap_or(ttft + itls.iter().sum::<f64>());
            let later = all.output_lens[at].saturating_sub(1);
            Answered {
                ttft,
                e2el,
                tpot: (later > 0).then(|| (e2el - ttft) / later as f64),
                itls,
            }
        });
    let answered = answered.collect();
    let errors = all.errors.into_iter().filter(|error| !error.is_empty());
    Ok(report(answered, errors.collect(), count, asked))
}

/// One line of aiperf's `profile_export.jsonl`.
#[derive(Debug, Deserialize)]
struct Record {
    metadata: Metadata,
    metrics: Metrics,
    error: Option<Error>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    benchmark_phase: String,
}

/// In milliseconds; those of a failed request are others.
#[derive(Debug, Deserialize)]
struct Metrics {
    time_to_first_token: Option<Value<f64>>,
    request_latency: Option<Value<f64>>,
    inter_token_latency: Option<Value<f64>>,
    inter_chunk_latency: Option<Value<Vec<f64>>>,
}

#[derive(Debug, Deserialize)]
struct Value<T> {
    value: T,
}

#[derive(Debug, Deserialize)]
struct Error {
    message: String,
}

/// aiperf calls TPOT inter-token latency, and the time between two pieces of an answer inter-chunk latency.
pub fn aiperf(jsonl: &str, asked: &Requests) -> Result<LlmClient> {
    let mut answered = Vec::new();
    let mut errors = Vec::new();
    for (at, line) in jsonl
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty())
    {
        let record: Record = serde_json::from_str(line)
            .with_context(|| format!("line {} of what aiperf wrote is not understood", at + 1))?;
        if record.metadata.benchmark_phase != "profiling" {
            continue;
        }
        match record {
            Record {
                error: Some(error), ..
            } => errors.push(error.message),
            Record {
                metrics:
                    Metrics {
                        time_to_first_token: Some(ttft),
                        request_latency: Some(latency),
                        inter_token_latency,
                        inter_chunk_latency,
                    },
                ..
            } => answered.push(Answered {
                ttft: ttft.value / 1e3,
                e2el: latency.value / 1e3,
                tpot: inter_token_latency.map(|tpot| tpot.value / 1e3),
                itls: inter_chunk_latency
                    .map(|itls| itls.value.iter().map(|ms| ms / 1e3).collect())
                    .unwrap_or_default(),
            }),
            // Streaming was asked for: without a first token nothing came.
            Record { .. } => errors.push("no token was received".to_owned()),
        }
    }
    let count = answered.len() + errors.len();
    Ok(report(answered, errors, count, asked))
}

fn report(
    answered: Vec<Answered>,
    errors: Vec<String>,
    offered: usize,
    asked: &Requests,
) -> LlmClient {
    let keeps = |ms: Option<f64>, seconds: f64| ms.is_none_or(|ms| seconds * 1e3 <= ms);
    // As vLLM has it, a request of one token has a TPOT of nothing.
    let good = |request: &&Answered| {
        keeps(asked.slo_ttft_ms, request.ttft)
            && keeps(asked.slo_tpot_ms, request.tpot.unwrap_or(0.0))
    };
    let objectives = asked.slo_ttft_ms.is_some() || asked.slo_tpot_ms.is_some();
    LlmClient {
        offered: offered as u64,
        completed: answered.len() as u64,
        failed: (offered - answered.len()) as u64,
        good: objectives.then(|| answered.iter().filter(good).count() as u64),
        ttfts: answered.iter().map(|request| request.ttft).collect(),
        tpots: answered.iter().filter_map(|request| request.tpot).collect(),
        e2els: answered.iter().map(|request| request.e2el).collect(),
        itls: answered.into_iter().map(|request| request.itls).collect(),
        errors,
        rest: serde_json::Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: Requests = Requests {
        request_rate: 1.0,
        warmup_requests: 0,
        length_scale: 1.0,
        input_tokens: 256,
        output_tokens: 128,
        slo_ttft_ms: Some(100.0),
        slo_tpot_ms: Some(20.0),
    };

    /// Written from `vllm/benchmarks/serve.py`, not by a run.
    const VLLM: &str = include_str!("../../../tests/data/served/vllm-bench.json");

    #[test]
    fn reads_what_vllm_bench_writes() {
        let client = vllm_bench(VLLM, &SLO).unwrap();
        assert_eq!((client.offered, client.completed, client.failed), (3, 2, 1));
        assert_eq!(client.ttfts, [0.05, 0.12]);
        // (0.09 - 0.05) / 2; a request of one token has none.
        assert_eq!(client.tpots.len(), 1);
        assert!((client.tpots[0] - 0.02).abs() < 1e-9);
        assert!((client.e2els[0] - 0.09).abs() < 1e-9);
        assert_eq!(client.itls[0], [0.01, 0.03]);
        // The second one's first token came after 120 ms.
        assert_eq!(client.good, Some(1));
        assert_eq!(client.errors, ["Traceback: ClientPayloadError"]);
    }

    #[test]
    fn newer_vllm_says_when_a_request_ended() {
        let newer = VLLM.replacen("\"itls\"", "\"latencies\": [0.25, 0.0, 0.12], \"itls\"", 1);
        let client = vllm_bench(&newer, &SLO).unwrap();
        assert_eq!(client.e2els, [0.25, 0.12]);
        assert!((client.tpots[0] - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_result_without_details_is_refused() {
        let error = vllm_bench(r#"{"completed": 2}"#, &SLO).unwrap_err();
        assert!(format!("{error:#}").contains("missing field"), "{error:#}");
        let uneven = VLLM.replace(
            "[256, 256, 256], \"output_lens\": [3, 0, 1]",
            "[], \"output_lens\": [3]",
        );
        let error = vllm_bench(&uneven, &SLO).unwrap_err().to_string();
        assert!(error.contains("different lengths"), "{error}");
    }

    /// Written from aiperf's documentation of its exports, not by a run.
    const AIPERF: &str = include_str!("../../../tests/data/served/aiperf.jsonl");

    #[test]
    fn reads_what_aiperf_writes_without_its_warmup() {
        let client = aiperf(AIPERF, &SLO).unwrap();
        assert_eq!((client.offered, client.completed, client.failed), (2, 1, 1));
        assert_eq!(client.ttfts, [0.05]);
        assert_eq!((client.tpots, client.e2els), (vec![0.02], vec![0.09]));
        assert_eq!(client.itls, [[0.01, 0.03]]);
        assert_eq!(client.good, Some(1));
        assert_eq!(client.errors, ["Request was cancelled after 0.000 seconds"]);
        let error = aiperf("{}", &SLO).unwrap_err().to_string();
        assert!(error.starts_with("line 1 of what aiperf wrote"), "{error}");
    }

    #[test]
    fn without_objectives_nothing_is_good_or_bad() {
        let asked = Requests {
            slo_ttft_ms: None,
            slo_tpot_ms: None,
            ..SLO
        };
        assert_eq!(vllm_bench(VLLM, &asked).unwrap().good, None);
    }
}
