// SPDX-License-Identifier: GPL-2.0-only
//! The subject against every other arm: ratios in the same cells, paired by round or, where the two have boots of
//! their own, by boot.

use serde::{Deserialize, Serialize};

use super::cells::{Cells, work_ratios};
use crate::record::neighbour::Neighbour;
use crate::record::{LlmClient, Measurement};
use crate::stats::{Estimate, Scale};

/// Ratios of the subject over another arm; above 1 the subject has more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Versus {
    pub workload: String,
    pub neighbour: Neighbour,
    pub subject: String,
    pub other: String,
    pub share_of_clean: Option<Estimate>,
    /// Absent as well when either side has too few tokens.
    pub token_p99: Option<Estimate>,
    /// Of servers: absent as well when either side has too few requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_p99: Option<Estimate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_p99: Option<Estimate>,
    /// Geometric mean over the kinds of neighbour.
    pub work: Option<Estimate>,
    /// Idle CPU in percentage points, subject minus other.
    pub idle_points: Option<Estimate>,
}

pub(super) fn versus(cells: &Cells) -> Vec<Versus> {
    let subject = &cells.plan.matrix.subject;
    cells
        .each_row()
        .filter(|(_, _, arm)| arm != subject)
        .map(|(workload, neighbour, other)| pair(cells, workload, neighbour, subject, other))
        .collect()
}

fn pair(cells: &Cells, workload: &str, neighbour: Neighbour, subject: &str, other: &str) -> Versus {
    let above = cells.rounds(workload, neighbour, subject);
    let below = cells.rounds(workload, neighbour, other);
    let pairs = Cells::pairs(&above, &below);
    let other_shares = cells.shares(workload, neighbour, other);
    let shares = cells
        .shares(workload, neighbour, subject)
        .into_iter()
        .filter_map(|(round, share)| Some((round, share / other_shares.get(&round)?)));
    let idle = pairs
        .iter()
        .map(|(round, (a, b))| (*round, a.cpu.idle_percent - b.cpu.idle_percent));
    Versus {
        workload: workload.to_owned(),
        neighbour,
        subject: subject.to_owned(),
        other: other.to_owned(),
        share_of_clean: cells.mean(shares, Scale::Log),
        token_p99: cells.p99_ratio(&pairs, |m| Some(m.workload.token_ms())),
        ttft_p99: cells.p99_ratio(&pairs, |m| requests(m, |client| &client.ttfts)),
        tpot_p99: cells.p99_ratio(&pairs, |m| requests(m, |client| &client.tpots)),
        work: cells.mean_work(&work_ratios(&pairs)),
        idle_points: cells.mean(idle, Scale::Plain),
    }
}

fn requests(m: &Measurement, latency: fn(&LlmClient) -> &[f64]) -> Option<Vec<f64>> {
    Some(latency(m.workload.client()?).to_vec())
}
