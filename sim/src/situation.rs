// SPDX-License-Identifier: GPL-2.0-only
//! Situations that a test describes as JSON, to see which callbacks are called in them, in which order. The test starts
//! the same tasks on a kernel and compares: docs/simulator.md.

use std::fmt::Write;

use anyhow::{Result, ensure};
use serde::Deserialize;

use crate::callbacks::Call;
use crate::dsq::TaskId;
use crate::higher::{Above, Higher};
use crate::machine::Machine;
use crate::native::Scheduler;
use crate::overhead::Costs;
use crate::program::Program;
use crate::scenario::{Scenario, TaskSpec, add_kthreads};
use crate::setup::Class;
use crate::state::START_NS;

/// Tasks on a machine, under scx_gpuaware with the policy's defaults.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Situation {
    /// As for `--machine`.
    pub machine: String,
    hz: u64,
    ms: u64,
    seed: u64,
    /// Until another CPU does what it is told, awake or not: much longer where CPUs are emulated.
    reach_us: u64,
    tasks: Vec<TaskOf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskOf {
    class: Option<ClassOf>,
    /// Absent: all.
    cpus: Option<Vec<usize>>,
    /// Of a class above: periodic, on its first CPU, and no task to the scheduler. Such ones come last.
    #[serde(default)]
    real_time: bool,
    program: ProgramOf,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClassOf {
    Launch,
    Handoff,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProgramOf {
    Loop,
    Periodic {
        run_us: u64,
        sleep_us: u64,
    },
    /// Through pipes: nobody says that it will sleep at once.
    Pair {
        partner: TaskId,
        work_us: u64,
        ahead: u64,
    },
}

impl TaskOf {
    fn spec(&self) -> TaskSpec {
        let program = match self.program {
            ProgramOf::Loop => Program::Loop,
            ProgramOf::Periodic { run_us, sleep_us } => Program::Periodic {
                run_ns: run_us * 1000,
                sleep_ns: sleep_us * 1000,
                runs: 0,
            },
            ProgramOf::Pair {
                partner,
                work_us,
                ahead,
            } => Program::Pair {
                partner,
                work_ns: work_us * 1000,
                ahead,
            },
        };
        TaskSpec {
            class: self.class.map(|class| match class {
                ClassOf::Launch => Class::Launch,
                ClassOf::Handoff => Class::Handoff,
            }),
            cpus: self.cpus.clone(),
            ..TaskSpec::new("task", program)
        }
    }

    fn above(&self) -> Option<Above> {
        let (&cpu, ProgramOf::Periodic { run_us, sleep_us }) =
            (self.cpus.as_ref()?.first()?, self.program)
        else {
            return None;
        };
        Some(Above {
            class: Higher::RealTime,
            cpu,
            start_ns: 0,
            period_ns: (run_us + sleep_us) * 1000,
            lasts_ns: run_us * 1000,
        })
    }
}

impl Situation {
    /// On the machine that it names, beside the kernel's own threads.
    pub fn scenario(&self, machine: Machine) -> Result<Scenario> {
        let nr_cpus = machine.nr_cpus();
        let is_right = |task: &TaskOf| match task.program {
            ProgramOf::Pair { partner, .. } => partner < self.tasks.len() && !task.real_time,
            _ => !task.real_time || task.above().is_some(),
        };
        let named = self.tasks.iter().filter_map(|task| task.cpus.as_ref());
        ensure!(
            named
                .into_iter()
                .all(|cpus| !cpus.is_empty() && cpus.iter().all(|&cpu| cpu < nr_cpus))
                && self.tasks.iter().all(is_right)
                && (1..=100_000).contains(&self.ms)
                && (1..=100_000).contains(&self.reach_us)
                && self.hz > 0,
            "expected CPUs of the machine's {nr_cpus}, partners of {} tasks, hz, ms, reach_us, and real-time tasks that are \
             periodic and have a CPU",
            self.tasks.len()
        );
        let (above, tasks): (Vec<_>, Vec<_>) = self.tasks.iter().partition(|task| task.real_time);
        let mut tasks: Vec<TaskSpec> = tasks.into_iter().map(TaskOf::spec).collect();
        add_kthreads(&mut tasks, nr_cpus);
        let length_ns = self.ms * 1_000_000;
        Ok(Scenario {
            costs: Costs {
                tick_ns: (1_000_000_000 / self.hz).max(1),
                kick_ns: self.reach_us * 1000,
                ipi_ns: self.reach_us * 1000,
                idle_exit_ns: self.reach_us * 1000,
                ..Costs::default()
            },
            tasks,
            above: above.into_iter().filter_map(TaskOf::above).collect(),
            ..Scenario::new(machine, Scheduler::Gpuaware, length_ns, self.seed)
        })
    }
}

/// `callback microseconds cpu task flags` a line, with -1 where a call is for no task.
pub fn lines(calls: &[Call]) -> String {
    let mut text = String::new();
    for call in calls {
        let at_us = (call.at_ns - START_NS) / 1000;
        let task = call.task.map_or(-1, |task| task as i64);
        let Call {
            callback,
            cpu,
            flags,
            ..
        } = call;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{callback} {at_us} {cpu} {task} {flags}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::Simulation;

    const LAUNCHER_BESIDE_LOOPS: &str = r#"{
        "machine": "2", "hz": 250, "ms": 50, "seed": 1, "reach_us": 2, "tasks": [
            {"class": "launch", "program": {"periodic": {"run_us": 500, "sleep_us": 2000}}},
            {"program": "loop"}, {"cpus": [0], "program": "loop"}
        ]}"#;

    #[test]
    fn calls_are_kept_in_their_order_and_change_nothing() {
        let situation: Situation = serde_json::from_str(LAUNCHER_BESIDE_LOOPS).unwrap();
        let machine = Machine::parse(&situation.machine).unwrap();
        let scenario = situation.scenario(machine).unwrap();
        let plain = Simulation::new(scenario.clone()).unwrap().run().unwrap();
        let mut simulation = Simulation::new(scenario).unwrap();
        simulation.keep_calls();
        let kept = simulation.run().unwrap();
        assert_eq!((kept.failure, kept.hash), (None, plain.hash));
        assert_eq!(plain.calls, []);
        let launcher: Vec<_> = (kept.calls.iter())
            .filter(|call| call.task == Some(0) && call.callback != "tick")
            .map(|call| (call.callback, call.flags))
            .collect();
        let cycle = [
            ("select_cpu", 8),
            ("runnable", 1025),
            ("running", 0),
            ("stopping", 0),
            ("quiescent", 1),
            ("dispatch", 0),
        ];
        assert!(launcher.windows(6).any(|calls| calls == cycle));
        assert!(lines(&kept.calls).lines().count() == kept.calls.len());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (right, wrong) in [
            (r#""cpus": [0]"#, r#""cpus": [2]"#),
            (r#""hz": 250"#, r#""hz": 0"#),
            (
                r#"{"program": "loop"}"#,
                r#"{"real_time": true, "program": "loop"}"#,
            ),
            (r#""reach_us": 2"#, r#""reach_us": 0"#),
        ] {
            let text = LAUNCHER_BESIDE_LOOPS.replace(right, wrong);
            let situation: Situation = serde_json::from_str(&text).unwrap();
            let machine = Machine::parse(&situation.machine).unwrap();
            assert!(situation.scenario(machine).is_err(), "{wrong}");
        }
    }
}
