// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench tune`: what it refuses before it does anything, and its guard rails beside a production workload:
//! however the tuning ends, the old policy is in force. The scheduler is the test's own: it answers for its policy file.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::serving::server;
use crate::bench::cell;
use crate::process::{Process, alone_with_cuda, code, eventually, repository};

const OLD: &str = "# the old one\nversion = 1\n[preferred]\nmax = 1\n";
const CANDIDATE: &str = "[preferred]\nhold_us = 0\n";

fn tune(args: &[&str]) -> Command {
    let mut command = Command::new(repository().join("target/release/gpuaware-bench"));
    command
        .arg("tune")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// A production host of the test's own.
struct Host {
    folder: TempDir,
    workload: Process,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy.toml"), OLD).unwrap();
        fs::write(folder.path().join("hold-0.toml"), CANDIDATE).unwrap();
        let (socket, policy) = (
            folder.path().join("stats"),
            folder.path().join("policy.toml"),
        );
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || answer_for(&listener, &policy));
        Self {
            folder,
            workload: Process::start(Self::workload()),
        }
    }

    fn workload() -> Command {
        let mut sleep = Command::new("sleep");
        sleep.arg("600").stdin(Stdio::null());
        sleep
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The metric is `usual` under the old policy, else `tried`.
    fn tune(&self, usual: u32, tried: u32) -> Process {
        let metric = format!(
            "if grep -q hold_us '{}'; then echo {tried}; else echo {usual}; fi",
            self.path("policy.toml").display()
        );
        self.tune_by(&["--slo-command", &metric])
    }

    fn tune_by(&self, metric: &[&str]) -> Process {
        let (policy, out) = (self.path("policy.toml"), self.path("out"));
        let pid = self.workload.pid().to_string();
        let mut command = tune(&["--attach", &pid, "--neighbours", "live", "--budget", "33s"]);
        command.args(metric).args(["--slo-for", "1s"]);
        for (flag, path) in [
            ("--policy", policy),
            ("--candidate", self.path("hold-0.toml")),
            ("--stats-socket", self.path("stats")),
            ("-o", out),
        ] {
            command.arg(flag).arg(path);
        }
        Process::start(command)
    }

    fn resume(&self, args: &[&str]) -> Process {
        let mut command = tune(args);
        command.arg("--resume").arg(self.path("out"));
        Process::start(command)
    }

    fn in_force(&self) -> String {
        fs::read_to_string(self.path("policy.toml")).unwrap()
    }

    fn wait_for_candidate(&self) {
        let tried = eventually(|| self.in_force().contains("hold_us").then_some(()));
        tried.expect("the candidate is tried");
    }

    fn wait_for_the_old_policy(&self) {
        let back = eventually(|| (self.in_force() == OLD).then_some(()));
        back.unwrap_or_else(|| panic!("not put back: {}", self.in_force()));
    }

    fn result(&self) -> String {
        fs::read_to_string(self.path("out/policy.toml")).unwrap()
    }
}

/// Counts a generation when the file has changed since it was asked last. Who asks may be killed meanwhile.
fn answer_for(listener: &UnixListener, policy: &Path) {
    let (mut generation, mut known) = (1, OLD.to_owned());
    for stream in listener.incoming().map_while(Result::ok) {
        let mut request = String::new();
        if BufReader::new(&stream).read_line(&mut request).is_err() {
            continue;
        }
        let now = fs::read_to_string(policy).unwrap();
        if !now.is_empty() && now != known {
            generation += 1;
            known = now;
        }
        let answer = format!(
            "{{\"errno\":0,\"args\":{{\"resp\":{{\"policy_generation\":{generation},\"policy_refused\":0}}}}}}\n"
        );
        // A tuning that lives and has no answer fails.
        let _ = (&stream).write_all(answer.as_bytes());
    }
}

#[test]
fn a_candidate_that_breaks_the_rail_is_given_up_and_the_old_policy_stays() {
    let host = Host::new();
    let mut tuning = host.tune(10, 100);
    let status = tuning.wait();
    assert_eq!(code(status), 0, "{:#?}", tuning.log);
    assert_eq!(host.in_force(), OLD);
    let result = host.result();
    assert!(
        result.contains("hold-0: –: given up: the metric was 100"),
        "{result}"
    );
    assert!(result.ends_with(OLD), "{result}");
}

