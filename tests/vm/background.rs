// SPDX-License-Identifier: GPL-2.0-only
//! Nobody starves.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::length;
use crate::process::{Process, busy_loops, gpu_launch};

use super::machine::{mark_launch, nr_cpus, pin, pin_to, preferred_cpu, set_affinity};
use super::shared::beside_the_scheduler;

/// CPU time per second of `background` on the preferred CPU, where `nr_launchers` spin.
fn shares_beside(nr_launchers: usize, nr_background: usize) -> Vec<f64> {
    // Hundreds of slices, or tens of those that background has.
    let window = Duration::from_secs(length::of(4, 10));
    let on_preferred = |count: usize| {
        let processes = busy_loops(count);
        for process in &processes {
            pin(process, preferred_cpu());
        }
        processes
    };
    let launchers = on_preferred(nr_launchers);
    for launcher in &launchers {
        mark_launch(launcher.pid());
    }
    let background = on_preferred(nr_background);
    std::thread::sleep(Duration::from_secs(1));
    let before: Vec<_> = background.iter().map(Process::cpu_time).collect();
    std::thread::sleep(window);
    let ran = background.iter().zip(before);
    let shares = ran
        .map(|(process, before)| (process.cpu_time() - before).as_secs_f64() / window.as_secs_f64())
        .collect();
    // Who is killed dies when it is its turn to run.
    drop(launchers);
    shares
}

/// min_share is 5 %: within a fifth.
const MIN_SHARE: std::ops::Range<f64> = 0.04..0.06;

