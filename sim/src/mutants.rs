// SPDX-License-Identifier: GPL-2.0-only
//! scx_gpuaware with a fault put in, such as it has had: the simulator finds each.

use std::path::Path;

use crate::cgroups::CgroupSpec;
use crate::changes::Change;
use crate::native::{Scheduler, compile_quickly};
use crate::nested::Interleaving;
use crate::program::Program;
use crate::scenario::{Scenario, TaskSpec};
use crate::setup::Class;
use crate::shrink::{only, shrink};
use crate::simulation::{Outcome, Simulation, TaskOutcome};
use crate::tests::{beside_real_time, done, held, launcher_beside_loops, of, run, task};

/// In a file of `bpf/`, text that is there once, and what takes its place.
pub(crate) type Edit = (&'static str, &'static str, &'static str);

pub(crate) fn mutant(edits: &[Edit]) -> Vec<u8> {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf");
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(&bpf).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    for (file, from, to) in edits {
        let path = folder.path().join(file);
        let source = std::fs::read_to_string(&path).unwrap();
        assert_eq!(source.matches(from).count(), 1, "{file}: {from}");
        std::fs::write(&path, source.replace(from, to)).unwrap();
    }
    compile_quickly(folder.path()).unwrap()
}

pub(crate) fn run_as(object: &[u8], scenario: &Scenario) -> Outcome {
    let simulation = Simulation::with_object(scenario.clone(), object).unwrap();
    simulation.run().unwrap()
}

/// `scenario` holds as the scheduler is, and fails with `edits` for that reason.
pub(crate) fn is_found_in(scenario: &Scenario, edits: &[Edit], reason: &str) {
    held(scenario);
    let failure = run_as(&mutant(edits), scenario).failure.unwrap();
    assert!(failure.text.contains(reason), "{failure}");
}

/// One of 300 random scenarios, which hold as the scheduler is, fails with `edits` for that reason.
pub(crate) fn is_found(edits: &[Edit], reason: &str) {
    let object = mutant(edits);
    let fails = |seed: &u64| {
        let failure = run_as(&object, &Scenario::random(*seed)).failure;
        failure.is_some_and(|failure| failure.text.contains(reason))
    };
    let seed = (51..351).find(fails).expect("no seed finds it");
    assert_eq!(run(&Scenario::random(seed)).failure, None);
}

/// The last one of a cgroup went to sleep while the first one woke up, and its parent counted it twice from then on.
#[test]
fn weights_that_leak() {
    let edit = (
        "cgroup.bpf.h",
        "\t\tweight = recount(cgc);\n",
        "\t\tif (weight < 0) {\n\t\t\tweight = -cgc->counted_weight;\n\t\t\tcgc->counted_weight = 0;\n\t\t} else {\n\
         \t\t\tweight = cgc->counted_weight = cgc->weight;\n\t\t}\n",
    );
    let cgroup = |parent| CgroupSpec {
        parent,
        weight: 300,
        quota_us: None,
    };
    let io = Program::Periodic {
        run_ns: 100_000,
        sleep_ns: 200_000,
        runs: 0,
    };
    let within = TaskSpec {
        cgroup: Some(1),
        ..task("io", io)
    };
    let mut scenario = of("4", Scheduler::Gpuaware, 2000, vec![within; 3]);
    scenario.cgroups = vec![cgroup(None), cgroup(Some(0))];
    let one_after_the_other = run_as(&mutant(&[edit]), &scenario);
    assert_eq!(one_after_the_other.failure, None);
    scenario.interleaving = Some(Interleaving {
        points: 8,
        window_ns: 50_000,
    });
    // As 9 of the seeds 1 to 30.
    scenario.seed = 1;
    is_found_in(&scenario, &[edit], "as runnable in it");
}

/// Handoff that may run on one CPU only starved behind a launcher there, as long as other handoff was served elsewhere.
#[test]
fn handoff_that_waits_behind_a_launcher() {
    let marked = |name, program, class, cpu| TaskSpec {
        class: Some(class),
        cpus: Some(vec![cpu]),
        ..task(name, program)
    };
    let io = Program::Periodic {
        run_ns: 100_000,
        sleep_ns: 1_000_000,
        runs: 0,
    };
    let tasks = vec![
        marked("launcher", Program::Loop, Class::Launch, 1),
        marked("handoff", Program::Loop, Class::Handoff, 0),
        marked("io", io, Class::Handoff, 1),
        task("loop", Program::Loop),
    ];
    let mut scenario = of("2", Scheduler::Gpuaware, 2000, tasks);
    scenario.policy.preferred = vec![1];
    scenario.policy.max_share = 1.0;
    let edit = (
        "background.bpf.h",
        "!first_handoff_is_overdue(cpu, now)",
        "true",
    );
    is_found_in(&scenario, &[edit], "io(1002) has waited for");
}

#[test]
fn idle_cpus_that_nobody_wakes() {
    is_found(
        &[
            (
                "pick.bpf.h",
                "static __always_inline void kick_idle_for_background(void)\n{",
                "static __always_inline void kick_idle_for_background(void)\n{\n\treturn;",
            ),
            (
                "background.bpf.h",
                "\tif (idle >= 0) {\n",
                "\tif (idle >= 0 && preempts) {\n",
            ),
        ],
        "is idle while",
    );
}

#[test]
fn the_light_who_starve() {
    is_found(
        &[("overdue.bpf.h", "\tsearch_overdue(cpu, now);\n", "")],
        "has waited for",
    );
}

/// Two heavy loops starve a light one; 20 that sleep have no part in it.
#[test]
fn a_failure_is_shrunk_to_what_it_needs() {
    let object = mutant(&[("overdue.bpf.h", "\tsearch_overdue(cpu, now);\n", "")]);
    let fails = |scenario: &Scenario| run_as(&object, scenario).failure;
    let sleeps = Program::Periodic {
        run_ns: 100_000,
        sleep_ns: 50_000_000,
        runs: 0,
    };
    let mut tasks = vec![task("sleeper", sleeps); 20];
    for (index, weight) in [(4, 3000), (11, 1), (17, 3000)] {
        let mut busy = task("loop", Program::Loop);
        busy.weight = weight;
        tasks.insert(index, busy);
    }
    let scenario = of("1", Scheduler::Gpuaware, 4000, tasks);
    let (parts, failure) = shrink(&scenario, &object).unwrap().unwrap();
    assert_eq!(fails(&only(&scenario, &parts)), Some(failure));
    let begin = only(&scenario, &parts).tasks.into_iter();
    let begin = begin.filter(|task| task.start_ns < scenario.length_ns);
    let names: Vec<&str> = begin.map(|task| task.name).collect();
    assert!(
        names.iter().filter(|name| **name == "loop").count() >= 2 && names.len() <= 4,
        "{names:?}"
    );
    assert_eq!(
        shrink(&scenario, Scheduler::Gpuaware.object()).unwrap(),
        None
    );
}

#[test]
fn tasks_that_are_left_behind_real_time_ones() {
    let edit = ("gpuaware.bpf.c", "\tscx_bpf_reenqueue_local___v1();\n", "");
    is_found_in(
        &beside_real_time(Scheduler::Gpuaware),
        &[edit],
        "CPU 1 is idle",
    );
}

#[test]
fn holds_that_nobody_ends() {
    let program = Program::Periodic {
        run_ns: 300_000,
        sleep_ns: 100_000,
        runs: 50,
    };
    let edits = [
        (
            "hold.bpf.h",
            "return next_expiry_ns && time_after(now, next_expiry_ns);",
            "return false;",
        ),
        (
            "hold.bpf.h",
            "if (!next_expiry_ns || time_before(now, hold_watch_at_ns))",
            "if (true)",
        ),
    ];
    is_found_in(
        &launcher_beside_loops(program),
        &edits,
        "CPU 1 is idle while",
    );
}

#[test]
fn holds_beyond_their_budget() {
    let edit = (
        "hold.bpf.h",
        "\tif (tokens > 0)\n\t\treturn true;\n",
        "\treturn true;\n",
    );
    is_found(&[edit], "holds kept CPUs from others");
}

/// Loops in one of two caches, so many, and two in the other.
fn crowded(count: usize, ms: u64) -> Scenario {
    let within = |cpus: [usize; 2]| TaskSpec {
        cpus: Some(cpus.to_vec()),
        ..task("loop", Program::Loop)
    };
    let mut tasks = vec![within([0, 1]); count];
    tasks.extend(vec![within([2, 3]); 2]);
    of("4x2", Scheduler::Gpuaware, ms, tasks)
}

/// Vtimes of two caches' clocks were compared: who came from a crowded cache, whose clock is slow, went before all.
#[test]
fn vtimes_of_different_clocks() {
    let edit = (
        "clock.bpf.h",
        "\tif (tctx->vtime_dsq != dsq)\n",
        "\tif (false)\n",
    );
    let mut scenario = crowded(10, 2400);
    // The first one leaves the crowd.
    let leaves = Change::Affinity(0, vec![2, 3]);
    let mut before = scenario.clone();
    before.length_ns = 2_000_000_000;
    scenario.changes = vec![(before.length_ns, leaves)];
    let share = |object: &[u8]| {
        let [before, after] = [&before, &scenario].map(|scenario| run_as(object, scenario));
        (after.tasks[0].cpu_ns - before.tasks[0].cpu_ns) as f64 / 400e6
    };
    let fair = share(Scheduler::Gpuaware.object());
    assert!((0.5..0.8).contains(&fair), "{fair}");
    let unfair = share(&mutant(&[edit]));
    assert!(unfair > 0.9, "{unfair}");
}

/// Nobody who woke up preempted background of the same queue.
#[test]
fn preemption_that_is_dead() {
    let io = Program::Periodic {
        run_ns: 100_000,
        sleep_ns: 20_000_000,
        runs: 0,
    };
    let tasks = vec![
        task("loop", Program::Loop),
        task("loop", Program::Loop),
        task("io", io),
    ];
    let scenario = of("1", Scheduler::Gpuaware, 2000, tasks);
    let edit = (
        "background.bpf.h",
        "return time_before(after, cctx->runs_vtime);",
        "return false;",
    );
    let mean_wait = |outcome: &Outcome| {
        let waits = &outcome.tasks[2].waits_ns;
        assert!(waits.len() > 50, "{}", waits.len());
        waits.iter().sum::<u64>() / waits.len() as u64
    };
    let short = mean_wait(&held(&scenario));
    assert!(short < 500_000, "{short}");
    let long = mean_wait(&run_as(&mutant(&[edit]), &scenario));
    assert!(long > 3 * short && long > 1_000_000, "{long}");
}

/// With two threads a core, background went to another cache at each wakeup.
#[test]
fn wakeups_that_roam() {
    let io = Program::Periodic {
        run_ns: 100_000,
        sleep_ns: 300_000,
        runs: 0,
    };
    let mut scenario = of(
        "16x4x1x2",
        Scheduler::Gpuaware,
        400,
        vec![task("io", io); 4],
    );
    scenario.costs.llc_ns = 200_000;
    let edit = (
        "pick.bpf.h",
        "if (!__COMPAT_HAS_scx_bpf_select_cpu_and)\n",
        "if (true)\n",
    );
    let near = done(&held(&scenario), "io");
    let far = done(&run_as(&mutant(&[edit]), &scenario), "io");
    assert!(far * 100 < near * 85, "{far} and {near}");
}

/// The end of a hold lent a CPU that the policy does not lend.
#[test]
fn cpus_that_are_lent_in_spite_of_the_policy() {
    let launcher = TaskSpec {
        class: Some(Class::Launch),
        ..task(
            "launcher",
            Program::Periodic {
                run_ns: 300_000,
                sleep_ns: 300_000,
                runs: 0,
            },
        )
    };
    let io = Program::Periodic {
        run_ns: 50_000,
        sleep_ns: 50_000,
        runs: 0,
    };
    let mut tasks = vec![task("io", io); 4];
    tasks.push(launcher);
    let mut scenario = of("2", Scheduler::Gpuaware, 400, tasks);
    scenario.policy.preferred = vec![1];
    scenario.policy.lend = false;
    let edits = [
        (
            "preferred.bpf.h",
            "if (lendable && tunables.lend)",
            "if (lendable)",
        ),
        (
            "gpuaware.bpf.c",
            "(!queues_at_cpu(p) && is_closed_to(tctx, cpu, cctx, now))",
            "false",
        ),
    ];
    let idle = |outcome: &Outcome| outcome.idle_by_cpu[1] as f64 / outcome.length_ns as f64;
    let kept = idle(&held(&scenario));
    assert!((0.4..0.55).contains(&kept), "{kept}");
    let lent = idle(&run_as(&mutant(&edits), &scenario));
    assert!(lent < 0.8 * kept, "{lent} and {kept}");
}

/// The clock stood still while a task went on: who came then was placed far before it.
#[test]
fn a_clock_that_stands_still() {
    let mut late = task("late", Program::Loop);
    late.start_ns = 2_000_000_000;
    let scenario = of(
        "1",
        Scheduler::Gpuaware,
        2400,
        vec![task("loop", Program::Loop), late],
    );
    let edit = (
        "background.bpf.h",
        "\tstart_on_clock(prev, tctx, cctx, background_queue(prev, cpu));\n",
        "",
    );
    let shares = |outcome: &Outcome| outcome.tasks[1].cpu_ns as f64 / 400e6;
    let fair = shares(&held(&scenario));
    assert!((0.4..0.6).contains(&fair), "{fair}");
    let unfair = shares(&run_as(&mutant(&[edit]), &scenario));
    assert!(unfair > 0.75, "{unfair}");
}

/// A cache with many tasks beside one with few kept them for ever.
#[test]
fn caches_that_stay_crowded() {
    let mut scenario = crowded(12, 4000);
    let all: Vec<usize> = (0..4).collect();
    scenario.changes = (0..14)
        .map(|id| (100_000_000, Change::Affinity(id, all.clone())))
        .collect();
    let edit = (
        "gpuaware.bpf.c",
        "pull_from_crowded(cpu, cctx, now))\n",
        "false)\n",
    );
    let most_over_least = |outcome: &Outcome| {
        let times = outcome.tasks.iter().map(|task| task.cpu_ns);
        times.clone().max().unwrap() as f64 / times.min().unwrap() as f64
    };
    let fair = most_over_least(&held(&scenario));
    assert!(fair < 2.0, "{fair}");
    let unfair = most_over_least(&run_as(&mutant(&[edit]), &scenario));
    assert!(unfair > 3.0, "{unfair}");
}

/// Only in the first of the caches did a task that woke up preempt: in others it waited for the end of a slice.
#[test]
fn wakeups_that_preempt_in_one_cache_only() {
    // Slices are short where nobody launches.
    let launcher = |cpu| TaskSpec {
        class: Some(Class::Launch),
        cpus: Some(vec![cpu]),
        ..task("launcher", Program::Loop)
    };
    let nap = Program::Periodic {
        run_ns: 100_000,
        sleep_ns: 15_000_000,
        runs: 0,
    };
    let mut tasks = vec![launcher(0), launcher(3), task("nap", nap)];
    tasks.extend((0..8).map(|_| task("loop", Program::Loop)));
    let mut scenario = of("6x2", Scheduler::Gpuaware, 3000, tasks);
    scenario.policy.preferred = vec![0, 3];
    scenario.policy.max_share = 1.0;
    // From one cache to the other and back, awake or asleep.
    scenario.changes = (0..70)
        .map(|turn: u64| {
            let first = if turn.is_multiple_of(2) { 3 } else { 0 };
            let cpus = (first..first + 3).collect();
            (turn * 41_000_000, Change::Affinity(2, cpus))
        })
        .collect();
    let edit = (
        "background.bpf.h",
        "if (cctx->runs_dsq == dsq)\n",
        "if (cctx->runs_dsq == dsq && dsq == background_dsq(0))\n",
    );
    let slow = |outcome: &Outcome| {
        let waits = &outcome.tasks[2].waits_ns;
        let slow = waits.iter().filter(|&&wait| wait > 1_500_000).count();
        slow as f64 / waits.len() as f64
    };
    let few = slow(&held(&scenario));
    assert!(few < 0.05, "{few}");
    let many = slow(&run_as(&mutant(&[edit]), &scenario));
    assert!(many > 0.2, "{many}");
}

/// With one clock for all queues those of a crowded cache fell behind it, were capped again and again, and lost their
/// weights.
#[test]
fn one_clock_for_all_queues() {
    let mut scenario = crowded(12, 6000);
    for task in &mut scenario.tasks[..6] {
        task.weight = 300;
    }
    let edits = [
        (
            "clock.bpf.h",
            "\tif (dsq >= DSQ_PINNED) {\n",
            "\tif (false) {\n",
        ),
        (
            "clock.bpf.h",
            "llc_ctx(dsq - DSQ_BACKGROUND);",
            "llc_ctx(0);",
        ),
    ];
    let heavy_over_light = |outcome: &Outcome| {
        let cpu_ns = |tasks: &[_]| {
            tasks
                .iter()
                .map(|task: &TaskOutcome| task.cpu_ns)
                .sum::<u64>()
        };
        cpu_ns(&outcome.tasks[..6]) as f64 / cpu_ns(&outcome.tasks[6..12]) as f64
    };
    let fair = heavy_over_light(&held(&scenario));
    assert!((2.85..3.15).contains(&fair), "{fair}");
    let unfair = heavy_over_light(&run_as(&mutant(&edits), &scenario));
    assert!(unfair < 2.0, "{unfair}");
}
