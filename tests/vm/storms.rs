// SPDX-License-Identifier: GPL-2.0-only
//! Thread storms, changing affinities and cgroups: the scheduler stays and nobody waits for long.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::{Process, busy_loops, code, gpu_launch};
use crate::{length, tier};

use super::machine::{CGROUPS, Cgroup, Scheduler, add_to_cgroup, mark_launch, nr_cpus, pin};
use super::stalls::Stalls;

/// How long one lasts.
fn storm_time() -> Duration {
    Duration::from_secs(length::of(3, 10))
}

/// Lets `storm` pass over a busy machine with a launcher on it.
fn weathers(storm: impl FnOnce()) {
    nobody_waits_longer(Duration::from_secs(1), storm);
}

fn nobody_waits_longer(than: Duration, storm: impl FnOnce()) {
    let mut scheduler = Scheduler::start(&[]);
    let stalls = Stalls::watch();
    let _busy = busy_loops(nr_cpus());
    let mut command = gpu_launch("--profile eager --duration 600");
    command.stdout(Stdio::null());
    let mut launcher = Process::start(command);
    storm();
    assert!(!launcher.has_ended(), "{:#?}", launcher.log);
    scheduler.assert_nobody_waits_longer(than + stalls.so_far());
    scheduler.stop();
}

/// `stress-ng` with `args` for as long as a storm lasts; it must see no error. A stressor that it had
/// to kill at the end of the time has written no checksum of its counters; that is no error here.
fn stress_ng(args: &str) {
    let mut command = Command::new("stress-ng");
    command
        .args(args.split_whitespace())
        .args(["--timeout", &storm_time().as_secs().to_string()])
        .args(["--temp-path", "/tmp"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut stress = Process::start(command);
    let status = stress.wait();
    let errors = stress.log.iter().filter(|line| line.contains("fail: "));
    let is_checksum =
        |line: &&String| line.contains("hash error") || line.contains("metrics-check");
    let only_checksums = code(status) == 2
        && errors.clone().count() > 0
        && errors.clone().all(|line| is_checksum(&line));
    assert!(code(status) == 0 || only_checksums, "{:#?}", stress.log);
}

/// A fork bomb, time and again, of `most` processes in `cage`.
pub fn fork_bomb(cage: &Cgroup, most: u32) -> Process {
    cage.set("pids.max", &most.to_string());
    let procs = cage.path().join("cgroup.procs");
    let script = format!(
        "while :; do sh -c 'echo 0 >{}; bomb() {{ bomb | bomb & }}; bomb' 2>/dev/null; sleep 0.1; done",
        procs.display()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]).stdin(Stdio::null());
    Process::start(command)
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_fork_bomb_in_its_cgroup() {
    tier::in_lab(|| {
        let cage = Cgroup::new("bomb");
        weathers(|| {
            let bomb = fork_bomb(&cage, 64);
            std::thread::sleep(storm_time());
            drop(bomb);
            let events = std::fs::read_to_string(cage.path().join("pids.events")).unwrap();
            assert!(!events.contains("max 0\n"), "the limit was not reached");
        });
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn thousands_of_short_lived_threads() {
    tier::in_lab(|| {
        weathers(|| {
            for _ in 0..length::of(30, 100) {
                std::thread::scope(|scope| {
                    for _ in 0..100 {
                        scope.spawn(|| {
                            let start = Instant::now();
                            while start.elapsed() < Duration::from_micros(100) {}
                        });
                    }
                });
            }
        });
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn affinities_that_change_all_the_time() {
    tier::in_lab(|| {
        // Found overdue after 0.5 s, each then waits for turns of 80 ms of who is on its CPU: all of them may be.
        let (nr_tossed, nr_stressors) = (4, 2);
        let nr_tasks = nr_tossed + nr_stressors + nr_cpus() + 1;
        let most = Duration::from_millis(600 + 100 * nr_tasks as u64);
        nobody_waits_longer(most, || {
            let tossed = busy_loops(nr_tossed);
            for launcher in &tossed[..2] {
                mark_launch(launcher.pid());
            }
            std::thread::scope(|scope| {
                scope.spawn(|| stress_ng(&format!("--affinity {nr_stressors} --affinity-rand")));
                let end = Instant::now() + storm_time();
                for round in 0.. {
                    if Instant::now() > end {
                        break;
                    }
                    pin(&tossed[round % tossed.len()], fastrand::usize(..nr_cpus()));
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        });
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn processes_and_threads_that_come_and_go() {
    tier::in_lab(|| {
        weathers(|| {
            stress_ng("--fork 2 --vfork 1 --clone 1 --clone-max 16 --pthread 1 --pthread-max 32")
        });
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn scheduling_classes_that_change_all_the_time() {
    tier::in_lab(|| {
        weathers(|| stress_ng("--schedpolicy 2 --switch 1 --yield 1"));
    });
}

/// Moves `processes` between cgroups that come, change and go, for `time`.
pub fn churn(processes: &[Process], time: Duration) {
    let end = Instant::now() + time;
    for round in 0.. {
        if Instant::now() > end {
            break;
        }
        let outer = Cgroup::new("churn");
        outer.set("cpu.weight", "400");
        outer.set("cgroup.subtree_control", "+cpu");
        let inner = ["churn/a", "churn/b"].map(Cgroup::new);
        for turn in 0..5 {
            for (index, process) in processes.iter().enumerate() {
                inner[(round + turn + index) % 2].add(process);
            }
            inner[turn % 2].set("cpu.weight", ["100", "200", "300"][(round + turn) % 3]);
            inner[turn % 2].set("cpu.max", ["50000 100000", "max"][turn / 2 % 2]);
            std::thread::sleep(Duration::from_millis(30));
        }
        for process in processes {
            add_to_cgroup(std::path::Path::new(CGROUPS), process);
        }
        drop(inner);
    }
}

#[test]
#[ignore = "runs in the lab: make test"]
fn cgroups_that_come_and_go() {
    tier::in_lab(|| {
        weathers(|| {
            let moved = busy_loops(4);
            churn(&moved, storm_time());
        });
    });
}
