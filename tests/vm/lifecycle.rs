// SPDX-License-Identifier: GPL-2.0-only
//! Loading, leaving and being left alone.

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use regex::Regex;

use crate::process::{Process, busy_loop, busy_loops, code, eventually, scx_gpuaware};
use crate::tier;

use super::machine::{Offline, Scheduler, loaded, map_ids, mark_launch, preferred_cpu};

/// What the log says that `lend_yields_us = "auto"` is, and that a switch takes, microseconds.
fn auto_lend(log: &[String]) -> (f64, f64) {
    let said = "\"auto\" means ([0-9]+) here: a switch between threads takes ([0-9.]+) us";
    let said = Regex::new(said).unwrap();
    let found: Vec<_> = log.iter().filter_map(|line| said.captures(line)).collect();
    let [found] = &found[..] else {
        panic!("{log:#?}")
    };
    (found[1].parse().unwrap(), found[2].parse().unwrap())
}

#[test]
#[ignore = "runs in the lab: make test"]
fn loads_and_unloads() {
    tier::in_lab(|| {
        assert_eq!(loaded(), None);
        let scheduler = Scheduler::start(&[]);
        let (lent, switch) = auto_lend(&scheduler.process.log);
        assert!([0.0, 100.0].contains(&lent), "{lent}");
        let is_cheap = if lent > 0.0 {
            switch <= 5.0
        } else {
            switch >= 5.0
        };
        assert!(is_cheap, "{lent} for {switch}");
        scheduler.stop();
        Scheduler::start(&["--stats", "1"]).stop();
        assert!(!std::path::Path::new("/sys/fs/bpf/scx_gpuaware").exists());
    });
}

/// Ends the scheduler by `signal` while every CPU is busy.
fn falls_back(signal: Signal, expected_code: i32) {
    let mut scheduler = Scheduler::start(&[]);
    let _busy = busy_loops(4);
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    scheduler.process.signal(signal);
    let disabled = eventually(|| loaded().is_none().then(|| start.elapsed()));
    let disabled = disabled.expect("back on EEVDF");
    assert!(
        disabled <= Duration::from_secs(1),
        "{signal} took {disabled:?}"
    );
    let status = scheduler.process.wait();
    assert_eq!(code(status), expected_code, "{:#?}", scheduler.process.log);
}

#[test]
#[ignore = "runs in the lab: make test"]
fn falls_back_to_eevdf_within_a_second() {
    tier::in_lab(|| {
        falls_back(Signal::SIGKILL, 128 + 9);
        // What the killed one left answers nobody, and is in the way of none that comes next.
        let marks = scx_gpuaware(&["marks"]).output().expect("marks");
        assert_eq!(code(marks.status), 1);
        falls_back(Signal::SIGINT, 0);
        falls_back(Signal::SIGTERM, 0);
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn second_instance_is_refused() {
    tier::in_lab(|| {
        let mut scheduler = Scheduler::start(&[]);
        let output = scx_gpuaware(&[]).output().expect("starting a second one");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(output.status), 1, "{error}");
        assert!(error.contains("scx_gpuaware already runs"), "{error}");
        scheduler.assert_loaded();
        scheduler.stop();
    });
}

/// As a unit and an operator may do it.
#[test]
#[ignore = "runs in the lab: make test"]
fn of_two_that_start_at_once_one_runs_whole() {
    tier::in_lab(|| {
        for gap_ms in [0, 300] {
            let first = Process::start(scx_gpuaware(&[]));
            std::thread::sleep(Duration::from_millis(gap_ms));
            let mut both = [first, Process::start(scx_gpuaware(&[]))];
            let refused = eventually(|| both.iter_mut().position(Process::has_ended));
            let refused = refused.expect("one of them ends");
            assert_eq!(code(both[refused].wait()), 1);
            let error = both[refused].log.concat();
            assert!(error.contains("scx_gpuaware already runs"), "{error}");
            let winner = &mut both[1 - refused];
            winner.wait_for_line("attached");
            // Its pins and its socket.
            super::machine::mark_launch(winner.pid());
            assert!(super::machine::mark_of(winner.pid()).is_some());
            super::machine::metrics();
            winner.signal(Signal::SIGINT);
            assert_eq!(code(winner.wait()), 0);
        }
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn restarts_after_cpu_hotplug() {
    tier::in_lab(|| {
        let mut scheduler = Scheduler::start(&[]);
        let _busy = busy_loops(4);
        let spinner = Process::start(busy_loop());
        mark_launch(spinner.pid());
        let cpu = preferred_cpu();
        let gone = Offline::new(cpu..cpu + 1);
        scheduler.process.wait_for_line("attached");
        // The next CPU may go while the kernel would free that of the first one.
        assert_eq!(map_ids("task_ctxs").len(), 2);
        // Loading takes descriptors, and none is free for a while.
        let pid = scheduler.process.pid().to_string();
        let limit = |files: u64| {
            let status = Command::new("prlimit")
                .args(["--pid", &pid, &format!("--nofile={files}:65536")])
                .status();
            assert!(status.expect("prlimit").success());
        };
        // With 0 poll() fails too, on what is open.
        limit(1);
        drop(gone);
        let again = "starting anew failed, and is tried again";
        scheduler.process.wait_for_line(again);
        limit(65536);
        scheduler.process.wait_for_line("attached");
        scheduler.assert_starves_nobody();
        scheduler.stop();
    });
}
