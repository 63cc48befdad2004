// SPDX-License-Identifier: GPL-2.0-only
//! Bad input gets one clear error and the exit code of the contract.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{code, copy_program, program, repository, scx_gpuaware};
use crate::{sysfs, tier};

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

/// `scx_gpuaware` of a user without rights, and the folder that it stands in, which that user may write.
fn of_nobody() -> (Command, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = scx_gpuaware(&[]);
    if nix::unistd::geteuid().is_root() {
        // The binary may lie where only root can read it: run a copy.
        let copy = folder.path().join("scx_gpuaware");
        copy_program(program(), &copy);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        command = Command::new(copy);
        command.uid(65534).gid(65534);
    }
    command.current_dir(folder.path()).stdin(Stdio::null());
    (command, folder)
}

fn assert_needs_root(mut command: Command) {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output.status), 1, "{error}");
    assert!(error.contains("needs root"), "{error}");
}

#[test]
fn loading_without_root_is_refused() {
    let (command, _folder) = of_nobody();
    assert_needs_root(command);
}

#[test]
fn a_trace_that_is_refused_leaves_the_file_as_it_was() {
    for flags in [&["-o"][..], &["--record-profile"]] {
        let (mut command, folder) = of_nobody();
        let file = folder.path().join("held");
        std::fs::write(&file, "of last week").unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&file, open).unwrap();
        command.arg("trace").args(flags).arg(&file);
        assert_needs_root(command);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "of last week");
    }
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
fn metrics_are_for_this_machine_only() {
    let (code, error) = run(&["--metrics", "0.0.0.0:9819"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("expected a loopback address"), "{error}");
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

fn topology_json(args: &[&str]) -> serde_json::Value {
    let output = scx_gpuaware(&["topology", "--json"])
        .args(args)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn topology_prints_every_cpu_with_its_score_and_reason() {
    let json = topology_json(&[]);
    let cpus = json["cpus"].as_array().unwrap();
    assert!(!cpus.is_empty());
    for cpu in cpus {
        assert!(cpu["irq_percent"].is_number(), "{cpu}");
        assert!(cpu["score"].as_i64().unwrap() <= 100, "{cpu}");
        assert!(!cpu["reason"].as_str().unwrap().is_empty(), "{cpu}");
    }
    assert!(cpus.iter().any(|cpu| cpu["preferred"] == true));
    assert_ne!(json["preferred"]["cpus"], "");
}

#[test]
fn topology_of_a_recorded_machine_is_stable() {
    let server = sysfs::machine("server-128t-8gpu-4nic");
    let root = server.path().to_str().unwrap();
    let json = topology_json(&["--sysfs", root, "--threads", "2"]);
    let expected = serde_json::json!({
        "cpu": 95, "core": "31,95", "llc": 0, "node": 0, "kind": "performance",
        "capacity": 1024, "irq_percent": null, "irq_heavy": false, "allowed": true,
        "preferred": true, "score": 100,
        "reason": "near 4 GPUs on node 0; whole core 31,95",
    });
    assert_eq!(json["cpus"][95], expected);
    let expected = serde_json::json!({
        "cpus": "31,63,95,127", "ranked": [63, 31, 127, 95], "reason": "4 CPUs for 2 threads",
    });
    assert_eq!(json["preferred"], expected);
    let expected = serde_json::json!({
        "address": "0000:51:00.0", "vendor": "Mellanox", "id": "15b3:101d", "node": 0,
        "local_cpus": "0-31,64-95", "interfaces": ["ens81np0"],
    });
    assert_eq!(json["nics"][1], expected);
    assert_eq!(json["gpus"].as_array().unwrap().len(), 8);
    // As the simulator writes that machine's files.
    let folder = tempfile::tempdir().unwrap();
    let (sim, files) = (
        repository().join("target/release/gpuaware-sim"),
        folder.path().join("sys"),
    );
    let mut writes = Command::new(sim);
    writes
        .arg("sysfs")
        .arg(repository().join("tests/data/sysfs/server-128t-8gpu-4nic.txt"));
    assert!(writes.arg(&files).status().unwrap().success());
    let written = topology_json(&["--sysfs", files.to_str().unwrap(), "--threads", "2"]);
    assert_eq!(written, json);
    assert_eq!(json["offline"], "");
}

#[test]
fn topology_heeds_the_policy_and_the_flag_wins() {
    let laptop = sysfs::machine("laptop-4c8t");
    let root = laptop.path().to_str().unwrap();
    let policy = laptop.path().join("policy.toml");
    std::fs::write(&policy, "[preferred]\ncpus = \"1,5\"\n").unwrap();
    let policy = policy.to_str().unwrap();
    let named = |args: &[&str]| {
        let args = [&["--sysfs", root, "-p", policy], args].concat();
        topology_json(&args)["preferred"]["cpus"].clone()
    };
    assert_eq!(named(&[]), "1,5");
    assert_eq!(named(&["--preferred-cpus", "2"]), "2");
    let (code, error) = run(&["topology", "--sysfs", root, "--preferred-cpus", "8"]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("CPU 8 is not online"), "{error}");
}

#[test]
fn topology_of_a_folder_that_is_no_sysfs_names_the_file() {
    let empty = tempfile::tempdir().unwrap();
    let (code, error) = run(&["topology", "--sysfs", empty.path().to_str().unwrap()]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("devices/system/cpu/online"), "{error}");
}

#[test]
fn bad_trace_flags_are_usage_errors() {
    for (args, part) in [
        (
            &["trace", "--pid", "2147483647"][..],
            "no process with PID 2147483647",
        ),
        (
            &["trace", "--cgroup", "/no/such/cgroup"],
            "no cgroup /no/such/cgroup",
        ),
        (&["trace", "--buffer", "2G", "--format", "csv"], "64K to 1G"),
        (&["trace", "--buffer", "many"], "expected a size such as"),
        (
            &["trace", "--window-ms", "500", "--every-ms", "100"],
            "longer than --every-ms",
        ),
        (&["trace", "--max-size", "1M"], "--format csv"),
        (
            &["trace", "--record-profile", "/no/such/folder/profile"],
            "creating /no/such/folder/profile",
        ),
        (&["trace", "--format", "legacy-csv"], "--all-launches"),
        (&["trace", "--format", "csv", "--", "true"], "-o"),
        (
            &["trace", "-o", "/no/such/folder/file"],
            "/no/such/folder/file",
        ),
    ] {
        let (code, error) = run(args);
        assert_eq!(code, 2, "{args:?}: {error}");
        assert!(error.contains(part), "{args:?}: {part} in {error}");
    }
}
