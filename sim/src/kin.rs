// SPDX-License-Identifier: GPL-2.0-only
//! Threads of a launcher's process that are background themselves: what they save up, and what it costs others.

use crate::cgroups::CgroupSpec;
use crate::history::SchedEvent;
use crate::mutants::{Edit, mutant};
use crate::native::Scheduler;
use crate::program::{Program, Sync};
use crate::scenario::{Scenario, TaskSpec};
use crate::setup::Class;
use crate::simulation::{Outcome, Simulation};
use crate::tests::{of, task};

const MS: u64 = 1_000_000;

/// Each of `processes` has a launcher and these threads. They and `others` have two CPUs for eight seconds.
fn scenario(processes: Vec<Vec<TaskSpec>>, others: Vec<TaskSpec>) -> Scenario {
    let mut tasks = Vec::new();
    for kin in processes {
        let leader = tasks.len();
        let program = Program::Launcher {
            launch_ns: 2 * MS,
            gpu_ns: 16 * MS,
            sync: Sync::Block,
        };
        let launcher = TaskSpec {
            class: Some(Class::Launch),
            ..task("launcher", program)
        };
        tasks.push(launcher);
        tasks.extend(kin.into_iter().map(|spec| TaskSpec {
            leader: Some(leader),
            ..spec
        }));
    }
    of("2", Scheduler::Gpuaware, 8000, [tasks, others].concat())
}

fn run(object: &[u8], scenario: &Scenario) -> Outcome {
    let mut simulation = Simulation::with_object(scenario.clone(), object).unwrap();
    simulation.keep_history();
    let outcome = simulation.run().unwrap();
    assert_eq!(outcome.failure, None);
    outcome
}

fn periodic(name: &'static str, run_ns: u64, sleep_ns: u64) -> TaskSpec {
    let program = Program::Periodic {
        run_ns,
        sleep_ns,
        runs: 0,
    };
    task(name, program)
}

/// How long it takes who is called `name` from each wakeup until it sleeps again, the median in ms.
fn burst_ms(outcome: &Outcome, name: &str) -> u64 {
    let id = outcome.tasks.iter().position(|task| task.name == name);
    let id = id.unwrap();
    let (mut woken_ns, mut bursts) = (None, Vec::new());
    for recorded in outcome.history.iter().filter(|event| event.task == id) {
        match recorded.event {
            SchedEvent::Wakeup => woken_ns = Some(recorded.at_ns),
            SchedEvent::Blocked => {
                bursts.extend(woken_ns.take().map(|woken| recorded.at_ns - woken))
            }
            _ => {}
        }
    }
    bursts.sort_unstable();
    assert!(bursts.len() > 8, "{} bursts", bursts.len());
    bursts[bursts.len() / 2] / MS
}

/// How long naps last beyond what they ask for, in 99 of 100 cases, in ms.
fn late_ms(outcome: &Outcome) -> u64 {
    let naps = outcome.tasks.iter().filter(|task| task.name == "naps");
    let mut waits: Vec<u64> = naps.flat_map(|task| task.waits_ns.clone()).collect();
    waits.sort_unstable();
    assert!(waits.len() > 600, "{} naps", waits.len());
    waits[waits.len() * 99 / 100] / MS
}

/// CPU time of all who are called `name`, in ms.
fn cpu_ms(outcome: &Outcome, name: &str) -> u64 {
    let named = outcome.tasks.iter().filter(|task| task.name == name);
    named.map(|task| task.cpu_ns / MS).sum()
}

const ALL_IS_DRAWN: Edit = (
    "clock.bpf.h",
    "\tif (drawn > since * nr_cpus / DRAWN_PART)\n\t\tdrawn = since * nr_cpus / DRAWN_PART;\n",
    "",
);

const NOTHING_IS_SAVED: Edit = (
    "clock.bpf.h",
    "#define MAX_SAVED_SLICES 16",
    "#define MAX_SAVED_SLICES 0",
);

