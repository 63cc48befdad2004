// SPDX-License-Identifier: GPL-2.0-only
//! The subject against every other arm: ratios in the same cells, paired by round or, where the two have boots of
//! their own, by boot.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cells::{Cells, quotient, work_ratios};
use super::over;
use super::possible::Possible;
use crate::record::neighbour::Neighbour;
use crate::record::{LlmClient, Measurement};
use gpuaware_stats::{Estimate, Scale};

/// Ratios of the subject over another arm; above 1 the subject has more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Versus {
    pub workload: String,
    pub neighbour: Neighbour,
    pub subject: String,
    pub other: String,
    /// The arms ran on the same boots.
    #[serde(default)]
    pub one_boot: bool,
    #[serde(default)]
    pub tokens_per_s: Option<Estimate>,
    /// Of what each arm has of its own quiet tokens/s.
    #[serde(default)]
    pub over_own_quiet: Option<Estimate>,
    /// Absent as well when either side has too few tokens.
    pub token_p99: Option<Estimate>,
    /// Of servers: absent as well when either side has too few requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_p99: Option<Estimate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_p99: Option<Estimate>,
    /// Geometric mean over the kinds of neighbour.
    pub work: Option<Estimate>,
    /// Of what each arm's neighbours got of what was possible.
    #[serde(default)]
    pub work_of_possible: Option<Estimate>,
    /// Idle CPU in percentage points, subject minus other.
    pub idle_points: Option<Estimate>,
}

impl Versus {
    /// What settles which arm is faster: of arms that ran on the same boots tokens/s; of others, whose boots may be
    /// faster or slower themselves, what each keeps of its own quiet tokens/s.
    pub fn speed(&self) -> Option<Estimate> {
        if self.one_boot {
            self.tokens_per_s
        } else {
            self.over_own_quiet
        }
    }
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
    let own_quiet = |arm: &str| {
        let rounds = cells.rounds(workload, neighbour, arm);
        over::speed(&rounds, &cells.rounds(workload, Neighbour::None, arm))
    };
    let of_possible = |arm: &str| Possible::of(cells, workload, neighbour, arm).work_of_possible;
    let over = |of: &dyn Fn(&str) -> BTreeMap<u32, f64>| {
        cells.mean(quotient(&of(subject), &of(other)), Scale::Log)
    };
    let idle = pairs
        .iter()
        .map(|(round, (a, b))| (*round, a.cpu.idle_percent - b.cpu.idle_percent));
    Versus {
        workload: workload.to_owned(),
        neighbour,
        subject: subject.to_owned(),
        other: other.to_owned(),
        one_boot: cells.plan.group(subject) == cells.plan.group(other),
        tokens_per_s: cells.mean(over::speed(&above, &below), Scale::Log),
        over_own_quiet: over(&own_quiet),
        token_p99: cells.p99_ratio(&pairs, |m| Some(m.workload.token_ms())),
        ttft_p99: cells.p99_ratio(&pairs, |m| requests(m, |client| &client.ttfts)),
        tpot_p99: cells.p99_ratio(&pairs, |m| requests(m, |client| &client.tpots)),
        work: cells.mean_work(&work_ratios(&pairs)),
        work_of_possible: over(&of_possible),
        idle_points: cells.mean(idle, Scale::Plain),
    }
}

fn requests(m: &Measurement, latency: fn(&LlmClient) -> &[f64]) -> Option<Vec<f64>> {
    Some(latency(m.workload.client()?).to_vec())
}