#[test]
fn a_better_candidate_is_recommended_on_top_of_the_policy_in_force_and_not_installed() {
    let host = Host::new();
    let mut tuning = host.tune(10, 5);
    let status = tuning.wait();
    assert_eq!(code(status), 0, "{:#?}", tuning.log);
    assert_eq!(host.in_force(), OLD);
    let result = host.result();
    assert!(
        result.contains("hold-0 is better than the policy in force."),
        "{result}"
    );
    assert!(
        result.contains("max = 1") && result.contains("hold_us = 0"),
        "{result}"
    );
}

#[test]
fn an_endpoint_can_be_what_is_watched() {
    let _alone = alone_with_cuda();
    let (_server, url) = server("0.9");
    let host = Host::new();
    let mut tuning = host.tune_by(&["--url", &url, "--latency", "tpot", "--slo-worse", "1000%"]);
    // Measured beside the old policy: there are two latencies.
    tuning.wait_for_line("hold-0: ");
    tuning.signal(Signal::SIGINT);
    assert_eq!(code(tuning.wait()), 1, "{:#?}", tuning.log);
    assert_eq!(host.in_force(), OLD);
    let said = tuning.log.join("\n");
    let measured = said.lines().find(|line| line.starts_with("hold-0: "));
    assert!(
        measured.is_some_and(|line| line.contains(", the old policy has ")),
        "{said}"
    );
}

/// Ends a tuning beside a workload while a candidate is in force.
fn is_put_back_after(end: impl FnOnce(&Host, &Process)) -> (Host, Process) {
    let host = Host::new();
    let mut tuning = host.tune(10, 10);
    host.wait_for_candidate();
    end(&host, &tuning);
    host.wait_for_the_old_policy();
    assert_ne!(code(tuning.wait()), 0);
    (host, tuning)
}

