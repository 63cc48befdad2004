// SPDX-License-Identifier: GPL-2.0-only
//! The figures, as `vllm bench serve` defines and names them (vllm/benchmarks/serve.py). Pure.
//!
//! TTFT: from sending a request to its first chunk with a choice. ITL: between such chunks. E2EL: to the
//! last one. TPOT: (E2EL - TTFT) / (output tokens - 1), only for answers of more than one token. All
//! but the counts are of successful requests. Two things differ: failures are told as a share of the
//! requests offered, and a percentile is refused when there are too few samples for it.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// A percentile needs so many samples that with 99 % certainty one lies beyond it: 459 for p99.
const CERTAINTY: f64 = 0.99;
const PERCENTILES: [f64; 4] = [50.0, 90.0, 95.0, 99.0];

/// One request and what came of it. Times in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Since the first request could be sent.
    pub start_s: f64,
    pub ttft_s: f64,
    pub itl_s: Vec<f64>,
    pub input_tokens: u32,
    /// By the server's own count.
    pub output_tokens: u32,
    /// Empty: it succeeded.
    pub error: String,
}

impl Outcome {
    pub fn succeeded(&self) -> bool {
        self.error.is_empty()
    }

    pub fn e2el_s(&self) -> f64 {
        self.ttft_s + self.itl_s.iter().sum::<f64>()
    }

    pub fn tpot_s(&self) -> Option<f64> {
        let gaps = self.output_tokens.checked_sub(1).filter(|&gaps| gaps > 0)?;
        Some((self.e2el_s() - self.ttft_s) / f64::from(gaps))
    }
}

/// What a good request keeps; absent: not asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Objectives {
    pub ttft_ms: Option<f64>,
    pub tpot_ms: Option<f64>,
    pub e2el_ms: Option<f64>,
}

impl Objectives {
    pub fn any(&self) -> bool {
        self.ttft_ms.is_some() || self.tpot_ms.is_some() || self.e2el_ms.is_some()
    }

    /// Whether a successful request is good; one of a single token has no TPOT and keeps it.
    fn kept_by(&self, outcome: &Outcome) -> bool {
        let kept = |objective: Option<f64>, seconds: f64| {
            objective.is_none_or(|limit_ms| seconds * 1e3 <= limit_ms)
        };
        kept(self.ttft_ms, outcome.ttft_s)
            && kept(self.tpot_ms, outcome.tpot_s().unwrap_or(0.0))
            && kept(self.e2el_ms, outcome.e2el_s())
    }
}

/// All figures as the JSON object that `vllm bench serve --save-result --save-detailed` writes, with
/// `offered`, `good`, `tpots` and `e2els` on top.
pub fn figures(
    outcomes: &[Outcome],
    duration_s: f64,
    objectives: &Objectives,
) -> Map<String, Value> {
    let good: Vec<&Outcome> = outcomes.iter().filter(|o| o.succeeded()).collect();
    let completed = good.len();
    let within = good.iter().filter(|o| objectives.kept_by(o)).count();
    let sum = |tokens: fn(&Outcome) -> u32| good.iter().map(|o| u64::from(tokens(o))).sum::<u64>();
    let (input, output) = (sum(|o| o.input_tokens), sum(|o| o.output_tokens));
    let rate = |count: f64| {
        if duration_s > 0.0 {
            count / duration_s
        } else {
            0.0
        }
    };
    let failed = outcomes.len() - completed;
    let mut map = Map::new();
    let mut put = |name: &str, value: Value| drop(map.insert(name.to_owned(), value));
    put("duration", json!(duration_s));
    put("num_prompts", json!(outcomes.len()));
    put("offered", json!(outcomes.len()));
    put("completed", json!(completed));
    put("failed", json!(failed));
    put("total_input_tokens", json!(input));
    put("total_output_tokens", json!(output));
    put("request_throughput", json!(rate(completed as f64)));
    put("output_throughput", json!(rate(output as f64)));
    put(
        "total_token_throughput",
        json!(rate((input + output) as f64)),
    );
    let slo = objectives.any();
    put("request_goodput", json!(slo.then(|| rate(within as f64))));
    put("good", json!(slo.then_some(within)));
    let ttfts: Vec<f64> = good.iter().map(|o| o.ttft_s).collect();
    let tpots: Vec<f64> = good.iter().filter_map(|o| o.tpot_s()).collect();
    let itls: Vec<f64> = good.iter().flat_map(|o| o.itl_s.iter().copied()).collect();
    let e2els: Vec<f64> = good.iter().map(|o| o.e2el_s()).collect();
    for (name, seconds) in [
        ("ttft", &ttfts),
        ("tpot", &tpots),
        ("itl", &itls),
        ("e2el", &e2els),
    ] {
        summarise(name, seconds, &mut put);
    }
    put("ttfts", json!(ttfts));
    put("tpots", json!(tpots));
    put("e2els", json!(e2els));
    put(
        "itls",
        json!(good.iter().map(|o| &o.itl_s).collect::<Vec<_>>()),
    );
    put(
        "input_lens",
        json!(good.iter().map(|o| o.input_tokens).collect::<Vec<_>>()),
    );
    put(
        "output_lens",
        json!(good.iter().map(|o| o.output_tokens).collect::<Vec<_>>()),
    );
    let errors = outcomes.iter().filter(|o| !o.succeeded()).map(|o| &o.error);
    put("errors", json!(errors.collect::<Vec<_>>()));
    map
}

