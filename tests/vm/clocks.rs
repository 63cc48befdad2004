// SPDX-License-Identifier: GPL-2.0-only
//! Whose turn it is among background that did not come through the same queue: virtual times of
//! several clocks must never be compared.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::machine::{nr_cpus, set_affinity};
use super::shared::beside_the_scheduler;

/// CPU time of this thread.
fn cpu_time() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock"))
}

fn spin_until(end: Instant) {
    while Instant::now() < end {}
}

/// A thread on `cpus` that spins from `start` until `end`. Returns the CPU time that it had from `counted` on.
fn spinner(
    cpus: Vec<usize>,
    start: Instant,
    counted: Instant,
    end: Instant,
) -> std::thread::JoinHandle<Duration> {
    std::thread::spawn(move || {
        set_affinity(i64::from(nix::unistd::gettid().as_raw()), &cpus);
        std::thread::sleep(start.saturating_duration_since(Instant::now()));
        spin_until(counted);
        let before = cpu_time();
        spin_until(end);
        cpu_time() - before
    })
}

fn sum(spinners: Vec<std::thread::JoinHandle<Duration>>) -> f64 {
    let times = spinners.into_iter().map(|one| one.join().expect("spins"));
    times.sum::<Duration>().as_secs_f64()
}

/// What as many threads as CPUs get beside as many that had the machine to themselves for `alone` first: their
/// part of both, over `rounds`.
fn part_of_the_later(alone: Duration, rounds: usize) -> f64 {
    let all: Vec<usize> = (0..nr_cpus()).collect();
    let [mut first, mut later] = [0.0; 2];
    for _ in 0..rounds {
        // Idle CPUs to start on.
        std::thread::sleep(Duration::from_millis(50));
        let start = Instant::now() + Duration::from_millis(20);
        let (join, end) = (start + alone, start + alone + Duration::from_millis(250));
        let start_all = || -> Vec<_> {
            let one = |_| spinner(all.clone(), start, join, end);
            (0..nr_cpus()).map(one).collect()
        };
        let firsts = start_all();
        // New threads: one that slept until then would be owed what it missed.
        std::thread::sleep(join.saturating_duration_since(Instant::now()));
        later += sum(start_all());
        first += sum(firsts);
    }
    later / (first + later)
}

/// New threads find an idle CPU each, and have been in no queue when others come.
#[test]
#[ignore = "runs in the lab: make test"]
fn who_found_an_idle_cpu_is_not_before_everybody_who_waits() {
    beside_the_scheduler("", |_| {
        // The clock is far from where a new task's virtual time begins.
        part_of_the_later(Duration::from_secs(4), 1);
        let part = part_of_the_later(Duration::from_millis(20), 10);
        println!("those who came later had {part:.3} of the CPUs");
        assert!((0.4..0.65).contains(&part), "{part:.3} of the CPUs");
    });
}

/// The first ones go on slice after slice, and nobody starts anew.
#[test]
#[ignore = "runs in the lab: make test"]
fn who_comes_beside_tasks_that_went_on_for_long_is_not_before_them() {
    beside_the_scheduler("", |_| {
        let part = part_of_the_later(Duration::from_millis(700), 8);
        println!("those who came later had {part:.3} of the CPUs");
        assert!((0.4..0.6).contains(&part), "{part:.3} of the CPUs");
    });
}
