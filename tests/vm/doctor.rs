// SPDX-License-Identifier: GPL-2.0-only
//! `scx_gpuaware doctor` where the scheduler can be loaded.

use crate::process::{code, scx_gpuaware};
use crate::tier;

use super::machine::Scheduler;

/// Fails if doctor sees a problem; returns what it prints.
fn sees_no_problem() -> String {
    let output = scx_gpuaware(&["doctor"])
        .output()
        .expect("starting scx_gpuaware");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(code(output.status), 0, "{text}");
    text
}

#[test]
#[ignore = "runs in the lab: make test"]
fn sees_no_problem_where_the_scheduler_loads() {
    tier::in_lab(|| {
        sees_no_problem();
        let scheduler = Scheduler::start(&[]);
        assert!(sees_no_problem().contains("scx_gpuaware runs"));
        scheduler.stop();
    });
}
