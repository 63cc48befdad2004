// SPDX-License-Identifier: GPL-2.0-only
//! More faults that are put in: of what boosted tasks may take, and such as starve nobody and cost time all the same.

use crate::cgroups::CgroupSpec;
use crate::changes::Change;
use crate::mutants::{Edit, is_found, is_found_in, mutant, run_as};
use crate::native::Scheduler;
use crate::nested::Interleaving;
use crate::program::Program;
use crate::scenario::{Scenario, TaskSpec};
use crate::setup::Class;
use crate::simulation::Outcome;
use crate::tests::{held, of, task};

fn launcher(program: Program) -> TaskSpec {
    TaskSpec {
        class: Some(Class::Launch),
        ..task("launcher", program)
    }
}

/// What `measure` says of `scenario` as the scheduler is and with `edit`, which breaks no promise.
fn both(scenario: &Scenario, edit: Edit, measure: impl Fn(&Outcome) -> f64) -> [f64; 2] {
    let with_fault = run_as(&mutant(&[edit]), scenario);
    assert_eq!(with_fault.failure, None);
    [held(scenario), with_fault].map(|outcome| measure(&outcome))
}

#[test]
fn a_guard_that_lets_all_pass() {
    let edit = (
        "guard.bpf.h",
        "\tif (guard_used_ns <= tunables.guard_budget_ns || tenant->window != start ||\n\t    tenant->used_ns < part)\n",
        "\tif (true)\n",
    );
    is_found(&[edit], "boosted tasks took");
}

/// Launchers that never sleep stayed where they were, two on a core, when another core became free.
#[test]
fn launchers_that_stay_beside_each_other() {
    let edit = (
        "gpuaware.bpf.c",
        "tctx->run_as == GPUAWARE_CLASS_LAUNCH && is_misplaced(prev, tctx, cpu, now)",
        "false",
    );
    let ends = Program::Periodic {
        run_ns: 100_000_000,
        sleep_ns: 1_000_000,
        runs: 1,
    };
    let programs = [Program::Loop, ends, Program::Loop, ends];
    let mut tasks: Vec<TaskSpec> = programs.into_iter().map(launcher).collect();
    for (at, task) in tasks.iter_mut().enumerate() {
        task.start_ns = at as u64 * 1_000_000;
    }
    let mut scenario = of("8x1x1x2", Scheduler::Gpuaware, 400, tasks);
    scenario.policy.preferred = vec![2, 6, 3, 7];
    scenario.policy.max_share = 1.0;
    is_found_in(&scenario, &[edit], "beside another one");
}

/// The end of a hold lent the CPU and woke nobody there: background found it when a slice was over elsewhere.
#[test]
fn holds_that_end_unheard() {
    let ends = Program::Periodic {
        run_ns: 300_000,
        sleep_ns: 200_000,
        runs: 8,
    };
    let mut tasks = vec![launcher(ends); 60];
    for (at, task) in tasks.iter_mut().enumerate() {
        task.start_ns = at as u64 * 30_000_000;
    }
    tasks.extend(vec![task("loop", Program::Loop); 3]);
    let mut scenario = of("2", Scheduler::Gpuaware, 2000, tasks);
    scenario.policy.preferred = vec![1];
    scenario.policy.background_slice_us = 20_000;
    scenario.policy.hold_share = 1.0;
    scenario.policy.hold_cap_us = 3_000;
    let edit = (
        "hold.bpf.h",
        "if (declined_wait(llc) || others_queued(llc))",
        "if (false && (declined_wait(llc) || others_queued(llc)))",
    );
    let idle = |outcome: &Outcome| outcome.idle_by_cpu[1] as f64 / outcome.length_ns as f64;
    let [kicked, unheard] = both(&scenario, edit, idle);
    assert!(
        unheard > 0.01 && unheard > 1.5 * kicked,
        "{unheard} and {kicked}"
    );
}

