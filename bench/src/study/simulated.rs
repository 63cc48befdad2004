// SPDX-License-Identifier: GPL-2.0-only
//! Simulated runs of arms that are all alike, as the lab's cells spread: what statistics must not find a difference in.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::plan::{self, Plan};
use crate::record::neighbour::{Kind, Neighbour, Work};
use crate::record::{Cell, WorkloadReport, samples};

pub const NEIGHBOURS: [Neighbour; 3] = [Neighbour::None, Neighbour::Cpu, Neighbour::Heavy];
const TOKENS: usize = 370;
/// Microseconds of a token.
pub const BASE_US: f64 = 6500.0;
/// Tokens vary by so much, and so many are held up, by half their time in the mean.
pub const TOKEN_SPREAD: f64 = 0.06;
pub const HELD_UP: f64 = 0.02;
pub const MEAN_DELAY: f64 = 0.5;
/// A boot is faster or slower by so much, and its tokens that are held up take so much longer or shorter: the p99 of
/// two boots may be a fifth apart.
const BOOT_SPREAD: f64 = 0.01;
pub const BOOT_TAIL_SPREAD: f64 = 0.1;
/// Rounds of a boot differ by so much, and so do cells of a round.
const ROUND_SPREAD: f64 = 0.01;

pub struct Dice(Pcg64Mcg);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// The sum of twelve uniform draws is nearly normal.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.0.random::<f64>()).sum::<f64>() - 6.0
    }

    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.0.random::<f64>()).ln()
    }

    pub fn happens(&mut self, chance: f64) -> bool {
        self.0.random::<f64>() < chance
    }

    /// How many times the usual a token takes on a boot with such a tail.
    pub fn token(&mut self, tail: f64) -> f64 {
        let usual = (TOKEN_SPREAD * self.normal()).exp();
        if self.happens(HELD_UP) {
            return usual * (1.0 + MEAN_DELAY * self.exponential()) * tail.exp();
        }
        usual
    }
}

/// The sample plan with so many boots of its five rounds.
pub fn plan_of(boots: u32) -> Plan {
    let mut plan = plan::samples::plan();
    plan.matrix.boots = boots;
    plan.matrix.workloads.truncate(1);
    plan.blocks = plan::blocks(&plan.matrix, &plan.arms, 7);
    plan
}

/// All cells of the plan, whose arms are alike.
pub fn run(plan: &Plan, seed: u64) -> Vec<Cell> {
    let mut dice = Dice::new(seed);
    let mut cells = Vec::new();
    for block in &plan.blocks {
        let boot = BOOT_SPREAD * dice.normal();
        let tail = BOOT_TAIL_SPREAD * dice.normal();
        for round in &block.rounds {
            let round_factor = boot + ROUND_SPREAD * dice.normal();
            for turn in &round.turns {
                for &neighbour in &NEIGHBOURS {
                    let factor = round_factor + ROUND_SPREAD * dice.normal();
                    cells.push(cell(
                        round.round,
                        &turn.arm,
                        neighbour,
                        [factor, tail],
                        &mut dice,
                    ));
                }
            }
        }
    }
    cells
}

fn cell(
    round: u32,
    arm: &str,
    neighbour: Neighbour,
    [factor, tail]: [f64; 2],
    dice: &mut Dice,
) -> Cell {
    let base_us = BASE_US * factor.exp();
    let token_us: Vec<f64> = (0..TOKENS).map(|_| base_us * dice.token(tail)).collect();
    let seconds = token_us.iter().sum::<f64>() / 1e6;
    let mut cell = samples::cell(round, arm, neighbour, TOKENS as f64 / seconds);
    let measurement = cell.measurement.as_mut().unwrap();
    if let WorkloadReport::GpuLaunch(launch) = &mut measurement.workload {
        launch.token_us = token_us;
    }
    measurement.cpu.idle_percent = 10.0 + dice.normal();
    let rates = neighbour.kinds().iter().map(|&kind: &Kind| Work {
        kind,
        rate: 100.0 * (0.1 * dice.normal() - factor).exp(),
        unit: String::new(),
        own_total: 1.0,
        own_seconds: 1.0,
        window_evidence: 1,
        total_evidence: 1,
        evidence_unit: String::new(),
    });
    measurement.neighbours = rates.collect();
    cell
}
