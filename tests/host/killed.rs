// SPDX-License-Identifier: GPL-2.0-only
//! A runner that is killed, or whose terminal goes away: what it has started is gone all the same. And what is not of
//! its doing: load from outside and slow CPUs, which have a cell measured again.

use std::fs;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::bench::{Bench, ON_HOST, assert_gone, cell, end_of, failure, script_that};
use crate::process::{Process, code, eventually};
use crate::tier;

/// A run whose first cell beside cpu noise never ends: the workload notes the neighbours, their workers, itself and a
/// child of its own.
fn bench() -> Bench {
    let script = script_that(
        "for p in $(cat /proc/$PPID/task/*/children); do\n\
         [ \"$(cat /proc/$p/comm)\" != stress-ng ] || workers=\"$p $(cat /proc/$p/task/*/children)\"\n\
         done\n\
         if [ -z \"$workers\" ]; then : >bad; else\n\
         sleep 1000 &\n\
         echo $$ $! $workers >pids.new; mv pids.new pids; wait\n\
         fi",
    );
    let bench = Bench::new(&script, "[\"none\", \"cpu\"]", "");
    fs::write(bench.path("target/lab/bad"), "").unwrap();
    bench
}

/// Returns once it hangs.
fn hanging(bench: &Bench) -> Process {
    let mut run = Process::start(bench.run(&bench.path("out"), ON_HOST));
    run.wait_for_line("raw results");
    let hangs = eventually(|| {
        // Until a cell has a neighbour: the quiet ones come in any order.
        let pids = fs::read_to_string(bench.path("target/lab/pids")).ok()?;
        (pids.split_whitespace().count() > 3).then_some(())
    });
    assert!(hangs.is_some(), "{:#?}", run.log);
    run
}

/// Which cleans up after it.
fn watchdog_of(run: &Process) -> Pid {
    let of = format!("/proc/{}/task/{}/children", run.pid(), run.pid());
    let children = fs::read_to_string(of).unwrap();
    let mut children = children.split_whitespace();
    let is_watchdog = |pid: &&str| {
        let cmdline = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        cmdline.ends_with("\0watchdog\0")
    };
    let watchdog = children.find(is_watchdog).expect("a watchdog");
    Pid::from_raw(watchdog.parse().unwrap())
}

#[test]
fn kill_9_leaves_nobody_behind_and_the_run_can_be_resumed() {
    if !tier::program("stress-ng") {
        return;
    }
    let bench = bench();
    let mut run = hanging(&bench);
    // A service manager asks all processes of a unit to end, and kills those that do not.
    let watchdog = watchdog_of(&run);
    nix::sys::signal::kill(watchdog, Signal::SIGTERM).unwrap();
    run.signal(Signal::SIGKILL);
    run.wait();
    assert_gone(&bench.path("target/lab/pids"));

    let output = bench.path("out");
    let (code, log) = end_of(bench.resume(&output));
    assert_eq!(code, 0, "{log}");
    assert_eq!(failure(&output, "r01-plain-cpu-w"), "");
}

#[test]
fn a_terminal_that_goes_away_ends_the_run_as_ctrl_c_does() {
    if !tier::program("stress-ng") {
        return;
    }
    let bench = bench();
    let mut run = hanging(&bench);
    run.signal(Signal::SIGHUP);
    let status = run.wait();
    let log = run.log.join("\n");
    assert_eq!(code(status), 1, "{log}");
    assert!(log.contains("interrupted; "), "{log}");
    assert_gone(&bench.path("target/lab/pids"));
}

