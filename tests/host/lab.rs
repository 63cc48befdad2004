// SPDX-License-Identifier: GPL-2.0-only
//! The lab as its users see it: exit codes, streams, the time limit, errors.

use std::process::{Command, Output, Stdio};

use crate::process::{alone_with_cuda, code, repository};
use crate::tier;

fn lab(args: &[&str]) -> Output {
    let program = repository().join("target/release/gpuaware-bench");
    assert!(
        program.exists(),
        "{} is missing: run make build",
        program.display()
    );
    // A machine that boots takes the CPUs from tests that look at the clock.
    let _alone = alone_with_cuda();
    Command::new(program)
        .arg("lab")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("starting gpuaware-bench")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn returns_the_exit_code_and_keeps_the_streams_apart() {
    if !tier::lab() {
        return;
    }
    let script = "echo out; echo err >&2; test -r /boot/config-$(uname -r) || exit 1; exit 42";
    let output = lab(&["--timeout", "240", "--", "sh", "-c", script]);
    let stderr = text(&output.stderr);
    assert_eq!(code(output.status), 42, "{stderr}");
    assert_eq!(text(&output.stdout), "out\n");
    assert!(stderr.lines().any(|line| line == "err"), "{stderr}");
    assert!(stderr.contains("kernel 6.18"), "{stderr}");
}

#[test]
fn ends_the_machine_at_the_time_limit() {
    if !tier::lab() {
        return;
    }
    let output = lab(&["--timeout", "20", "--", "sleep", "1000"]);
    let stderr = text(&output.stderr);
    assert_eq!(code(output.status), 124, "{stderr}");
    assert!(stderr.contains("time limit of 20 s"), "{stderr}");
}

/// What a stale int3 leaves on the console, written by the command, which then crashes the guest. The mark of its first
/// start is outside of the guest.
const FALLS_OVER_ONCE: &str = r"
    test -e $1/started && exit 42
    touch $1/started
    echo '<0>Oops: int3: 0000 [#1] SMP NOPTI' >/dev/kmsg
    echo '<0>Code: 00 00 e9 <f6> 03 00 00' >/dev/kmsg
    echo c >/proc/sysrq-trigger
    sleep 60";

#[test]
fn starts_again_where_the_emulation_made_the_guest_panic() {
    if !tier::lab() {
        return;
    }
    let fall = |script: &str, more: &[&str]| {
        let outside = tempfile::tempdir().expect("a folder");
        let folder = outside.path().to_str().expect("UTF-8");
        let lab_args = ["--timeout", "240", "--rwdir", folder];
        let command = ["--", "sh", "-c", script, "sh", folder];
        let output = lab(&[&lab_args, more, &command].concat());
        (code(output.status), text(&output.stderr))
    };

    let (status, stderr) = fall(FALLS_OVER_ONCE, &["--restarts", "1"]);
    assert_eq!(status, 42, "{stderr}");
    assert!(stderr.contains("starting again"), "{stderr}");

    let (status, stderr) = fall(FALLS_OVER_ONCE, &[]);
    assert_eq!(status, 1, "{stderr}");
    assert!(stderr.contains("the emulation still showed it"), "{stderr}");

    // Any other panic is the guest's own.
    let in_the_code = FALLS_OVER_ONCE.replace("e9 <f6>", "cc <f6>");
    let (status, stderr) = fall(&in_the_code, &["--restarts", "1"]);
    assert_eq!(status, 1, "{stderr}");
    assert!(stderr.contains("the guest kernel panicked\n"), "{stderr}");
}

#[test]
fn unknown_kernel_is_one_clear_error() {
    if !tier::lab() {
        return;
    }
    let output = lab(&["--kernel", "/nonexistent/vmlinuz", "--", "true"]);
    let stderr = text(&output.stderr);
    assert_eq!(code(output.status), 1, "{stderr}");
    assert!(stderr.contains("/nonexistent/vmlinuz"), "{stderr}");
}

#[test]
fn bad_usage_exits_with_2() {
    assert_eq!(code(lab(&["--cpus", "none", "--", "true"]).status), 2);
    assert_eq!(code(lab(&[]).status), 2);
}
