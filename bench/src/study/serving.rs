// SPDX-License-Identifier: GPL-2.0-only
//! What the users of a server see: latencies of requests, goodput, failures, beside the quiet cells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cells::Cells;
use crate::record::neighbour::Neighbour;
use crate::record::{LlmClient, Measurement};
use crate::stats::{self, Estimate, P99_MIN_SAMPLES};

/// One arm beside one neighbour, all rounds together. Ratios are over the quiet cells that the arm's
/// shares of clean refer to, paired by round; below 1 is faster than clean.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Serving {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    pub offered: u64,
    pub failed: u64,
    /// Share of the offered requests that kept the objectives; absent: there are none.
    pub good: Option<Estimate>,
    pub ttft: Latency,
    pub tpot: Latency,
    pub e2el: Latency,
}

/// One latency of a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Latency {
    pub samples: usize,
    pub p50_ms: Option<Estimate>,
    /// Absent below 459 samples, as the ratio is.
    pub p99_ms: Option<Estimate>,
    pub p99_of_clean: Option<Estimate>,
    /// Mean over mean of the quiet cells: what studies publish. A mean needs few requests.
    #[serde(default)]
    pub mean_of_clean: Option<Estimate>,
}

type Figure = fn(&LlmClient) -> &[f64];
type Rounds<'a> = BTreeMap<u32, &'a Measurement>;

pub(super) fn serving(cells: &Cells) -> Vec<Serving> {
    cells
        .each_row()
        .filter_map(|(workload, neighbour, arm)| row(cells, workload, neighbour, arm))
        .collect()
}

fn row(cells: &Cells, workload: &str, neighbour: Neighbour, arm: &str) -> Option<Serving> {
    let rounds = cells.rounds(workload, neighbour, arm);
    let clean = cells.reference(workload, arm);
    let clients: Vec<&LlmClient> = rounds
        .values()
        .filter_map(|m| m.workload.client())
        .collect();
    if clients.is_empty() {
        return None;
    }
    let good: Vec<f64> = clients
        .iter()
        .filter_map(|client| Some(client.good? as f64 / client.offered.max(1) as f64))
        .collect();
    Some(Serving {
        workload: workload.to_owned(),
        neighbour,
        arm: arm.to_owned(),
        offered: clients.iter().map(|client| client.offered).sum(),
        failed: clients.iter().map(|client| client.failed).sum(),
        good: stats::median_of_rounds(&good),
        ttft: latency(&rounds, &clean, |client| &client.ttfts),
        tpot: latency(&rounds, &clean, |client| &client.tpots),
        e2el: latency(&rounds, &clean, |client| &client.e2els),
    })
}

fn latency(rounds: &Rounds, clean: &Rounds, figure: Figure) -> Latency {
    let ms = |m: &Measurement| -> Option<Vec<f64>> {
        let seconds = figure(m.workload.client()?);
        Some(seconds.iter().map(|s| s * 1e3).collect())
    };
    let own: Vec<Vec<f64>> = rounds.values().filter_map(|m| ms(m)).collect();
    let own: Vec<&[f64]> = own.iter().map(Vec::as_slice).collect();
    let samples = own.iter().map(|round| round.len()).sum();
    let pairs: Vec<(Vec<f64>, Vec<f64>)> = Cells::pairs(rounds, clean)
        .into_iter()
        .filter_map(|(above, below)| Some((ms(above)?, ms(below)?)))
        .collect();
    let pairs: Vec<(&[f64], &[f64])> = pairs
        .iter()
        .map(|(above, below)| (above.as_slice(), below.as_slice()))
        .collect();
    let paired = |of: fn(&(&[f64], &[f64])) -> usize| pairs.iter().map(of).sum::<usize>();
    let fewest = paired(|(above, _)| above.len()).min(paired(|(_, below)| below.len()));
    let enough = samples >= P99_MIN_SAMPLES;
    Latency {
        samples,
        p50_ms: stats::pooled_percentile(&own, 50.0),
        p99_ms: enough
            .then(|| stats::pooled_percentile(&own, 99.0))
            .flatten(),
        p99_of_clean: (fewest >= P99_MIN_SAMPLES)
            .then(|| stats::pooled_percentile_ratio(&pairs, 99.0))
            .flatten(),
        mean_of_clean: stats::median_of_rounds(
            &pairs
                .iter()
                .filter_map(|(above, below)| Some(mean(above)? / mean(below)?))
                .collect::<Vec<_>>(),
        ),
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    (sum > 0.0).then(|| sum / values.len() as f64)
}
