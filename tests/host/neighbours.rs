// SPDX-License-Identifier: GPL-2.0-only
//! Neighbours on this machine: as the matrix has them, working in the measured window, gone afterwards.

use std::fs;

use crate::bench::{Bench, ON_HOST, assert_gone, cell, end_of, failure, script_that};
use crate::tier;

/// The neighbours' processes are the workload's siblings: notes the PIDs and command lines of those
/// called `name`, and those of their children. One that starts over and over may be between two lives.
fn noting(name: &str) -> String {
    script_that(":").replace(
        "sleep 0.5",
        &format!(
            "n=0\nuntil [ -s pids ] || [ $n = 40 ]; do n=$((n + 1)); sleep 0.02\n\
             for p in $(cat /proc/$PPID/task/*/children); do\n\
             [ $p = $$ ] || for q in $p $(cat /proc/$p/task/*/children); do\n\
             case $(cat /proc/$q/comm) in {name}*) echo $q >>pids; tr '\\0' ' ' </proc/$q/cmdline >>lines; echo >>lines;; esac\n\
             done\ndone\ndone\nsleep 0.5"
        ),
    )
}

/// The one program's own account in the first cell beside it.
fn work(bench: &Bench, neighbour: &str) -> serde_json::Value {
    let mut works = works(bench, neighbour);
    assert_eq!(works.len(), 1, "{works:?}");
    works.remove(0)
}