#[test]
#[ignore = "runs in the lab: make test"]
fn background_pinned_to_a_preferred_cpu_gets_its_minimum_share() {
    beside_the_scheduler("", |_| {
        for nr_launchers in [1, 2] {
            let share = shares_beside(nr_launchers, 1)[0];
            assert!(
                MIN_SHARE.contains(&share),
                "beside {nr_launchers} launchers it got {share:.3} of the CPU"
            );
        }
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn several_that_are_pinned_to_a_preferred_cpu_divide_the_minimum_share() {
    beside_the_scheduler("", |_| {
        let shares = shares_beside(1, 3);
        let together: f64 = shares.iter().sum();
        assert!(
            MIN_SHARE.contains(&together) && shares.iter().all(|&share| share > 0.01),
            "of the CPU they got {shares:.3?}"
        );
    });
}

/// Each of so many waits for most of a second for its turn, so that all are overdue: that adds nothing to what is owed
/// to all of them.
#[test]
#[ignore = "runs in the lab: make test"]
fn a_crowd_that_is_pinned_to_a_preferred_cpu_takes_no_more_than_the_minimum_share() {
    beside_the_scheduler("", |_| {
        let shares = shares_beside(1, 12);
        let together: f64 = shares.iter().sum();
        println!("together they got {together:.4} of the CPU");
        assert!(
            MIN_SHARE.contains(&together) && shares.iter().all(|&share| share > 0.0),
            "of the CPU they got {shares:.3?}"
        );
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn weights_share_the_cpu() {
    beside_the_scheduler("[preferred]\ncpus = \"0\"\n", |_| {
        let cpu = preferred_cpu();
        let tasks = busy_loops(2);
        for task in &tasks {
            pin(task, cpu);
        }
        // nice 5 weighs 335 where nice 0 weighs 1024.
        let renice = Command::new("renice")
            .args(["-n", "5", "-p", &tasks[1].pid().to_string()])
            .stdout(Stdio::null())
            .status();
        assert!(renice.expect("renice").success());
        std::thread::sleep(Duration::from_secs(1));
        let before: Vec<_> = tasks.iter().map(Process::cpu_time).collect();
        std::thread::sleep(Duration::from_secs(length::of(3, 8)));
        let ran: Vec<f64> = tasks
            .iter()
            .zip(before)
            .map(|(task, before)| (task.cpu_time() - before).as_secs_f64())
            .collect();
        let ratio = ran[0] / ran[1];
        assert!(
            (2.3..4.0).contains(&ratio),
            "1024:335 became {ratio:.2} ({ran:?})"
        );
    });
}

/// How late this thread runs after each of `count` naps; it works for a part of each.
fn naps(count: usize, nap: Duration, work: Duration) -> Vec<Duration> {
    let nap_once = |_| {
        let start = Instant::now();
        std::thread::sleep(nap);
        let late = start.elapsed() - nap;
        while start.elapsed() < nap + late + work {}
        late
    };
    (0..count).map(nap_once).collect()
}

/// The median of how late a thread runs after naps beside `busy`, all on `cpu` if pinned.
fn median_late(thread_is_pinned: bool, busy: &[Process], busy_are_pinned: bool) -> Duration {
    let cpu = (0..nr_cpus())
        .find(|&cpu| cpu != preferred_cpu())
        .expect("a CPU that is not preferred");
    let theirs = if busy_are_pinned {
        vec![cpu]
    } else {
        (0..nr_cpus()).collect()
    };
    for process in busy {
        pin_to(process, &theirs);
    }
    let napper = std::thread::spawn(move || {
        if thread_is_pinned {
            set_affinity(i64::from(nix::unistd::gettid().as_raw()), &[cpu]);
        }
        // The first ones show how little it uses.
        naps(50, Duration::from_millis(10), Duration::from_micros(500));
        let count = length::of(100, 200);
        naps(count, Duration::from_millis(10), Duration::from_micros(500))
    });
    let mut late = napper.join().expect("naps");
    late.sort();
    late[late.len() / 2]
}

/// The preferred CPU is a launcher's all the time, so slices are of 4 ms: half of one is what a wakeup waits for the
/// end of one, at the median.
#[test]
#[ignore = "runs in the lab: make test"]
fn who_wakes_far_behind_does_not_wait_for_the_end_of_a_slice() {
    beside_the_scheduler("[guard]\nmax_share = \"100%\"\n", |_| {
        let launcher = busy_loops(1);
        mark_launch(launcher[0].pid());
        let busy = busy_loops(4);
        for (thread, others) in [(false, false), (true, true), (true, false), (false, true)] {
            let late = median_late(thread, &busy, others);
            println!("pinned {thread} beside pinned {others}: late by {late:?} at the median");
            // Emulated CPUs take up to one to get there.
            assert!(
                late < Duration::from_micros(1500),
                "pinned: {thread}, the busy ones: {others}; late by {late:?} at the median"
            );
        }
    });
}

/// Fails unless 99 of 100 naps, as of a shell between two keys, end late by less than `limit`.
fn assert_responsive(limit: Duration) {
    let count = length::of(250, 500);
    let mut late = naps(count, Duration::from_millis(10), Duration::ZERO);
    late.sort();
    let [p50, p99, worst] = [count / 2, count - 1 - count / 100, count - 1].map(|rank| late[rank]);
    assert!(
        p99 < limit,
        "woken late by {p50:?} (p50), {p99:?} (p99), {worst:?} (worst)"
    );
}

#[test]
#[ignore = "runs in the lab: make test"]
fn interactive_background_stays_responsive() {
    beside_the_scheduler("", |_| {
        let _busy = busy_loops(3 * nr_cpus());
        let mut command = gpu_launch("--profile eager --duration 60");
        command.stdout(Stdio::null());
        let _launcher = Process::start(command);
        std::thread::sleep(Duration::from_secs(2));
        assert_responsive(Duration::from_millis(20));
        // Launchers that would take every CPU: the guard and the minimum share leave gaps in a tenth of a
        // second.
        let spinners = busy_loops(nr_cpus() - 1);
        for spinner in &spinners {
            mark_launch(spinner.pid());
        }
        std::thread::sleep(Duration::from_secs(1));
        assert_responsive(Duration::from_millis(100));
    });
}
