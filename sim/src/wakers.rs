// SPDX-License-Identifier: GPL-2.0-only
//! Threads that wake a launcher of their process, with the rule for them and without.

use std::sync::Arc;

use crate::history::SchedEvent;
use crate::mutants::mutant;
use crate::native::Scheduler;
use crate::program::Program;
use crate::recorded::tests::histogram;
use crate::recorded::{Draws, Recorded, Wakes};
use crate::scenario::TaskSpec;
use crate::setup::Class;
use crate::simulation::Simulation;
use crate::tests::{of, task};

/// The share of turns that the thread that wakes the launcher has on that one's CPU, in percent.
fn near_its_launcher(object: &[u8], work_ns: u64) -> usize {
    let launcher = TaskSpec {
        class: Some(Class::Launch),
        ..task("launcher", Program::Recorded(0))
    };
    let waker = TaskSpec {
        leader: Some(0),
        ..task("waker", Program::Recorded(1))
    };
    let tasks = vec![launcher, waker];
    let loops = vec![task("loop", Program::Loop); 4];
    let io = Program::Periodic {
        run_ns: 300_000,
        sleep_ns: 2_000_000,
        runs: 0,
    };
    let others = vec![task("io", io); 3];
    let mut scenario = of(
        "2",
        Scheduler::Gpuaware,
        2000,
        [tasks, loops, others].concat(),
    );
    let always = |ns: u64| Draws::from(&histogram(&[ns * 6 / 10, ns, ns * 14 / 10]));
    let launches = Recorded {
        run: always(3_000_000),
        awaited: always(5_000_000),
        known: 3,
        ..Recorded::default()
    };
    let wakes = Wakes {
        first: 0,
        count: 1,
        times: 100,
        runs: 100,
    };
    let wakes_it = Recorded {
        run: always(work_ns),
        alone: always(7_000_000),
        wakes: vec![wakes],
        ..Recorded::default()
    };
    scenario.recorded = [launches, wakes_it].map(Arc::new).into();
    let mut simulation = Simulation::with_object(scenario, object).unwrap();
    simulation.keep_history();
    let outcome = simulation.run().unwrap();
    assert_eq!(outcome.failure, None);
    let (mut launcher_cpu, mut near, mut turns) = (None, 0, 0);
    for recorded in &outcome.history {
        match (recorded.task, recorded.event) {
            (0, SchedEvent::SwitchIn) => launcher_cpu = Some(recorded.cpu),
            (1, SchedEvent::SwitchIn) => {
                turns += 1;
                near += usize::from(launcher_cpu == Some(recorded.cpu));
            }
            _ => {}
        }
    }
    assert!(turns > 50, "{turns} turns");
    near * 100 / turns
}

#[test]
fn who_wakes_a_launcher_runs_elsewhere() {
    let as_it_is = Scheduler::Gpuaware.object();
    let edit = (
        "waker.bpf.h",
        "return tctx->waker_bursts == WAKER_BURSTS",
        "return tctx->waker_bursts > WAKER_BURSTS",
    );
    let never = mutant(&[edit]);
    // It wakes the launcher at the end, which then waits for nothing. The whole burst may take a millisecond.
    for (work_ns, expected) in [(50_000, true), (700_000, true), (1_500_000, false)] {
        let [with, without] = [as_it_is, &never].map(|object| near_its_launcher(object, work_ns));
        assert_eq!(with > 80, expected, "{work_ns} ns: {with} % near");
        assert!(
            without < 65,
            "{work_ns} ns: {without} % near without the rule"
        );
    }
}
