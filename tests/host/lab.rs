// SPDX-License-Identifier: GPL-2.0-only
//! The lab as its users see it: exit codes, streams, the time limit, errors.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::{alone_with_cuda, beside_labs, code, repository};
use crate::tier;

fn lab(args: &[&str]) -> Output {
    let _labs = beside_labs();
    boot(args)
}

fn bench() -> PathBuf {
    let program = repository().join("target/release/gpuaware-bench");
    assert!(
        program.exists(),
        "{} is missing: run make build",
        program.display()
    );
    program
}

/// Now and then the emulation loses a timer of a guest that boots, which then stands still, or has it panic at an int3.
/// Tests in the lab have it start again (`--restarts`); what these look at must not depend on that.
const NOT_BOOTED: &str = "before the guest had booted";

fn is_the_emulations_fault(stderr: &str) -> bool {
    let standing_still = stderr.contains("two minutes went by before the guest had booted");
    standing_still || (stderr.contains(NOT_BOOTED) && stderr.contains("int3: 0000 [#1]"))
}

const MOST_BOOTS: usize = 3;

fn boot_once(args: &[&str]) -> Output {
    let mut lab = Command::new(bench());
    lab.arg("lab").args(args).stdin(Stdio::null());
    lab.output().expect("starting gpuaware-bench")
}

fn boot(args: &[&str]) -> Output {
    for _ in 1..MOST_BOOTS {
        let output = boot_once(args);
        let stderr = text(&output.stderr);
        if output.status.success() || !is_the_emulations_fault(&stderr) {
            return output;
        }
        println!("once more: {stderr}");
    }
    boot_once(args)
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
    let _labs = beside_labs();
    // As nohup starts it: the terminal that goes away is no reason to end.
    let mut nohup = Command::new("sh");
    let ignore = "trap '' HUP; exec \"$0\" lab --timeout 20 -- sleep 1000";
    nohup.args(["-c", ignore]).arg(bench());
    let lab = nohup.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let lab = lab.expect("starting gpuaware-bench");
    std::thread::sleep(Duration::from_secs(8));
    let pid = Pid::from_raw(lab.id().try_into().expect("a PID"));
    kill(pid, Signal::SIGHUP).expect("it runs");
    let output = lab.wait_with_output().expect("its end");
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
        let _labs = beside_labs();
        let fallen = || {
            let outside = tempfile::tempdir().expect("a folder");
            let folder = outside.path().to_str().expect("UTF-8");
            let lab_args = ["--timeout", "240", "--rwdir", folder];
            let command = ["--", "sh", "-c", script, "sh", folder];
            let output = boot_once(&[&lab_args, more, &command].concat());
            (code(output.status), text(&output.stderr))
        };
        // Each with a folder of its own: a start that does not boot is one of those that are counted.
        let goes_on = |(_, stderr): &(i32, String)| !is_the_emulations_fault(stderr);
        let tries = (0..MOST_BOOTS).map(|_| fallen());
        tries.into_iter().find(goes_on).expect("a guest that boots")
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
fn starts_again_where_the_guest_does_not_boot() {
    if !tier::lab() {
        return;
    }
    let no_root = ["--boot", "initcall_blacklist=virtio_fs_init"];
    let options = ["--timeout", "240", "--restarts", "1"];
    let _labs = beside_labs();
    let output = boot_once(&[&options[..], &no_root, &["--", "true"]].concat());
    let stderr = text(&output.stderr);
    assert_eq!(code(output.status), 1, "{stderr}");
    let starts = stderr.matches(NOT_BOOTED).count();
    assert_eq!(starts, 2, "{stderr}");
    assert!(stderr.contains("the kernel panicked"), "{stderr}");
    assert!(stderr.contains("Unable to mount root fs"), "{stderr}");
}

/// The CPUs on which each vCPU of the QEMU that this process started may run. There is one where no lab is beside.
fn cores_of_vcpus() -> Vec<String> {
    let status_of = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/status"));
    let parent_of = |pid: &i32| -> Option<i32> {
        let status = status_of(*pid).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok()
    };
    let is_ours = |pid: &i32| {
        let ancestors = std::iter::successors(Some(*pid), parent_of);
        ancestors
            .take(20)
            .any(|pid| pid as u32 == std::process::id())
    };
    let is_qemu = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("qemu-system")) && is_ours(pid)
    };
    let qemu = numbers_in("/proc").find(is_qemu).expect("QEMU runs");
    let tasks = format!("/proc/{qemu}/task");
    let is_vcpu = |tid: &i32| {
        let name = std::fs::read_to_string(format!("{tasks}/{tid}/comm"));
        name.is_ok_and(|name| name.starts_with("CPU "))
    };
    numbers_in(&tasks)
        .filter(is_vcpu)
        .map(|tid| {
            let status = std::fs::read_to_string(format!("{tasks}/{tid}/status")).expect("status");
            let allowed = status
                .lines()
                .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            allowed.expect("an affinity").trim().to_owned()
        })
        .collect()
}

/// The names of entries that are numbers.
fn numbers_in(folder: &str) -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir(folder).expect("a folder of processes or threads");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

#[test]
fn each_cpu_of_an_emulated_guest_has_a_core_of_its_own() {
    if !tier::lab() {
        return;
    }
    // Of two machines side by side nobody knows which is whose.
    let _alone = alone_with_cuda();
    let shared = tempfile::tempdir().expect("a folder");
    let folder = shared.path().to_str().expect("UTF-8").to_owned();
    let cores = std::thread::available_parallelism().expect("the number of CPUs");
    let cpus = cores.to_string();
    let until_seen = r#"touch "$1/up"; for i in $(seq 600); do test -e "$1/seen" && exit 0; sleep 0.1; done; exit 1"#;
    let command = ["--", "sh", "-c", until_seen, "sh", &folder];
    let options = ["--cpus", &cpus, "--timeout", "240", "--rwdir", &folder];
    let (output, found) = std::thread::scope(|scope| {
        let running = scope.spawn(|| boot(&[&options, &command[..]].concat()));
        while !shared.path().join("up").exists() && !running.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let found = (!running.is_finished()).then(cores_of_vcpus);
        std::fs::write(shared.path().join("seen"), "").expect("a file for the guest");
        (running.join().expect("the lab"), found)
    });
    let stderr = text(&output.stderr);
    assert_eq!(code(output.status), 0, "{stderr}");
    if !stderr.contains("lab: emulation") {
        println!("SKIPPED: KVM works here, and its vCPUs are left to the kernel");
        return;
    }
    let mut found = found.expect("the command ran");
    found.sort();
    found.dedup();
    assert_eq!(found.len(), cores.get(), "{found:?}");
    assert!(
        found.iter().all(|core| core.parse::<u32>().is_ok()),
        "{found:?}"
    );
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