/// A launcher that never sleeps was sent, slice after slice, to a preferred CPU on its way offline, which is idle and
/// online and runs nobody.
#[test]
fn launchers_that_are_sent_where_nobody_runs() {
    let of_cpu_0 = |task| TaskSpec {
        cpus: Some(vec![0]),
        ..task
    };
    let tasks = vec![
        of_cpu_0(launcher(Program::Loop)),
        of_cpu_0(task("loop", Program::Loop)),
    ];
    let mut scenario = of("2", Scheduler::Gpuaware, 2000, tasks);
    scenario.policy.preferred = vec![1];
    scenario.policy.lend = false;
    scenario.policy.max_share = 1.0;
    scenario.changes = vec![
        (5_000_000, Change::Leave(1)),
        (6_000_000, Change::Affinity(0, vec![0, 1])),
    ];
    let edit = ("pick.bpf.h", " &&\n\t\t    !is_leaving(other))", ")");
    let switches = |outcome: &Outcome| outcome.tasks[0].switches as f64;
    let [stays, sent] = both(&scenario, edit, switches);
    assert!(sent > 50.0 && sent > 1.5 * stays, "{sent} and {stays}");
}

/// A kernel thread at nice 19 that may run anywhere, as khugepaged, has what it needs beside busy loops: a launcher may
/// wait for a lock of its. Under EEVDF it waits as any task of that weight.
#[test]
fn a_kernel_thread_at_nice_19_has_what_it_needs() {
    let collapses = Program::Periodic {
        run_ns: 20_000_000,
        sleep_ns: 50_000_000,
        runs: 0,
    };
    let kernel = TaskSpec {
        weight: 1,
        is_kthread: true,
        ..task("khugepaged", collapses)
    };
    let share = |scheduler| {
        let mut tasks = vec![task("loop", Program::Loop); 8];
        tasks.push(kernel.clone());
        held(&of("2", scheduler, 4000, tasks)).tasks[8].cpu_ns as f64 / 4e9
    };
    let [ours, eevdf] = [Scheduler::Gpuaware, Scheduler::Eevdf].map(share);
    assert!(ours > 0.2, "20 of 70 ms: {ours}");
    assert!(eevdf < 0.1, "{eevdf}");
}

/// A throttled launcher that found its CPU idle kept it for a slice when background woke there.
#[test]
fn throttled_tasks_that_keep_an_idle_cpu() {
    let sleeper = Program::Periodic {
        run_ns: 1_000_000,
        sleep_ns: 1_000_000,
        runs: 0,
    };
    let tasks = vec![launcher(Program::Loop), task("sleeper", sleeper)];
    let mut scenario = of("1", Scheduler::Gpuaware, 2000, tasks);
    scenario.policy.max_share = 0.2;
    let edit = (
        "background.bpf.h",
        "return !time_before(now, cctx->keeps_until_ns) &&",
        "return false &&",
    );
    is_found_in(&scenario, &[edit], "boosted tasks took");
}

/// Changes of the affinity of a task that runs end in running(), where it got a whole new slice each time: whoever
/// changed his often enough kept a preferred CPU for himself.
#[test]
fn who_changes_his_affinity_all_the_time_has_no_more_for_it() {
    let on = |cpu: usize| TaskSpec {
        cpus: Some(vec![cpu]),
        ..task("loop", Program::Loop)
    };
    let mut scenario = of("2", Scheduler::Gpuaware, 1000, vec![on(1), on(1), on(0)]);
    scenario.policy.preferred = vec![1];
    scenario.changes = (1..2000u64)
        .map(|at| {
            let cpus = [vec![0, 1], vec![1]][at as usize % 2].clone();
            (at * 500_000, Change::Affinity(0, cpus))
        })
        .collect();
    let edit = (
        "gpuaware.bpf.c",
        "is_preferred(cpu) && p->scx.slice > tunables.lent_slice_ns",
        "is_preferred(cpu)",
    );
    let of_other = |outcome: &Outcome| outcome.tasks[1].cpu_ns as f64 / 1e9;
    let beside = of_other(&held(&scenario));
    assert!(beside > 0.15, "{beside}");
    let shut_out = of_other(&run_as(&mutant(&[edit]), &scenario));
    assert!(shut_out < 0.1, "{shut_out}");
}

