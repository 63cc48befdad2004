// SPDX-License-Identifier: GPL-2.0-only
//! A recorded profile as a scenario, on the machine where it was recorded or on another one. Threads that came and went
//! are as many as there were at a time, with what they did in all; real-time ones are the model's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use anyhow::{Result, ensure};
use gpuaware_trace::profile::{self, Affinity, Count, Group, Histogram, Profile};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::cell::weight;
use crate::higher::{Above, Higher};
use crate::interrupts::Interrupts;
use crate::machine::{Machine, MachineCpu};
use crate::native::Scheduler;
use crate::overhead::Costs;
use crate::program::Program;
use crate::recorded::{Recorded, Wakes};
use crate::scenario::{Scenario, TaskSpec};
use crate::setup::{Class, Policy};

/// The name of tasks that are neighbours of those that launch and hand over.
pub const OTHER: &str = "background";
/// More tasks than this are no host's.
const MAX_TASKS: u64 = 65_536;
/// Of `SCHED_IDLE`, as a `cpu.weight`.
const IDLE_WEIGHT: u32 = 1;
/// Tells what is drawn here from what tasks draw.
const STARTS: u64 = 0x7072;
const DEFAULT_HZ: u32 = 250;

/// The machine of a profile.
///
/// # Errors
/// It is larger than the model's largest.
pub fn machine(recorded: &profile::Machine) -> Result<Machine> {
    let mut llcs = BTreeMap::new();
    let cpus = recorded.cpus.iter().map(|cpu| {
        let next = llcs.len();
        let same = |&other: &usize| recorded.cpus[other].core == cpu.core;
        MachineCpu {
            llc: *llcs.entry(cpu.llc).or_insert(next),
            node: cpu.node,
            core: (0..recorded.cpus.len()).filter(same).collect(),
        }
    });
    let cpus = cpus.collect();
    Machine {
        cpus,
        nr_llcs: llcs.len(),
        gpus: recorded.gpus.clone(),
    }
    .checked()
}

/// How a profile is run.
pub struct Setting {
    pub machine: Machine,
    pub scheduler: Scheduler,
    pub policy: Policy,
    /// `None`: as recorded.
    pub hz: Option<u64>,
    pub length_ns: u64,
    pub seed: u64,
    pub how: How,
}

/// What a comparison makes of it. By default all that was recorded, where and as it was.
#[derive(Debug, Clone, Default)]
pub struct How {
    /// Without the neighbours of those that launch and hand over.
    pub alone: bool,
    /// Where those that launch and hand over run.
    pub launcher_cpus: Option<Vec<usize>>,
    /// Their nice level.
    pub nice: Option<i32>,
    /// Where the others run that may run anywhere; the kernel's are left alone.
    pub other_cpus: Option<Vec<usize>>,
}

/// A scenario, and what of the profile has no place in it, in words.
#[derive(Debug)]
pub struct Profiled {
    pub scenario: Scenario,
    pub notes: Vec<String>,
}

/// A group's tasks are those with these numbers.
#[derive(Clone, Copy)]
struct Tasks {
    first: usize,
    count: usize,
}

/// Of the wakeups of a group, so many are one's that it works with.
const PARTNERS_PART: u64 = 10;

/// Which groups are neighbours of those that launch and hand over: neither the kernel's, nor of those that these wait
/// for, nor of those that such wait for.
fn others(groups: &[Group]) -> Vec<bool> {
    let is_other = |group: &Group| group.class == profile::Class::Background && !group.kernel;
    let mut others: Vec<bool> = groups.iter().map(is_other).collect();
    let mut found: Vec<usize> = (0..groups.len())
        .filter(|&at| !groups[at].kernel && !others[at])
        .collect();
    while let Some(at) = found.pop() {
        let by = &groups[at].woken_by;
        let all =
            by.timer + by.interrupt + by.unknown + by.groups.iter().map(|one| one.1).sum::<u64>();
        for &(waker, times) in &by.groups {
            if others[waker] && times > 0 && times * PARTNERS_PART >= all {
                others[waker] = false;
                found.push(waker);
            }
        }
    }
    others
}

/// How many threads of a group there were at a time, rounded up.
fn at_a_time(group: &Group, length_ns: u64) -> u64 {
    group.alive_ns.div_ceil(length_ns).clamp(1, group.threads)
}

impl Profiled {
    /// What `profile` does, in `setting`.
    ///
    /// # Errors
    /// More threads than the model has room for.
    pub fn new(profile: &Profile, setting: Setting) -> Result<Self> {
        let all = profile.groups.iter();
        let nr_tasks: u64 = all.map(|group| at_a_time(group, profile.length_ns)).sum();
        ensure!(
            nr_tasks <= MAX_TASKS,
            "groups: {nr_tasks} threads at a time, the simulator has room for {MAX_TASKS}"
        );
        let hz = setting
            .hz
            .unwrap_or(profile.hz.unwrap_or(DEFAULT_HZ).into());
        let Setting {
            machine,
            scheduler,
            length_ns,
            seed,
            ..
        } = setting;
        let scenario = Scenario {
            policy: setting.policy,
            costs: Costs {
                tick_ns: (1_000_000_000 / hz).max(1),
                ..Costs::default()
            },
            ..Scenario::new(machine, scheduler, length_ns, seed)
        };
        let mut making = Making {
            profile,
            how: setting.how,
            others: others(&profile.groups),
            scenario,
            rng: Pcg64Mcg::seed_from_u64(seed ^ STARTS),
            unpinned: 0,
        };
        let tasks = making.add_tasks();
        making.add_recorded(&tasks);
        making.add_interrupts();
        Ok(making.finish())
    }
}