fn goes_on_beside(host: &Host, pid: i32) {
    let mut tuning = host.resume(&["--attach", &pid.to_string()]);
    assert_eq!(code(tuning.wait()), 0, "{:#?}", tuning.log);
    assert_eq!(host.in_force(), OLD);
    let state = fs::read_to_string(host.path("out/live.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["windows"].as_array().unwrap().len(), 15, "{state}");
}

#[test]
fn the_old_policy_is_back_after_ctrl_c_and_after_a_kill_and_it_goes_on() {
    std::thread::scope(|scope| {
        for signal in [Signal::SIGINT, Signal::SIGKILL] {
            scope.spawn(move || {
                let (host, _) = is_put_back_after(|_, tuning| tuning.signal(signal));
                goes_on_beside(&host, host.workload.pid());
            });
        }
    });
}

#[test]
fn the_old_policy_is_back_when_the_workload_ends_and_it_goes_on_beside_the_next_one() {
    let (host, tuning) = is_put_back_after(|host, _| host.workload.signal(Signal::SIGKILL));
    let said = tuning.log.join("\n");
    assert!(said.contains("the workload has ended"), "{said}");
    let next = Process::start(Host::workload());
    let mut without = host.resume(&[]);
    assert_eq!(code(without.wait()), 2, "{:#?}", without.log);
    goes_on_beside(&host, next.pid());
    let mut again = host.tune(10, 10);
    assert_eq!(code(again.wait()), 2, "{:#?}", again.log);
}

#[test]
fn the_old_policy_is_back_when_a_neighbour_comes_while_a_candidate_is_tried() {
    let host = Host::new();
    // It comes when the metric is read for the second time under the candidate, and goes with that. Where the machine is
    // too slow for the rail in this round, the candidate meets it in the next one.
    let metric = format!(
        "cd '{}'; if grep -q hold_us policy.toml; then if test -e asked; then echo 100; else touch asked; echo 10; fi; \
         else echo 10; fi",
        host.folder.path().display()
    );
    let mut tuning = host.tune_by(&["--slo-command", &metric]);
    host.wait_for_candidate();
    host.wait_for_the_old_policy();
    assert_eq!(code(tuning.wait()), 0, "{:#?}", tuning.log);
    assert_eq!(host.in_force(), OLD);
    let result = host.result();
    assert!(
        result.contains("hold-0: –: given up: the metric was 100"),
        "{result}"
    );
}

#[test]
fn what_cannot_be_tuned_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.toml");
    fs::write(&bad, "[preferred]\nhold_us = \"long\"\n").unwrap();
    let bad = bad.to_str().unwrap();
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    let recording = recording();
    let recording = recording.to_str().unwrap();
    let silent = folder.path().join("silent.json");
    let text = fs::read_to_string(recording).unwrap();
    fs::write(&silent, text.replace("\"launch\"", "\"background\"")).unwrap();
    let silent = silent.to_str().unwrap();
    for (args, expected) in [
        (
            &["--workload", "qwen4"][..],
            "--workload: expected NAME or MATRIX/NAME, one of (",
        ),
        (
            &["--workload", "qwen3", "--neighbours", "gpu"],
            "--neighbours: unknown variant `gpu`",
        ),
        (
            &["--workload", "qwen3", "--neighbours", "live"],
            "--neighbours: expected live with --attach",
        ),
        (
            &["--workload", "qwen3", "--budget", "2m"],
            "--budget: expected at least ",
        ),
        (&["--workload", "qwen3", "--candidate", bad], "hold_us"),
        (
            &["--workload", "qwen3", "--on", "host", "--cpus", "2"],
            "--cpus: expected with --on lab",
        ),
        (&["--resume", out], "--resume: "),
        (&["--workload", "qwen3", "--on", "sim"], "--machine"),
        (
            &["--workload", "qwen3", "--on", "host", "--machine", "8"],
            "--machine: expected with --on sim",
        ),
        (
            &["--workload", "qwen3", "--on", "sim", "--machine", "no-such"],
            "--machine no-such: expected a shape",
        ),
        (
            &["--workload", "chat", "--on", "sim", "--machine", "8"],
            "--on sim: workload \"chat\": the simulator runs gpu_launch",
        ),
        (
            &[
                "--workload",
                "qwen3",
                "--neighbours",
                "cpu,irq",
                "--on",
                "sim",
                "--machine",
                "8",
            ],
            "--on sim: neighbour irq: the simulator models",
        ),
        (
            &["--recording", "no-such.json"],
            "no-such.json: cannot read",
        ),
        (
            &["--recording", bad],
            "bad.toml: expected what scx_gpuaware trace --record-profile",
        ),
        (
            &["--recording", silent, "--on", "sim"],
            "silent.json: expected threads that launch GPU work, found none",
        ),
        (
            &["--recording", recording, "--on", "lab"],
            "--recording: expected with --on sim",
        ),
        (
            &["--recording", recording, "--neighbours", "cpu"],
            "--recording: expected without --neighbours",
        ),
        (
            &[
                "--workload",
                "qwen3",
                "--recording",
                recording,
                "--on",
                "sim",
            ],
            "--recording: expected without --workload",
        ),
        (
            &[
                "--workload",
                "chat",
                "--recording",
                recording,
                "--cpus",
                "3",
            ],
            "--recording: expected one of 3 CPUs, as the machine has that is tuned for, got one of 2",
        ),
        (&["--attach", "1", "--policy", bad], "--slo-command"),
        (
            &["--attach", "1", "--policy", bad, "--slo-prometheus", "x"],
            "--slo-query",
        ),
    ] {
        let mut command = tune(args);
        if ["--workload", "--recording"].contains(&args[0]) {
            command.args(["-o", out]);
        }
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(output.status), 2, "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
        assert!(!Path::new(out).exists(), "{args:?}: nothing is half done");
    }
}

/// Nobody's time is measured: the same machine comes out whatever this one does.
#[test]
fn a_machine_that_is_not_at_hand_is_tuned_for_in_the_simulator() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuned");
    let mut command = tune(&["--workload", "qwen3", "--neighbours", "cpu", "--explain"]);
    command.args(["--on", "sim", "--machine", "8x2", "--budget", "15s", "-o"]);
    let output = command.arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output.status), 0, "{said}");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    let policy = read("policy.toml");
    let words: Vec<&str> = policy.split_whitespace().collect();
    let one_line = words.join(" ").replace(" # ", " ");
    for words in [
        "demo/qwen3 beside cpu on 8 CPUs of 8x2, simulated.",
        "That is so in the simulator",
        "Not tried: irq-steer: policy: the simulator has nothing for irq.steer",
    ] {
        assert!(one_line.contains(words), "{words} in {policy}");
    }
    let proof = read("verify/report.md");
    let measured = "Simulated, not measured, on the machine 8x2";
    assert!(proof.contains(measured), "{proof}");
    assert!(said.contains("hold-0: "), "{said}");
    assert!(
        said.contains("preferred by default for one launcher: 7;"),
        "{said}"
    );
    let same = "propose: not max-4: the same CPUs are preferred as by default, for as many threads as launch here: 1";
    assert!(said.contains(same), "{said}");
    assert!(said.contains("look: 15 s of 15 s left"), "{said}");
}

