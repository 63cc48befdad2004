// SPDX-License-Identifier: GPL-2.0-only
//! What the users of a server see: latencies of requests, goodput, failures, beside the quiet cells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cells::{Cells, Rounds};
use super::over::Yardsticks;
use crate::record::neighbour::Neighbour;
use crate::record::{LlmClient, Measurement};
use gpuaware_stats::{Estimate, Scale};

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
    /// The p99 over that of the arm's own quiet cells, and of the arm that reserves CPUs beside the same neighbour.
    #[serde(default)]
    pub p99_over_own_quiet: Option<Estimate>,
    #[serde(default)]
    pub p99_over_isolcpus: Option<Estimate>,
    /// Mean over mean of the quiet cells: what studies publish. A mean needs few requests.
    #[serde(default)]
    pub mean_of_clean: Option<Estimate>,
}

type Figure = fn(&LlmClient) -> &[f64];

pub(super) fn serving(cells: &Cells) -> Vec<Serving> {
    cells
        .each_row()
        .filter_map(|(workload, neighbour, arm)| row(cells, workload, neighbour, arm))
        .collect()
}

fn row(cells: &Cells, workload: &str, neighbour: Neighbour, arm: &str) -> Option<Serving> {
    let rounds = cells.rounds(workload, neighbour, arm);
    let clean = cells.reference(workload, arm);
    let yardsticks = Yardsticks::of(cells, workload, neighbour, arm);
    let latency = |figure: Figure| latency(cells, &rounds, &clean, &yardsticks, figure);
    let clients: Vec<&LlmClient> = rounds
        .values()
        .filter_map(|m| m.workload.client())
        .collect();
    if clients.is_empty() {
        return None;
    }
    let good = rounds.iter().filter_map(|(round, m)| {
        let client = m.workload.client()?;
        let share = client.good? as f64 / client.offered.max(1) as f64;
        Some((*round, share))
    });
    Some(Serving {
        workload: workload.to_owned(),
        neighbour,
        arm: arm.to_owned(),
        offered: clients.iter().map(|client| client.offered).sum(),
        failed: clients.iter().map(|client| client.failed).sum(),
        good: cells
            .mean(good, Scale::Plain)
            .map(|share| share.within(0.0, 1.0)),
        ttft: latency(|client| &client.ttfts),
        tpot: latency(|client| &client.tpots),
        e2el: latency(|client| &client.e2els),
    })
}

fn latency(
    cells: &Cells,
    rounds: &Rounds,
    clean: &Rounds,
    yardsticks: &Yardsticks,
    figure: Figure,
) -> Latency {
    let ms = |m: &Measurement| -> Option<Vec<f64>> {
        let seconds = figure(m.workload.client()?);
        Some(seconds.iter().map(|s| s * 1e3).collect())
    };
    let own: BTreeMap<u32, Vec<f64>> = rounds
        .iter()
        .filter_map(|(round, m)| Some((*round, ms(m)?)))
        .collect();
    let pairs = Cells::pairs(rounds, clean);
    let means = pairs.iter().filter_map(|(round, (above, below))| {
        Some((*round, mean(&ms(above)?)? / mean(&ms(below)?)?))
    });
    let over = |below: &Rounds| cells.p99_ratio(&Cells::pairs(rounds, below), ms);
    Latency {
        samples: own.values().map(Vec::len).sum(),
        p50_ms: cells.percentile(&own, 50.0),
        p99_ms: cells.p99(&own),
        p99_of_clean: cells.p99_ratio(&pairs, ms),
        p99_over_own_quiet: over(&yardsticks.own_quiet),
        p99_over_isolcpus: over(&yardsticks.reserved),
        mean_of_clean: cells.mean(means, Scale::Log),
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    (sum > 0.0).then(|| sum / values.len() as f64)
}
