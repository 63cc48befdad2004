// SPDX-License-Identifier: GPL-2.0-only
//! Everything at once: by the scheduler's own account nobody who could run waits for long.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::process::{BusyLoops, Process, busy_loops, gpu_launch};
use crate::{length, tier};

use super::machine::{Cgroup, Scheduler, mark, metrics, nr_cpus, pin};
use super::noise::Noise;
use super::stalls::Stalls;
use super::storms::{churn, fork_bomb};

/// How long: ten seconds, at full length a minute, or `GPUAWARE_STRESS_S` seconds.
fn stress_time() -> Duration {
    let seconds = std::env::var("GPUAWARE_STRESS_S").ok();
    Duration::from_secs(
        seconds
            .and_then(|text| text.parse().ok())
            .unwrap_or(length::of(10, 60)),
    )
}

/// What stress-ng does beside: thread storms, affinities.
const STORMS: &str =
    "--fork 1 --pthread 1 --pthread-max 16 --affinity 1 --affinity-rand --switch 1";

/// More launchers than CPUs, which all spin, and handoff that spins too.
fn boosted() -> Vec<Process> {
    let loops = |count: usize, class: &str| -> Vec<_> {
        let processes = busy_loops(count);
        for process in &processes {
            mark(process.pid(), class);
        }
        processes.into_vec()
    };
    let mut boosted = loops(nr_cpus() + 2, "launch");
    boosted.extend(loops(2, "handoff"));
    let mut command = gpu_launch("--profile eager --threads 2 --duration 3600");
    command.stdout(Stdio::null());
    boosted.push(Process::start(command));
    boosted
}

/// A task on each CPU that may run nowhere else.
fn pinned() -> BusyLoops {
    let pinned = busy_loops(nr_cpus());
    for (cpu, process) in pinned.iter().enumerate() {
        pin(process, cpu);
    }
    pinned
}

#[test]
#[ignore = "runs in the lab: make test"]
fn everything_at_once_starves_nobody() {
    tier::in_lab(|| {
        let cage = Cgroup::new("bomb");
        let mut scheduler = Scheduler::start(&["--stats", "30"]);
        let stalls = Stalls::watch();
        let mut noise = Noise::heavy(STORMS);
        let mut processes = boosted();
        let pinned = pinned();
        let moved = busy_loops(2);
        processes.push(fork_bomb(&cage, 16));
        let pids = [&processes[..], &pinned, &moved]
            .map(|of| of.iter().map(Process::pid).collect::<Vec<_>>());
        eprintln!("PIDs of boosted, pinned and moved ones: {pids:?}");
        let end = Instant::now() + stress_time();
        while Instant::now() < end {
            churn(&moved, Duration::from_secs(5));
            scheduler.assert_nobody_waits_longer(Duration::from_secs(1) + stalls.so_far());
            noise.assert_all_run();
            for process in &mut processes {
                assert!(!process.has_ended(), "one ended: {:?}", process.log);
            }
        }
        let ran: Vec<_> = pinned.iter().map(Process::cpu_time).collect();
        eprintln!("pinned background ran {ran:?}");
        // The minimum share, within a fifth, and half of it: the worker that changes its affinity is on one CPU for most of the
        // time, and who is pinned there shares it.
        let least = stress_time().mul_f64(0.05 * 0.8 / 2.0);
        assert!(ran.iter().all(|ran| *ran > least), "{ran:?} of {least:?}");
        let metrics = metrics();
        for (class, of_class) in &metrics.classes {
            eprintln!(
                "in {:?} the longest wait of class {class} was {} ms, by {}",
                stress_time(),
                of_class.worst_wait_us / 1000,
                of_class.worst_waiter
            );
        }
        drop((processes, pinned, moved));
        noise.end();
        scheduler.stop();
    });
}
