// SPDX-License-Identifier: GPL-2.0-only
//! The emulated CUDA driver and the workload that runs on it: built here, then run as programs.
//!
//! Timing is only bounded from below, or by a wide margin: other programs share the machine.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scx_gpuaware::identify::libcuda::{INIT_SYMBOL, LAUNCH_SYMBOLS, SYNC_SYMBOLS};
use serde_json::Value;

use crate::process::{alone_with_cuda, repository};
use crate::tier;

fn make(folder: &str, target: &str, out: &Path) {
    let folder = repository().join(folder);
    let made = Command::new("make")
        .arg("-C")
        .arg(&folder)
        .arg(format!("OUT={}", out.display()))
        .arg(target)
        .output()
        .expect("make starts");
    assert!(
        made.status.success(),
        "make -C {} {target}:\n{}",
        folder.display(),
        String::from_utf8_lossy(&made.stderr)
    );
}

/// Where libcuda.so.1, fakecuda_conformance and gpu_launch are, built once per test run.
fn built() -> &'static Path {
    static OUT: OnceLock<PathBuf> = OnceLock::new();
    OUT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fakecuda");
        std::fs::create_dir_all(&out).expect("the folder for build results can be made");
        make("bench/fakecuda", "all", &out);
        make("bench/fakecuda", "conformance", &out);
        make("bench/workloads/gpu_launch", "all", &out);
        out
    })
}

fn program(name: &str) -> Command {
    with_the_driver(built().join(name))
}

fn with_the_driver(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", built());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FAKECUDA_")) {
        command.env_remove(name);
    }
    command
}

fn gpu_launch(arguments: &[&str]) -> Output {
    program("gpu_launch")
        .args(arguments)
        .output()
        .expect("gpu_launch starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn report(arguments: &[&str]) -> Value {
    let output = gpu_launch(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("exactly one JSON document on stdout")
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("expected a number: {value}"))
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap_or_else(|| panic!("expected an array: {value}"))
        .iter()
        .map(number)
        .collect()
}

fn cpu_share(report: &Value) -> f64 {
    let cpu = &report["cpu_s"];
    (number(&cpu["user"]) + number(&cpu["sys"])) / number(&report["seconds"])
}

/// Tokens that are nearly all waiting for the GPU: one kernel of 20 ms each.
const WAITING: &str = "--profile eager --tokens 30 --warmup-tokens 1 --set launches_per_token=1 \
                       --set last_kernel_ns=20000000 --set launch_gap_ns=0 --sync";

fn waiting_for_the_gpu(sync: &str) -> Value {
    let arguments: Vec<_> = WAITING.split(' ').chain([sync]).collect();
    report(&arguments)
}

#[test]
fn driver_conforms() {
    let _alone = alone_with_cuda();
    let output = program("fakecuda_conformance")
        .output()
        .expect("fakecuda_conformance starts");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && !stdout.contains("not ok"),
        "{stdout}\n{stderr}"
    );
    assert!(
        stdout
            .lines()
            .filter(|line| line.starts_with("ok "))
            .count()
            >= 40,
        "{stdout}"
    );
}

/// What a uprobe costs is a matter of the first instructions (`src/identify/probe_point.rs`).
#[test]
fn entries_begin_as_the_genuine_librarys_do() {
    let _alone = alone_with_cuda();
    let library = built().join("libcuda.so.1");
    // What the driver of CUDA 13 has and this one has not is not looked for.
    let syncs = SYNC_SYMBOLS
        .into_iter()
        .filter(|name| !name.ends_with("_v2"));
    for entry in LAUNCH_SYMBOLS.into_iter().chain(syncs).chain([INIT_SYMBOL]) {
        let output = Command::new("objdump")
            .args(["-d", "--no-show-raw-insn"])
            .arg(format!("--disassemble={entry}"))
            .arg(&library)
            .output()
            .expect("objdump starts");
        let listing = text(&output.stdout);
        let first: Vec<&str> = listing
            .lines()
            .skip_while(|line| !line.ends_with(&format!("<{entry}>:")))
            .skip(1)
            .filter_map(|line| line.split_whitespace().nth(1))
            .take(3)
            .collect();
        assert_eq!(first, ["cmpl", "je", "jmp"], "{entry}:\n{listing}");
    }
}

