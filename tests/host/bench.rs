// SPDX-License-Identifier: GPL-2.0-only
//! Failures in the middle of a cell: the cell says why, everything that was started is gone, finished cells
//! stay, and the run can be resumed.

use std::fs;

use nix::sys::signal::Signal;

use crate::bench::{Bench, ON_HOST, assert_gone, cell, end_of, failure, script_that};
use crate::process::{Process, beside_labs, code, eventually};
use crate::tier;

/// Does `what` in the first cell that has a neighbour. The workload is the neighbours' sibling: it notes
/// the numbers of their processes and its own.
fn beside_stress_ng(what: &str) -> String {
    script_that(&format!(
        "for p in $(cat /proc/$PPID/task/*/children); do\n\
         [ \"$(cat /proc/$p/comm)\" != stress-ng ] || echo $p $$ $(cat /proc/$p/task/*/children) >pids\n\
         done\n\
         if [ -s pids ]; then {what}; else : >bad; fi"
    ))
}

#[test]
fn a_workload_that_crashes_fails_its_cell_and_no_other() {
    let bench = Bench::new(
        &script_that("echo 'CUDA_ERROR_ILLEGAL_ADDRESS' >&2; exit 3"),
        "[\"none\"]",
        "",
    );
    let output = bench.path("out");
    fs::write(bench.path("target/lab/bad"), "").unwrap();
    let (code, log) = end_of(bench.run(&output, ON_HOST));
    assert_eq!(code, 1, "{log}");
    let reason = failure(&output, "r01-plain-none-w");
    assert_eq!(
        reason,
        "gpu_launch ended before it had measured (exit status: 3): CUDA_ERROR_ILLEGAL_ADDRESS"
    );
    assert_eq!(failure(&output, "r02-plain-none-w"), "");
    assert!(log.contains("FAILED: gpu_launch ended"), "{log}");
    let report = fs::read_to_string(output.join("report.md")).unwrap();
    assert!(
        report.contains("plain (1 of 2") && report.contains(&reason),
        "{report}"
    );

    let good = cell(&output, "r02-plain-none-w");
    let (code, log) = end_of(bench.resume(&output));
    assert_eq!(code, 0, "{log}");
    assert_eq!(failure(&output, "r01-plain-none-w"), "");
    assert_eq!(
        cell(&output, "r02-plain-none-w"),
        good,
        "a finished cell stays"
    );
}

#[test]
fn a_neighbour_that_dies_fails_its_cell_and_leaves_nobody_behind() {
    if !tier::program("stress-ng") {
        return;
    }
    let script = beside_stress_ng("read leader rest <pids; kill -9 $leader");
    let bench = Bench::new(&script, "[\"none\", \"cpu\"]", "");
    let output = bench.path("out");
    fs::write(bench.path("target/lab/bad"), "").unwrap();
    let (code, log) = end_of(bench.run(&output, ON_HOST));
    assert_eq!(code, 1, "{log}");
    let reason = failure(&output, "r01-plain-cpu-w");
    assert!(
        reason.starts_with("stress-ng died during the cell (signal: 9"),
        "{reason}"
    );
    for good in ["r01-plain-none-w", "r02-plain-none-w", "r02-plain-cpu-w"] {
        assert_eq!(failure(&output, good), "");
    }
    assert_gone(&bench.path("target/lab/pids"));
}

