// SPDX-License-Identifier: GPL-2.0-only
//! A server that is slow to start stands from cell to cell, as long as the arms would start the same. It is a program of
//! the test's own here, which stands for vLLM.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::bench::run_here;
use crate::process::repository;
use crate::tier;

/// `vllm serve` notes that it has started, with its number; `vllm bench serve` writes what the real one once wrote.
const VLLM: &str = r#"#!/usr/bin/env python3
import http.server, os, shutil, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
def after(flag):
    return sys.argv[sys.argv.index(flag) + 1]
if sys.argv[1] == "serve":
    with open(folder + "/starts", "a") as starts:
        print(os.getpid(), file=starts)
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
        def log_message(self, *_):
            pass
    http.server.ThreadingHTTPServer(("127.0.0.1", int(after("--port"))), Answers).serve_forever()
print("Starting main benchmark run", flush=True)
time.sleep(0.2)
shutil.copy(folder + "/result.json", after("--result-dir") + "/" + after("--result-filename"))
"#;

/// The first server's memory is not free at once after its end.
const NVIDIA_SMI: &str = r#"#!/bin/sh
cd "${0%/*}" || exit
if [ -s starts ] && [ "$(wc -l <looks)" -lt 3 ]; then
    echo full >>looks
    echo '0, 1000'
else
    echo '1000, 1000'
fi
"#;

const MATRIX: &str = r#"
description = "a server that stands"
rounds = 2
seconds = 0.3
warmup_seconds = 0
neighbours = ["none"]
baseline = "plain"
subject = "plain"
arms = ["plain", ARMS]

[[workload]]
name = "vllm"
program = "vllm"
model = "m"
client = "vllm_bench"
request_rate = 2
input_tokens = 8
output_tokens = 8
"#;

/// Runs plain and `arms` for two rounds. Returns the numbers of the servers that were started.
fn servers_for(folder: &Path, arms: &str) -> Vec<i32> {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("standing.toml", &MATRIX.replace("ARMS", arms));
    write("starts", "");
    write("looks", "");
    let output = folder.join(arms.replace('"', ""));
    let path = std::env::var("PATH").unwrap();
    let log = run_here("standing", folder, &output, |command| {
        command
            .arg("--arms-dir")
            .arg(folder.join("arms"))
            .env("PATH", format!("{}:{path}", folder.display()));
    });
    let cells = fs::read_dir(output.join("cells")).unwrap().count();
    assert_eq!(cells, 4, "{log}");
    let starts = fs::read_to_string(folder.join("starts")).unwrap();
    starts.lines().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn a_server_stands_as_long_as_arms_would_start_the_same_and_is_gone_in_the_end() {
    if !tier::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, script) in [("vllm", VLLM), ("nvidia-smi", NVIDIA_SMI)] {
        let program = folder.join(name);
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let recorded = repository().join("bench/tests/data/served/vllm-bench-0.32.json");
    fs::copy(recorded, folder.join("result.json")).unwrap();
    fs::create_dir(folder.join("arms")).unwrap();
    for (name, settings) in [
        ("plain", ""),
        ("same", ""),
        ("env", "[workload]\nprefix = [\"env\"]\n"),
    ] {
        let text = format!("description = \"{name}\"\n{settings}");
        fs::write(folder.join(format!("arms/{name}.toml")), text).unwrap();
    }
    let all = servers_for(folder, "\"same\"");
    assert_eq!(all.len(), 1, "{all:?}");
    // Each round has both, in whatever order.
    let others = servers_for(folder, "\"env\"");
    assert!((2..=4).contains(&others.len()), "{others:?}");
    let looks = fs::read_to_string(folder.join("looks")).unwrap();
    assert_eq!(looks.lines().count(), 3, "memory is waited for");
    for pid in all.iter().chain(&others) {
        assert!(
            !Path::new(&format!("/proc/{pid}")).exists(),
            "{pid} is left"
        );
    }
}
