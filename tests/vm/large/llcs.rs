// SPDX-License-Identifier: GPL-2.0-only
//! Several last-level caches, each with a background queue and a clock of its own; and CPUs that are
//! possible, not there.

use nix::sys::signal::Signal;

use crate::process::busy_loops;
use crate::tier;

use crate::vm::machine::{Offline, Scheduler, mark_launch, nr_cpus, pin, pin_to};
use crate::vm::sharing::{shares, weights_share_the_cpus};

#[test]
#[ignore = "runs in the lab: make test"]
fn cgroup_weights_share_the_cpus_of_several_llcs() {
    tier::in_large_lab(|| {
        let scheduler = Scheduler::start(&[]);
        weights_share_the_cpus();
        scheduler.stop();
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
        // Background is in both caches before launchers leave it nothing: an LLC owes turns to who waits there.
        for (cpu, launcher) in launchers.iter().enumerate() {
            launcher.signal(Signal::SIGSTOP);
            pin(launcher, cpu);
            mark_launch(launcher.pid());
        }
        let background = busy_loops(2 * last);
        for process in &background {
            pin_to(process, &there);
        }
        for launcher in &launchers {
            launcher.signal(Signal::SIGCONT);
        }
        let [had] = shares([&background]);
        let share = had / last as f64;
        println!("they got {share:.3} of the CPUs");
        // Who is killed dies when it is its turn to run.
        drop(launchers);
        drop(background);
        scheduler.stop();
        // min_share is 5 %. Eight emulated CPUs on two cores lose some of it.
        assert!(
            (0.03..0.07).contains(&share),
            "they got {share:.3} of the CPUs"
        );
    });
}
