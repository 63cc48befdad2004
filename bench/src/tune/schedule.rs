// SPDX-License-Identifier: GPL-2.0-only
//! How the time of a tuning is spent: rungs of a successive halving, and what is left for the proof. Pure.
//!
//! Successive halving (Karnin, Koren and Somekh, ICML 2013; Jamieson and Talwalkar, AISTATS 2016): every rung has as
//! much time, and the better half of its candidates goes on to the next.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the proof needs at least: with fewer rounds Student's interval is too wide to show anything.
pub const MIN_ROUNDS: u32 = 5;
/// More than these show nothing that a fleet would notice.
const MAX_ROUNDS: u32 = 20;
const MAX_SIFT_ROUNDS: u32 = 5;
/// So many go to the proof.
const FINALISTS: usize = 3;
/// The kernel's own scheduler and the default stand beside them.
const BESIDE_FINALISTS: usize = 2;
const BESIDE_SIFTED: usize = 1;

/// What one arm costs in one round and, to warm up, on one boot; and what a boot costs, on a host nothing.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    pub sift_turn: Duration,
    pub verify_turn: Duration,
    pub warm_up: Duration,
    pub boot: Duration,
}

/// One step of the sifting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    pub candidates: usize,
    pub rounds: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub rungs: Vec<Rung>,
    /// How many are verified.
    pub finalists: usize,
    /// Proposals for which there is no time: the last ones.
    pub left_out: usize,
}

impl Costs {
    pub fn sift(&self, rung: Rung) -> Duration {
        let arms = (rung.candidates + BESIDE_SIFTED) as u32;
        self.boot + (self.warm_up + self.sift_turn * rung.rounds) * arms
    }

    /// Each round of the proof has a boot of its own.
    pub fn verify(&self, finalists: usize, rounds: u32) -> Duration {
        let arms = (finalists + BESIDE_FINALISTS) as u32;
        (self.boot + (self.warm_up + self.verify_turn) * arms) * rounds
    }

    /// Rounds of the proof that fit into `left`.
    pub fn verify_rounds(&self, finalists: usize, left: Duration) -> u32 {
        let round = self.verify(finalists, 1).as_secs_f64();
        ((left.as_secs_f64() / round) as u32).clamp(MIN_ROUNDS, MAX_ROUNDS)
    }
}

/// How `candidates`, the likeliest first, are tried within `budget`.
///
/// # Errors
/// The budget is too short for one verified candidate: the least that is long enough.
pub fn schedule(candidates: usize, budget: Duration, costs: &Costs) -> Result<Schedule, Duration> {
    let least = costs.verify(1, MIN_ROUNDS);
    if budget < least || candidates == 0 {
        return Err(least);
    }
    // Half the time is for the proof, more where that does not do for one.
    let finalists = (1..=FINALISTS.min(candidates))
        .rev()
        .find(|&count| costs.verify(count, MIN_ROUNDS) * 2 <= budget)
        .unwrap_or(1);
    let reserved = (budget / 2).max(costs.verify(finalists, MIN_ROUNDS));
    let sifting = budget.saturating_sub(reserved);
    let (taken, rungs) = (finalists + 1..=candidates)
        .rev()
        .find_map(|count| Some((count, rungs(count, finalists, sifting, costs)?)))
        .unwrap_or((finalists, Vec::new()));
    Ok(Schedule {
        rungs,
        finalists,
        left_out: candidates - taken,
    })
}

/// `None`: there is no time for a round of each.
fn rungs(count: usize, finalists: usize, budget: Duration, costs: &Costs) -> Option<Vec<Rung>> {
    let sizes: Vec<usize> = std::iter::successors(Some(count), |&size| {
        Some(size.div_ceil(2)).filter(|&next| next > finalists && next < size)
    })
    .collect();
    let each = budget / sizes.len() as u32;
    let rung = |&candidates: &usize| {
        let fits = |rounds: &u32| {
            costs.sift(Rung {
                candidates,
                rounds: *rounds,
            }) <= each
        };
        let rounds = (1..=MAX_SIFT_ROUNDS).rev().find(fits)?;
        Some(Rung { candidates, rounds })
    };
    sizes.iter().map(rung).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        sift_turn: Duration::from_secs(6),
        verify_turn: Duration::from_secs(8),
        warm_up: Duration::from_secs(2),
        boot: Duration::from_secs(15),
    };

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(60 * minutes)
    }

    #[test]
    fn halves_until_as_many_are_left_as_can_be_proved() {
        let schedule = schedule(12, minutes(20), &COSTS).unwrap();
        let sizes: Vec<usize> = schedule.rungs.iter().map(|rung| rung.candidates).collect();
        assert_eq!(
            (sizes, schedule.finalists, schedule.left_out),
            (vec![12, 6], 3, 0)
        );
        assert!(schedule.rungs[1].rounds > schedule.rungs[0].rounds);
        let sift: Duration = schedule.rungs.iter().map(|rung| COSTS.sift(*rung)).sum();
        assert!(sift + COSTS.verify(3, MIN_ROUNDS) <= minutes(20));
    }

    #[test]
    fn a_short_budget_leaves_the_least_likely_out_and_a_shorter_one_is_refused() {
        let short = schedule(12, minutes(8), &COSTS).unwrap();
        assert!(short.left_out > 0 && short.finalists == 1, "{short:?}");
        // Three arms and a boot, five times.
        assert_eq!(
            schedule(12, minutes(3), &COSTS),
            Err(Duration::from_secs(225))
        );
        let least = schedule(12, Duration::from_secs(225), &COSTS).unwrap();
        assert_eq!(
            (least.rungs.len(), least.finalists, least.left_out),
            (0, 1, 11)
        );
    }

    #[test]
    fn few_candidates_need_no_sifting() {
        let schedule = schedule(2, minutes(30), &COSTS).unwrap();
        assert_eq!(
            (schedule.rungs.len(), schedule.finalists, schedule.left_out),
            (0, 2, 0)
        );
    }

    #[test]
    fn what_time_is_left_goes_into_the_proof_within_bounds() {
        assert_eq!(COSTS.verify_rounds(1, minutes(6)), 8);
        assert_eq!(COSTS.verify_rounds(1, minutes(1)), MIN_ROUNDS);
        assert_eq!(COSTS.verify_rounds(1, minutes(600)), MAX_ROUNDS);
    }
}
