// SPDX-License-Identifier: GPL-2.0-only
//! What is possible: the CPU time that the launcher uses itself is no scheduler's loss. The neighbours can get at
//! most the other CPUs, and the more the faster the launcher is, the less.

use std::collections::BTreeMap;

use super::cells::{Cells, mean_ratio, work_ratio};
use crate::record::Measurement;
use crate::record::neighbour::Neighbour;

/// One arm beside one neighbour, a value a round.
#[derive(Debug, Default)]
pub(super) struct Possible {
    pub launcher_cpus: BTreeMap<u32, f64>,
    /// CPUs that the launcher left, over those that it left under the baseline.
    pub possible: BTreeMap<u32, f64>,
    /// The neighbours' work over that under the baseline, over what was possible.
    pub work_of_possible: BTreeMap<u32, f64>,
}

impl Possible {
    pub fn of(cells: &Cells, workload: &str, neighbour: Neighbour, arm: &str) -> Self {
        let rounds = cells.rounds(workload, neighbour, arm);
        let baseline = cells.rounds(workload, neighbour, &cells.plan.matrix.baseline);
        let left = |m: &Measurement| {
            let left = cells.plan.cpus as f64 - m.workload.launcher_cpus()?;
            (left > 0.0).then_some(left)
        };
        let mut found = Self::default();
        for (&round, m) in &rounds {
            let cpus = m.workload.launcher_cpus();
            found.launcher_cpus.extend(cpus.map(|cpus| (round, cpus)));
            // Nobody is there to get anything done.
            let below = baseline
                .get(&round)
                .filter(|_| neighbour != Neighbour::None);
            let Some(below) = below else { continue };
            let possible = left(m).zip(left(below)).map(|(own, base)| own / base);
            let Some(possible) = possible else { continue };
            found.possible.insert(round, possible);
            let work = mean_ratio(&work_ratio(m, below));
            found
                .work_of_possible
                .extend(work.map(|work| (round, work / possible)));
        }
        found
    }
}