/// Short processes of a light cgroup, a new one every 4 ms, beside a loop of a heavy one.
#[test]
fn tasks_that_come_and_go_have_the_weight_of_their_cgroup() {
    let within = |cgroup: usize, task: TaskSpec| TaskSpec {
        cgroup: Some(cgroup),
        ..task
    };
    let mut tasks = vec![within(0, task("loop", Program::Loop))];
    tasks.extend((0..250).map(|at| {
        let once = Program::Periodic {
            run_ns: 4_000_000,
            sleep_ns: 1_000_000,
            runs: 1,
        };
        TaskSpec {
            start_ns: at * 4_000_000,
            ..within(1, task("once", once))
        }
    }));
    let mut scenario = of("1", Scheduler::Gpuaware, 1000, tasks);
    scenario.cgroups = [100, 10]
        .map(|weight| CgroupSpec {
            parent: None,
            weight,
            quota_us: None,
        })
        .into();
    let edit = ("cgroup.bpf.h", "if (!tctx->run_start_ns)", "if (false)");
    let share = |outcome: &Outcome| 1.0 - outcome.tasks[0].cpu_ns as f64 / 1e9;
    let [theirs, with_fault] = both(&scenario, edit, share);
    assert!((0.05..0.2).contains(&theirs), "1 of 11: {theirs}");
    assert!(with_fault > 2.0 * theirs, "{with_fault}");
}

/// Behind many launchers that may run elsewhere only nobody is looked for, or each task that starts on another CPU would
/// make way for somebody who cannot come.
#[test]
fn many_launchers_that_are_pinned_disturb_nobody_elsewhere() {
    let pinned = TaskSpec {
        cpus: Some(vec![0]),
        ..launcher(Program::Loop)
    };
    let mut tasks = vec![pinned; 12];
    tasks.extend(vec![task("loop", Program::Loop); 6]);
    let mut scenario = of("4", Scheduler::Gpuaware, 1000, tasks);
    scenario.policy.preferred = vec![0];
    scenario.policy.max_share = 1.0;
    let edit = (
        "dsq.bpf.h",
        "\t\tif (asked++ == LAUNCHERS_ASKED)\n\t\t\tbreak;",
        "\t\tif (asked++ == LAUNCHERS_ASKED)\n\t\t\treturn true;",
    );
    let switches = |outcome: &Outcome| {
        let loops = outcome.tasks[12..].iter().map(|task| task.switches);
        loops.sum::<u64>() as f64
    };
    let [few, many] = both(&scenario, edit, switches);
    assert!(many > 3.0 * few, "{few} and {many}");
}

/// 2,000 short tasks, one each `every_ns`, beside `loops` and a task that naps on CPU 1. What happens on the other CPU
/// comes in between at one of `points` points.
fn short_tasks_beside(loops: Vec<TaskSpec>, every_ns: u64, points: u32) -> Scenario {
    let once = Program::Periodic {
        run_ns: 20_000,
        sleep_ns: 1_000,
        runs: 1,
    };
    let naps = Program::Periodic {
        run_ns: 40_000,
        sleep_ns: every_ns - 70_000,
        runs: 0,
    };
    let mut tasks = loops;
    tasks.push(TaskSpec {
        cpus: Some(vec![1]),
        ..task("naps", naps)
    });
    for at in 0..2000 {
        tasks.push(TaskSpec {
            start_ns: 10_000_000 + at * every_ns,
            ..task("once", once)
        });
    }
    let mut scenario = of("2x2", Scheduler::Gpuaware, 2100, tasks);
    scenario.interleaving = Some(Interleaving {
        points,
        window_ns: 50_000,
    });
    scenario
}

/// How often a short task of `scenario` waits for more than 0.3 ms, under 20 seeds.
fn long_waits(object: &[u8], scenario: &mut Scenario) -> usize {
    let long = |outcome: &Outcome| {
        let short = outcome.tasks.iter().filter(|task| task.name == "once");
        let waits = short.flat_map(|task| &task.waits_ns);
        waits.filter(|&&ns| ns > 300_000).count()
    };
    let seeds = (1..21).map(|seed| {
        scenario.seed = seed;
        let outcome = run_as(object, scenario);
        assert_eq!(outcome.failure, None);
        long(&outcome)
    });
    seeds.sum()
}

/// What is queued after a CPU has looked, and before that is seen idle, waited until it looked again.
fn waits_beside_an_idle_cpu(mut scenario: Scenario, edit: Edit) {
    assert_eq!(long_waits(Scheduler::Gpuaware.object(), &mut scenario), 0);
    let found = long_waits(&mutant(&[edit]), &mut scenario);
    assert!(found > 3, "{found}");
}

