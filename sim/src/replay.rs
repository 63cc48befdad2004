// SPDX-License-Identifier: GPL-2.0-only
//! A recorded profile under one policy, as gpuaware-bench describes it and as it reads what came of it: JSON both ways.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use gpuaware_trace::profile::{self, Profile};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cell::{CellScheduler, PolicySpec};
use crate::machine::Machine;
use crate::profiled::{self, Profiled, Setting};
use crate::report;
use crate::setup::{Class, Policy};
use crate::simulation::Outcome;

/// Which profile, where, under which scheduler.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaySpec {
    pub profile: PathBuf,
    /// As for `--machine`; absent: the profile's own.
    pub machine: Option<String>,
    scheduler: CellScheduler,
    seconds: f64,
    seed: u64,
    /// What differs from the defaults.
    #[serde(default)]
    policy: PolicySpec,
}

impl ReplaySpec {
    /// On `machine`; `None`: the profile's own.
    pub fn scenario(&self, profile: &Profile, machine: Option<Machine>) -> Result<Profiled> {
        ensure!(
            (1e-3..=1000.0).contains(&self.seconds),
            "seconds: expected 0.001 to 1000, got {}",
            self.seconds
        );
        let machine = match machine {
            Some(machine) => machine,
            None => profiled::machine(&profile.machine)?,
        };
        let setting = Setting {
            policy: self.policy.over(Policy::default_for(&machine)),
            machine,
            scheduler: self.scheduler.into(),
            hz: None,
            length_ns: (self.seconds * 1e9) as u64,
            seed: self.seed,
        };
        Profiled::new(profile, setting)
    }

    /// What the bench makes a table of.
    pub fn result(&self, profile: &Profile, profiled: &Profiled, outcome: &Outcome) -> Value {
        let of = |class, of_profile| of_class(profile, outcome, class, of_profile);
        json!({
            "machine": report::machine(&profiled.scenario.machine),
            "notes": profiled.notes,
            "launch": of(Some(Class::Launch), profile::Class::Launch),
            "handoff": of(Some(Class::Handoff), profile::Class::Handoff),
            "background": of(None, profile::Class::Background),
        })
    }
}

/// CPU time in CPUs, waits from a wakeup to a CPU.
fn of_class(
    profile: &Profile,
    outcome: &Outcome,
    class: Option<Class>,
    of_profile: profile::Class,
) -> Value {
    let tasks: Vec<_> = (outcome.tasks.iter())
        .filter(|task| task.class == class)
        .collect();
    let mut waits: Vec<u64> = tasks
        .iter()
        .flat_map(|task| task.waits_ns.iter().copied())
        .collect();
    waits.sort_unstable();
    let us = |share| (!waits.is_empty()).then(|| report::quantile(&waits, share) as f64 / 1e3);
    let cpus = |ns: u64| ns as f64 / outcome.length_ns as f64;
    // Real-time ones are no tasks of the model.
    let recorded = profile
        .groups
        .iter()
        .filter(|group| group.class == of_profile && group.policy != profile::Policy::RealTime);
    let recorded_ns: u64 = recorded.map(|group| group.cpu_ns).sum();
    json!({
        "tasks": tasks.len(),
        "waits": waits.len(),
        "wait_p50_us": us(0.5),
        "wait_p99_us": us(0.99),
        "cpus": cpus(tasks.iter().map(|task| task.cpu_ns).sum()),
        "work_cpus": cpus(tasks.iter().map(|task| task.work_ns).sum()),
        "recorded_cpus": recorded_ns as f64 / profile.length_ns as f64,
    })
}
