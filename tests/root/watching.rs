// SPDX-License-Identifier: GPL-2.0-only
//! What `wakes` and `connects_to` cost everybody else: measurements of minutes, run by hand, alone on the
//! machine, as those of `scale`.

use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use scx_gpuaware::identify::{Class, Identify};
use scx_gpuaware::policy::Policy;

use super::measure::{mean_with_interval, record, serve};
use super::place::Place;
use crate::process::Process;

const ROUNDS: usize = 10;

/// Runs identification with `rules` for handoff threads beside `work`; returns what that returns.
fn beside(place: &Place, rules: &str, work: fn() -> f64) -> f64 {
    let policy = format!("[class.handoff]\nmatch = [{rules}]\n");
    let policy = Policy::parse(&policy).unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, place.pins(), &mut object).unwrap();
    // Somebody launches: every wakeup has to be told from its.
    let launcher = Process::start(sleeping());
    place
        .pins()
        .mark(launcher.pid(), Some(Class::Launch))
        .unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let result = scope.spawn(|| {
            let result = work();
            stop.store(true, Ordering::Relaxed);
            result
        });
        while !stop.load(Ordering::Relaxed) {
            serve(&mut identify, Duration::from_millis(100));
        }
        result.join().unwrap()
    })
}

fn sleeping() -> Command {
    let mut command = Command::new("sleep");
    command.arg("600").stdin(Stdio::null());
    command
}

/// Runs of hackbench a second: four groups of 40 tasks that wake one another.
fn hackbench() -> f64 {
    let mut command = Command::new("hackbench");
    command
        .args(["-g", "4", "-l", "1500"])
        .stdout(Stdio::null());
    let start = Instant::now();
    assert!(command.status().expect("hackbench").success());
    1.0 / start.elapsed().as_secs_f64()
}

/// Bits a second of iperf3, in small writes: each is a send.
fn iperf3() -> f64 {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let port = address.unwrap().port().to_string();
    let mut server = Command::new("iperf3");
    server
        .args(["-s", "-1", "-p", &port])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut server = Process::start(server);
    std::thread::sleep(Duration::from_millis(500));
    let mut client = Command::new("iperf3");
    client.args(["-c", "127.0.0.1", "-p", &port, "-t", "4", "-l", "64", "-J"]);
    let output = client.output().expect("iperf3");
    server.wait();
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    result["end"]["sum_sent"]["bits_per_second"]
        .as_f64()
        .expect("bits a second")
}

/// What `work` gets done with `rules` and without, in turn.
fn compare(name: &str, rules: &str, work: fn() -> f64) {
    let Some(place) = Place::new() else { return };
    let mut results = [const { Vec::new() }; 2];
    for round in 0..ROUNDS {
        for arm in (0..2).map(|place| (place + round) % 2) {
            let result = beside(&place, [rules, ""][arm], work);
            results[arm].push(result);
        }
    }
    let percent = results[0]
        .iter()
        .zip(&results[1])
        .map(|(with, without)| (with / without - 1.0) * 100.0);
    let (mean, around) = mean_with_interval(&percent.collect::<Vec<_>>());
    println!("{name} with {rules}: {mean:+.2} %, 95 % interval +-{around:.2}");
    let results = serde_json::json!({ "with": results[0], "without": results[1] });
    record(name, &results);
}

#[test]
#[ignore = "a measurement of minutes"]
fn what_wakes_costs_hackbench() {
    compare("hackbench", "{ wakes = \"launch\" }", hackbench);
}

#[test]
#[ignore = "a measurement of minutes"]
fn what_connects_to_costs_iperf3() {
    compare("iperf3", "{ connects_to = \"127.0.0.1:1\" }", iperf3);
}
