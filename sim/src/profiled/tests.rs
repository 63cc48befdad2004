// SPDX-License-Identifier: GPL-2.0-only
//! Profiles of known loads, simulated. Counts and shares only.

use gpuaware_trace::profile::{Class as Recorded, Cpu, Policy as Kernels, VERSION, WokenBy};

use super::*;
use crate::simulation::{Outcome, Simulation};
use crate::tests::held;

const SECOND: u64 = 1_000_000_000;

fn times(us: u64, count: u64) -> Histogram {
    let mut one = Histogram::default();
    one.add(us * 1000);
    one.0[0].1 = count;
    one
}

/// A thread that runs and sleeps for so long, for as long as it was recorded.
fn group(run_us: u64, sleep_us: u64) -> Group {
    let runs = 4_000_000 / (run_us + sleep_us);
    Group {
        threads: 1,
        alive_ns: 4 * SECOND,
        kernel: false,
        class: Recorded::Background,
        nice: 0,
        policy: Kernels::Normal,
        affinity: Affinity::All,
        cpu_ns: runs * run_us * 1000,
        ready_ns: 0,
        preempted: 0,
        yielded: 0,
        run: times(run_us, runs),
        sleep_alone: times(sleep_us, runs),
        sleep_awaited: Histogram::default(),
        wait: Histogram::default(),
        woken_by: WokenBy::default(),
    }
}

fn profile(groups: Vec<Group>) -> Profile {
    let cpus: Vec<Cpu> = (0..4)
        .map(|core| Cpu {
            core,
            llc: core / 2,
            node: 0,
        })
        .collect();
    Profile {
        schema: VERSION,
        length_ns: 4 * SECOND,
        hz: Some(1000),
        interrupts: vec![profile::Interrupts::default(); cpus.len()],
        machine: profile::Machine {
            cpus,
            gpus: vec![0],
        },
        quiet_threads: 0,
        missed: 0,
        groups,
    }
}

fn setting(profile: &Profile, shape: Option<&str>, scheduler: Scheduler) -> Setting {
    let machine = match shape {
        Some(shape) => Machine::parse(shape).unwrap(),
        None => machine(&profile.machine).unwrap(),
    };
    Setting {
        policy: Policy::native(&machine),
        machine,
        scheduler,
        hz: None,
        length_ns: 2 * SECOND,
        seed: 1,
        how: How::default(),
    }
}

fn profiled(profile: &Profile, shape: Option<&str>, scheduler: Scheduler) -> Profiled {
    Profiled::new(profile, setting(profile, shape, scheduler)).unwrap()
}

fn run(profile: &Profile, scheduler: Scheduler) -> Outcome {
    held(&profiled(profile, None, scheduler).scenario)
}

fn near(measured: f64, wanted: f64) {
    assert!(
        (measured / wanted - 1.0).abs() < 0.1,
        "{measured}, not {wanted}"
    );
}

fn share(outcome: &Outcome, task: usize) -> f64 {
    outcome.tasks[task].cpu_ns as f64 / outcome.length_ns as f64
}

#[test]
fn a_thread_has_the_share_of_a_cpu_that_it_was_recorded_with() {
    let mut many = group(300, 700);
    (many.threads, many.alive_ns, many.cpu_ns) = (3, 12 * SECOND, 3 * many.cpu_ns);
    let recorded = profile(vec![group(2000, 8000), group(50, 20), many]);
    for scheduler in [Scheduler::Eevdf, Scheduler::Gpuaware] {
        let outcome = run(&recorded, scheduler);
        near(share(&outcome, 0), 0.2);
        near(share(&outcome, 1), 50.0 / 70.0);
        assert_eq!(outcome.tasks.len(), 5);
        near((2..5).map(|task| share(&outcome, task)).sum(), 0.9);
    }
}

#[test]
fn a_thread_that_never_slept_is_a_loop() {
    let mut busy = group(1000, 1000);
    busy.sleep_alone = Histogram::default();
    let outcome = run(&profile(vec![busy]), Scheduler::Eevdf);
    assert!(share(&outcome, 0) > 0.99, "{}", share(&outcome, 0));
}

/// A thousand of them, each alive for 2 ms, one after the other for half of the time.
#[test]
fn threads_that_came_and_went_do_as_much_in_all() {
    let mut short = group(2000, 0);
    (short.threads, short.alive_ns) = (1000, 2 * SECOND);
    short.run = times(2000, 1000);
    short.sleep_alone = Histogram::default();
    short.cpu_ns = 2 * SECOND;
    let recorded = profile(vec![short]);
    let outcome = run(&recorded, Scheduler::Eevdf);
    assert_eq!(outcome.tasks.len(), 1);
    near(share(&outcome, 0), 0.5);
}