#[test]
fn ctrl_c_ends_all_and_keeps_what_is_finished() {
    if !tier::program("stress-ng") {
        return;
    }
    let bench = Bench::new(&beside_stress_ng("sleep 1000"), "[\"none\", \"cpu\"]", "");
    let output = bench.path("out");
    let mut run = Process::start(bench.run(&output, ON_HOST));
    run.wait_for_line("[1/4]");
    fs::write(bench.path("target/lab/bad"), "").unwrap();
    let noted = eventually(|| {
        let pids = fs::read_to_string(bench.path("target/lab/pids")).ok()?;
        (!pids.trim().is_empty()).then_some(())
    });
    assert!(noted.is_some(), "{:#?}", run.log);
    run.signal(Signal::SIGINT);
    let status = run.wait();
    let log = run.log.join("\n");
    assert_eq!(code(status), 1, "{log}");
    assert!(log.contains("interrupted; "), "{log}");
    assert_gone(&bench.path("target/lab/pids"));
    let kept: Vec<_> = fs::read_dir(output.join("cells"))
        .unwrap()
        .flatten()
        .collect();
    assert!((2..=4).contains(&kept.len()), "{log}");
    let reasons = ["r01-plain-cpu-w", "r02-plain-cpu-w"]
        .into_iter()
        .filter(|name| cell(&output, name).is_some())
        .map(|name| failure(&output, name));
    assert!(
        reasons.into_iter().any(|reason| reason == "interrupted"),
        "the cell that was cut short says so: {log}"
    );

    let (code, log) = end_of(bench.resume(&output));
    assert_eq!(code, 0, "{log}");
    for name in [
        "r01-plain-none-w",
        "r01-plain-cpu-w",
        "r02-plain-none-w",
        "r02-plain-cpu-w",
    ] {
        assert_eq!(failure(&output, name), "");
    }
}

#[test]
fn a_run_is_not_resumed_with_other_programs_unless_it_must() {
    let bench = Bench::new(&script_that("exit 3"), "[\"none\"]", "");
    let output = bench.path("out");
    fs::write(bench.path("target/lab/bad"), "").unwrap();
    assert_eq!(end_of(bench.run(&output, ON_HOST)).0, 1);
    fs::write(bench.path("target/lab/gpu_launch"), script_that(":")).unwrap();
    let failed = cell(&output, "r01-plain-none-w");

    let (code, log) = end_of(bench.resume(&output));
    assert_eq!(code, 2, "{log}");
    assert!(
        log.contains("programs: ") && log.contains("--force"),
        "{log}"
    );
    assert_eq!(
        cell(&output, "r01-plain-none-w"),
        failed,
        "nothing was touched"
    );

    let mut forced = bench.resume(&output);
    forced.arg("--force");
    let (code, log) = end_of(forced);
    assert_eq!(code, 0, "{log}");
    let facts = fs::read_to_string(output.join("facts-host.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
    let noted = facts["resumed with"].as_str().unwrap_or_default();
    assert!(noted.starts_with("programs: "), "{facts}");
}

#[test]
fn ctrl_c_ends_the_lab_too() {
    if !tier::lab() {
        return;
    }
    let _labs = beside_labs();
    let script = script_that(":").replace("sleep 0.5", "sleep 1.5");
    let bench = Bench::new(&script, "[\"none\"]", "");
    let output = bench.path("out");
    let mut run = Process::start(bench.run(&output, &[]));
    run.wait_for_line("[1/2]");
    let machine = descendants(run.pid());
    let qemu = |pid: &&String| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with("qemu")
    };
    assert!(machine.iter().any(|pid| qemu(&pid)), "{machine:?}");
    fs::write(bench.path("machine"), machine.join(" ")).unwrap();
    run.signal(Signal::SIGINT);
    let status = run.wait();
    let log = run.log.join("\n");
    assert_eq!(code(status), 1, "{log}");
    assert!(
        log.contains("interrupted; 1 finished cells are kept"),
        "{log}"
    );
    assert_gone(&bench.path("machine"));
    assert_eq!(failure(&output, "r01-plain-none-w"), "");
    // What else this machine did is known in the guest.
    let cell: serde_json::Value =
        serde_json::from_str(&cell(&output, "r01-plain-none-w").unwrap()).unwrap();
    let host = &cell["measurement"]["surroundings"]["host"];
    assert!(host["seconds"].as_f64().is_some_and(|s| s > 0.3), "{host}");
    assert!(host["outside_cpus"].is_number(), "{host}");
}

/// The processes that `pid` started, and theirs.
fn descendants(pid: i32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let children = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("children")));
    let children: Vec<String> = children.flatten().collect();
    let pids = children.iter().flat_map(|list| list.split_whitespace());
    pids.flat_map(|pid| {
        let below = descendants(pid.parse().unwrap());
        [vec![pid.to_owned()], below].concat()
    })
    .collect()
}
