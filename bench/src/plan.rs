// SPDX-License-Identifier: GPL-2.0-only
//! The order of a run, settled before it begins: boots, rounds, arms and cells, shuffled from one
//! seed. Pure; the plan is written beside the results, so that a run can be understood and resumed.
//!
//! The words of a run, here and in the reports:
//! - *arm*: one way to run the launcher, such as a scheduler or a tuning.
//! - *neighbour*: the noise beside it; *none* is the quiet machine.
//! - *cell*: one workload beside one neighbour under one arm, measured once for the matrix's seconds.
//! - *turn*: one arm's cells in one round, one after another under one start of its scheduler.
//! - *round*: a turn of each arm of a group, in random order; the unit that is repeated.
//! - *group*: the arms that have the same kernel and kernel command line.
//! - *block*: one boot of a group, and the rounds that are measured on it.

use std::collections::BTreeMap;

use clap::ValueEnum;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::arm::{Arm, Boot};
use crate::matrix::Matrix;
use crate::record::CellKey;
use crate::record::neighbour::Neighbour;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Where {
    /// In virtual machines, one boot for every group of arms.
    #[default]
    Lab,
    /// On this machine as it is booted now.
    Host,
    /// In gpuaware-sim: the BPF source in a model of the kernel. docs/simulator.md says how far to trust it.
    Sim,
}

/// The group of the arms that need no boot of their own.
pub const SHARED: &str = "shared";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub schema: u32,
    pub name: String,
    pub matrix: Matrix,
    pub arms: BTreeMap<String, Arm>,
    /// CPUs that the arms may use for the launcher, and how many there are in all.
    pub preferred: String,
    pub cpus: usize,
    pub seed: u64,
    pub started_unix_ms: u64,
    /// What was typed, to repeat it.
    pub command_line: String,
    /// Where its cells run.
    #[serde(default)]
    pub on: Where,
    /// The machine that is simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Its callbacks cost what they take on a CPU that is not emulated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub native: bool,
    pub blocks: Vec<Block>,
}

/// Some rounds of the arms of one boot group, on one boot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Block {
    pub group: String,
    pub boot_args: Vec<String>,
    /// Absent: the matrix's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    pub rounds: Vec<Round>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    pub round: u32,
    pub turns: Vec<Turn>,
}

/// One arm's cells in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub arm: String,
    pub cells: Vec<(Neighbour, String)>,
}

impl Plan {
    /// All cells in the order of the plan.
    pub fn keys(&self) -> impl Iterator<Item = CellKey> + '_ {
        self.blocks.iter().flat_map(Block::keys)
    }

    /// Which boot a round was on, as intervals count boots. Every group has as many boots with the same rounds, in
    /// pairs that follow one another, so this holds for pairs of arms too. Where there is but one boot, as on a host,
    /// each round counts as one: intervals hold for that boot then.
    pub fn boot_of(&self, round: u32) -> u32 {
        let has = |block: &&Block| block.rounds.iter().any(|known| known.round == round);
        match (self.boots(), self.blocks.iter().find(has)) {
            (2.., Some(found)) => {
                let group = self.blocks.iter().filter(|b| b.group == found.group);
                let before = group.take_while(|block| !has(block)).count();
                u32::try_from(before).unwrap_or(u32::MAX)
            }
            _ => round,
        }
    }

    /// Boots that each arm was measured on.
    pub fn boots(&self) -> usize {
        match (self.on, self.blocks.first()) {
            (Where::Lab, Some(first)) => {
                let same = self.blocks.iter().filter(|b| b.group == first.group);
                same.count()
            }
            _ => 1,
        }
    }

    /// The boot group of an arm.
    pub fn group(&self, arm: &str) -> String {
        self.arms
            .get(arm)
            .map_or_else(|| SHARED.to_owned(), |found| group_of(arm, found))
    }
}

impl Block {
    pub fn keys(&self) -> impl Iterator<Item = CellKey> + '_ {
        self.rounds.iter().flat_map(|round| {
            round.turns.iter().flat_map(move |turn| {
                turn.cells.iter().map(move |(neighbour, workload)| CellKey {
                    round: round.round,
                    arm: turn.arm.clone(),
                    neighbour: *neighbour,
                    workload: workload.clone(),
                })
            })
        })
    }

    /// The arms of the block, each once.
    pub fn arms(&self) -> Vec<&str> {
        let mut arms: Vec<&str> = self
            .rounds
            .iter()
            .flat_map(|round| round.turns.iter().map(|turn| turn.arm.as_str()))
            .collect();
        arms.sort_unstable();
        arms.dedup();
        arms
    }
}