/// Each run ends with a wakeup of the other, which nobody else wakes.
#[test]
fn a_pair_takes_turns_as_often_as_it_did() {
    let half = |other| {
        let mut half = group(100, 150);
        half.sleep_awaited = std::mem::take(&mut half.sleep_alone);
        half.woken_by.groups = vec![(other, half.run.count())];
        half
    };
    let mut recorded = profile(vec![half(1), half(0)]);
    for (at, group) in recorded.groups.iter_mut().enumerate() {
        // As a recording is: some wakeups at its edges are not in it.
        group.woken_by.groups[0].1 -= 5 * at as u64;
    }
    let outcome = run(&recorded, Scheduler::Eevdf);
    // 100 µs each and a switch: the sleeps are what the other one runs, not what is drawn.
    let done = outcome.tasks.iter().map(|task| task.done as f64 / 2.0);
    let done: Vec<f64> = done.collect();
    assert!(
        done.iter().all(|runs| (4000.0..5000.0).contains(runs)),
        "{done:?}"
    );
    let together = share(&outcome, 0) + share(&outcome, 1);
    assert!(together < 1.05, "they do not run side by side: {together}");
}

#[test]
fn launchers_are_launchers_and_kernel_threads_stay_on_their_cpus() {
    let mut launcher = group(1000, 500);
    launcher.class = Recorded::Launch;
    let mut kernel = group(100, 9900);
    (kernel.threads, kernel.alive_ns, kernel.kernel) = (4, 16 * SECOND, true);
    kernel.affinity = Affinity::Each(vec![0, 1, 2, 3]);
    let mut above = group(100, 900);
    above.policy = Kernels::RealTime;
    let mut recorded = profile(vec![launcher, kernel, above]);
    recorded.interrupts[3].soft = Count(4000, 40_000_000);
    let here = profiled(&recorded, None, Scheduler::Gpuaware);
    let tasks = &here.scenario.tasks;
    assert_eq!(
        (tasks[0].class, tasks[0].gpu),
        (Some(Class::Launch), Some(0))
    );
    assert_eq!(
        (&tasks[4].cpus, tasks[4].is_kthread),
        (&Some(vec![3]), true)
    );
    assert_eq!(
        (here.scenario.above.len(), here.scenario.costs.tick_ns),
        (1, 1_000_000)
    );
    let interrupts = &here.scenario.interrupts[0];
    assert_eq!((interrupts.cpu, interrupts.period_ns), (3, 1_000_000));
    assert!(here.notes.is_empty(), "{:?}", here.notes);
    held(&here.scenario);
    let smaller = profiled(&recorded, Some("2"), Scheduler::Gpuaware);
    let notes = smaller.notes.join("; ");
    assert!(notes.contains("2 threads may run anywhere"), "{notes}");
    assert!(notes.contains("interrupts of CPUs 2 to 3"), "{notes}");
    held(&smaller.scenario);
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let recorded = profile(vec![group(50, 20), group(700, 300)]);
    let mut scenario = profiled(&recorded, None, Scheduler::Gpuaware).scenario;
    let hash = |scenario: &Scenario| {
        Simulation::new(scenario.clone())
            .unwrap()
            .run()
            .unwrap()
            .hash
    };
    assert_eq!(hash(&scenario), hash(&scenario));
    let first = hash(&scenario);
    scenario.seed = 2;
    assert_ne!(hash(&scenario), first);
}

/// A launcher that another thread wakes, that thread, a neighbour that woke it once, and a thread of the kernel's.
fn host() -> Profile {
    let mut launcher = group(500, 500);
    launcher.class = Recorded::Launch;
    launcher.sleep_awaited = std::mem::take(&mut launcher.sleep_alone);
    launcher.woken_by.groups = vec![(1, launcher.run.count() - 1), (2, 1)];
    let mut kernel = group(10, 990);
    kernel.kernel = true;
    profile(vec![launcher, group(100, 900), group(600, 400), kernel])
}

#[test]
fn launchers_alone_have_those_that_they_wait_for_and_no_neighbours() {
    let profile = host();
    let mut setting = setting(&profile, None, Scheduler::Eevdf);
    setting.how.alone = true;
    let outcome = held(&Profiled::new(&profile, setting).unwrap().scenario);
    let names: Vec<&str> = outcome.tasks.iter().map(|task| task.name).collect();
    assert_eq!(names, ["launcher", "partner", "kernel"]);
    near(share(&outcome, 0), 0.5);
    // A turn is its run, with the switch to it.
    let turns = &outcome.tasks[0].turns_ns;
    near(turns.len() as f64, 2000.0);
    near(
        turns.iter().sum::<u64>() as f64 / turns.len() as f64,
        500_000.0,
    );
}

#[test]
fn a_comparison_says_where_launchers_and_neighbours_run() {
    let profile = host();
    let mut setting = setting(&profile, None, Scheduler::Eevdf);
    setting.how.launcher_cpus = Some(vec![3]);
    setting.how.nice = Some(-10);
    setting.how.other_cpus = Some(vec![0, 1]);
    let tasks = Profiled::new(&profile, setting).unwrap().scenario.tasks;
    assert_eq!((&tasks[0].cpus, tasks[0].weight), (&Some(vec![3]), 931));
    assert_eq!((&tasks[1].cpus, tasks[1].weight), (&None, 100));
    assert_eq!((&tasks[2].cpus, tasks[2].weight), (&Some(vec![0, 1]), 100));
    assert_eq!(tasks[3].cpus, None);
}