struct Making<'a> {
    profile: &'a Profile,
    how: How,
    others: Vec<bool>,
    scenario: Scenario,
    rng: Pcg64Mcg,
    /// Threads whose CPUs the machine does not have.
    unpinned: u64,
}

impl Making<'_> {
    /// Those of each group one after the other; `None`: the group's are real-time ones, or left out.
    fn add_tasks(&mut self) -> Vec<Option<Tasks>> {
        let groups = self.profile.groups.iter().enumerate();
        groups
            .map(|(at, group)| {
                let count = at_a_time(group, self.profile.length_ns) as usize;
                if self.how.alone && self.others[at] {
                    return None;
                }
                if group.policy == profile::Policy::RealTime {
                    (0..count).for_each(|thread| self.add_above(group, thread, count));
                    return None;
                }
                let first = self.scenario.tasks.len();
                for thread in 0..count {
                    let task = self.task(at, thread);
                    self.scenario.tasks.push(task);
                }
                Some(Tasks { first, count })
            })
            .collect()
    }

    fn task(&mut self, at: usize, thread: usize) -> TaskSpec {
        let group = &self.profile.groups[at];
        let (name, class) = match group.class {
            profile::Class::Launch => ("launcher", Some(Class::Launch)),
            profile::Class::Handoff => ("handoff", Some(Class::Handoff)),
            profile::Class::Background if group.kernel => ("kernel", None),
            profile::Class::Background if self.others[at] => (OTHER, None),
            profile::Class::Background => ("partner", None),
        };
        let nr_gpus = self.scenario.machine.gpus.len();
        let is_launcher = class == Some(Class::Launch) && nr_gpus > 0;
        // Somewhere in what it does from one run to the next: in a run, or so far before it.
        let run_ns = group.run.mean_ns().unwrap_or(0);
        let at_ns = self.rng.random_range(0..=self.cycle_ns(group));
        TaskSpec {
            class,
            cpus: self.placed(at, thread),
            weight: match group.policy {
                profile::Policy::Idle => IDLE_WEIGHT,
                _ => weight(
                    self.how
                        .nice
                        .filter(|_| class.is_some())
                        .unwrap_or(group.nice),
                ),
            },
            is_kthread: group.kernel,
            gpu: is_launcher.then(|| thread % nr_gpus),
            start_ns: at_ns.saturating_sub(run_ns),
            ..TaskSpec::new(name, Program::Recorded(at))
        }
    }

    /// From the begin of one run to that of the next, where nobody is in the way.
    fn cycle_ns(&self, group: &Group) -> u64 {
        let busy_ns = group.alive_ns.saturating_sub(group.ready_ns);
        let tasks = at_a_time(group, self.profile.length_ns);
        let absent_ns = (tasks * self.profile.length_ns).saturating_sub(group.alive_ns);
        (busy_ns + absent_ns) / group.run.count().max(1)
    }

    /// Where the comparison wants it, else where it was.
    fn placed(&mut self, at: usize, thread: usize) -> Option<Vec<usize>> {
        let group = &self.profile.groups[at];
        let own = match group.class {
            profile::Class::Launch | profile::Class::Handoff => self.how.launcher_cpus.clone(),
            profile::Class::Background => None,
        };
        let recorded = own.or_else(|| self.cpus(group, thread));
        recorded.or_else(|| self.how.other_cpus.clone().filter(|_| self.others[at]))
    }

    fn cpus(&mut self, group: &Group, thread: usize) -> Option<Vec<usize>> {
        let cpus = match &group.affinity {
            Affinity::All => return None,
            Affinity::AnyOf(cpus) => cpus.clone(),
            Affinity::Each(cpus) => vec![cpus[thread % cpus.len()]],
        };
        let nr_cpus = self.scenario.machine.nr_cpus();
        let cpus: Vec<usize> = cpus.into_iter().map(|cpu| cpu as usize).collect();
        if cpus.iter().any(|&cpu| cpu >= nr_cpus) {
            self.unpinned += 1;
            return None;
        }
        Some(cpus)
    }

    fn add_above(&mut self, group: &Group, thread: usize, count: usize) {
        let runs = group.run.count().max(1);
        let period_ns = (self.profile.length_ns * count as u64 / runs).max(2);
        let lasts_ns = (group.cpu_ns / runs).clamp(1, period_ns / 2);
        let nr_cpus = self.scenario.machine.nr_cpus();
        let cpus = self.cpus(group, thread);
        let cpu = match &cpus {
            Some(cpus) => cpus[thread % cpus.len()],
            None => thread % nr_cpus,
        };
        let start_ns = self.rng.random_range(0..=period_ns);
        self.scenario.above.push(Above {
            class: Higher::RealTime,
            cpu,
            start_ns,
            period_ns,
            lasts_ns,
        });
    }

    fn add_recorded(&mut self, tasks: &[Option<Tasks>]) {
        let groups = &self.profile.groups;
        let mut all: Vec<Recorded> = groups.iter().map(|group| self.recorded(group)).collect();
        for (woken, at) in groups.iter().zip(tasks) {
            let Some(Tasks { first, count }) = *at else {
                continue;
            };
            for &(waker, times) in &woken.woken_by.groups {
                // Real-time ones wake nobody in the model.
                if tasks[waker].is_some() && times > 0 {
                    let runs = groups[waker].run.count().max(1);
                    all[waker].wakes.push(Wakes {
                        first,
                        count,
                        times,
                        runs,
                    });
                }
            }
        }
        for (recorded, group) in all.iter_mut().zip(groups) {
            let known = group.woken_by.groups.iter();
            let known = known.filter(|(waker, _)| tasks[*waker].is_some());
            recorded.known = known.map(|(_, times)| times).sum();
        }
        self.scenario.recorded = all.into_iter().map(Arc::new).collect();
    }

    fn recorded(&self, group: &Group) -> Recorded {
        let tasks = at_a_time(group, self.profile.length_ns);
        let absent_ns = (tasks * self.profile.length_ns).saturating_sub(group.alive_ns);
        Recorded {
            run: (&group.run).into(),
            alone: (&group.sleep_alone).into(),
            awaited: (&group.sleep_awaited).into(),
            gap_ns: absent_ns / group.run.count().max(1),
            yield_every_ns: group.cpu_ns.checked_div(group.yielded).unwrap_or(0),
            ..Recorded::default()
        }
    }

    /// As many as came, at even distances. Those from other CPUs are the scheduler's own, which the model has.
    fn add_interrupts(&mut self) {
        let nr_cpus = self.scenario.machine.nr_cpus();
        for (cpu, own) in self.profile.interrupts.iter().take(nr_cpus).enumerate() {
            for Count(count, all_ns) in [own.hard, own.soft, own.timer] {
                let lasts_ns = all_ns.checked_div(count).unwrap_or(0);
                let period_ns = self.profile.length_ns.checked_div(count).unwrap_or(0);
                if lasts_ns > 0 && period_ns > lasts_ns {
                    self.scenario.interrupts.push(Interrupts {
                        cpu,
                        period_ns,
                        lasts_ns,
                    });
                }
            }
        }
    }

    fn finish(self) -> Profiled {
        let (here, there) = (
            self.scenario.machine.nr_cpus(),
            self.profile.machine.cpus.len(),
        );
        let mut notes = Vec::new();
        if self.unpinned > 0 {
            notes.push(format!(
                "{} threads may run anywhere: they were bound to CPUs that a machine of {here} does not have",
                self.unpinned
            ));
        }
        if here < there {
            notes.push(format!(
                "interrupts of CPUs {here} to {} are left out",
                there - 1
            ));
        }
        Profiled {
            scenario: self.scenario.arranged(),
            notes,
        }
    }
}