fn group_of(name: &str, arm: &Arm) -> String {
    if arm.boot.own_boot {
        name.to_owned()
    } else {
        SHARED.to_owned()
    }
}

/// Lays out the boots: every group `boots` times, in the order A B B A. Also where a group follows itself: the cells of
/// one boot are more alike than those of two, and an interval over rounds must see that.
pub fn blocks(matrix: &Matrix, arms: &BTreeMap<String, Arm>, seed: u64) -> Vec<Block> {
    let mut groups: Vec<(String, &Boot, Vec<&str>)> = Vec::new();
    for name in &matrix.arms {
        let arm = &arms[name];
        let group = group_of(name, arm);
        match groups.iter_mut().find(|(known, ..)| *known == group) {
            Some((_, _, members)) => members.push(name),
            None => groups.push((group, &arm.boot, vec![name])),
        }
    }
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut blocks: Vec<Block> = Vec::new();
    for (turn, rounds) in chunks(matrix.rounds, matrix.boots).into_iter().enumerate() {
        let mut order: Vec<_> = groups.iter().collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for (group, boot, members) in order {
            let shuffled = rounds
                .iter()
                .map(|&round| shuffled_round(matrix, members, round, &mut rng));
            blocks.push(Block {
                group: group.clone(),
                boot_args: boot.args.clone(),
                kernel: boot.kernel.clone(),
                rounds: shuffled.collect(),
            });
        }
    }
    blocks
}

fn shuffled_round(matrix: &Matrix, members: &[&str], round: u32, rng: &mut Pcg64Mcg) -> Round {
    let mut turns: Vec<Turn> = members
        .iter()
        .map(|arm| {
            let mut cells: Vec<(Neighbour, String)> = matrix
                .neighbours
                .iter()
                .flat_map(|&neighbour| {
                    let workloads = matrix.workloads.iter();
                    workloads
                        .filter(move |workload| workload.is_measured(neighbour, arm))
                        .map(move |workload| (neighbour, workload.name.clone()))
                })
                .collect();
            cells.shuffle(rng);
            Turn {
                arm: (*arm).to_owned(),
                cells,
            }
        })
        .collect();
    turns.shuffle(rng);
    Round { round, turns }
}

/// Splits rounds 1..=`rounds` into at most `parts` runs of nearly equal length, longer ones first.
fn chunks(rounds: u32, parts: u32) -> Vec<Vec<u32>> {
    let parts = parts.min(rounds).max(1);
    let mut next = 1;
    (0..parts)
        .map(|part| {
            let length = rounds / parts + u32::from(part < rounds % parts);
            let chunk = (next..next + length).collect();
            next += length;
            chunk
        })
        .collect()
}

#[cfg(test)]
pub mod samples {
    use super::*;

    /// Five boots of one round, of isolcpus as of the others.
    pub fn matrix() -> Matrix {
        Matrix::parse(
            r#"
description = "sample"
rounds = 5
seconds = 2.5
boots = 5
neighbours = ["none", "cpu", "heavy"]
arms = ["eevdf", "isolcpus", "gpuaware"]
[[workload]]
name = "qwen3"
profile = "qwen3"
[[workload]]
name = "eager"
profile = "eager"
"#,
        )
    }

    pub fn arms() -> BTreeMap<String, Arm> {
        let arm = |text: &str| toml::from_str::<Arm>(text).unwrap();
        BTreeMap::from([
            ("eevdf".to_owned(), arm("description = \"e\"")),
            ("gpuaware".to_owned(), arm("description = \"g\"")),
            (
                "isolcpus".to_owned(),
                arm("description = \"i\"\n[boot]\nown_boot = true\nargs = [\"isolcpus=1\"]"),
            ),
        ])
    }

