// SPDX-License-Identifier: GPL-2.0-only
//! One cell of a comparison, as gpuaware-bench describes it and as it reads its result: JSON both ways. Owns what the
//! bench's launchers and neighbours are in the model. The whole run is the measured window: launchers are marked from
//! its beginning, and nobody has to be found.

use anyhow::{Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::callbacks::{LAB_NS, NATIVE_NS};
use crate::hackbench::Passing;
use crate::machine::Machine;
use crate::native::Scheduler;
use crate::overhead::Costs;
use crate::program::{Program, Tokens};
use crate::scenario::{Scenario, TaskSpec, add_kthreads};
use crate::setup::{Class, Policy};
use crate::simulation::{Outcome, TaskOutcome};

/// What runs where, under which scheduler.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellSpec {
    /// As for `--machine`.
    pub machine: String,
    pub scheduler: CellScheduler,
    pub hz: u64,
    pub seconds: f64,
    pub seed: u64,
    pub preferred: Vec<usize>,
    /// Callbacks cost what they take on a CPU that is not emulated.
    #[serde(default)]
    native: bool,
    /// What an arm changes of the policy's defaults.
    #[serde(default)]
    policy: PolicySpec,
    launcher: LauncherSpec,
    neighbours: NeighboursSpec,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellScheduler {
    Gpuaware,
    Eevdf,
    Cfs,
    Fifo,
}

impl From<CellScheduler> for Scheduler {
    fn from(of_cell: CellScheduler) -> Self {
        match of_cell {
            CellScheduler::Gpuaware => Self::Gpuaware,
            CellScheduler::Eevdf => Self::Eevdf,
            CellScheduler::Cfs => Self::Cfs,
            CellScheduler::Fifo => Self::Fifo,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PolicySpec {
    lend: Option<bool>,
    whole_core: Option<bool>,
    hold_us: Option<u64>,
    lend_yields_us: Option<u64>,
    launch_slice_us: Option<u64>,
    handoff_slice_us: Option<u64>,
    background_slice_us: Option<u64>,
    min_share: Option<f64>,
    max_share: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LauncherSpec {
    tokens: Tokens,
    /// Absent: all.
    cpus: Option<Vec<usize>>,
    nice: i32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeighboursSpec {
    /// Absent: all.
    cpus: Option<Vec<usize>>,
    kinds: Vec<Kind>,
    /// Of stress-ng; 0: one a CPU.
    workers: usize,
}

/// By the bench's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    StressNg,
    Iperf3,
    Fio,
    Hackbench,
}

// CPU time of what neighbours do, as on the lab's emulated CPUs: with these a machine of two gets as much done as the
// lab's, and switches about as often.
const BOGO_OP_NS: u64 = 15_000_000;
/// What iperf3 reads at once, 32 KiB: what it takes to send, and to receive. A write is four of these there. Alone in the
/// lab it sends 2.2 Gbit/s; who sends has a CPU, who receives 71 % of one.
const SEND_NS: u64 = 118_000;
const RECEIVE_NS: u64 = 84_000;
const BLOCK_BITS: f64 = 32.0 * 1024.0 * 8.0;
/// Blocks that fit into the buffers of its ten connections, all of which have one thread on each side (iperf 3.12).
const BLOCKS_AHEAD: u64 = 640;
/// A write is done at once, in memory: a job never sleeps. That was recorded in the lab, as was how often fio itself
/// looks at them: tests/data/profiles/fio.json.
const WRITE_NS: u64 = 55_000;
const FIO_JOBS: usize = 4;
const FIO_LOOK: Program = Program::Periodic {
    run_ns: 336_000,
    sleep_ns: 10_135_000,
    runs: 0,
};
/// Of hackbench's messages, so many are one of the model's, for whoever sends them and for whoever receives them.
const MESSAGES: u64 = 26;
const MESSAGES_NS: u64 = 114_000;
const HACKBENCH_PAIRS: u64 = 20;
/// Of the model's: what a turn has, what a socket holds, and how long threads are being made. In the lab a turn takes 176
/// ms and the next one begins 10 ms later; of its threads none to 40 want to run, each number about as often.
const HACKBENCH_TURN: u64 = 40_000 / MESSAGES;
const HACKBENCH_AHEAD: u64 = 10;
const HACKBENCH_START_NS: u64 = 10_000_000;

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::StressNg => "stress-ng",
            Self::Iperf3 => "iperf3",
            Self::Fio => "fio",
            Self::Hackbench => "hackbench",
        }
    }

    fn add(self, tasks: &mut Vec<TaskSpec>, workers: usize) {
        let name = self.name();
        match self {
            Self::StressNg => {
                tasks.extend((0..workers).map(|_| TaskSpec::new(name, Program::Loop)));
            }
            Self::Fio => {
                tasks.extend((0..FIO_JOBS).map(|_| TaskSpec::new(name, Program::Calls(WRITE_NS))));
                tasks.push(TaskSpec::new(name, FIO_LOOK));
            }
            Self::Iperf3 => add_stream(tasks, name),
            Self::Hackbench => add_hackbench(tasks, name),
        }
    }

    /// What so much CPU time at full speed gets done, with its unit.
    fn done(self, work_ns: f64) -> (f64, &'static str) {
        match self {
            Self::StressNg => (work_ns / BOGO_OP_NS as f64, "bogo-ops/s"),
            Self::Fio => (work_ns / WRITE_NS as f64, "IOPS"),
            Self::Iperf3 => {
                let both_ns = (SEND_NS + RECEIVE_NS) as f64;
                (work_ns / both_ns * BLOCK_BITS, "bits/s")
            }
            Self::Hackbench => {
                let both_ns = (2 * MESSAGES_NS) as f64;
                (work_ns / both_ns * MESSAGES as f64, "messages/s")
            }
        }
    }
}

/// A thread that sends and one that receives.
fn add_stream(tasks: &mut Vec<TaskSpec>, name: &'static str) {
    let first = tasks.len();
    let sides = [(first + 1, SEND_NS, BLOCKS_AHEAD), (first, RECEIVE_NS, 0)];
    for (partner, work_ns, ahead) in sides {
        let program = Program::Pair {
            partner,
            work_ns,
            ahead,
        };
        tasks.push(TaskSpec::new(name, program));
    }
}

/// Pairs of threads, and the one that makes them: the first pair has a twentieth of the mean's messages, the last one
/// nearly twice the mean's.
fn add_hackbench(tasks: &mut Vec<TaskSpec>, name: &'static str) {
    let (main, first) = (tasks.len(), tasks.len() + 1);
    let turns = Program::Turns {
        first,
        count: 2 * HACKBENCH_PAIRS,
        work_ns: HACKBENCH_START_NS,
    };
    // What it does is no message.
    tasks.push(TaskSpec::new("sh", turns));
    for pair in 0..HACKBENCH_PAIRS {
        let first = tasks.len();
        for (partner, ahead) in [(first + 1, HACKBENCH_AHEAD), (first, 0)] {
            let passing = Passing {
                partner,
                main,
                work_ns: MESSAGES_NS,
                messages: HACKBENCH_TURN * (2 * pair + 1) / HACKBENCH_PAIRS / HACKBENCH_PAIRS,
                ahead,
            };
            tasks.push(TaskSpec::new(name, Program::Passing(passing)));
        }
    }
}

/// `cpu.weight` of a nice level: a level is a quarter.
pub(crate) fn weight(nice: i32) -> u32 {
    (100.0 * 1.25_f64.powi(-nice)).round().clamp(1.0, 10_000.0) as u32
}

impl PolicySpec {
    pub(crate) fn over(&self, mut policy: Policy) -> Policy {
        let set = |value: &mut u64, own: Option<u64>| *value = own.unwrap_or(*value);
        set(&mut policy.lend_yields_us, self.lend_yields_us);
        set(&mut policy.launch_slice_us, self.launch_slice_us);
        set(&mut policy.handoff_slice_us, self.handoff_slice_us);
        set(&mut policy.background_slice_us, self.background_slice_us);
        policy.lend = self.lend.unwrap_or(policy.lend);
        policy.whole_core = self.whole_core.unwrap_or(policy.whole_core);
        policy.min_share = self.min_share.unwrap_or(policy.min_share);
        policy.max_share = self.max_share.unwrap_or(policy.max_share);
        if let Some(cap_us) = self.hold_us {
            // A length that somebody names has no budget.
            (policy.hold_cap_us, policy.hold_share) = (cap_us, 1.0);
        }
        policy
    }
}

impl CellSpec {
    /// On the machine that it names.
    pub fn scenario(&self, machine: Machine) -> Result<Scenario> {
        let nr_cpus = machine.nr_cpus();
        let lists = [&self.launcher.cpus, &self.neighbours.cpus];
        let named = lists.into_iter().flatten().chain([&self.preferred]);
        for cpus in named {
            check_cpus(cpus, nr_cpus)?;
        }
        ensure!(
            self.launcher.tokens.launches > 0,
            "a token has a launch at least"
        );
        ensure!(
            self.hz > 0 && (1e-3..=1000.0).contains(&self.seconds),
            "hz, seconds: expected a tick and 0.001 to 1000 s, got {} and {}",
            self.hz,
            self.seconds
        );
        let tokens = Program::Tokens {
            tokens: self.launcher.tokens,
            handler: 1,
        };
        let of_launcher = |name, program, class| TaskSpec {
            class,
            cpus: self.launcher.cpus.clone(),
            weight: weight(self.launcher.nice),
            ..TaskSpec::new(name, program)
        };
        let handler = Program::EventHandler { launcher: 0 };
        let mut tasks = vec![
            of_launcher("launcher", tokens, Some(Class::Launch)),
            TaskSpec {
                leader: Some(0),
                ..of_launcher("cuda-EvtHandlr", handler, None)
            },
        ];
        let workers = match self.neighbours.workers {
            0 => nr_cpus,
            workers => workers,
        };
        for kind in &self.neighbours.kinds {
            kind.add(&mut tasks, workers);
        }
        for neighbour in tasks.iter_mut().skip(2) {
            neighbour.cpus.clone_from(&self.neighbours.cpus);
        }
        add_kthreads(&mut tasks, nr_cpus);
        let mut policy = match self.native {
            true => Policy::native(&machine),
            false => Policy::default_for(&machine),
        };
        policy.preferred.clone_from(&self.preferred);
        let length_ns = (self.seconds * 1e9) as u64;
        Ok(Scenario {
            policy: self.policy.over(policy),
            costs: Costs {
                tick_ns: (1_000_000_000 / self.hz).max(1),
                callback_ns: if self.native { NATIVE_NS } else { LAB_NS },
                ..Costs::default()
            },
            tasks,
            ..Scenario::new(machine, self.scheduler.into(), length_ns, self.seed)
        })
    }

    /// What the bench keeps of a cell that was measured.
    pub fn measurement(&self, outcome: &Outcome) -> Value {
        let kinds = self.neighbours.kinds.iter();
        let neighbours: Vec<Value> = kinds.map(|&kind| self.work(kind, outcome)).collect();
        measurement(
            self.scheduler,
            outcome,
            &self.workload(&outcome.tasks[0]),
            &neighbours,
        )
    }

    fn workload(&self, launcher: &TaskOutcome) -> Value {
        let tokens = self.launcher.tokens;
        let begins = std::iter::once(0).chain(launcher.ends_ns.iter().copied());
        let us = |(from, to): (u64, &u64)| (to - from) as f64 / 1e3;
        let token_us: Vec<f64> = begins.zip(&launcher.ends_ns).map(us).collect();
        let seconds = token_us.iter().sum::<f64>() / 1e6;
        let launches = launcher.done * tokens.launches;
        let voluntary = launcher.waits_ns.len() as u64;
        json!({
            "workload": "gpu_launch",
            "schema": 1,
            "tokens": launcher.done,
            "seconds": seconds,
            "tokens_per_s": if seconds > 0.0 { launcher.done as f64 / seconds } else { 0.0 },
            "launches": launches,
            "launches_in_all": launches,
            "failures": 0,
            "token_us": token_us,
            "context_switches": {
                "voluntary": voluntary,
                "involuntary": launcher.switches.saturating_sub(voluntary),
            },
            "threads": 1,
            "threads_detail": [],
            "cpu_s": { "user": launcher.cpu_ns as f64 / 1e9, "sys": 0.0 },
        })
    }

    fn work(&self, kind: Kind, outcome: &Outcome) -> Value {
        let of_kind = || outcome.tasks.iter().filter(|task| task.name == kind.name());
        let work_ns = of_kind().map(|task| task.work_ns).sum::<u64>() as f64;
        let cpu_ns: u64 = of_kind().map(|task| task.cpu_ns).sum();
        let (total, unit) = kind.done(work_ns);
        work(kind.name(), (total, unit), cpu_ns, outcome)
    }
}

pub(crate) fn check_cpus(cpus: &[usize], nr_cpus: usize) -> Result<()> {
    ensure!(
        !cpus.is_empty() && cpus.iter().all(|&cpu| cpu < nr_cpus),
        "CPUs {cpus:?}: expected some of the machine's {nr_cpus}"
    );
    Ok(())
}

/// What a kind of neighbours got done in a whole run, with its unit, and the CPU time that they had.
pub(crate) fn work(
    kind: &str,
    (total, unit): (f64, &str),
    cpu_ns: u64,
    outcome: &Outcome,
) -> Value {
    let seconds = outcome.length_ns as f64 / 1e9;
    json!({
        "kind": kind,
        "rate": total / seconds,
        "unit": unit,
        "own_total": total,
        "own_seconds": seconds,
        "window_evidence": cpu_ns,
        "total_evidence": cpu_ns,
        "evidence_unit": "simulated ns of CPU time",
    })
}

/// The record of a cell, whose window is the whole run.
pub(crate) fn measurement(
    scheduler: CellScheduler,
    outcome: &Outcome,
    workload: &Value,
    neighbours: &[Value],
) -> Value {
    let all: u64 = outcome.tasks.iter().map(|task| task.switches).sum();
    let percent = |ns: u64| ns as f64 / outcome.length_ns as f64 * 100.0;
    let per_cpu: Vec<f64> = outcome.idle_by_cpu.iter().map(|&ns| percent(ns)).collect();
    let ops = match scheduler {
        CellScheduler::Gpuaware => Some("gpuaware"),
        CellScheduler::Fifo => Some("simple"),
        CellScheduler::Eevdf | CellScheduler::Cfs => None,
    };
    json!({
        "workload": workload,
        "cpu": {
            "seconds": outcome.length_ns as f64 / 1e9,
            "idle_percent": per_cpu.iter().sum::<f64>() / per_cpu.len() as f64,
            "idle_percent_per_cpu": per_cpu,
            "softirq_percent": 0.0,
            "irq_percent": 0.0,
            "interrupts": 0,
            "context_switches": all,
        },
        "neighbours": neighbours,
        "scheduler": ops.map(|ops| json!({ "ops": ops, "version": null, "enable_seq": 1 })),
        "marks": null,
    })
}

#[cfg(test)]
mod tests {
    use gpuaware_trace::profile::Profile;

    use super::*;

    #[test]
    fn who_yields_lends_its_cpu_where_switches_are_cheap_or_the_arm_says_so() {
        let of = |more: &str| {
            let spec: CellSpec = serde_json::from_str(&format!(
                r#"{{"machine": "2", "scheduler": "gpuaware", "hz": 250, "seconds": 1.0, "seed": 1, "preferred": [1],
                    "launcher": {{"tokens": {{"launches": 1, "launch_ns": 1, "kernel_ns": 1, "last_kernel_ns": 1,
                        "cpu_ns": 1, "sync": "yield"}}, "nice": 0, "cpus": null}},
                    "neighbours": {{"kinds": [], "workers": 0}} {more}}}"#
            ))
            .unwrap();
            let scenario = spec.scenario(Machine::parse("2").unwrap()).unwrap();
            scenario.policy.lend_yields_us
        };
        assert_eq!(of(""), 0);
        assert_eq!(of(r#", "native": true"#), 100);
        let keeps = r#", "native": true, "policy": {"lend_yields_us": 0}"#;
        assert_eq!(of(keeps), 0);
        assert_eq!(of(r#", "policy": {"lend_yields_us": 200}"#), 200);
    }

    /// Of two CPUs of the lab on which fio alone ran, as the neighbour `disk` does.
    #[test]
    fn fio_is_what_was_recorded_of_it() {
        let text = include_str!("../../tests/data/profiles/fio.json");
        let mut groups = Profile::parse(text).unwrap().groups;
        groups.sort_by_key(|group| std::cmp::Reverse(group.cpu_ns));
        let sleeps = |at: usize| groups[at].sleep_alone.count() + groups[at].sleep_awaited.count();
        assert_eq!((groups[0].threads, sleeps(0)), (FIO_JOBS as u64, 0));
        let Program::Periodic {
            run_ns, sleep_ns, ..
        } = FIO_LOOK
        else {
            panic!("{FIO_LOOK:?}")
        };
        let looks = &groups[1];
        let times = [
            (run_ns, looks.run.mean_ns()),
            (sleep_ns, looks.sleep_alone.mean_ns()),
        ];
        for (ours, recorded) in times {
            let ratio = ours as f64 / recorded.unwrap() as f64;
            assert!((0.8..1.25).contains(&ratio), "{ratio}");
        }
    }
}
