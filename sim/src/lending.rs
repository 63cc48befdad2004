// SPDX-License-Identifier: GPL-2.0-only
//! Who waits by sched_yield() lends its CPU meanwhile, or keeps it.

use crate::mutants::run_as;
use crate::native::Scheduler;
use crate::program::{Program, Sync};
use crate::scenario::TaskSpec;
use crate::setup::Class;
use crate::simulation::Outcome;
use crate::tests::{of, task};

const MS: u64 = 10_000;

/// A launcher on two CPUs that yields for ten milliseconds of eleven, beside `others`.
fn beside(object: &[u8], lend_yields_us: u64, others: Vec<TaskSpec>) -> Outcome {
    let launcher = TaskSpec {
        class: Some(Class::Launch),
        ..task(
            "launcher",
            Program::Launcher {
                launch_ns: 1_000_000,
                gpu_ns: 10_000_000,
                sync: Sync::Yield,
            },
        )
    };
    let tasks = [vec![launcher], others].concat();
    let mut scenario = of("2", Scheduler::Gpuaware, MS, tasks);
    scenario.policy.max_share = 1.0;
    scenario.policy.lend_yields_us = lend_yields_us;
    let outcome = run_as(object, &scenario);
    assert_eq!(outcome.failure, None);
    outcome
}

/// What the loops had of both CPUs, and the tokens of the launcher.
fn share_and_tokens(outcome: &Outcome) -> (f64, u64) {
    let loops = outcome.tasks.iter().filter(|task| task.name == "loop");
    let cpu_ns: u64 = loops.map(|task| task.cpu_ns).sum();
    let share = cpu_ns as f64 / (2 * MS * 1_000_000) as f64;
    (share, outcome.tasks[0].done)
}

#[test]
fn background_has_what_a_launcher_waits_for_by_yields() {
    let object = Scheduler::Gpuaware.object();
    let of = |lend_yields_us| {
        let loops = vec![task("loop", Program::Loop); 4];
        share_and_tokens(&beside(object, lend_yields_us, loops))
    };
    let (kept, tokens) = of(0);
    let (lent, tokens_beside) = of(100);
    println!("{kept} {tokens} {lent} {tokens_beside}");
    assert!((0.49..0.55).contains(&kept), "{kept}");
    assert!(lent > 0.8, "{lent}");
    assert!(
        tokens_beside * 100 > tokens * 97,
        "{tokens_beside} of {tokens}"
    );
}
