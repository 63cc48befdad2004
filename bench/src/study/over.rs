// SPDX-License-Identifier: GPL-2.0-only
//! A row over another one, paired by round: over the arm's own quiet cells, and over the arm that reserves CPUs.

use std::collections::BTreeMap;

use super::cells::{Cells, Rounds};
use crate::record::Measurement;
use crate::record::neighbour::Neighbour;

/// The two rows that every row is set against.
pub(super) struct Yardsticks<'a> {
    pub own_quiet: Rounds<'a>,
    /// Empty: nobody reserves CPUs.
    pub reserved: Rounds<'a>,
}

impl<'a> Yardsticks<'a> {
    pub fn of(cells: &Cells<'a>, workload: &str, neighbour: Neighbour, arm: &str) -> Self {
        let reserved = cells.plan.matrix.reserved_arm();
        Self {
            own_quiet: cells.rounds(workload, Neighbour::None, arm),
            reserved: reserved
                .map(|reserved| cells.rounds(workload, neighbour, reserved))
                .unwrap_or_default(),
        }
    }
}

/// Tokens/s over tokens/s, a value a round.
pub(super) fn speed(above: &Rounds, below: &Rounds) -> BTreeMap<u32, f64> {
    let ratio = |(round, m): (&u32, &&Measurement)| {
        let below = below.get(round)?.workload.tokens_per_s();
        (below > 0.0).then(|| (*round, m.workload.tokens_per_s() / below))
    };
    above.iter().filter_map(ratio).collect()
}