#[test]
fn library_has_its_own_soname_and_hides_its_internals() {
    let _alone = alone_with_cuda();
    let library = built().join("libcuda.so.1");
    let dynamic = Command::new("readelf")
        .args(["--dynamic", "--wide", "--dyn-syms"])
        .arg(&library)
        .output()
        .expect("readelf starts");
    let dynamic = text(&dynamic.stdout);
    assert!(dynamic.contains("[libcuda.so.1]"), "{dynamic}");
    let internals: Vec<&str> = dynamic
        .lines()
        .filter(|line| line.contains(" GLOBAL ") && line.contains(" fk_"))
        .collect();
    assert!(internals.is_empty(), "{internals:?}");
}

#[test]
fn report_keeps_the_contract_in_every_sync_mode() {
    let _alone = alone_with_cuda();
    for sync in ["auto", "spin", "yield", "block"] {
        let report = report(&[
            "--profile",
            "eager",
            "--sync",
            sync,
            "--tokens",
            "12",
            "--warmup-tokens",
            "2",
            "--threads",
            "2",
        ]);
        assert_eq!(report["schema"], 1);
        assert_eq!(report["workload"], "gpu_launch");
        assert_eq!(report["profile"], "eager");
        assert_eq!(report["driver"]["device_name"], "scx_gpuaware emulated GPU");
        assert_eq!(report["driver"]["version"], 13000);
        assert_eq!(report["sync"], sync);
        assert_eq!(report["threads"], 2);
        assert_eq!(report["warmup_tokens"], 2);
        assert_eq!(report["tokens"], 24);
        assert_eq!(report["launches"], 2400);
        assert_eq!(report["failures"], 0);
        assert_eq!(numbers(&report["token_us"]).len(), 24);
        let histogram = &report["launch_interval_ns"];
        let counts = numbers(&histogram["count"]);
        assert_eq!(counts.len(), numbers(&histogram["le"]).len());
        // Intervals are counted within a token: one less than its launches.
        assert_eq!(
            counts.iter().sum::<f64>() + number(&histogram["over"]),
            24.0 * 99.0
        );
        for key in ["voluntary", "involuntary"] {
            number(&report["context_switches"][key]);
        }
        let measured = numbers(&report["measured_monotonic_ns"]);
        let seconds = number(&report["seconds"]);
        assert!((measured[1] - measured[0] - seconds * 1e9).abs() < 2e3);
        assert!((number(&report["tokens_per_s"]) - 24.0 / seconds).abs() < 0.1);
        for thread in report["threads_detail"].as_array().expect("an array") {
            assert!(number(&thread["tid"]) > 0.0);
            assert!(number(&thread["first_launch_monotonic_ns"]) < measured[0]);
            assert_eq!(thread["tokens"], 12);
        }
    }
}

#[test]
fn kernels_take_real_time() {
    let _alone = alone_with_cuda();
    let report = waiting_for_the_gpu("block");
    let mut token_us = numbers(&report["token_us"]);
    token_us.sort_by(f64::total_cmp);
    assert!(token_us[0] >= 20_000.0, "{token_us:?}");
    assert!(token_us[token_us.len() / 2] < 60_000.0, "{token_us:?}");
}

#[test]
fn blocking_sync_sleeps_and_spinning_burns_cpu() {
    let _alone = alone_with_cuda();
    let sleeps = |report: &Value| number(&report["context_switches"]["voluntary"]);
    let block = waiting_for_the_gpu("block");
    assert!(cpu_share(&block) < 0.1, "{block}");
    assert!(sleeps(&block) >= 30.0, "{block}");
    // Who yields does not sleep either, and has what others leave of the CPUs.
    let yields = waiting_for_the_gpu("yield");
    assert!(sleeps(&yields) < 30.0, "{yields}");
    for sync in ["spin", "auto"] {
        let report = waiting_for_the_gpu(sync);
        assert!(cpu_share(&report) > 0.2, "{sync}: {report}");
    }
}