#[test]
fn a_tuning_that_was_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuned");
    let mut command = tune(&["--workload", "qwen3", "--neighbours", "cpu", "--on", "sim"]);
    command.args(["--machine", "8x2", "--budget", "15s", "-o"]);
    let mut tuning = Process::start({
        command.arg(&out);
        command
    });
    tuning.wait_for_line("sift-1: ");
    // At once: it has no time to end its step meanwhile.
    tuning.signal(Signal::SIGSTOP);
    tuning.signal(Signal::SIGKILL);
    tuning.wait();
    assert!(tuning.log.iter().any(|line| line.starts_with("look: ")));
    let mut command = tune(&["--resume"]);
    command.arg(&out);
    let mut tuning = Process::start(command);
    assert_eq!(code(tuning.wait()), 0, "{:#?}", tuning.log);
    assert!(out.join("policy.toml").is_file());
    // Neither looked at nor proposed again.
    assert!(!tuning.log.iter().any(|line| line.starts_with("look: ")));
    let is_said = |step: &str| {
        let is_of = |line: &&String| line.starts_with(step) && line.ends_with(" of 15 s left");
        tuning.log.iter().filter(is_of).count()
    };
    assert_eq!((is_said("sift-1: "), is_said("verify: ")), (1, 1));
}

/// A launcher beside busy loops on two CPUs, recorded under EEVDF.
fn recording() -> PathBuf {
    repository().join("tests/data/profiles/launcher-beside-loops.json")
}

#[test]
fn a_recorded_host_is_tuned_for_on_its_own_machine_or_on_another_one() {
    let folder = tempfile::tempdir().unwrap();
    // Of a kernel with another tick than the model's.
    let text = fs::read_to_string(recording()).unwrap();
    let file = folder.path().join("launcher-beside-loops.json");
    fs::write(&file, text.replace("\"hz\":250", "\"hz\":1000")).unwrap();
    for machine in [None, Some("4x2")] {
        let out = folder.path().join(machine.unwrap_or("own"));
        let mut command = tune(&["--recording"]);
        command.arg(&file).args(["--budget", "40s", "-o"]);
        command.arg(&out);
        command.args(machine.iter().flat_map(|machine| ["--machine", machine]));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(output.status), 0, "{said}");
        let proof = fs::read_to_string(out.join("verify/report.md")).unwrap();
        assert!(proof.contains("turns/s"), "{proof}");
        let cpus = machine.map_or("2 CPUs", |_| "4 CPUs");
        let policy = fs::read_to_string(out.join("policy.toml")).unwrap();
        assert!(policy.contains(cpus), "{policy}");
        let facts = fs::read_to_string(out.join("verify/facts-block0.json")).unwrap();
        let facts: serde_json::Value = serde_json::from_str(&facts).unwrap();
        assert_eq!(facts["HZ"], machine.map_or("1000", |_| "250"), "{facts}");
        let plan = fs::read_to_string(out.join("verify/plan.json")).unwrap();
        let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        assert_eq!(plan["matrix"]["workload"][0]["program"], "recording");
        let name = "r01-default-recorded-launcher-beside-loops";
        let speed = |arm: &str, neighbour: &str| {
            let name = name.replace("default", arm).replace("-recorded", neighbour);
            let text = cell(&out.join("verify"), &name).unwrap_or_else(|| panic!("no {name}"));
            let cell: serde_json::Value = serde_json::from_str(&text).unwrap();
            cell["measurement"]["workload"]["tokens_per_s"]
                .as_f64()
                .unwrap()
        };
        // The loops take all of its two CPUs, and half of four.
        let (alone, kept) = (speed("default", "-none"), speed("default", "-recorded"));
        assert!(kept > 0.9 * alone, "{kept} of {alone}");
        if machine.is_none() {
            assert!(speed("eevdf", "-recorded") < 0.8 * alone, "of {alone}");
        }
    }
}