#[test]
fn a_second_run_is_refused_in_the_first_ones_folder_and_in_any_other_and_nothing_is_lost() {
    if !tier::program("stress-ng") {
        return;
    }
    let bench = bench();
    let mut run = hanging(&bench);
    let output = bench.path("out");
    let draft = output.join("cells/.draft-half");
    fs::write(&draft, "half").unwrap();
    let before = fs::read_dir(output.join("cells")).unwrap().count();
    let other = bench.path("other");
    let busy = "expected programs that no other run measures with";
    for (second, reason) in [
        (
            bench.resume(&output),
            "expected a folder that no run works in",
        ),
        (bench.run(&output, ON_HOST), busy),
        (bench.run(&other, ON_HOST), busy),
    ] {
        let (code, log) = end_of(second);
        assert_eq!(code, 2, "{log}");
        assert!(log.contains(reason), "{log}");
    }
    assert!(!other.exists());
    let after = fs::read_dir(output.join("cells")).unwrap().count();
    assert_eq!((before, draft.exists()), (after, true));
    run.signal(Signal::SIGTERM);
    assert_eq!(code(run.wait()), 1);
    let (code, log) = end_of(bench.resume(&output));
    assert_eq!(code, 0, "{log}");
}

#[test]
fn a_cell_beside_load_from_outside_is_measured_again() {
    // An orphan is nobody's child, thus none of the runner's.
    let script = script_that("(setsid sh -c 'timeout 1 sh -c \"while :; do :; done\"' &)");
    let bench = Bench::new(&script, "[\"none\"]", "");
    let output = bench.path("out");
    fs::write(bench.path("target/lab/bad"), "").unwrap();
    let (code, log) = end_of(bench.run(&output, ON_HOST));
    assert_eq!(code, 0, "{log}");
    let text = cell(&output, "r01-plain-none-w").unwrap();
    let cell: serde_json::Value = serde_json::from_str(&text).unwrap();
    let discarded = cell["discarded"].as_array().unwrap();
    assert!(!discarded.is_empty(), "{text}\n{log}");
    let first = &discarded[0];
    let reason = first["reasons"][0].as_str().unwrap();
    assert!(reason.starts_with("other processes kept"), "{reason}");
    let outside = first["surroundings"]["here"]["outside_cpus"].as_f64();
    assert!(outside.is_some_and(|cpus| cpus > 0.3), "{first}");
    assert!(
        first["tokens_per_s"].is_number(),
        "its figure is kept: {first}"
    );
    assert!(cell["measurement"].is_object(), "{text}");
}

#[test]
fn a_cell_in_which_the_host_was_slow_is_measured_again() {
    let bench = Bench::new(&script_that(":"), "[\"none\"]", "");
    let output = bench.path("out");
    let six_rounds = [ON_HOST, &["--rounds", "6"]].concat();
    let (code, log) = end_of(bench.run(&output, &six_rounds));
    assert_eq!(code, 0, "{log}");
    // What the lab would have written; nobody looks at the speed of the machine that is measured itself.
    for round in 1..=6 {
        let file = output.join(format!("cells/r{round:02}-plain-none-w.json"));
        let mut cell: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        for list in ["disturbed", "discarded"] {
            cell[list] = serde_json::json!([]);
        }
        let surroundings = &mut cell["measurement"]["surroundings"];
        let mut host = surroundings["here"].clone();
        host["piece_us"] = serde_json::json!(if round == 3 { 32.5 } else { 25.0 });
        surroundings["host"] = host;
        fs::write(&file, cell.to_string()).unwrap();
    }
    // A run that is complete has nothing to do.
    fs::remove_file(output.join("cells/r06-plain-none-w.json")).unwrap();
    let (code, log) = end_of(bench.resume(&output));
    assert_eq!(code, 0, "{log}");
    for round in 1..=6 {
        let text = cell(&output, &format!("r{round:02}-plain-none-w")).unwrap();
        let cell: serde_json::Value = serde_json::from_str(&text).unwrap();
        let discarded = cell["discarded"].as_array().unwrap();
        let slow = discarded.iter().find(|measured| {
            measured["reasons"][0]
                == "a piece of work took the host 30 % more CPU time than in other cells"
        });
        assert_eq!(slow.is_some(), round == 3, "{text}\n{log}");
        assert!(cell["measurement"].is_object(), "{text}");
    }
}
