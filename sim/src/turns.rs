// SPDX-License-Identifier: GPL-2.0-only
//! The minimum share of background, where launchers leave nothing, with the rules for it and without.

use crate::mutants::{mutant, run_as};
use crate::native::Scheduler;
use crate::program::{Program, Sync};
use crate::scenario::{Scenario, TaskSpec};
use crate::setup::{Class, Policy};
use crate::tests::{of, task};

const MS: u64 = 10_000;

/// What eight loops get of four CPUs on which launchers run `launcher`.
fn share_beside(object: &[u8], launcher: Program, background_slice_us: u64) -> f64 {
    share_with(object, 4, launcher, |policy| {
        policy.background_slice_us = background_slice_us;
    })
}

/// What two loops for each of so many CPUs get, with a policy that is changed so.
fn share_with(
    object: &[u8],
    nr_cpus: usize,
    launcher: Program,
    change: impl FnOnce(&mut Policy),
) -> f64 {
    let launcher = TaskSpec {
        class: Some(Class::Launch),
        ..task("launcher", launcher)
    };
    let loops = vec![task("loop", Program::Loop); 2 * nr_cpus];
    let tasks = [vec![launcher; nr_cpus], loops].concat();
    let mut scenario = of(&nr_cpus.to_string(), Scheduler::Gpuaware, MS, tasks);
    scenario.policy.max_share = 1.0;
    change(&mut scenario.policy);
    let outcome = run_as(object, &scenario);
    assert_eq!(outcome.failure, None);
    let loops = outcome.tasks.iter().filter(|task| task.name == "loop");
    let cpu_ns: u64 = loops.map(|task| task.cpu_ns).sum();
    cpu_ns as f64 / (nr_cpus as u64 * MS * 1_000_000) as f64
}

/// A turn ends at a tick, which may come a whole period after its slice: that was given, and not charged.
#[test]
fn the_minimum_share_is_no_more_where_turns_end_late() {
    let forgotten = (
        "background.bpf.h",
        "start = cctx->turn_until_ns;",
        "start = now;",
    );
    // Ticks come every 4 ms.
    let share = |object: &[u8]| share_beside(object, Program::Loop, 5000);
    let charged = share(Scheduler::Gpuaware.object());
    assert!((0.045..0.055).contains(&charged), "{charged}");
    let given = share(&mutant(&[forgotten]));
    assert!(given > 0.07, "{given}");
}

/// Launchers that sleep for an instant leave crumbs. Each counted as a turn.
#[test]
fn crumbs_that_launchers_leave_are_not_the_minimum_share() {
    let as_turn = (
        "background.bpf.h",
        "time_delta(now, start), llc, nr_turns",
        "nr_turns > 1 ? time_delta(now, start) : tunables.background_slice_ns, llc, nr_turns",
    );
    let dozes = Program::Periodic {
        run_ns: 10_000_000,
        sleep_ns: 100_000,
        runs: 0,
    };
    let share = |object: &[u8]| share_beside(object, dozes, 4000);
    let all = share(Scheduler::Gpuaware.object());
    assert!((0.045..0.065).contains(&all), "{all}");
    let crumbs = share(&mutant(&[as_turn]));
    assert!(crumbs < 0.03, "{crumbs}");
}

/// Turns came as often as launchers' slices ended, those that follow each other on a CPU were charged twice, and 35 % was
/// as 50 is. What a turn took beyond its slice is to be made good for, also by few CPUs.
#[test]
fn the_minimum_share_is_what_the_policy_says() {
    let object = Scheduler::Gpuaware.object();
    for nr_cpus in [1, 2, 4, 8] {
        for (min_share, slice_us) in [
            (0.05, 4000),
            (0.05, 5000),
            (0.1, 4000),
            (0.2, 4000),
            (0.35, 4000),
            (0.35, 5000),
            (0.5, 4000),
        ] {
            let share = share_with(object, nr_cpus, Program::Loop, |policy| {
                policy.min_share = min_share;
                policy.background_slice_us = slice_us;
            });
            // The slices of all launchers end together here: turns that were missed for long are not made good for.
            let near = if nr_cpus > 4 { 0.2 } else { 0.1 };
            assert!(
                (share / min_share - 1.0).abs() < near,
                "{min_share} with {slice_us} us on {nr_cpus} CPUs: {share}"
            );
        }
    }
}

/// A kernel thread of the CPU that wakes up more often than a launcher's slice is over gave the launcher a new one each time,
/// without a dispatch() in between, which gives turns.
#[test]
fn turns_come_where_a_kernel_thread_cuts_slices_short() {
    let whole = (
        "kthread.bpf.h",
        "return tctx->slice_left_ns ?: class_slice_ns(tctx->run_as);",
        "return class_slice_ns(tctx->run_as);",
    );
    let yields = Program::Launcher {
        launch_ns: 100_000,
        gpu_ns: 1_000_000_000,
        sync: Sync::Yield,
    };
    let share = |object: &[u8], scenario: &Scenario| {
        let outcome = run_as(object, scenario);
        outcome.tasks[1].cpu_ns as f64 / (MS * 1_000_000) as f64
    };
    let fault = mutant(&[whole]);
    for (program, tick_ns, sleep_ns) in [
        (Program::Loop, 4_000_000, 10_000_000),
        (Program::Loop, 1_000_000, 2_000_000),
        (yields, 4_000_000, 10_000_000),
    ] {
        let mut scenario = beside_a_kernel_thread(program, sleep_ns);
        scenario.costs.tick_ns = tick_ns;
        let theirs = share(Scheduler::Gpuaware.object(), &scenario);
        assert!((0.04..0.07).contains(&theirs), "{program:?}: {theirs}");
        let with_fault = share(&fault, &scenario);
        assert!(with_fault < 0.01, "{program:?}: {with_fault}");
    }
}

/// A launcher that never sleeps, a loop, and a kernel thread of their CPU that does little and often.
fn beside_a_kernel_thread(launcher: Program, sleep_ns: u64) -> Scenario {
    let pinned = |task: TaskSpec| TaskSpec {
        cpus: Some(vec![0]),
        ..task
    };
    let softirqs = Program::Periodic {
        run_ns: 50_000,
        sleep_ns,
        runs: 0,
    };
    let tasks = vec![
        TaskSpec {
            class: Some(Class::Launch),
            ..pinned(task("launcher", launcher))
        },
        pinned(task("loop", Program::Loop)),
        TaskSpec {
            is_kthread: true,
            ..pinned(task("ksoftirqd/", softirqs))
        },
    ];
    let mut scenario = of("1", Scheduler::Gpuaware, MS, tasks);
    scenario.policy.max_share = 1.0;
    scenario
}
