// SPDX-License-Identifier: GPL-2.0-only
//! Readers that have seen enough, of either stream and of all programs; and streams that cannot be written.

use std::io::pipe;
use std::process::{Command, Stdio};

use crate::process::{code, repository, scx_gpuaware};

/// A pipe that nobody reads.
fn closed() -> Stdio {
    let (_, writer) = pipe().unwrap();
    writer.into()
}

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(repository().join("target/release/gpuaware-bench"));
    command.args(args).stdin(Stdio::null());
    command
}

fn simulator(args: &[&str]) -> Command {
    let mut command = Command::new(repository().join("target/release/gpuaware-sim"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Commands that print much or little and need no rights, with their exit codes where somebody reads.
fn commands() -> Vec<(Command, i32)> {
    let scx = |args: &[&str]| (scx_gpuaware(args), 0);
    let refused = |args: &[&str], code| (scx_gpuaware(args), code);
    let run = repository().join("bench/runs");
    let run = run.to_str().unwrap().to_owned();
    vec![
        scx(&["--help"]),
        scx(&["--version"]),
        scx(&["--help-stats"]),
        scx(&["topology", "--json"]),
        scx(&["policy", "schema"]),
        scx(&["policy", "init"]),
        scx(&["policy", "show"]),
        refused(&["policy", "check", "/no/such/policy"], 2),
        refused(&["trace", "--pid", "2147483647"], 2),
        refused(&["analyze", "/no/such/trace"], 2),
        refused(&["--no-such-flag"], 2),
        (bench(&["--help"]), 0),
        (bench(&["list"]), 0),
        (bench(&["run", "no-such-matrix"]), 2),
        (bench(&["compare", &run, &run]), 2),
        (simulator(&["--help"]), 0),
        (simulator(&["machine", "128x16x2x2x8"]), 0),
        (simulator(&["run", "noisy", "--machine", "no"]), 2),
    ]
}

#[test]
fn a_reader_that_has_gone_is_no_error_and_changes_no_exit_code() {
    for (mut command, expected) in commands() {
        let output = command.stdout(closed()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{command:?}: {said}");
        assert!(
            !said.to_lowercase().contains("broken pipe"),
            "{command:?}: {said}"
        );
        assert_eq!(code(output.status), expected, "{command:?}: {said}");
    }
}

#[test]
fn nobody_who_listens_to_errors_is_no_error_either() {
    for (mut command, expected) in commands() {
        let output = command.stderr(closed()).output().unwrap();
        assert_eq!(code(output.status), expected, "{command:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let full = || Stdio::from(std::fs::File::create("/dev/full").unwrap());
    for mut command in [
        scx_gpuaware(&["policy", "schema"]),
        scx_gpuaware(&["--help-stats"]),
        bench(&["list"]),
    ] {
        let output = command.stdout(full()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(output.status), 1, "{command:?}: {said}");
        assert!(
            said.contains("No space left on device"),
            "{command:?}: {said}"
        );
    }
}
