// SPDX-License-Identifier: GPL-2.0-only
//! Simulated runs of the same thing twice: what the statistics must not find. Cells that are alike here are so by
//! construction; docs/bench.md says how to try it with measured ones.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::compare::{GATE, Run, Verdict, compare};
use super::overlap::overlap;
use super::study;
use crate::plan::samples::plan;
use crate::record::neighbour::Neighbour;
use crate::record::{Cell, WorkloadReport, samples};

const NEIGHBOURS: [Neighbour; 3] = [Neighbour::None, Neighbour::Cpu, Neighbour::Heavy];
const TOKENS: usize = 370;

struct Dice(Pcg64Mcg);

impl Dice {
    /// The sum of twelve uniform draws is nearly normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.0.random::<f64>()).sum::<f64>() - 6.0
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.0.random::<f64>()).ln()
    }
}

/// Five rounds of two arms that are alike, as the lab's cells spread: rounds and cells by 1 %, the tokens of a
/// cell by 6 %, and 2 % of the tokens are held up by half their time and more.
fn run(seed: u64) -> Vec<Cell> {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
    let mut cells = Vec::new();
    for round in 1..=5 {
        let round_factor = 0.01 * dice.normal();
        for arm in ["eevdf", "gpuaware"] {
            for neighbour in NEIGHBOURS {
                let base_us = 6500.0 * (round_factor + 0.01 * dice.normal()).exp();
                cells.push(cell(round, arm, neighbour, base_us, &mut dice));
            }
        }
    }
    cells
}

fn cell(round: u32, arm: &str, neighbour: Neighbour, base_us: f64, dice: &mut Dice) -> Cell {
    let mut token = || {
        let held_up = dice.0.random::<f64>() < 0.02;
        let extra = if held_up {
            0.5 * dice.exponential()
        } else {
            0.0
        };
        base_us * (0.06 * dice.normal()).exp() * (1.0 + extra)
    };
    let token_us: Vec<f64> = (0..TOKENS).map(|_| token()).collect();
    let seconds = token_us.iter().sum::<f64>() / 1e6;
    let mut cell = samples::cell(round, arm, neighbour, TOKENS as f64 / seconds);
    let measurement = cell.measurement.as_mut().unwrap();
    if let WorkloadReport::GpuLaunch(launch) = &mut measurement.workload {
        launch.token_us = token_us;
    }
    cell
}

/// Whether eevdf's second run is found better or worse than its first, all rows and figures together.
fn finds_something(seed: u64, gate: f64) -> bool {
    let plan = plan();
    let (a, b) = (run(2 * seed), run(2 * seed + 1));
    let of = |cells| Run { plan: &plan, cells };
    let arms = ["eevdf".to_owned()];
    let changes = compare(gate, &of(&a), &of(&b), &arms);
    let judged: Vec<_> = changes.iter().filter(|change| change.rounds > 0).collect();
    assert_eq!(judged.len(), 2 * NEIGHBOURS.len());
    judged.iter().any(|c| c.verdict != Verdict::NoDifference)
}

/// 5 % for the 20 runs together: at 5 % for each, one of them would be expected to find something.
#[test]
fn eevdf_against_eevdf_has_no_verdict_in_20_of_20_runs() {
    let found: Vec<u64> = (0..20)
        .filter(|&seed| finds_something(seed, 0.05 / 20.0))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

/// At the default gate `compare` errs in 1 % of its runs, at 5 % in as many: of 500, five and 25 are expected, and
/// more than 13 and 43 have a chance below 0.1 %.
#[test]
fn compare_errs_as_seldom_as_its_gate_says() {
    for (gate, most) in [(GATE, 13), (0.05, 43)] {
        let wrong = (100..600)
            .filter(|&seed| finds_something(seed, gate))
            .count();
        assert!(
            wrong <= most,
            "{wrong} of 500 runs found something at {gate}"
        );
    }
}

#[test]
fn of_two_runs_of_the_same_95_percent_of_the_intervals_overlap() {
    let (plan, arms) = (plan(), ["eevdf", "gpuaware"].map(str::to_owned));
    let mut sum = (0, 0);
    for seed in 0..20 {
        let [a, b] = [5000 + 2 * seed, 5001 + 2 * seed].map(|seed| study(&plan, &run(seed)));
        let found = overlap(&a, &b, &arms);
        // Six rows; tokens/s, share, p50, p99, idle; the baseline's share beside nobody is no figure.
        assert_eq!(found.all, 6 * 5 - 1);
        // Idle time is the same in all cells: it would only dilute.
        let idle = 6;
        sum = (sum.0 + found.overlapping - idle, sum.1 + found.all - idle);
    }
    assert!(sum.0 * 100 >= sum.1 * 95, "{sum:?}");
}
