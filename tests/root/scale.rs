// SPDX-License-Identifier: GPL-2.0-only
//! Measurements of identification that take minutes: run by hand, alone on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use scx_gpuaware::identify::Identify;
use scx_gpuaware::policy::Policy;

use super::place::{Place, identify_until};
use crate::process::{Process, gpu_launch, lab_folder};

/// So few samples are needed that the largest of 459 bounds the 99th percentile with 99 % confidence.
const STARTS: usize = 459;

/// A GPU process that launches nothing: 50 threads, all but asleep.
const RESTING: &str = "import ctypes, threading, time
ctypes.CDLL('libcuda.so.1').cuInit(0)
def rest():
    while True: time.sleep(10)
for _ in range(49): threading.Thread(target=rest, daemon=True).start()
rest()
";

/// CPU time of this thread, which identification runs on.
fn own_cpu_time() -> Duration {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    nix::time::clock_gettime(clock).map(Duration::from).unwrap()
}

/// TID and time of the first launch of each thread that launched, from the workload's result.
fn first_launches(workload: &mut Process) -> BTreeMap<i32, u64> {
    let result: serde_json::Value = serde_json::from_str(&workload.stdout()).unwrap();
    let threads = result["threads_detail"].as_array().unwrap().iter();
    threads
        .map(|thread| {
            let tid = thread["tid"].as_i64().unwrap() as i32;
            (tid, thread["first_launch_monotonic_ns"].as_u64().unwrap())
        })
        .collect()
}

#[test]
#[ignore = "a measurement of minutes"]
fn new_launchers_are_marked_within_250_ms_beside_a_hot_one() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut hot = gpu_launch("--profile eager --duration 600");
    hot.stdout(Stdio::null());
    let _hot = Process::start(hot);
    identify_until(&mut identify, Duration::from_secs(2), |_| false);
    let mut delays_ms = Vec::new();
    let mut unmarked = 0;
    while delays_ms.len() + unmarked < STARTS {
        let mut command = gpu_launch("--profile eager --duration 0.5");
        command.stdout(Stdio::piped());
        let mut workload = Process::start(command);
        let mut first_seen = BTreeMap::new();
        while !workload.has_ended() {
            identify_until(&mut identify, Duration::from_millis(50), |_| false);
            for mark in pins.list().unwrap() {
                first_seen.insert(mark.tid, mark.first_seen_ns.unwrap_or(0));
            }
        }
        for (tid, launched_ns) in first_launches(&mut workload) {
            match first_seen.get(&tid) {
                Some(seen_ns) => delays_ms.push(seen_ns.saturating_sub(launched_ns) / 1_000_000),
                None => unmarked += 1,
            }
        }
    }
    delays_ms.sort_unstable();
    let (median, worst) = (
        delays_ms[delays_ms.len() / 2],
        delays_ms[delays_ms.len() - 1],
    );
    let sorted = &delays_ms;
    let p99 = sorted[sorted.len() * 99 / 100];
    println!(
        "{} starts: median {median} ms, p99 {p99} ms, worst {worst} ms, {unmarked} unmarked",
        sorted.len()
    );
    println!("{:?}", identify.sightings());
    assert_eq!(unmarked, 0);
    assert!(p99 <= 250, "{p99} ms");
}

#[test]
#[ignore = "a measurement of minutes"]
fn two_hundred_processes_of_fifty_threads() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut workloads: Vec<_> = (0..10)
        .map(|_| {
            let mut command = gpu_launch("--profile graph --idle-threads 4 --duration 75");
            command.stdout(Stdio::piped());
            Process::start(command)
        })
        .collect();
    let _resting: Vec<_> = (0..190)
        .map(|_| {
            let mut command = Command::new("python3");
            command
                .args(["-c", RESTING])
                .env("LD_LIBRARY_PATH", lab_folder())
                .stdin(Stdio::null());
            let process = Process::start(command);
            identify.step().unwrap();
            process
        })
        .collect();
    identify_until(&mut identify, Duration::from_secs(15), |_| false);
    let (cpu, start) = (own_cpu_time(), Instant::now());
    identify_until(&mut identify, Duration::from_secs(30), |_| false);
    let used = (own_cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
    let marked: BTreeSet<i32> = pins.list().unwrap().iter().map(|mark| mark.tid).collect();
    let mut launching = BTreeSet::new();
    for workload in &mut workloads {
        while !workload.has_ended() {
            identify_until(&mut identify, Duration::from_millis(100), |_| false);
        }
        launching.extend(first_launches(workload).into_keys());
    }
    println!(
        "{} marked, {} launching, agent {:.2} % of one CPU",
        marked.len(),
        launching.len(),
        used * 100.0
    );
    println!("{:?}", identify.sightings());
    assert_eq!(marked, launching);
    assert!(used <= 0.01, "{:.2} % of one CPU", used * 100.0);
}
