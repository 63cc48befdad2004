// SPDX-License-Identifier: GPL-2.0-only
//! The whole distribution of token latencies, in as many points as a picture needs.

use serde::{Deserialize, Serialize};

use super::cells::{Cells, token_ms};
use crate::record::neighbour::Neighbour;

/// Points of a curve, both ends included.
const POINTS: usize = 101;

/// One arm beside one neighbour, tokens of all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Distribution {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    /// The least latency, then a step of 1 % each up to the greatest.
    pub quantiles_ms: Vec<f64>,
}

pub(super) fn distributions(cells: &Cells) -> Vec<Distribution> {
    cells
        .each_row()
        .filter_map(|(workload, neighbour, arm)| {
            let rounds = token_ms(&cells.rounds(workload, neighbour, arm));
            let mut all: Vec<f64> = rounds.into_values().flatten().collect();
            all.sort_by(f64::total_cmp);
            let last = all.len().checked_sub(1)?;
            let at = |step: usize| all[(step * last).div_ceil(POINTS - 1)];
            Some(Distribution {
                workload: workload.to_owned(),
                neighbour,
                arm: arm.to_owned(),
                quantiles_ms: (0..POINTS).map(at).collect(),
            })
        })
        .collect()
}