fn loops_on_cpu_0() -> Vec<TaskSpec> {
    let on_cpu_0 = TaskSpec {
        cpus: Some(vec![0]),
        ..task("loop", Program::Loop)
    };
    vec![on_cpu_0; 2]
}

/// A CPU that stays idle does not look again.
#[test]
fn work_that_is_queued_while_a_cpu_stays_idle() {
    let edit = (
        "background.bpf.h",
        "!cctx->looks_again && anybody_waits",
        "false && anybody_waits",
    );
    let scenario = short_tasks_beside(vec![task("loop", Program::Loop)], 1_000_000, 2);
    waits_beside_an_idle_cpu(scenario, edit);
}

/// What is about to be queued does not count.
#[test]
fn work_that_is_about_to_be_queued_while_a_cpu_goes_idle() {
    let edit = (
        "dsq.bpf.h",
        "return time_before(now, llcx->arriving_ns + ARRIVAL_NS);",
        "return false;",
    );
    waits_beside_an_idle_cpu(short_tasks_beside(loops_on_cpu_0(), 500_000, 10), edit);
}

/// update_idle() looks at its own cache only.
#[test]
fn work_that_another_cache_queues_while_a_cpu_goes_idle() {
    let edit = (
        "background.bpf.h",
        " ||\n\t       others_have_work(llc, now);",
        ";",
    );
    waits_beside_an_idle_cpu(short_tasks_beside(loops_on_cpu_0(), 1_000_000, 16), edit);
}

/// A launcher that may run on one CPU only, which is not lent, waited there for a sweep beside nobody: the guard had
/// throttled it for somebody else who has gone to sleep.
#[test]
fn throttled_launchers_beside_an_idle_cpu_that_is_not_lent() {
    let edit = (
        "gpuaware.bpf.c",
        "(!is_held(cctx, now) || launcher_waits_for(cpu)",
        "(!is_reserved(cpu, cctx, now) || launcher_waits_for(cpu)",
    );
    let sleeps = Program::Periodic {
        run_ns: 5_000_000,
        sleep_ns: 20_000_000,
        runs: 0,
    };
    let mut tasks = vec![launcher(Program::Loop), task("io", sleeps)];
    for task in &mut tasks {
        task.cpus = Some(vec![1]);
    }
    let mut scenario = of("2", Scheduler::Gpuaware, 2000, tasks);
    scenario.policy.preferred = vec![1];
    scenario.policy.lend = false;
    scenario.policy.max_share = 0.1;
    let had = |outcome: &Outcome| outcome.tasks[0].cpu_ns as f64 / 2e9;
    let [had, with_fault] = both(&scenario, edit, had);
    assert!(had > 0.7 && with_fault < 0.6, "{had} and {with_fault}");
}

/// Who lost its class while it ran had paid as background for all of its run, and waited. Had it only not paid, that run
/// would have been its lag, and others would have waited.
#[test]
fn who_was_handoff_begins_anew() {
    let keeps_lag: Edit = (
        "task.bpf.h",
        "all of it. */\n\tleave_clock(tctx);\n",
        "all of it. */\n",
    );
    let pays: Edit = (
        "gpuaware.bpf.c",
        "class = is_boosted(tctx->run_as) ? tctx->run_as : tctx->class;",
        "class = tctx->class;",
    );
    let loops = vec![task("loop", Program::Loop); 4];
    let mut scenario = of("2", Scheduler::Gpuaware, 2000, loops);
    scenario.policy.max_share = 1.0;
    // It has run, and its vtime is known.
    scenario.changes = vec![
        (200_000_000, Change::Mark(0, Some(Class::Handoff))),
        (1_000_000_000, Change::Mark(0, None)),
    ];
    // A tenth of a second, four fifths, and half of what is left.
    let had = |outcome: &Outcome| outcome.tasks[0].cpu_ns as f64 / 1e9;
    let [begins_anew, with_lag] = both(&scenario, keeps_lag, had);
    assert!((1.35..1.48).contains(&begins_anew), "{begins_anew}");
    assert!(with_lag > 1.55, "{with_lag}");
    let with_debt = run_as(&mutant(&[keeps_lag, pays]), &scenario);
    assert!(had(&with_debt) < 1.25, "{}", had(&with_debt));
}
