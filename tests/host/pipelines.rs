// SPDX-License-Identifier: GPL-2.0-only
//! The workload `pipeline`: graphs that cannot be run are refused with a way out; what runs gives account of every item.

use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::serving::{program, report, server};
use crate::process::{Process, alone_with_cuda, code, lab_folder, repository};

const LINE: &str = "description = \"d\"\n[stage.a]\narrive = { loop = \"open\", rate = 5 }\n[stage.b]\nfrom = [\"a\"]\n";

/// What it says of a graph, and its exit code.
fn refused(text: &str) -> (String, i32) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("g.toml");
    std::fs::write(&file, text).unwrap();
    let output = (program("pipeline").arg(&file).stderr(Stdio::piped()))
        .output()
        .unwrap();
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    let path = format!("{}:", file.display());
    (said.replace(&path, "g.toml:"), code(output.status))
}

/// Ray itself is not there in CI: what its Serve cannot run is refused before it is asked for.
#[test]
fn what_ray_serve_cannot_run_is_refused_with_a_way_out() {
    let ray = |args: &[&str]| {
        let script = repository().join("bench/workloads/pipeline_ray/pipeline_ray.py");
        let mut ray = Command::new("python3");
        ray.arg("-B").arg(script).args(args);
        let output = ray.output().expect("python3");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (code(output.status), said)
    };
    for graph in ["preflmr", "audioquery", "vectraflow-p1"] {
        assert_eq!(ray(&[graph, "--check"]), (0, String::new()), "{graph}");
    }
    for (args, place) in [
        (
            &["windflow-wc"][..],
            "windflow-wc: stage.source.arrive.loop: expected \"open\" or \"closed\"",
        ),
        (
            &["vectraflow-p2"],
            "vectraflow-p2: stage.aggregate.window: expected none",
        ),
        (
            &["preflmr-monolithic"],
            "preflmr-monolithic: stage.vision.message.hand_over: expected \"copy\"",
        ),
        (
            &["preflmr", "--set", "stage.cross.emit=2"],
            "preflmr: stage.cross.emit: expected at most 1, got 2",
        ),
        (
            &["preflmr", "--nodes", "0"],
            "--nodes 0: expected 1 or more",
        ),
    ] {
        let (code, said) = ray(args);
        assert_eq!(code, 2, "{said}");
        assert!(
            said.starts_with(&format!("pipeline_ray: error: {place}")),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    // What is wrong with a graph is said as pipeline says it.
    let (code, said) = ray(&["preflmr", "--set", "stage.cross.queue=0"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("stage.cross.queue") && said.starts_with("pipeline: error:"),
        "{said}"
    );
}

#[test]
fn a_graph_that_cannot_be_run_is_one_error_with_a_way_out() {
    for (lines, place, words) in [
        (
            "[stage.c]\nfrom = [\"x\"]\n",
            "g.toml:7: stage.c.from: ",
            "there is a, b, c",
        ),
        (
            "queue = 0\n",
            "g.toml:6: stage.b.queue: ",
            "expected 1 to 1000000, got 0",
        ),
        (
            "[stage.c]\nfrom = [\"b\", \"d\"]\n[stage.d]\nfrom = [\"c\"]\n",
            "g.toml:9: stage.d.from: ",
            "got c -> d -> c",
        ),
        (
            "[stage.c]\nfrom = [\"a\", \"b\"]\njoin = {}\n",
            "g.toml:8: stage.c.join.by: ",
            "add the key",
        ),
    ] {
        let (said, code) = refused(&format!("{LINE}{lines}"));
        assert!(
            said.starts_with(&format!("pipeline: error: {place}")),
            "{said}"
        );
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
        assert_eq!(code, 2);
    }
}

/// A matrix with this workload and what follows it: what `run` says of it, and its exit code.
fn run_of(rest: &str) -> (String, i32) {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "description = \"d\"\nrounds = 1\nseconds = 1\nneighbours = [\"none\"]\narms = [\"eevdf\"]\n\
         subject = \"eevdf\"\n[[workload]]\nname = \"p\"\nprogram = \"pipeline\"\ngraph = \"windflow\"\n{rest}"
    );
    std::fs::write(dir.path().join("m.toml"), text).unwrap();
    let mut command = program("gpuaware-bench");
    command.args(["run", "m", "--matrices"]).arg(dir.path());
    let output = command.arg("-o").arg(dir.path().join("out"));
    let output = output.stderr(Stdio::piped()).output().unwrap();
    assert!(!dir.path().join("out").exists(), "it ran");
    let said = String::from_utf8(output.stderr).unwrap();
    let folder = format!("{}/", dir.path().display());
    (said.replace(&folder, ""), code(output.status))
}

#[test]
fn a_run_of_a_graph_that_cannot_be_run_ends_before_anything_boots() {
    for (rest, words) in [
        (
            "set = [\"stage.sink.queue=0\"]\n",
            "m.toml: workload \"p\": --set stage.sink.queue=0: stage.sink.queue: expected 1 to",
        ),
        (
            "[[sweep]]\nworkloads = [\"p\"]\nset = [\"stage.sink.thread\"]\nvalues = [1, 2]\nlabel = \"l\"\n",
            "m.toml: workload \"p-1\": --set stage.sink.thread=1: ",
        ),
        (
            "[[sweep]]\nworkloads = [\"q\"]\nset = [\"stage.sink.threads\"]\nvalues = [1, 2]\nlabel = \"l\"\n",
            "m.toml: [[sweep]]: workloads: expected some of p, each in one sweep, got \"q\"",
        ),
    ] {
        let (said, code) = run_of(rest);
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
        assert_eq!(code, 2);
    }
}

fn count(document: &Value, key: &str) -> u64 {
    document[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no count {key}: {document}"))
}

fn pipeline(words: &[&str]) -> Process {
    let mut command = program("pipeline");
    command
        .args(words)
        .args(["--warmup", "0.2", "--drain", "20"])
        .env("LD_LIBRARY_PATH", lab_folder())
        .env("FAKECUDA_DEVICES", "4");
    Process::start(command)
}

#[test]
fn stages_on_gpus_give_account_of_every_request() {
    let _alone = alone_with_cuda();
    let mut process = pipeline(&[
        "preflmr",
        "--duration",
        "1",
        "--slo-ms",
        "60000",
        "--set",
        "stage.source.arrive.rate=20",
        "--set",
        "stage.vision.message.bytes=[1000]",
    ]);
    let document = report(&mut process);
    assert_eq!(document["workload"], "pipeline");
    let offered = count(&document, "offered");
    assert!(offered > 3, "{offered}");
    assert_eq!(count(&document, "completed"), offered);
    assert_eq!(document["slo"][0]["missed"], 0);
    assert_eq!(
        document["latency_us"].as_array().unwrap().len() as u64,
        offered
    );
    // text, three times vision, cross, three times search.
    let launching = document["threads_detail"].as_array().unwrap();
    assert!((6..=8).contains(&launching.len()), "{launching:?}");
    // No stage can be faster than its GPU: vision takes 32 ms for one item, and cross and search come after it.
    let least = document["latency_us"].as_array().unwrap().iter();
    assert!(least.map(|us| us.as_u64().unwrap()).min().unwrap() > 54_000);
    assert_eq!(document["stages"]["cross"]["items"].as_u64(), Some(offered));
}

#[test]
fn requests_to_a_server_are_timed_at_the_hand_over() {
    let _alone = alone_with_cuda();
    let (mut server, url) = server("0.9");
    let mut process = pipeline(&[
        "vectraflow-p1",
        "--duration",
        "1.5",
        "--base-url",
        &url,
        "--set",
        "stage.handoff.http.max_tokens=2",
    ]);
    let document = report(&mut process);
    server.signal(Signal::SIGINT);
    let served = report(&mut server);

    let completed = count(&document, "completed");
    assert!(completed > 3, "{document}");
    assert_eq!(count(&document, "failed"), 0, "{}", document["errors"]);
    assert_eq!(
        completed + count(&document, "filtered"),
        count(&document, "offered")
    );
    assert!(served["tokens"].as_u64().unwrap() >= 2 * completed);
    assert_eq!(document["calling_detail"][0]["name"], "handoff0");
    let edges = document["edges"].as_array().unwrap().iter();
    let handoff: Vec<&Value> = edges.filter(|edge| edge["to"] == "handoff").collect();
    assert_eq!(handoff[0]["delay_ms"]["count"].as_u64(), Some(completed));
    // The busy-wait of 5 ms is before it.
    assert!(handoff[0]["age_ms"]["mean"].as_f64().unwrap() >= 5.0);
    assert_eq!(
        document["stages"]["handoff"]["rpc_ms"]["count"].as_u64(),
        Some(completed)
    );
}

#[test]
fn it_goes_on_until_its_input_ends() {
    let mut command = program("pipeline");
    command
        .args([
            "windflow",
            "--duration",
            "0.2",
            "--warmup",
            "0.1",
            "--until-eof",
        ])
        .stdin(Stdio::piped());
    let mut process = Process::start(command);
    process.wait_for_line("pipeline: measured");
    let steps = ["started", "measuring", "measured"].map(|step| format!("pipeline: {step}"));
    assert_eq!(process.log, steps);
    assert!(!process.has_ended());
    process.close_stdin();
    let document = report(&mut process);
    assert_eq!(
        document["cpu_s"]["user"].to_string(),
        "0.0",
        "nobody launches"
    );
    assert_eq!(count(&document, "offered"), count(&document, "completed"));
}

#[test]
fn a_reader_that_is_gone_is_an_error() {
    let mut command = program("pipeline");
    let full = std::fs::File::create("/dev/full").unwrap();
    command
        .args(["windflow", "--duration", "0.1", "--warmup", "0.1"])
        .stdout(full);
    let mut process = Process::start(command);
    assert_eq!(code(process.wait()), 1);
    let said = process.log.last().unwrap();
    assert!(
        said.starts_with("pipeline: error: cannot write the report"),
        "{said}"
    );
}

/// Its thread that wakes who waits would go on in memory that is gone: a crash on the way out, once in a thousand runs.
#[test]
fn the_emulated_driver_stays_in_memory_when_it_is_closed() {
    let _alone = alone_with_cuda();
    let code = "import ctypes, _ctypes, sys\n\
                library = ctypes.CDLL(sys.argv[1])\n\
                assert library.cuInit(0) == 0\n\
                _ctypes.dlclose(library._handle)\n\
                assert sys.argv[1] in open('/proc/self/maps').read(), 'it was unmapped'\n";
    let mut python = Command::new("python3");
    let library = lab_folder().join("libcuda.so.1");
    let output = python.args(["-c", code]).arg(library).output();
    let output = output.expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
