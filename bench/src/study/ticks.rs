// SPDX-License-Identifier: GPL-2.0-only
//! Which arms' tokens wait for the kernel's tick. A scheduler that takes a CPU away only when a tick comes makes a token
//! end near a multiple of it: its figures are then those of the kernel's HZ as much as its own.

use serde::{Deserialize, Serialize};

use super::cells::{measured, token_ms};
use crate::plan::Plan;
use crate::record::Cell;
use crate::record::neighbour::Neighbour;

/// A token this near to a multiple of the tick counts.
pub const WITHIN_MS: f64 = 0.15;

/// How the tokens of a row lie beside the tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ticks {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    /// Share of its tokens that took a multiple of the tick, at least one.
    pub share: f64,
}

/// Milliseconds from tick to tick.
pub fn tick_ms(hz: u32) -> f64 {
    1e3 / f64::from(hz)
}

/// The share that tokens of arbitrary length have.
pub fn by_chance(hz: u32) -> f64 {
    (2.0 * WITHIN_MS / tick_ms(hz)).min(1.0)
}

/// Every row that has tokens, on a kernel whose tick comes `hz` times a second; arms with a kernel of their own are
/// left out, whose tick may be another.
pub fn ticks(plan: &Plan, cells: &[Cell], hz: u32) -> Vec<Ticks> {
    let cells = measured(plan, cells);
    let of_this_kernel = |arm: &str| {
        let own = plan
            .arms
            .get(arm)
            .is_some_and(|arm| arm.boot.kernel.is_some());
        !own
    };
    cells
        .each_row()
        .filter(|&(.., arm)| of_this_kernel(arm))
        .filter_map(|(workload, neighbour, arm)| {
            let rounds = cells.rounds(workload, neighbour, arm);
            // What an item takes from end to end is a sum of many waits, and no token's time.
            if rounds.values().any(|m| m.workload.pipeline().is_some()) {
                return None;
            }
            let rounds = token_ms(&rounds);
            let tokens: Vec<f64> = rounds.into_values().flatten().collect();
            Some(Ticks {
                workload: workload.to_owned(),
                neighbour,
                arm: arm.to_owned(),
                share: share(&tokens, tick_ms(hz))?,
            })
        })
        .collect()
}

/// `None`: there are no tokens.
fn share(tokens_ms: &[f64], tick_ms: f64) -> Option<f64> {
    let keeps = |&&token: &&f64| {
        let nearest = (token / tick_ms).round().max(1.0) * tick_ms;
        (token - nearest).abs() <= WITHIN_MS
    };
    let kept = tokens_ms.iter().filter(keeps).count();
    (!tokens_ms.is_empty()).then(|| kept as f64 / tokens_ms.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples::plan;
    use crate::record::samples::cell;

    #[test]
    fn a_token_of_less_than_a_tick_keeps_to_none() {
        assert_eq!(
            share(&[0.1, 3.84, 3.86, 4.14, 4.16, 8.0, 6.0], 4.0),
            Some(3.0 / 7.0)
        );
        assert_eq!(share(&[0.05], 4.0), Some(0.0));
        assert_eq!(share(&[], 4.0), None);
    }

    #[test]
    fn chance_follows_from_the_tick() {
        assert!((by_chance(250) - 0.075).abs() < 1e-9);
        assert!((by_chance(1000) - 0.3).abs() < 1e-9);
        assert_eq!(by_chance(10_000), 1.0);
    }

    #[test]
    fn every_row_has_the_share_of_all_its_rounds() {
        // Tokens of 8 ms keep to a tick of 4 ms, those of 10 ms do not.
        let cells = [
            cell(1, "eevdf", Neighbour::Cpu, 125.0),
            cell(2, "eevdf", Neighbour::Cpu, 100.0),
            cell(1, "gpuaware", Neighbour::Cpu, 100.0),
        ];
        let found = ticks(&plan(), &cells, 250);
        let shares: Vec<(&str, f64)> = found
            .iter()
            .map(|row| (row.arm.as_str(), row.share))
            .collect();
        assert_eq!(shares, [("eevdf", 0.5), ("gpuaware", 0.0)]);
        assert_eq!(ticks(&plan(), &cells, 100)[1].share, 1.0);
    }

    #[test]
    fn an_arm_with_another_kernel_is_left_out() {
        let mut plan = plan();
        let own = plan.arms.get_mut("gpuaware").unwrap();
        own.boot.kernel = Some("6.1".to_owned());
        let cells = [cell(1, "gpuaware", Neighbour::Cpu, 125.0)];
        assert!(ticks(&plan, &cells, 250).is_empty());
    }
}
