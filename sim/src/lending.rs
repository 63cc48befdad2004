// SPDX-License-Identifier: GPL-2.0-only
//! Who waits by sched_yield() lends its CPU meanwhile, or keeps it.

use crate::mutants::{mutant, run_as};
use crate::native::Scheduler;
use crate::program::{Program, Sync};
use crate::scenario::TaskSpec;
use crate::setup::Class;
use crate::simulation::Outcome;
use crate::tests::{of, task};

const MS: u64 = 10_000;

/// A task of `class` on two CPUs that yields for ten milliseconds of eleven, beside loops.
fn beside_loops(object: &[u8], class: Class, lend_yields_us: u64) -> Outcome {
    let waits = TaskSpec {
        class: Some(class),
        ..task(
            "waits",
            Program::Launcher {
                launch_ns: 1_000_000,
                gpu_ns: 10_000_000,
                sync: Sync::Yield,
            },
        )
    };
    let loops = vec![task("loop", Program::Loop); 4];
    let tasks = [vec![waits], loops].concat();
    let mut scenario = of("2", Scheduler::Gpuaware, MS, tasks);
    scenario.policy.max_share = 1.0;
    scenario.policy.lend_yields_us = lend_yields_us;
    let outcome = run_as(object, &scenario);
    assert_eq!(outcome.failure, None);
    outcome
}

/// What the loops had of both CPUs, and the tokens of who waits.
fn share_and_tokens(object: &[u8], class: Class, lend_yields_us: u64) -> (f64, u64) {
    let outcome = beside_loops(object, class, lend_yields_us);
    let loops = outcome.tasks.iter().filter(|task| task.name == "loop");
    let cpu_ns: u64 = loops.map(|task| task.cpu_ns).sum();
    let share = cpu_ns as f64 / (2 * MS * 1_000_000) as f64;
    (share, outcome.tasks[0].done)
}

#[test]
fn background_has_what_boosted_tasks_wait_for_by_yields() {
    let object = Scheduler::Gpuaware.object();
    for class in [Class::Launch, Class::Handoff] {
        let (kept, tokens) = share_and_tokens(object, class, 0);
        assert!((0.49..0.55).contains(&kept), "{class:?}: {kept}");
        for us in [50, 100] {
            let (lent, tokens_beside) = share_and_tokens(object, class, us);
            println!("{class:?}, {us} us: {kept} {tokens} {lent} {tokens_beside}");
            assert!(lent > 0.8, "{class:?}, {us} us: {lent}");
            assert!(
                tokens_beside * 100 > tokens * 97,
                "{class:?}, {us} us: {tokens_beside} of {tokens}"
            );
        }
    }
}

/// Slices end at ticks, and who waits in a queue that all can take from has the CPU back at once.
#[test]
fn moments_end_by_a_timer_and_not_before() {
    let class = Class::Launch;
    let (lent, tokens) = share_and_tokens(Scheduler::Gpuaware.object(), class, 100);
    let late = mutant(&[(
        "spin.bpf.h",
        "scx_bpf_kick_cpu(*key, SCX_KICK_PREEMPT);",
        ";",
    )]);
    let (_, late) = share_and_tokens(&late, class, 100);
    assert!(late * 100 < tokens * 95, "{late} of {tokens}");
    let queued = mutant(&[("spin.bpf.h", "tctx->lends = true;", ";")]);
    let (at_once, _) = share_and_tokens(&queued, class, 100);
    assert!(at_once < lent - 0.1, "{at_once} of {lent}");
}