    pub fn plan() -> Plan {
        Plan {
            schema: crate::record::SCHEMA,
            name: "sample".to_owned(),
            matrix: matrix(),
            arms: arms(),
            preferred: "1".to_owned(),
            cpus: 2,
            seed: 7,
            started_unix_ms: 0,
            command_line: "gpuaware-bench run sample".to_owned(),
            on: Where::Lab,
            machine: None,
            native: false,
            blocks: blocks(&matrix(), &arms(), 7),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cell_comes_exactly_once() {
        let plan = samples::plan();
        let keys: Vec<CellKey> = plan.keys().collect();
        assert_eq!(keys.len(), plan.matrix.cells());
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    }

    fn with_boots(boots: u32) -> Plan {
        let mut plan = samples::plan();
        plan.matrix.boots = boots;
        plan.blocks = blocks(&plan.matrix, &plan.arms, 7);
        plan
    }

    #[test]
    fn rounds_know_their_boot_and_on_one_boot_stand_for_themselves() {
        let boots = |plan: &Plan| (1..=5).map(|round| plan.boot_of(round)).collect::<Vec<_>>();
        let mut plan = with_boots(2);
        assert_eq!((plan.boots(), boots(&plan)), (2, vec![0, 0, 0, 1, 1]));
        plan.on = Where::Host;
        assert_eq!((plan.boots(), boots(&plan)), (1, vec![1, 2, 3, 4, 5]));
        let five = with_boots(5);
        assert_eq!((five.boots(), boots(&five)), (5, vec![0, 1, 2, 3, 4]));
        let one = with_boots(1);
        assert_eq!((one.boots(), boots(&one)), (1, vec![1, 2, 3, 4, 5]));
    }

    #[test]
    fn boots_alternate() {
        let plan = with_boots(2);
        let order: Vec<(&str, Vec<u32>)> = plan
            .blocks
            .iter()
            .map(|block| {
                (
                    block.group.as_str(),
                    block.rounds.iter().map(|r| r.round).collect(),
                )
            })
            .collect();
        assert_eq!(
            order,
            [
                ("shared", vec![1, 2, 3]),
                ("isolcpus", vec![1, 2, 3]),
                ("isolcpus", vec![4, 5]),
                ("shared", vec![4, 5])
            ]
        );
        assert_eq!(plan.blocks[1].boot_args, ["isolcpus=1"]);
        assert_eq!(plan.blocks[0].arms(), ["eevdf", "gpuaware"]);
        assert_eq!(plan.group("isolcpus"), "isolcpus");
        assert_eq!(plan.group("gpuaware"), "shared");
    }

    #[test]
    fn a_matrix_without_boots_of_its_own_is_booted_as_often() {
        let (mut matrix, arms) = (samples::matrix(), samples::arms());
        matrix.boots = 2;
        matrix.arms.retain(|arm| arm != "isolcpus");
        let blocks = blocks(&matrix, &arms, 7);
        let rounds: Vec<usize> = blocks.iter().map(|block| block.rounds.len()).collect();
        assert_eq!(rounds, [3, 2]);
    }

    #[test]
    fn an_arm_with_a_kernel_of_its_own_has_its_own_boots() {
        let (mut matrix, mut arms) = (samples::matrix(), samples::arms());
        matrix.arms.push("cfs".to_owned());
        let cfs = "description = \"c\"\n[boot]\nown_boot = true\nkernel = \"6.1\"";
        arms.insert("cfs".to_owned(), toml::from_str(cfs).unwrap());
        for block in blocks(&matrix, &arms, 7) {
            let own = block.group == "cfs";
            assert_eq!(block.kernel.as_deref(), own.then_some("6.1"));
            assert_eq!(block.arms() == ["cfs"], own);
        }
    }

    #[test]
    fn the_seed_settles_the_order() {
        let (matrix, arms) = (samples::matrix(), samples::arms());
        assert_eq!(blocks(&matrix, &arms, 1), blocks(&matrix, &arms, 1));
        assert_ne!(blocks(&matrix, &arms, 1), blocks(&matrix, &arms, 2));
    }

    #[test]
    fn rounds_are_split_evenly() {
        assert_eq!(chunks(5, 2), [vec![1, 2, 3], vec![4, 5]]);
        assert_eq!(chunks(2, 3), [vec![1], vec![2]]);
        assert_eq!(chunks(1, 1), [vec![1]]);
    }
}