/// The programs' own accounts in the first cell beside them.
fn works(bench: &Bench, neighbour: &str) -> Vec<serde_json::Value> {
    let output = bench.path("out");
    let (code, log) = end_of(bench.run(&output, ON_HOST));
    assert_eq!(code, 0, "{log}");
    let name = format!("r01-plain-{neighbour}-w");
    assert_eq!(failure(&output, &name), "");
    let cell: serde_json::Value = serde_json::from_str(&cell(&output, &name).unwrap()).unwrap();
    cell["measurement"]["neighbours"]
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn hackbench_sends_messages_in_the_window_and_is_gone_afterwards() {
    if !tier::program("hackbench") {
        return;
    }
    let bench = Bench::new(&noting("hackbench"), "[\"none\", \"hackbench\"]", "");
    let work = work(&bench, "hackbench");
    assert_eq!(work["kind"], "hackbench");
    assert!(work["rate"].as_f64().unwrap() > 0.0, "{work}");
    assert!(work["window_evidence"].as_u64().unwrap() > 0, "{work}");
    assert_gone(&bench.path("target/lab/pids"));
}

#[test]
fn memory_is_two_programs_with_an_account_each() {
    if !tier::program("stress-ng") {
        return;
    }
    let bench = Bench::new(&noting("stress-ng"), "[\"none\", \"memory\"]", "");
    let works = works(&bench, "memory");
    let kinds: Vec<&str> = works
        .iter()
        .map(|work| work["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["stream", "cache"]);
    for work in works {
        assert!(work["rate"].as_f64().unwrap() > 0.0, "{work}");
        assert!(work["window_evidence"].as_u64().unwrap() > 0, "{work}");
    }
    assert_gone(&bench.path("target/lab/pids"));
}

#[test]
fn an_arms_prefix_holds_for_the_neighbours_and_what_they_start_but_not_for_the_workload() {
    if !tier::program("stress-ng") {
        return;
    }
    let script = noting("stress-ng").replace(
        "echo $q >>pids;",
        "echo $q >>pids; cut -d ' ' -f 41 /proc/$q/stat >>policies;",
    );
    let arm = "[neighbours]\nprefix = [\"chrt\", \"--idle\", \"0\"]\n\
               [[workload.threads]]\ncomm = \"sh\"\nnice = 7\n";
    let bench = Bench::new(&script, "[\"none\", \"cpu\"]", arm);
    let work = work(&bench, "cpu");
    assert_eq!(work["kind"], "stress-ng");
    let policies = fs::read_to_string(bench.path("target/lab/policies")).unwrap();
    let policies: Vec<&str> = policies.split_whitespace().collect();
    // 5 is SCHED_IDLE. The program itself and one worker at least.
    assert!(
        policies.len() >= 2 && policies.iter().all(|&policy| policy == "5"),
        "{policies:?}"
    );
    let cell = cell(&bench.path("out"), "r01-plain-cpu-w").unwrap();
    let cell: serde_json::Value = serde_json::from_str(&cell).unwrap();
    let threads = cell["measurement"]["threads"].as_array().unwrap();
    let shell = threads
        .iter()
        .find(|thread| thread["comm"] == "sh")
        .unwrap();
    assert_eq!(
        (&shell["policy"], &shell["nice"]),
        (&"other".into(), &7.into()),
        "{threads:?}"
    );
}

#[test]
fn fio_writes_to_a_file_of_its_own_that_is_gone_afterwards() {
    if !tier::program("fio") {
        return;
    }
    let bench = Bench::new(
        &noting("fio"),
        "[\"none\", \"disk\"]\nlab = { disk_mib = 32 }",
        "",
    );
    let work = work(&bench, "disk");
    assert_eq!(work["unit"], "IOPS");
    assert!(work["window_evidence"].as_u64().unwrap() > 0, "{work}");
    assert_gone(&bench.path("target/lab/pids"));
    let names = fs::read_dir(bench.path("out")).unwrap().flatten();
    let left: Vec<_> = names
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_fio_may_overwrite_must_be_there() {
    let bench = Bench::new(&script_that(":"), "[\"none\"]", "");
    let (code, log) =
        end_of(bench.run(&bench.path("out"), &["--on", "host", "--disk", "/nowhere"]));
    assert_eq!(code, 2, "{log}");
    assert!(
        log.contains("--disk: expected a block device or a file"),
        "{log}"
    );
}

#[test]
fn stress_ng_works_as_the_matrix_says() {
    if !tier::program("stress-ng") {
        return;
    }
    let neighbours = "[\"none\", \"cpu\"]\nstress_ng = { method = \"int64\", workers = 1 }";
    let bench = Bench::new(&noting("stress-ng"), neighbours, "");
    let work = work(&bench, "cpu");
    assert!(work["own_total"].as_f64().unwrap() > 0.0, "{work}");
    let lines = fs::read_to_string(bench.path("target/lab/lines")).unwrap();
    assert!(lines.contains("--cpu 1 --cpu-method int64 "), "{lines}");
    assert_gone(&bench.path("target/lab/pids"));
}

#[test]
fn a_method_that_stress_ng_does_not_have_is_the_reason_of_the_cell() {
    if !tier::program("stress-ng") {
        return;
    }
    let neighbours = "[\"none\", \"cpu\"]\nstress_ng = { method = \"luck\" }";
    let bench = Bench::new(&script_that(":"), neighbours, "");
    let output = bench.path("out");
    let (code, log) = end_of(bench.run(&output, ON_HOST));
    assert_eq!(code, 1, "{log}");
    let reason = failure(&output, "r01-plain-cpu-w");
    assert!(
        reason.starts_with("stress-ng died during the cell"),
        "{reason}"
    );
    assert!(
        reason.contains("luck") || reason.contains("cpu-method"),
        "{reason}"
    );
}

/// The neighbour's process is killed in a cell: the cell says so, the next ones are good, nobody is left.
fn dies(neighbour: &str, comm: &str, said: &str) {
    if !tier::program(said) {
        return;
    }
    let script = script_that(&format!(
        "for p in $(cat /proc/$PPID/task/*/children); do\n\
         [ \"$(cat /proc/$p/comm)\" != {comm} ] || [ $p = $$ ] || {{ echo $p $(cat /proc/$p/task/*/children) >>pids; last=$p; }}\n\
         done\n\
         if [ -n \"$last\" ]; then kill -9 $last; else : >bad; fi"
    ));
    let bench = Bench::new(
        &script,
        &format!("[\"none\", {neighbour:?}]\nlab = {{ disk_mib = 32 }}"),
        "",
    );
    let output = bench.path("out");
    fs::write(bench.path("target/lab/bad"), "").unwrap();
    let (code, log) = end_of(bench.run(&output, ON_HOST));
    assert_eq!(code, 1, "{log}");
    let reason = failure(&output, &format!("r01-plain-{neighbour}-w"));
    assert!(
        reason.starts_with(&format!("{said} died during the cell (signal: 9")),
        "{reason}"
    );
    assert_eq!(failure(&output, &format!("r02-plain-{neighbour}-w")), "");
    assert_gone(&bench.path("target/lab/pids"));
}

#[test]
fn iperf3_that_dies_is_the_reason_of_its_cell() {
    dies("network", "iperf3", "iperf3");
}

#[test]
fn fio_that_dies_is_the_reason_of_its_cell() {
    dies("disk", "fio", "fio");
}

#[test]
fn hackbench_that_dies_is_the_reason_of_its_cell() {
    dies("hackbench", "sh", "hackbench");
}