fn summarise(name: &str, seconds: &[f64], put: &mut impl FnMut(&str, Value)) {
    let ms: Vec<f64> = seconds.iter().map(|s| s * 1e3).collect();
    let count = ms.len() as f64;
    let mean = (!ms.is_empty()).then(|| ms.iter().sum::<f64>() / count);
    let std = mean.map(|mean| (ms.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count).sqrt());
    put(&format!("mean_{name}_ms"), json!(mean));
    put(&format!("median_{name}_ms"), json!(percentile(&ms, 50.0)));
    put(&format!("std_{name}_ms"), json!(std));
    for percent in PERCENTILES {
        let value = (ms.len() >= samples_needed(percent))
            .then(|| percentile(&ms, percent))
            .flatten();
        put(&format!("p{percent}_{name}_ms"), json!(value));
    }
}

/// The samples below which a percentile is refused.
pub fn samples_needed(percent: f64) -> usize {
    ((1.0 - CERTAINTY).ln() / (percent / 100.0).ln()).ceil() as usize
}

/// numpy's default: linear between the two nearest.
fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = percent / 100.0 * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ttft_s: f64, itl_s: &[f64], output_tokens: u32) -> Outcome {
        Outcome {
            ttft_s,
            itl_s: itl_s.to_vec(),
            input_tokens: 10,
            output_tokens,
            ..Outcome::default()
        }
    }

    fn failed() -> Outcome {
        Outcome {
            error: "503".to_owned(),
            ..Outcome::default()
        }
    }

    fn close(value: &Value, expected: f64) {
        let value = value.as_f64().unwrap();
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    #[test]
    fn figures_by_hand() {
        let outcomes = [
            outcome(0.1, &[0.02, 0.04], 3),
            // Two tokens in one chunk: TPOT is by tokens, ITL by chunks.
            outcome(0.3, &[0.06], 3),
            outcome(0.2, &[], 1),
            failed(),
        ];
        let f = figures(&outcomes, 2.0, &Objectives::default());
        assert_eq!(
            (&f["offered"], &f["completed"], &f["failed"]),
            (&json!(4), &json!(3), &json!(1))
        );
        close(&f["request_throughput"], 1.5);
        close(&f["output_throughput"], 3.5);
        close(&f["total_token_throughput"], 18.5);
        close(&f["mean_ttft_ms"], 200.0);
        close(&f["median_ttft_ms"], 200.0);
        // The population's standard deviation: sqrt((100² + 100²) / 3).
        close(&f["std_ttft_ms"], (20_000.0_f64 / 3.0).sqrt());
        // 0.06 / 2 and 0.06 / 2; the answer of one token has none.
        close(&f["mean_tpot_ms"], 30.0);
        assert_eq!(f["tpots"].as_array().unwrap().len(), 2);
        close(&f["mean_itl_ms"], 40.0);
        close(&f["mean_e2el_ms"], (160.0 + 360.0 + 200.0) / 3.0);
        assert!(f["request_goodput"].is_null());
        assert_eq!(f["errors"], json!(["503"]));
    }

    #[test]
    fn a_good_request_keeps_all_objectives() {
        let outcomes = [
            outcome(0.1, &[0.02], 2),
            outcome(0.3, &[0.02], 2),
            outcome(0.1, &[0.05], 2),
            outcome(0.1, &[], 1),
            failed(),
        ];
        let objectives = Objectives {
            ttft_ms: Some(200.0),
            tpot_ms: Some(40.0),
            e2el_ms: None,
        };
        let f = figures(&outcomes, 2.0, &objectives);
        assert_eq!(f["good"], json!(2));
        close(&f["request_goodput"], 1.0);
    }

    #[test]
    fn thin_data_have_no_p99() {
        assert_eq!(samples_needed(99.0), 459);
        assert_eq!(
            (
                samples_needed(95.0),
                samples_needed(90.0),
                samples_needed(50.0)
            ),
            (90, 44, 7)
        );
        let p99 = |count: usize| {
            let outcomes = vec![outcome(0.1, &[], 1); count];
            figures(&outcomes, 1.0, &Objectives::default())["p99_ttft_ms"].clone()
        };
        assert_eq!(p99(458), Value::Null);
        close(&p99(459), 100.0);
    }

    #[test]
    fn percentiles_are_linear_between_neighbours() {
        assert_eq!(percentile(&[4.0, 1.0, 2.0, 3.0], 50.0), Some(2.5));
        assert_eq!(percentile(&[1.0, 2.0], 25.0), Some(1.25));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn without_success_there_are_no_latencies() {
        let f = figures(&[failed()], 1.0, &Objectives::default());
        assert_eq!(f["mean_ttft_ms"], Value::Null);
        assert_eq!(f["failed"], json!(1));
    }
}
