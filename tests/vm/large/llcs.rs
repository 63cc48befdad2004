// SPDX-License-Identifier: GPL-2.0-only
//! Several last-level caches, each with a background queue and a clock of its own; and CPUs that are
//! possible, not there.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::process::busy_loops;
use crate::tier;

use crate::vm::machine::{Offline, Scheduler, mark_launch, nr_cpus, pin, pin_to, set_affinity};
use crate::vm::sharing::{shares, weights_share_the_cpus};

/// Keeps this thread on `cpus`.
fn stay_on(cpus: &[usize]) {
    set_affinity(i64::from(nix::unistd::gettid().as_raw()), cpus);
}

/// Spins in every round from `offset` to 300 ms; returns the CPU time that it took for that.
fn spin_in_rounds(begin: Instant, rounds: u32, offset: Duration) -> Duration {
    const ROUND: Duration = Duration::from_millis(400);
    let cpu_time =
        || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock"));
    let before = cpu_time();
    for round in 0..rounds {
        let start = begin + ROUND * round;
        std::thread::sleep((start + offset).saturating_duration_since(Instant::now()));
        while Instant::now() < start + Duration::from_millis(300) {}
    }
    cpu_time() - before
}

/// CPUs 0 and 1 are crowded, so their clocks are slow; those of 2 and 3 are fast. A traveller from the crowd finds
/// CPU 2 or 3 idle, and its residents come back a moment later.
#[test]
#[ignore = "runs in the lab: make test"]
fn who_comes_from_a_crowded_llc_is_not_before_everybody_in_another() {
    tier::in_large_lab(|| {
        const ROUNDS: u32 = 10;
        let scheduler = Scheduler::start(&[]);
        let crowd = busy_loops(8);
        for process in &crowd {
            pin_to(process, &[0, 1]);
        }
        let apart = Duration::from_secs(6);
        let begin = Instant::now() + apart + Duration::from_millis(200);
        let traveller = std::thread::spawn(move || {
            stay_on(&[0, 1]);
            let end = Instant::now() + apart;
            while Instant::now() < end {}
            // It is in no queue when its affinity changes: it sleeps.
            std::thread::sleep(Duration::from_millis(50));
            stay_on(&[0, 1, 2, 3]);
            spin_in_rounds(begin, ROUNDS, Duration::ZERO)
        });
        let resident = |_| {
            std::thread::spawn(move || {
                stay_on(&[2, 3]);
                let end = Instant::now() + apart;
                while Instant::now() < end {}
                spin_in_rounds(begin, ROUNDS, Duration::from_millis(10))
            })
        };
        let residents: Vec<_> = (0..4).map(resident).collect();
        let residents: Vec<_> = residents
            .into_iter()
            .map(|one| one.join().expect("spins"))
            .collect();
        let traveller = traveller.join().expect("spins");
        let mean = residents.iter().sum::<Duration>() / residents.len() as u32;
        let all = format!("the traveller had {traveller:?}, residents {residents:?}");
        println!("{all}");
        assert!(traveller < mean * 2, "{all}");
        drop(crowd);
        scheduler.stop();
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn cgroup_weights_share_the_cpus_of_several_llcs() {
    tier::in_large_lab(|| {
        let scheduler = Scheduler::start(&[]);
        weights_share_the_cpus();
        scheduler.stop();
    });
}

/// All CPUs are busy, so none ever looks for work elsewhere because it has none.
#[test]
#[ignore = "runs in the lab: make test"]
fn who_is_in_a_crowded_llc_gets_as_much_as_others() {
    tier::in_large_lab(|| {
        let scheduler = Scheduler::start(&[]);
        let half = nr_cpus() / 2;
        let [here, there, all]: [Vec<usize>; 3] =
            [(0..half), (half..nr_cpus()), (0..nr_cpus())].map(Iterator::collect);
        let (crowd, others) = (busy_loops(3 * half), busy_loops(half));
        for (processes, cpus) in [(&crowd, &here), (&others, &there)] {
            processes.iter().for_each(|process| pin_to(process, cpus));
        }
        std::thread::sleep(Duration::from_secs(1));
        for process in others.iter().chain(&crowd) {
            pin_to(process, &all);
        }
        std::thread::sleep(Duration::from_secs(2));
        let [of_crowd, of_others] = shares([&crowd, &others]);
        let each = [of_crowd / 3.0, of_others].map(|share| share / half as f64);
        println!(
            "one of the crowd got {:.3} CPUs, of the others {:.3}",
            each[0], each[1]
        );
        drop((crowd, others));
        scheduler.stop();
        assert!(each[1] < 1.4 * each[0], "{each:.3?}");
    });
}

/// Possible CPUs count in affinities. Who may run on all that are there waits as everybody does for what launchers
/// leave.
#[test]
#[ignore = "runs in the lab: make test"]
fn a_cpuset_of_all_cpus_that_are_there_earns_no_turns() {
    tier::in_large_lab(|| {
        let last = nr_cpus() - 1;
        let _offline = Offline::new(last..last + 1);
        let there: Vec<usize> = (0..last).collect();
        let scheduler = Scheduler::with_policy("[guard]\nmax_share = \"100%\"\n");
        let launchers = busy_loops(last);
        for (cpu, launcher) in launchers.iter().enumerate() {
            pin(launcher, cpu);
            mark_launch(launcher.pid());
        }
        let background = busy_loops(2 * last);
        for process in &background {
            pin_to(process, &there);
        }
        let [had] = shares([&background]);
        let share = had / last as f64;
        println!("they got {share:.3} of the CPUs");
        drop((background, launchers));
        scheduler.stop();
        // min_share is 5 %. Eight emulated CPUs on two cores lose some of it.
        assert!(
            (0.03..0.07).contains(&share),
            "they got {share:.3} of the CPUs"
        );
    });
}
