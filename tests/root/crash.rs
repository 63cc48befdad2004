// SPDX-License-Identifier: GPL-2.0-only
//! What breaks in the middle of a cell, where it takes root to break it: a server whose client runs as SCHED_FIFO, a
//! disk that becomes full under the lab.

use std::fs;
use std::os::unix::fs::symlink;

use crate::bench::{Bench, ON_HOST, SmallDisk, assert_gone, end_of, failure, script_that};
use crate::process::{Process, alone_with_cuda, beside_labs, code, lab_folder, repository};
use crate::tier;

const MATRIX: &str = r#"
description = "a server that dies"
rounds = 1
seconds = 5
warmup_seconds = 0
neighbours = ["none"]
arms = ["plain"]
baseline = "plain"
subject = "plain"
[[workload]]
name = "w"
program = "llm_server"
profile = "chat"
request_rate = 10
length_scale = 0.1
warmup_requests = 1
"#;

#[test]
fn llm_server_that_dies_is_the_reason_of_its_cell() {
    if !tier::root() {
        return;
    }
    let _alone = alone_with_cuda();
    let bench = Bench::new("", "[\"none\"]", "");
    let release = repository().join("target/release");
    fs::write(bench.path("matrices/broken.toml"), MATRIX).unwrap();
    fs::create_dir(bench.path("target/release")).unwrap();
    symlink(
        release.join("llm_client"),
        bench.path("target/release/llm_client"),
    )
    .unwrap();
    // It serves the first request and some more.
    let server = format!(
        "LD_LIBRARY_PATH={} {} \"$@\" &\nserver=$!\necho $server >{}\nsleep 3\nkill -9 $server\nexit 134\n",
        lab_folder().display(),
        release.join("llm_server").display(),
        bench.path("pids").display()
    );
    fs::write(bench.path("target/release/llm_server"), server).unwrap();
    let output = bench.path("out");
    let (code, log) = end_of(bench.run(&output, ON_HOST));
    assert_eq!(code, 1, "{log}");
    let reason = failure(&output, "r01-plain-none-w");
    assert!(
        reason.starts_with("llm_server died during the cell (exit status: 134)"),
        "{reason}"
    );
    assert_gone(&bench.path("pids"));
}

#[test]
fn a_disk_that_is_full_under_the_lab_is_the_reason_of_a_cell() {
    if !tier::root() || !tier::lab() {
        return;
    }
    let _labs = beside_labs();
    let script = script_that(":").replace("sleep 0.5", "sleep 2");
    let bench = Bench::new(&script, "[\"none\"]", "");
    let output = bench.path("out");
    fs::create_dir(&output).unwrap();
    let _disk = SmallDisk::at(&output);
    let mut run = Process::start(bench.run(&output, &[]));
    run.wait_for_line("[1/2]");
    fs::write(output.join("filler"), vec![0; 1 << 20]).expect_err("the disk is small");
    let status = run.wait();
    let log = run.log.join("\n");
    assert_eq!(code(status), 1, "{log}");
    assert_eq!(failure(&output, "r01-plain-none-w"), "");
    let reason = failure(&output, "r02-plain-none-w");
    assert!(
        reason.contains("No space left on device"),
        "{reason}\n{log}"
    );

    fs::remove_file(output.join("filler")).unwrap();
    let (code, log) = end_of(bench.resume(&output));
    assert_eq!(code, 0, "{log}");
    assert_eq!(failure(&output, "r02-plain-none-w"), "");
}
