// SPDX-License-Identifier: GPL-2.0-only
//! Readers that have seen enough, of either stream and of all programs; and streams that cannot be written.

use std::ffi::OsStr;
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

/// Every command of all programs, as it ends without rights and in a moment, with its exit code where somebody reads.
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
        refused(&["policy", "diff", "/no/such/policy", "/no/such/other"], 2),
        // What it finds depends on the host.
        refused(&["doctor"], ends_with(scx_gpuaware(&["doctor"]))),
        refused(&["mark", "--no-such-flag"], 2),
        refused(&["unmark", "--no-such-flag"], 2),
        refused(&["marks", "--no-such-flag"], 2),
        refused(&["rescan", "--no-such-flag"], 2),
        refused(&["top", "--no-such-flag"], 2),
        refused(&["feed", "--no-such-flag"], 2),
        refused(&["trace", "--pid", "2147483647"], 2),
        refused(&["analyze", "/no/such/trace"], 2),
        scx(&["help"]),
        refused(&["--no-such-flag"], 2),
        (bench(&["--help"]), 0),
        (bench(&["list"]), 0),
        (bench(&["run", "no-such-matrix"]), 2),
        (bench(&["run", "peers", "--dry-run"]), 0),
        (bench(&["compare", &run, &run]), 2),
        (bench(&["report", "/no/such/run"]), 2),
        (bench(&["pool", &run]), 2),
        (bench(&["tune", "--no-such-flag"]), 2),
        (bench(&["replay", "/no/such/profile"]), 2),
        (
            bench(&["keep", "/no/such/run", "--output", "/no/such/kept"]),
            2,
        ),
        (bench(&["results", "--no-such-flag"]), 2),
        (bench(&["lab", "--cpus", "0"]), 2),
        (bench(&["help"]), 0),
        (simulator(&["--help"]), 0),
        (simulator(&["machine", "128x16x2x2x8"]), 0),
        (simulator(&["sysfs", "no", "/no/such/folder"]), 2),
        (simulator(&["run", "noisy", "--machine", "no"]), 2),
        (simulator(&["check", "1"]), 0),
        (simulator(&["replay", "1"]), 0),
        (simulator(&["shrink", "1"]), 0),
        (simulator(&["compare", "--no-such-flag"]), 2),
        (simulator(&["costs", "--no-such-flag"]), 2),
        (simulator(&["cell", "--no-such-flag"]), 2),
        (simulator(&["profile", "--no-such-flag"]), 2),
        (simulator(&["callbacks", "--no-such-flag"]), 2),
        (simulator(&["help"]), 0),
    ]
}

fn ends_with(mut command: Command) -> i32 {
    let output = command.stdin(Stdio::null()).output().unwrap();
    code(output.status)
}

/// The commands that `--help` lists.
fn listed(program: &OsStr) -> Vec<String> {
    let output = Command::new(program).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (_, list) = help.split_once("Commands:\n").expect("commands");
    let lines = list.lines().take_while(|line| !line.is_empty());
    // What is explained on a second line is indented further.
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_of_every_program_is_tried() {
    let tried = commands();
    for program in [scx_gpuaware(&[]), bench(&[]), simulator(&[])] {
        let names = listed(program.get_program());
        assert!(names.len() > 5, "{names:?}");
        for name in names {
            let is_it = |command: &Command| {
                command.get_program() == program.get_program()
                    && command.get_args().next() == Some(name.as_ref())
            };
            assert!(
                tried.iter().any(|(command, _)| is_it(command)),
                "{program:?}: {name}"
            );
        }
    }
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
