// SPDX-License-Identifier: GPL-2.0-only
//! What became of one figure of one row from a run to another.

use crate::record::neighbour::Neighbour;
use gpuaware_stats::{Difference, Estimate, SPEED_MARGIN, TAIL_MARGIN};

/// Which figure is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Tokens/s; beside a neighbour the share of clean, which forgives a host that became slower.
    Speed,
    /// The highest percentile that the boots of both runs have the samples for.
    Tail(Latency, u32),
    /// Of a server's requests offered, how many were answered.
    Answered,
    /// Cells that failed: one more than before is worse, without any statistics.
    Failures,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latency {
    /// A token's; of a server the time since the one before (ITL).
    Token,
    /// Of a server's requests.
    Ttft,
    Tpot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Better,
    Worse,
    /// The interval covers no change.
    NoDifference,
    TooFewBoots,
}

/// One figure of one row: the second run over the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    pub figure: Figure,
    /// That each of the two runs has of it; of failures, how many.
    pub count: usize,
    pub ratio: Option<f64>,
    /// At the corrected level.
    pub interval: Option<[f64; 2]>,
    pub verdict: Verdict,
}

impl Change {
    /// What the interval at the corrected level says, where it covers no change.
    pub fn difference(&self) -> Difference {
        let margin = match self.figure {
            Figure::Tail(..) => TAIL_MARGIN,
            _ => SPEED_MARGIN,
        };
        Estimate::new(self.ratio.unwrap_or(1.0), self.interval).difference(margin)
    }
}

impl Figure {
    pub fn name(self) -> String {
        let (latency, percent) = match self {
            Self::Speed => return "tokens/s".to_owned(),
            Self::Answered => return "answered".to_owned(),
            Self::Failures => return "failed cells".to_owned(),
            Self::Tail(latency, percent) => (latency, percent),
        };
        let of = match latency {
            Latency::Token => "latency",
            Latency::Ttft => "TTFT",
            Latency::Tpot => "TPOT",
        };
        format!("p{percent} {of}")
    }

    pub(super) fn is_better(self, ratio: f64) -> bool {
        match self {
            Self::Speed | Self::Answered => ratio > 1.0,
            Self::Tail(..) | Self::Failures => ratio < 1.0,
        }
    }
}
