// SPDX-License-Identifier: GPL-2.0-only
//! What launchers get.

use std::cell::Cell;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::length;
use crate::process::{Process, busy_loop, busy_loops, gpu_launch};

use super::machine::{
    Since, cpu_of, involuntary, launching_threads, mark, mark_launch, nr_cpus, pin, preferred_cpu,
    waker,
};
use super::shared::beside_the_scheduler;

fn result_of(args: &str) -> serde_json::Value {
    let mut command = gpu_launch(args);
    command.stdout(Stdio::piped());
    let mut workload = Process::start(command);
    workload.wait();
    serde_json::from_str(&workload.stdout()).expect("JSON")
}

/// Times that its launching threads lost their CPU against their will.
fn preempted(result: &serde_json::Value) -> u64 {
    result["context_switches"]["involuntary"]
        .as_u64()
        .expect("a count")
}

/// Where a thread ran last, every 20 ms; fewer than `count` if it has ended.
fn cpus_of(pid: i32, tid: i64, count: usize) -> Vec<usize> {
    (0..count)
        .filter_map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            cpu_of(pid, tid)
        })
        .collect()
}

#[test]
#[ignore = "runs in the lab: make test"]
fn launcher_stays_on_a_preferred_cpu_beside_busy_neighbours() {
    // Whatever interrupts take, as below: another CPU stands in for one that they took too much of.
    beside_the_scheduler("[irq]\navoid = false\n", |_| {
        let neighbours = busy_loops(2 * nr_cpus());
        let mut command = gpu_launch("--profile eager --duration 60");
        command.stdout(Stdio::null());
        let workload = Process::start(command);
        let tid = launching_threads(workload.pid(), 1)[0];
        // A move to a preferred CPU is made at a wakeup.
        std::thread::sleep(Duration::from_millis(500));
        let mut since = Since::now();
        let samples = cpus_of(workload.pid(), tid, 100);
        let on_preferred = |&&cpu: &&usize| cpu == preferred_cpu();
        let preferred = samples.iter().filter(on_preferred).count();
        assert!(samples.len() > 50, "the launcher ended early");
        assert!(
            preferred * 10 >= samples.len() * 9,
            "{preferred} of {}: {samples:?}; {}",
            samples.len(),
            since.of_launchers()
        );
        // They had the rest.
        assert!(
            neighbours
                .iter()
                .all(|neighbour| neighbour.cpu_time() >= Duration::from_millis(10))
        );
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn waiting_by_yield_is_no_switch_storm() {
    beside_the_scheduler("[preferred]\nlend_yields_us = 0\n", |_| {
        let _neighbours = busy_loops(nr_cpus());
        let result = result_of("--profile eager --sync yield --warmup-tokens 50 --duration 4");
        let switches =
            preempted(&result) + result["context_switches"]["voluntary"].as_u64().unwrap();
        let launches = result["launches"].as_u64().unwrap();
        // EEVDF switches on most yields: tens of thousands for 1,000 launches.
        assert!(
            switches * 1000 / launches < 200,
            "{switches} switches for {launches} launches"
        );
    });
}

/// CPU seconds per second that neighbours get beside a launcher that waits by `sched_yield()`, and its tokens per second.
fn beside_yields(policy: &str) -> (f64, f64) {
    let seen = Cell::default();
    beside_the_scheduler(policy, |_| {
        let neighbours = busy_loops(2 * nr_cpus());
        let total = || -> f64 {
            let times = neighbours.iter().map(|it| it.cpu_time().as_secs_f64());
            times.sum()
        };
        let (before, start) = (total(), Instant::now());
        let result = result_of(
            "--profile eager --sync yield --set last_kernel_ns=10000000 --warmup-tokens 50 --duration 4",
        );
        let share = (total() - before) / start.elapsed().as_secs_f64();
        seen.set((share, result["tokens_per_s"].as_f64().expect("a rate")));
    });
    seen.get()
}

/// In emulation two switches, with all callbacks, take a fifth of a millisecond.
#[test]
#[ignore = "runs in the lab: make test"]
fn who_waits_by_yield_lends_its_cpu_where_the_policy_says_so() {
    let (kept, alone) = beside_yields("[preferred]\nlend_yields_us = 0\n");
    let (lent, tokens) = beside_yields("[preferred]\nlend_yields_us = 1000\n");
    println!(
        "neighbours got {kept:.2} and {lent:.2} CPUs, {alone:.1} and {tokens:.1} tokens a second"
    );
    assert!(lent > kept + 0.3, "{lent:.2} of {kept:.2}");
    assert!(tokens > 0.8 * alone, "{tokens:.1} of {alone:.1}");
}

#[test]
#[ignore = "runs in the lab: make test"]
fn launchers_in_excess_share_in_turns() {
    beside_the_scheduler("", |_| {
        let spinners = busy_loops(nr_cpus() + 1);
        for spinner in &spinners {
            mark_launch(spinner.pid());
        }
        std::thread::sleep(Duration::from_secs(1));
        let before: Vec<_> = spinners.iter().map(Process::cpu_time).collect();
        let window = Duration::from_secs(length::of(3, 5));
        std::thread::sleep(window);
        for (spinner, before) in spinners.iter().zip(before) {
            let ran = spinner.cpu_time() - before;
            assert!(ran > window / 5, "a launcher ran {ran:?} of {window:?}");
        }
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn handoff_keeps_off_the_cpu_that_a_launcher_comes_back_to() {
    // Whatever interrupts take: the other CPU would be the launcher's where they took too much of this one.
    beside_the_scheduler("[irq]\navoid = false\n", |_| {
        let mut command = gpu_launch("--profile eager --sync block --duration 60");
        command.stdout(Stdio::null());
        let workload = Process::start(command);
        launching_threads(workload.pid(), 1);
        let handoff = waker();
        mark(handoff.pid(), "handoff");
        std::thread::sleep(Duration::from_millis(500));
        let cpus: Vec<_> = (0..100)
            .filter_map(|_| {
                std::thread::sleep(Duration::from_millis(20));
                cpu_of(handoff.pid(), handoff.pid().into())
            })
            .collect();
        let beside = cpus.iter().filter(|&&cpu| cpu == preferred_cpu()).count();
        println!("{beside} of {} times on the launcher's CPU", cpus.len());
        assert!(cpus.len() == 100 && beside < 40, "{beside}: {cpus:?}");
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn launchers_pinned_to_one_cpu_disturb_nobody_elsewhere() {
    beside_the_scheduler("", |_| {
        let launchers = busy_loops(2);
        for launcher in &launchers {
            pin(launcher, preferred_cpu());
            mark_launch(launcher.pid());
        }
        let other = Process::start(busy_loop());
        std::thread::sleep(Duration::from_secs(1));
        let switches = || involuntary(other.pid());
        let (before, ran, began) = (switches(), other.cpu_time(), Instant::now());
        std::thread::sleep(Duration::from_secs(4));
        let share = (other.cpu_time() - ran).as_secs_f64() / began.elapsed().as_secs_f64();
        let switches = switches() - before;
        println!(
            "background ran {:.0} % of it, {switches} switches",
            share * 100.0
        );
        assert!(share > 0.8, "background ran {:.0} % of it", share * 100.0);
        // A switch a slice is 200; kicked whenever it begins it would be thousands.
        assert!(switches < 1000, "{switches} switches in 4 s");
    });
}