#[test]
fn a_thread_beside_a_launcher_has_what_it_saved_up_and_a_stranger_does_not() {
    // As the API server of an LLM: nothing for half a second, then many requests at once.
    let answers = |name| periodic(name, 25 * MS, 475 * MS);
    let loops = vec![task("loop", Program::Loop); 8];
    let others = [vec![answers("stranger")], loops].concat();
    let scenario = scenario(vec![vec![answers("kin")]], others);
    let with = run(Scheduler::Gpuaware.object(), &scenario);
    let without = run(&mutant(&[NOTHING_IS_SAVED]), &scenario);
    assert!(burst_ms(&with, "kin") < 40, "{} ms", burst_ms(&with, "kin"));
    for (outcome, name) in [(&with, "stranger"), (&without, "kin")] {
        let needed = burst_ms(outcome, name);
        assert!(needed > 70, "{name}: {needed} ms");
    }
}

#[test]
fn who_naps_beside_pools_of_launchers_processes_is_not_shut_out() {
    let naps = vec![periodic("naps", MS / 2, 20 * MS); 3];
    let others = [naps, vec![task("loop", Program::Loop); 2]].concat();
    let unbounded = mutant(&[ALL_IS_DRAWN]);
    // One process or several.
    for (processes, threads) in [(1, 8), (2, 4), (4, 2), (8, 1)] {
        let pool = vec![periodic("works", 80 * MS, 400 * MS); threads];
        let scenario = scenario(vec![pool; processes], others.clone());
        let late = late_ms(&run(Scheduler::Gpuaware.object(), &scenario));
        let without_bound = late_ms(&run(&unbounded, &scenario));
        assert!(late < 10, "{processes} processes: {late} ms");
        assert!(without_bound > 80, "{processes}: {without_bound} ms");
    }
}

#[test]
fn threads_beside_a_launcher_have_no_more_over_time_than_others() {
    let busy = |name| vec![periodic(name, 300 * MS, MS); 2];
    let sleepers = vec![periodic("sleeper", MS / 10, 100 * MS); 10];
    let scenario = scenario(vec![[busy("kin"), sleepers].concat()], busy("other"));
    let outcome = run(Scheduler::Gpuaware.object(), &scenario);
    let (kin, other) = (cpu_ms(&outcome, "kin"), cpu_ms(&outcome, "other"));
    assert!(kin.abs_diff(other) * 50 < other, "{kin} and {other} ms");
    // As if all had saved without end.
    let edits: [Edit; 2] = [
        (
            "clock.bpf.h",
            "\tif (drawn > tctx->saved_ns)\n\t\tdrawn = tctx->saved_ns;\n",
            "\ttctx->saved_ns = 1 << 30;\n",
        ),
        (
            "background.bpf.h",
            "\tif (tctx->saved_ns && !pinned)\n",
            "\tif (tctx->is_kin)\n",
        ),
    ];
    let outcome = run(&mutant(&edits), &scenario);
    let (kin, other) = (cpu_ms(&outcome, "kin"), cpu_ms(&outcome, "other"));
    assert!(kin * 10 > other * 12, "{kin} and {other} ms");
}

#[test]
fn a_cgroup_with_a_launchers_process_has_an_eighth_more_than_its_weight_at_most() {
    let within = |cgroup, spec| TaskSpec {
        cgroup: Some(cgroup),
        ..spec
    };
    let bursts = vec![within(0, periodic("ours", 20 * MS, 180 * MS)); 8];
    let loops = vec![within(0, task("ours", Program::Loop)); 2];
    let others = vec![within(1, task("theirs", Program::Loop)); 10];
    let mut scenario = scenario(vec![[bursts, loops].concat()], others);
    let cgroup = CgroupSpec {
        parent: None,
        weight: 100,
        quota_us: None,
    };
    scenario.cgroups = vec![cgroup; 2];
    let theirs = |object: &[u8]| cpu_ms(&run(object, &scenario), "theirs");
    let with = theirs(Scheduler::Gpuaware.object());
    let without = theirs(&mutant(&[NOTHING_IS_SAVED]));
    let unbounded = theirs(&mutant(&[ALL_IS_DRAWN]));
    assert!(unbounded < with && with < without, "{with} ms");
    // Of two CPUs for eight seconds.
    assert!(without - with < 16_000 / 8, "{with} and {without} ms");
}
