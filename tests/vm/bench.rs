// SPDX-License-Identifier: GPL-2.0-only
//! What of a run needs a kernel of one's own: a scheduler that is thrown out, a disk that is full, cgroups with
//! shares of the CPUs.

use std::fs;

use crate::bench::{Bench, ON_HOST, SmallDisk, cell, end_of, failure, script_that};
use crate::process::{Process, code, eventually};
use crate::tier;

use super::machine::{CGROUPS, Scheduler, loaded};

#[test]
#[ignore = "runs in the lab: make test"]
fn a_scheduler_that_is_thrown_out_fails_its_cell_and_the_next_one_starts_it_again() {
    tier::in_lab(|| {
        let arm = format!(
            "needs = [\"sched_ext\"]\n[scheduler]\ncommand = [{:?}]\nops = \"gpuaware\"\n\
         attached_line = \"scx_gpuaware: attached\"\n",
            crate::process::program()
        );
        // The kernel's own emergency exit from sched_ext.
        let bench = Bench::new(
            &script_that("echo S >/proc/sysrq-trigger; sleep 0.3"),
            "[\"none\"]",
            &arm,
        );
        let output = bench.path("out");
        fs::write(bench.path("target/lab/bad"), "").unwrap();
        let (code, log) = end_of(bench.run(&output, ON_HOST));
        assert_eq!(code, 1, "{log}");
        let reason = failure(&output, "r01-plain-none-w");
        assert!(
            reason.starts_with("gpuaware was thrown out during the cell")
                || reason.starts_with("gpuaware ended during the cell"),
            "{reason}"
        );
        assert_eq!(failure(&output, "r02-plain-none-w"), "", "{log}");
        assert_eq!(loaded(), None);
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_run_is_refused_under_another_scheduler_and_a_cell_fails_under_one() {
    tier::in_lab(|| {
        let waits = "n=0; until [ -e go ] || [ $n -ge 600 ]; do sleep 0.1; n=$((n + 1)); done";
        let bench = Bench::new(&script_that(waits), "[\"none\"]", "");
        let output = bench.path("out");
        let [bad, go] = ["bad", "go"].map(|name| bench.path("target/lab").join(name));
        fs::write(&bad, "").unwrap();
        let scheduler = Scheduler::start(&[]);
        let expected = "scheduler: expected the kernel's own, gpuaware is loaded";
        let (code, log) = end_of(bench.run(&output, ON_HOST));
        assert_eq!(code, 2, "{log}");
        assert!(log.contains(expected) && !output.exists(), "{log}");
        scheduler.stop();

        // One that comes while a cell is measured.
        let mut run = Process::start(bench.run(&output, ON_HOST));
        let begun = eventually(|| (!bad.exists()).then_some(()));
        assert!(begun.is_some(), "{:#?}", run.log);
        let scheduler = Scheduler::start(&[]);
        fs::write(&go, "").unwrap();
        let status = run.wait();
        assert_eq!(crate::process::code(status), 1, "{:#?}", run.log);
        let reason = || failure(&output, "r01-plain-none-w");
        assert!(
            reason().starts_with("the sched_ext scheduler gpuaware is loaded"),
            "{}",
            reason()
        );
        let (code, log) = end_of(bench.resume(&output));
        assert_eq!(code, 2, "{log}");
        assert!(log.contains(expected) && !reason().is_empty(), "{log}");
        scheduler.stop();
        let (code, log) = end_of(bench.resume(&output));
        assert_eq!(code, 0, "{log}");
        assert_eq!(reason(), "");
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_full_disk_ends_the_run_which_can_be_resumed() {
    tier::in_lab(|| {
        let bench = Bench::new(&script_that(":"), "[\"none\"]", "");
        let output = bench.path("out");
        fs::create_dir(&output).unwrap();
        let _disk = SmallDisk::at(&output);
        let mut run = Process::start(bench.run(&output, ON_HOST));
        run.wait_for_line("[1/2]");
        let filler = output.join("filler");
        fs::write(&filler, vec![0; 1 << 20]).expect_err("the disk is small");
        let status = run.wait();
        let log = run.log.join("\n");
        assert_eq!(code(status), 1, "{log}");
        assert!(log.contains("No space left on device"), "{log}");
        let kept = cell(&output, "r01-plain-none-w");
        assert!(kept.is_some(), "{log}");
        let reason = failure(&output, "r02-plain-none-w");
        assert!(reason.contains("No space left on device"), "{reason}");

        fs::remove_file(&filler).unwrap();
        let (code, log) = end_of(bench.resume(&output));
        assert_eq!(code, 0, "{log}");
        assert_eq!(cell(&output, "r01-plain-none-w"), kept);
        assert_eq!(failure(&output, "r02-plain-none-w"), "");
    });
}

/// In every cell the workload notes its cgroup and what these files of cgroups hold while the neighbours run.
fn noting(files: &[&str]) -> String {
    let files = files.iter().map(|file| format!("{CGROUPS}/{file}"));
    let files = files.collect::<Vec<_>>().join(" ");
    script_that(":").replace(
        "sleep 0.5",
        &format!("cat /proc/self/cgroup {files} >>noted 2>/dev/null\nsleep 0.5"),
    )
}

/// What a run noted, once no cgroup and no controller of it is left.
fn noted(bench: &Bench) -> String {
    let controllers = || fs::read_to_string(format!("{CGROUPS}/cgroup.subtree_control")).unwrap();
    let before = controllers();
    let (code, log) = end_of(bench.run(&bench.path("out"), ON_HOST));
    assert_eq!(code, 0, "{log}");
    let names = fs::read_dir(CGROUPS).unwrap().flatten();
    let left: Vec<_> = names
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with("gpuaware-bench"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(controllers(), before);
    fs::read_to_string(bench.path("target/lab/noted")).unwrap()
}

/// How often cells beside `neighbour` were measured: once, and once more for each time that something disturbed them.
fn times_measured(bench: &Bench, neighbour: &str) -> usize {
    let times = |round| {
        let cell = cell(
            &bench.path("out"),
            &format!("r0{round}-plain-{neighbour}-w"),
        );
        let cell: serde_json::Value = serde_json::from_str(&cell.expect("a cell")).expect("JSON");
        1 + cell["discarded"].as_array().map_or(0, Vec::len)
    };
    times(1) + times(2)
}

#[test]
#[ignore = "runs in the lab: make test"]
fn workload_and_neighbours_share_the_cpus_group_by_group_where_the_matrix_wants_it() {
    tier::in_lab(|| {
        let weight = "gpuaware-bench-neighbours/cpu.weight";
        let matrix = "[\"none\", \"cpu\"]\ncgroups = \"separate\"";
        let bench = Bench::new(&noting(&[weight]), matrix, "");
        let noted = noted(&bench);
        let lines: Vec<&str> = noted.lines().collect();
        let own = lines
            .iter()
            .filter(|line| **line == "0::/gpuaware-bench-workload");
        let beside_cpu = times_measured(&bench, "cpu");
        let all = times_measured(&bench, "none") + beside_cpu;
        assert_eq!(own.count(), all, "every cell: {noted}");
        let weights = lines.iter().filter(|line| **line == "100");
        assert_eq!(weights.count(), beside_cpu, "those beside cpu: {noted}");
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn neighbours_have_what_nobody_else_wants_where_the_arm_says_so() {
    tier::in_lab(|| {
        let idle = "gpuaware-bench-neighbours/cpu.idle";
        let arm = "[neighbours]\nidle = true\n";
        let bench = Bench::new(&noting(&[idle]), "[\"none\", \"cpu\"]", arm);
        let noted = noted(&bench);
        assert_eq!(
            noted.lines().filter(|line| *line == "1").count(),
            times_measured(&bench, "cpu"),
            "{noted}"
        );
        assert!(
            !noted.contains("gpuaware-bench"),
            "the workload is in no cgroup: {noted}"
        );
    });
}
