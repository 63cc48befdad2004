// SPDX-License-Identifier: GPL-2.0-only
//! Bad input gets one clear error and the exit code of the contract.

use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::process::{code, scx_gpuaware};
use crate::tier;

/// Exit code and standard error.
fn run(args: &[&str]) -> (i32, String) {
    let output = scx_gpuaware(args).output().expect("starting scx_gpuaware");
    (
        code(output.status),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn run_policy(text: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    std::fs::write(&path, text).unwrap();
    run(&["--policy", path.to_str().unwrap()])
}

#[test]
fn bad_cpu_list_is_a_usage_error() {
    let (code, error) = run(&["--preferred-cpus", "1,x"]);
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("--preferred-cpus") && error.contains("\"x\""),
        "{error}"
    );
}

#[test]
fn cpu_that_is_not_online_is_a_usage_error() {
    let (code, error) = run(&["--preferred-cpus", "1000"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("CPU 1000 is not online"), "{error}");
}

#[test]
fn unreadable_policy_is_named() {
    let (code, error) = run(&["--policy", "/nonexistent/policy.toml"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("/nonexistent/policy.toml"), "{error}");
}

#[test]
fn bad_policy_names_file_line_and_key() {
    let (code, error) = run_policy("version = 1\n[class.launch]\nslice = 3\n");
    assert_eq!(code, 2, "{error}");
    for part in ["policy.toml:3: error", "class.launch.slice", "slice_us?"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let (code, error) = run_policy("[preferred]\ncpus = \"1000\"\n");
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("policy.toml:2: error: preferred.cpus"),
        "{error}"
    );
}

#[test]
fn loading_without_root_is_refused() {
    let mut command = scx_gpuaware(&[]);
    if nix::unistd::geteuid().is_root() {
        // The binary may lie where only root can read it: run a copy.
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("scx_gpuaware");
        std::fs::copy(env!("CARGO_BIN_EXE_scx_gpuaware"), &copy).unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        command = std::process::Command::new(copy);
        command.uid(65534).gid(65534);
        return assert_refused(command, folder);
    }
    assert_refused(command, tempfile::tempdir().unwrap());
}

fn assert_refused(mut command: std::process::Command, _folder: tempfile::TempDir) {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output.status), 1, "{error}");
    assert!(error.contains("needs root"), "{error}");
}

#[test]
fn kernel_without_sched_ext_is_refused() {
    if Path::new("/sys/kernel/sched_ext").exists() {
        return tier::skip("this kernel has sched_ext: vm::lifecycle loads the scheduler there");
    }
    if !nix::unistd::geteuid().is_root() {
        return tier::skip("needs root: without it that is what the error says");
    }
    let (code, error) = run(&[]);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("CONFIG_SCHED_CLASS_EXT"), "{error}");
}

#[test]
fn marks_without_a_scheduler_says_so() {
    for args in [
        &["marks", "--json"][..],
        &["mark", "--class", "launch", "--tid", "1"],
    ] {
        let (code, error) = run(args);
        assert_eq!(code, 1, "{error}");
        assert!(error.contains("does not run"), "{error}");
    }
}

#[test]
fn help_stats_describes_every_metric() {
    let output = scx_gpuaware(&["--help-stats"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    for metric in ["launch_wakeups", "hold_us", "worst_wait_us"] {
        assert!(text.contains(metric), "{metric} in {text}");
    }
}
