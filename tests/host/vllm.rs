// SPDX-License-Identifier: GPL-2.0-only
//! vLLM's plugin without vLLM: what it launches, and what it says of a profile that is none.

use std::fs;
use std::process::{Command, Output, Stdio};

use scx_gpuaware::policy::Policy;
use scx_gpuaware::policy::rule::ThreadFacts;

use crate::process::{lab_folder, repository};

/// Python that has the plugin and these variables.
fn python(code: &str, variables: &[(&str, &str)]) -> Output {
    let lab = lab_folder();
    let plugin = repository().join("bench/workloads/vllm_emulated");
    let mut command = Command::new("python3");
    command
        .args(["-c", code])
        .env("PYTHONPATH", plugin)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LIBRARY", lab.join("libgpu_step.so"))
        .env("GPU_STEP_CUDA", lab.join("libcuda.so.1"))
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    command.output().expect("python3")
}

#[test]
fn a_step_lasts_as_long_as_its_kernels_and_longer_with_a_prompt() {
    let code = r#"
import os, time, vllm_emulated
profile = vllm_emulated.read_profile("eager")
step = vllm_emulated.Step(os.environ["LIBRARY"], profile)
step.run(1, 1)
def seconds(tokens, sequences):
    start = time.monotonic()
    step.run(tokens, sequences)
    return time.monotonic() - start
least = profile["step"][0]["launches"] * profile["step"][0]["kernel_ns"]
assert seconds(1, 1) * 1e9 >= least, "a decoded token"
assert seconds(513, 1) * 1e9 >= least + 512 * profile["prefill_ns_per_token"], "a prompt"
"#;
    let output = python(code, &[]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn steps_are_launched_as_their_size_asks_for() {
    let code = r#"
import os, vllm_emulated
profile = vllm_emulated.read_profile("graph")
step = vllm_emulated.Step(os.environ["LIBRARY"], profile)
step.open()
launched = []
call = step.call
def counted(function, *arguments):
    if function.__name__ == "gpu_step_launch":
        launched.append(arguments[0].value)
    call(function, *arguments)
step.call = counted
for tokens, sequences in [(1, 1), (512, 512), (513, 1)]:
    step.run(tokens, sequences)
assert launched == [3, 3, 168], launched
"#;
    let output = python(code, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_thread_that_launches_says_so_where_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let code = r#"
import json, os, pathlib, threading, vllm_emulated
step = vllm_emulated.Step(os.environ["LIBRARY"], vllm_emulated.read_profile("eager"))
tids = []
def work():
    tids.append(threading.get_native_id())
    step.run(1, 1)
thread = threading.Thread(target=work)
thread.start()
thread.join()
files = list(pathlib.Path(os.environ["GPU_STEP_REPORT"]).iterdir())
assert [file.name for file in files] == [f"{tids[0]}.json"], files
assert json.loads(files[0].read_text()) == {"pid": os.getpid(), "tid": tids[0]}
"#;
    let output = python(
        code,
        &[("GPU_STEP_REPORT", folder.path().to_str().unwrap())],
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn a_profile_that_is_none_is_refused_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.toml");
    let shipped =
        repository().join("bench/workloads/vllm_emulated/vllm_emulated/profiles/eager.toml");
    let shipped = fs::read_to_string(shipped).unwrap();
    let limited = "[[step]]\nup_to_tokens = 5\nlaunches = 1\nlaunch_gap_ns = 0\nkernel_ns = 0\n";
    for (text, says) in [
        (
            shipped.replace("sync", "sink"),
            "sink: expected the keys sync, step, prefill_ns_per_token",
        ),
        (
            shipped.replace("\"block\"", "\"wait\""),
            "sync = 'wait': expected one of auto, spin, yield, block",
        ),
        (
            shipped.replace("= 8_000", "= -1"),
            "step 1: launch_gap_ns = -1: expected a whole number from 0",
        ),
        (
            shipped.replace("[[step]]", "[[step]]\nup_to_tokens = 5"),
            "step 1: up_to_tokens: expected the keys launches",
        ),
        (
            shipped.replace("[[step]]", "[step]"),
            "step: expected tables [[step]]",
        ),
        (
            shipped.replace("[[step]]", &format!("{limited}{limited}[[step]]")),
            "step 2: up_to_tokens = 5: expected more than 5",
        ),
        ("x".to_owned(), "bad.toml: "),
    ] {
        fs::write(&path, text).unwrap();
        let code = "import os, vllm_emulated; vllm_emulated.read_profile(os.environ['PROFILE'])";
        let output = python(code, &[("PROFILE", path.to_str().unwrap())]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{said}");
    }
}

/// Process, main or other, name, how many, arguments, class by name, what it was seen doing.
fn threads_of_vllm() -> Vec<Vec<String>> {
    let threads = fs::read_to_string(repository().join("tests/data/vllm-threads.tsv")).unwrap();
    let lines = threads.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

fn policy_in(file: &str) -> Policy {
    Policy::parse(&fs::read_to_string(repository().join(file)).unwrap()).unwrap()
}

fn is_handoff_by_name(policy: &Policy, thread: &[String], cgroup: &str) -> bool {
    let facts = ThreadFacts {
        cgroup: Some(cgroup),
        comm: &thread[2],
        exe: "/opt/vllm/bin/python",
        cmdline: &thread[4],
    };
    let mut rules = (policy.handoff.rules.iter()).filter(|rule| !rule.needs_watching());
    rules.any(|rule| rule.static_terms_hold(&facts))
}

#[test]
fn the_arm_for_servers_names_the_threads_of_vllm_that_the_policy_for_servers_names() {
    let policy = policy_in("scheds/arms/gpuaware-serving.policy");
    for thread in threads_of_vllm() {
        let named = is_handoff_by_name(&policy, &thread, "bench/workload");
        assert_eq!(named, thread[5] == "handoff", "{thread:?}");
    }
}

#[test]
fn the_arms_for_workers_of_their_own_name_the_engine_or_not_and_nobody_who_launches() {
    for (arm, engine_is_named) in [("gpuaware-vllm", true), ("gpuaware-vllm-spins", false)] {
        let policy = policy_in(&format!("scheds/arms/{arm}.policy"));
        for thread in threads_of_vllm() {
            let named = is_handoff_by_name(&policy, &thread, "bench/workload");
            let is_engine = thread[2] == "VLLM::EngineCor";
            let is_of_zeromq = ["ZMQbg/IO/0", "ZMQbg/IO/1"].contains(&&*thread[2]);
            let expected = thread[5] == "handoff" || is_of_zeromq || is_engine && engine_is_named;
            assert_eq!(named, expected, "{arm}: {thread:?}");
            // Who spins is of the class that he is named.
            let is_free = ["-", "spins"].contains(&&*thread[6]);
            assert!(!named || is_free, "a name would win: {thread:?}");
        }
    }
}

#[test]
fn the_policy_for_llm_servers_fits_the_threads_of_vllm() {
    let policy = policy_in("scheds/policies/llm-server.toml");
    let threads = threads_of_vllm();
    assert_eq!(
        threads
            .iter()
            .filter(|thread| thread[6] == "launches")
            .count(),
        1
    );
    for thread in &threads {
        let of_a_service = is_handoff_by_name(&policy, thread, "system.slice/vllm.service");
        assert_eq!(of_a_service, thread[5] == "handoff", "{thread:?}");
        let of_a_user = is_handoff_by_name(&policy, thread, "user.slice/user-1000.slice");
        assert!(!of_a_user, "{thread:?}");
        assert!(
            thread[6] == "-" || !of_a_service,
            "a name would win: {thread:?}"
        );
    }
}

/// Of `marks --json` beside the arm's policy, under requests and two busy loops on two CPUs: the server's threads, without
/// numbers and times.
#[test]
fn the_engine_of_a_real_vllm_was_found_by_what_it_does_and_no_other_thread_of_its_name() {
    let marks = fs::read_to_string(repository().join("tests/data/vllm-marks-spins.json")).unwrap();
    let marks: Vec<serde_json::Value> = serde_json::from_str(&marks).unwrap();
    let policy = policy_in("scheds/arms/gpuaware-vllm-spins.policy");
    for thread in threads_of_vllm() {
        let is_its = |mark: &&serde_json::Value| {
            let is_main = mark["main"].as_bool().unwrap();
            mark["process"] == thread[0]
                && is_main == (thread[1] == "main")
                && mark["comm"] == thread[2]
        };
        let named = is_handoff_by_name(&policy, &thread, "bench/workload");
        let expected = match (&*thread[6], named) {
            ("launches", _) => Some(("launch", "uprobe")),
            ("wakes", _) => Some(("handoff", "wakes")),
            ("spins", _) => Some(("handoff", "spins")),
            (_, true) => Some(("handoff", "rule")),
            (_, false) => None,
        };
        let its: Vec<_> = marks.iter().filter(is_its).collect();
        let verdicts = its
            .iter()
            .map(|mark| (mark["class"].as_str(), mark["source"].as_str()));
        let verdicts: Vec<_> = verdicts.map(|(a, b)| a.zip(b)).collect();
        assert!(
            verdicts.iter().all(|verdict| *verdict == expected),
            "{thread:?}: {verdicts:?}"
        );
        assert_eq!(verdicts.is_empty(), expected.is_none(), "{thread:?}");
    }
}
