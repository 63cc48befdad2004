// SPDX-License-Identifier: GPL-2.0-only
//! llm_server and llm_client together, on the emulated driver: what one says that it has served is what the other
//! has got, and a server that dies is failures over what was offered.

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process::{Process, alone_with_cuda, code, lab_folder, repository};

const LISTENING: &str = "llm_server: listening on ";

/// A program of `make build`, its standard output a pipe.
pub fn program(name: &str) -> Command {
    let program = repository().join("target/release").join(name);
    assert!(
        program.exists(),
        "{} is missing: run make build",
        program.display()
    );
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A server with this share of the GPU's memory, and where it listens.
pub fn server(share: &str) -> (Process, String) {
    let mut command = program("llm_server");
    command
        .args(["--port", "0", "--profile", "chat"])
        .args(["--gpu-memory-utilization", share])
        .env("LD_LIBRARY_PATH", lab_folder());
    let mut server = Process::start(command);
    server.wait_for_line(LISTENING);
    let address = server
        .log
        .iter()
        .find_map(|line| line.strip_prefix(LISTENING));
    let url = format!("http://{}", address.unwrap().trim());
    (server, url)
}

/// Ten short requests a second for so long.
fn client(url: &str, seconds: &str) -> Process {
    client_with(&["--request-rate", "10"], url, seconds)
}

/// The same with other words about the requests.
fn client_with(words: &[&str], url: &str, seconds: &str) -> Process {
    let mut command = program("llm_client");
    command
        .args(["--base-url", url, "--length-scale", "0.1"])
        .args(words)
        .args([
            "--warmup-requests",
            "1",
            "--duration",
            seconds,
            "--drain",
            "20",
        ])
        .args(["--seed", "1"]);
    let mut client = Process::start(command);
    client.wait_for_line("llm_client: measuring");
    client
}

/// What it printed, once it has ended well.
pub fn report(process: &mut Process) -> Value {
    assert_eq!(code(process.wait()), 0, "{:#?}", process.log);
    serde_json::from_str(&process.stdout()).unwrap()
}

fn list(report: &Value, key: &str) -> Vec<Value> {
    report[key]
        .as_array()
        .unwrap_or_else(|| panic!("no list {key}"))
        .clone()
}

#[test]
fn what_is_served_is_what_is_received() {
    let _alone = alone_with_cuda();
    let (mut server, url) = server("0.9");
    let mut client = client(&url, "1.5");
    let got = report(&mut client);
    server.signal(Signal::SIGINT);
    let served = report(&mut server);

    let offered = got["offered"].as_u64().unwrap();
    assert!(offered > 3, "{offered}");
    assert_eq!(
        (&got["failed"], got["completed"].as_u64()),
        (&Value::from(0), Some(offered))
    );
    assert_eq!(list(&got, "ttfts").len() as u64, offered);
    // Each token of an answer but the first has its time since the one before.
    let itls = list(&got, "itls");
    let later: usize = itls.iter().map(|itls| itls.as_array().unwrap().len()).sum();
    let tokens = got["total_output_tokens"].as_u64().unwrap();
    assert_eq!(later as u64 + offered, tokens, "an event a token");
    // The first request was not measured.
    assert!(served["tokens"].as_u64().unwrap() > tokens);
    let per_step = served["profile"]["launches_per_step"].as_u64().unwrap();
    let steps = served["steps"].as_u64().unwrap();
    assert_eq!(served["launches"].as_u64().unwrap(), steps * per_step);
    assert_eq!(served["failures"], 0);
    assert_eq!(served["threads_detail"].as_array().unwrap().len(), 1);
}

#[test]
fn with_one_place_no_request_is_under_way_beside_another() {
    let _alone = alone_with_cuda();
    let (mut server, url) = server("0.9");
    let words = ["--request-rate", "40", "--max-concurrency", "1"];
    let got = report(&mut client_with(&words, &url, "0.5"));
    server.signal(Signal::SIGINT);
    report(&mut server);
    assert_eq!(got["completed"], 20, "{}", got["errors"]);
    let seconds = |list: Vec<Value>| -> f64 { list.iter().filter_map(Value::as_f64).sum() };
    let all = seconds(list(&got, "e2els"));
    let duration = got["duration"].as_f64().unwrap();
    assert!(all <= duration, "{all} s in {duration} s");
}

#[test]
fn less_memory_is_a_smaller_cache_of_the_same_server() {
    let _alone = alone_with_cuda();
    let blocks = ["0.75", "0.6"].map(|share| {
        let (mut server, url) = server(share);
        let mut client = client(&url, "0.5");
        assert_eq!(report(&mut client)["failed"], 0, "at {share}");
        server.signal(Signal::SIGINT);
        report(&mut server)["kv_blocks"].as_u64().unwrap()
    });
    assert_eq!(blocks, [160, 40]);
}

#[test]
fn requests_of_a_server_that_dies_have_failed() {
    let _alone = alone_with_cuda();
    let (mut server, url) = server("0.9");
    let mut client = client(&url, "1.5");
    std::thread::sleep(Duration::from_millis(500));
    server.signal(Signal::SIGKILL);
    server.wait();
    let got = report(&mut client);
    let count = |key: &str| got[key].as_u64().unwrap();
    assert!(count("failed") > 0, "{got}");
    assert_eq!(count("completed") + count("failed"), count("offered"));
    assert_eq!(
        list(&got, "ttfts").len() as u64,
        count("completed"),
        "of those that were answered"
    );
}
