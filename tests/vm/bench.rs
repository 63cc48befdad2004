// SPDX-License-Identifier: GPL-2.0-only
//! Failures of a run that need a kernel of one's own: a scheduler that is thrown out, a disk that is full.

use std::fs;
use std::time::Duration;

use crate::bench::{Bench, ON_HOST, SmallDisk, cell, end_of, failure, script_that};
use crate::process::{Process, code};
use crate::tier;

use super::machine::{Scheduler, loaded};

#[test]
#[ignore = "runs in the lab: make test"]
fn a_scheduler_that_is_thrown_out_fails_its_cell_and_the_next_one_starts_it_again() {
    tier::in_lab(|| {
        let arm = format!(
            "needs = [\"sched_ext\"]\n[scheduler]\ncommand = [{:?}]\nops = \"gpuaware\"\n\
         attached_line = \"scx_gpuaware: attached\"\n",
            env!("CARGO_BIN_EXE_scx_gpuaware")
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
fn an_arm_for_the_kernels_own_scheduler_fails_under_another() {
    tier::in_lab(|| {
        let scheduler = Scheduler::start(&[]);
        let bench = Bench::new(&script_that(":"), "[\"none\"]", "");
        let output = bench.path("out");
        let (code, log) = end_of(bench.run(&output, ON_HOST));
        assert_eq!(code, 1, "{log}");
        let reason = failure(&output, "r01-plain-none-w");
        assert!(
            reason.starts_with("the sched_ext scheduler gpuaware is loaded"),
            "{reason}"
        );
        scheduler.stop();
        let (code, log) = end_of(bench.resume(&output));
        assert_eq!(code, 0, "{log}");
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
        run.wait_for_line("[1/2]", Duration::from_secs(60));
        let filler = output.join("filler");
        fs::write(&filler, vec![0; 1 << 20]).expect_err("the disk is small");
        let status = run.wait(Duration::from_secs(60));
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