/// A thread that yields asks the kernel over and over, one that spins does not.
#[test]
fn yielding_goes_through_the_kernel() {
    if !tier::program("strace") {
        return;
    }
    let _alone = alone_with_cuda();
    let yields = |sync| {
        let calls = tempfile::NamedTempFile::new().expect("a file for the calls");
        let mut command = with_the_driver("strace");
        command.args(["-f", "-qq", "-e", "trace=sched_yield", "-o"]);
        command.arg(calls.path()).arg(built().join("gpu_launch"));
        let output = command.args(WAITING.split(' ')).arg(sync).output();
        let output = output.expect("strace starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let calls = std::fs::read_to_string(calls.path()).expect("the calls");
        calls.matches("sched_yield(").count()
    };
    let (yielding, spinning) = (yields("yield"), yields("spin"));
    // Where others want the CPUs, each yield takes some milliseconds of the twenty.
    assert!(
        yielding >= 60 && spinning < 30,
        "in 31 tokens {yielding} by yielding, {spinning} by spinning"
    );
}

#[test]
fn every_launch_entry_can_be_asked_for() {
    let _alone = alone_with_cuda();
    for call in [
        "cuLaunchKernel",
        "cuLaunchKernelEx",
        "cuLaunchCooperativeKernel",
        "cuGraphLaunch",
    ] {
        let report = report(&[
            "--profile",
            "eager",
            "--tokens",
            "3",
            "--set",
            &format!("call={call}"),
            "--set=launches_per_token=7",
        ]);
        assert_eq!(report["launches"], 21, "{call}");
        assert_eq!(report["failures"], 0, "{call}");
    }
}

#[test]
fn every_profile_runs() {
    let _alone = alone_with_cuda();
    for profile in ["qwen3", "eager", "graph"] {
        let report = report(&["--profile", profile, "--duration", "0.2"]);
        assert!(number(&report["tokens"]) >= 1.0, "{report}");
        assert!(number(&report["seconds"]) >= 0.2, "{report}");
        assert_eq!(report["sync"], "block");
    }
}

#[test]
fn bad_usage_names_what_was_expected() {
    let _alone = alone_with_cuda();
    let profiles = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fakecuda-bad-profiles");
    std::fs::create_dir_all(&profiles).expect("a folder for a bad profile");
    std::fs::write(
        profiles.join("bad.toml"),
        "call = \"cuLaunchKernel\"\nkernals = 3\n",
    )
    .expect("a bad profile is written");
    let folder = profiles.to_str().expect("a path in UTF-8");
    let cases: [(&[&str], &str); 9] = [
        (&["--tokens", "1"], "--profile is missing"),
        (
            &["--profile", "eager"],
            "either --tokens N or --duration SEC",
        ),
        (
            &["--profile", "eager", "--tokens", "1", "--duration", "1"],
            "either --tokens N or --duration SEC",
        ),
        (&["--profile", "absent", "--tokens", "1"], "absent.toml"),
        (
            &["--profile", "bad", "--profiles", folder, "--tokens", "1"],
            "bad.toml:2: unknown key kernals",
        ),
        (
            &[
                "--profile",
                "eager",
                "--tokens",
                "1",
                "--set",
                "kernel_ns=soon",
            ],
            "expected a whole number",
        ),
        (
            &["--profile", "eager", "--tokens", "1", "--sync", "maybe"],
            "expected one of auto, spin, yield, block",
        ),
        (
            &["--profile", "eager", "--tokens", "-3"],
            "expected a whole number",
        ),
        (
            &["--profile", "eager", "--tokens", "1", "--gpus", "2"],
            "--gpus 2: the driver has 1",
        ),
    ];
    for (arguments, expected) in cases {
        let output = gpu_launch(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn driver_failure_is_named_and_exits_with_1() {
    let _alone = alone_with_cuda();
    let output = program("gpu_launch")
        .args(["--profile", "eager", "--tokens", "1"])
        .env("FAKECUDA_DEVICES", "0")
        .output()
        .expect("gpu_launch starts");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("CUDA_ERROR_NO_DEVICE"), "{stderr}");
}

#[test]
fn interrupted_run_prints_what_it_has() {
    let _alone = alone_with_cuda();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut child = program("gpu_launch")
            .args(["--profile", "eager", "--duration", "600"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("gpu_launch starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a line on stderr");
        assert_eq!(line, "gpu_launch: measuring\n");
        std::thread::sleep(std::time::Duration::from_millis(200));
        kill(Pid::from_raw(child.id() as i32), signal).expect("the signal is sent");
        let mut stdout = String::new();
        child
            .stdout
            .take()
            .expect("a pipe")
            .read_to_string(&mut stdout)
            .expect("text on stdout");
        assert_eq!(child.wait().expect("gpu_launch ends").code(), Some(0));
        let report: Value = serde_json::from_str(&stdout).expect("a JSON document");
        assert!(number(&report["tokens"]) >= 1.0, "{report}");
        assert!(number(&report["seconds"]) < 60.0, "{report}");
    }
}

/// What comes after the measured part counts for nothing.
#[test]
fn goes_on_launching_until_stdin_ends() {
    let _alone = alone_with_cuda();
    let mut child = program("gpu_launch")
        .args(["--profile", "eager", "--tokens", "20", "--until-eof", "yes"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gpu_launch starts");
    let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let lines: Vec<String> = stderr.lines().take(2).map_while(Result::ok).collect();
    assert_eq!(lines, ["gpu_launch: measuring", "gpu_launch: measured"]);
    let stat = format!("/proc/{}/stat", child.id());
    let ticks = || {
        let stat = std::fs::read_to_string(&stat).expect("gpu_launch is alive");
        let user_time = stat.rsplit(' ').nth(38).expect("user time");
        user_time.parse::<u64>().expect("ticks")
    };
    let before = ticks();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(ticks() > before, "it does not launch any more");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("gpu_launch ends");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON document");
    assert_eq!(
        [&report["tokens"], &report["launches"]].map(number),
        [20.0, 2000.0]
    );
}

/// Whoever looks for launching threads must be able to tell them from their siblings. Each GPU has one.
#[test]
fn only_named_threads_launch() {
    let _alone = alone_with_cuda();
    let mut child = program("gpu_launch")
        .args(["--profile", "eager", "--duration", "600"])
        .args(["--gpus", "all", "--idle-threads", "2"])
        .env("FAKECUDA_DEVICES", "2")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gpu_launch starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line on stderr");
    let mut names: Vec<(u32, String)> = std::fs::read_dir(format!("/proc/{}/task", child.id()))
        .expect("the threads of gpu_launch")
        .map(|entry| {
            let path = entry.expect("a thread").path();
            let tid = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok());
            let comm = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            (tid.expect("a number"), comm.trim().to_owned())
        })
        .collect();
    names.sort();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("the signal is sent");
    let output = child.wait_with_output().expect("gpu_launch ends");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a JSON document");
    let threads = report["threads_detail"].as_array().expect("an array");
    let of = |key: &str| -> Vec<f64> { threads.iter().map(|one| number(&one[key])).collect() };
    assert_eq!((of("gpu"), &report["gpus"]), (vec![0.0, 1.0], &2.into()));
    let launching: Vec<u32> = of("tid").iter().map(|tid| *tid as u32).collect();
    for (tid, name) in &names {
        assert_eq!(
            launching.contains(tid),
            name.starts_with("launch-"),
            "{names:?} {launching:?}"
        );
    }
    for expected in ["launch-0", "launch-1", "idle-0", "idle-1", "gpu_launch"] {
        assert!(
            names.iter().any(|(_, name)| name == expected),
            "no thread {expected}: {names:?}"
        );
    }
}
