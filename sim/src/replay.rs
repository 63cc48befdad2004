// SPDX-License-Identifier: GPL-2.0-only
//! A recorded profile under one policy, as gpuaware-bench describes it and as it reads what came of it: JSON both ways.

use std::num::NonZero;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use gpuaware_trace::profile::{self, Profile};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cell::{self, CellScheduler, PolicySpec, check_cpus};
use crate::machine::Machine;
use crate::profiled::{self, How, OTHER, Profiled, Setting};
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
    /// Absent: as recorded.
    hz: Option<NonZero<u64>>,
    seconds: f64,
    seed: u64,
    /// What differs from the defaults.
    #[serde(default)]
    policy: PolicySpec,
    /// Absent: the default's.
    preferred: Option<Vec<usize>>,
    /// Without the neighbours.
    #[serde(default)]
    alone: bool,
    /// Of those that launch and hand over; absent: as recorded.
    launcher_cpus: Option<Vec<usize>>,
    nice: Option<i32>,
    /// Of neighbours that may run anywhere; absent: all.
    neighbour_cpus: Option<Vec<usize>>,
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
        let nr_cpus = machine.nr_cpus();
        for cpus in [&self.preferred, &self.launcher_cpus, &self.neighbour_cpus]
            .into_iter()
            .flatten()
        {
            check_cpus(cpus, nr_cpus)?;
        }
        let mut policy = self.policy.over(Policy::native(&machine));
        if let Some(preferred) = &self.preferred {
            policy.preferred.clone_from(preferred);
        }
        let setting = Setting {
            how: How {
                alone: self.alone,
                launcher_cpus: self.launcher_cpus.clone(),
                nice: self.nice,
                other_cpus: self.neighbour_cpus.clone(),
            },
            policy,
            machine,
            scheduler: self.scheduler.into(),
            hz: self.hz.map(NonZero::get),
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
            "measurement": self.measurement(outcome),
        })
    }

    /// The run as a cell of a comparison: a launcher's token is what it does from a wakeup to the next sleep, the work
    /// of the others CPU time at full speed.
    fn measurement(&self, outcome: &Outcome) -> Value {
        let launchers = || {
            let tasks = outcome.tasks.iter();
            tasks.filter(|task| task.class == Some(Class::Launch))
        };
        let seconds = outcome.length_ns as f64 / 1e9;
        let turns = launchers().flat_map(|task| &task.turns_ns);
        let token_us: Vec<f64> = turns.map(|&ns| ns as f64 / 1e3).collect();
        let switches: u64 = launchers().map(|task| task.switches).sum();
        let cpu_ns: u64 = launchers().map(|task| task.cpu_ns).sum();
        let workload = json!({
            "workload": "gpu_launch",
            "schema": 1,
            "tokens": token_us.len(),
            "seconds": seconds,
            "tokens_per_s": token_us.len() as f64 / seconds,
            "launches": token_us.len(),
            "launches_in_all": token_us.len(),
            "failures": 0,
            "context_switches": {
                "voluntary": token_us.len(),
                "involuntary": switches.saturating_sub(token_us.len() as u64),
            },
            "token_us": token_us,
            "threads": launchers().count(),
            "threads_detail": [],
            "cpu_s": { "user": cpu_ns as f64 / 1e9, "sys": 0.0 },
        });
        let others = || outcome.tasks.iter().filter(|task| task.name == OTHER);
        let work_ns: u64 = others().map(|task| task.work_ns).sum();
        let cpu_ns: u64 = others().map(|task| task.cpu_ns).sum();
        let done = (work_ns as f64 / 1e9, "CPUs");
        let work = (!self.alone).then(|| cell::work("recorded", done, cpu_ns, outcome));
        cell::measurement(self.scheduler, outcome, &workload, work.as_slice())
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
