// SPDX-License-Identifier: GPL-2.0-only
//! What a study finds, as `summary.json` keeps it and the report shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bpf::Bpf;
use super::distribution::Distribution;
use super::dominance::Dominance;
use super::pipeline::Parts;
use super::serving::Serving;
use super::softirqs::SoftIrqRow;
use super::ticks::Ticks;
use super::traced::{TracedRow, TracerCost};
use super::versus::Versus;
use crate::record::neighbour::{Kind, Neighbour};
use gpuaware_stats::Estimate;

/// Everything that the report shows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    pub schema: u32,
    pub rows: Vec<Row>,
    #[serde(default)]
    pub distributions: Vec<Distribution>,
    /// What the users of servers see; empty without a server.
    #[serde(default)]
    pub serving: Vec<Serving>,
    /// What pipelines say of their parts; empty without a pipeline.
    #[serde(default)]
    pub pipelines: Vec<Parts>,
    /// The subject against every other arm, in the same cells.
    pub versus: Vec<Versus>,
    /// Who beats the subject, in what.
    #[serde(default)]
    pub dominance: Vec<Dominance>,
    /// What an arm costs where nothing disturbs: its quiet tokens/s over the baseline's.
    pub overhead: Vec<Overhead>,
    pub marks: Vec<Marks>,
    /// What the schedulers' BPF programs cost; empty unless the matrix has it counted.
    #[serde(default)]
    pub bpf: Vec<Bpf>,
    /// Whose tokens keep to the kernel's tick; empty where its HZ is not known.
    #[serde(default)]
    pub ticks: Vec<Ticks>,
    /// What the tracer found of the launching threads; empty unless a workload is traced.
    #[serde(default)]
    pub traced: Vec<TracedRow>,
    /// What the tracer itself costs; empty without the same workload traced and untraced.
    #[serde(default)]
    pub tracer_costs: Vec<TracerCost>,
    /// Softirqs on top of the traced threads; empty unless a workload is traced into a summary.
    #[serde(default)]
    pub soft_irqs: Vec<SoftIrqRow>,
    /// Which scheduler each arm ran, by its own account.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    pub failed: Vec<FailedCell>,
    /// Rows whose neighbours are shown to have got more done than was possible: something is wrong there.
    #[serde(default)]
    pub impossible: Vec<Impossible>,
    /// Cells during which the machine did something else as well, kept or measured again.
    #[serde(default)]
    pub disturbed: Vec<DisturbedCell>,
    /// Whether the run looked for such cells; older ones did not.
    #[serde(default)]
    pub watched: bool,
    /// Beside each neighbour, what the hypervisor kept of the host's CPU time in the median cell, in percent. Empty:
    /// nobody looked.
    #[serde(default)]
    pub stolen_percent: BTreeMap<Neighbour, f64>,
}

/// One arm beside one neighbour.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    /// Rounds that were measured, and rounds that failed.
    pub rounds: usize,
    pub failed: usize,
    /// Of the measured ones, those that stayed disturbed.
    #[serde(default)]
    pub disturbed: usize,
    pub tokens_per_s: Option<Estimate>,
    /// Tokens/s over those of the quiet reference on the same kind of boot, in the same round.
    pub share_of_clean: Option<Estimate>,
    /// Tokens/s over those of the arm's own quiet cell in the same round.
    #[serde(default)]
    pub over_own_quiet: Option<Estimate>,
    /// Tokens/s over those of the arm that reserves CPUs, beside the same neighbour in the same round.
    #[serde(default)]
    pub over_isolcpus: Option<Estimate>,
    pub token_p50_ms: Option<Estimate>,
    pub token_p99_ms: Option<Estimate>,
    /// The p99 over those two, paired by round.
    #[serde(default)]
    pub p99_over_own_quiet: Option<Estimate>,
    #[serde(default)]
    pub p99_over_isolcpus: Option<Estimate>,
    /// Tokens of all rounds; below 459 there is no p99.
    pub token_samples: usize,
    pub switches_per_1000_launches: Option<Estimate>,
    /// Each neighbour's work over that under the baseline in the same round.
    pub work: BTreeMap<Kind, Estimate>,
    /// Their geometric mean.
    pub work_mean: Option<Estimate>,
    /// CPUs that the launcher kept busy: its launching threads, of a server all threads.
    #[serde(default)]
    pub launcher_cpus: Option<Estimate>,
    /// What it left at most: the other CPUs over those that it left under the baseline in the same round.
    #[serde(default)]
    pub possible: Option<Estimate>,
    /// The neighbours' mean work over that.
    #[serde(default)]
    pub work_of_possible: Option<Estimate>,
    pub idle_percent: Option<Estimate>,
    pub cpu_s_per_1000_launches: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Overhead {
    pub workload: String,
    pub arm: String,
    pub ratio: Estimate,
}

/// Whether the scheduler found the launching threads by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    pub workload: String,
    pub arm: String,
    /// That these threads should have; older summaries do not say so: launch.
    #[serde(default)]
    pub class: String,
    pub cells: usize,
    pub marked: usize,
    pub delay_ms_median: Option<f64>,
    pub delay_ms_max: Option<f64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FailedCell {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    pub round: u32,
    pub reason: String,
    /// Something that the arm needs is not there.
    #[serde(default)]
    pub cannot_run: bool,
}

/// A row whose neighbours got more done than the launcher left them, beyond the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Impossible {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    pub work_of_possible: Estimate,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DisturbedCell {
    pub workload: String,
    pub neighbour: Neighbour,
    pub arm: String,
    pub round: u32,
    /// Of what is kept; empty: measured again until nothing disturbed it.
    pub reasons: Vec<String>,
    /// Measurements that were thrown away.
    pub discarded: usize,
}