/// What was recorded, for people: beside what is simulated.
pub fn table(profile: &Profile) -> String {
    let mut text = format!(
        "{:<10} {:>6} {:>8} {:>10} {:>9} {:>9}\n",
        "recorded", "number", "CPUs", "runs/s", "p50 µs <", "p99 µs <"
    );
    let kinds: BTreeSet<_> = profile.groups.iter().map(kind).collect();
    for kind_of in kinds {
        let groups = profile.groups.iter().filter(|group| kind(group) == kind_of);
        let mut waits = Histogram::default();
        let (mut number, mut cpu_ns, mut runs) = (0, 0, 0);
        for group in groups {
            waits.merge(&group.wait);
            number += at_a_time(group, profile.length_ns);
            cpu_ns += group.cpu_ns;
            runs += group.run.count();
        }
        let seconds = profile.length_ns as f64 / 1e9;
        let us = |share| {
            let below = waits.below_ns(share);
            below.map_or("-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3))
        };
        let _ = writeln!(
            text,
            "{kind_of:<10} {number:>6} {:>8.2} {:>10.0} {:>9} {:>9}",
            cpu_ns as f64 / 1e9 / seconds,
            runs as f64 / seconds,
            us(0.5),
            us(0.99)
        );
    }
    text
}

fn kind(group: &Group) -> &'static str {
    match group.class {
        _ if group.policy == profile::Policy::RealTime => "real-time",
        profile::Class::Launch => "launcher",
        profile::Class::Handoff => "handoff",
        profile::Class::Background if group.kernel => "kernel",
        profile::Class::Background => "background",
    }
}

#[cfg(test)]
mod tests;
