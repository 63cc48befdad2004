// SPDX-License-Identifier: GPL-2.0-only
//! The right threads get a class, for the right reason, in time.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::process::{Process, busy_loop, busy_loops, eventually, gpu_launch, scx_gpuaware};
use crate::{length, tier};

use super::machine::{
    CGROUPS, Cgroup, Scheduler, add_to_cgroup, dump_map, mark, mark_of, marks, metrics, nr_cpus,
    voluntary,
};
use super::shared::beside_the_scheduler;

/// What identification made of one run of the workload.
struct Sighting {
    marked: BTreeSet<i64>,
    launching: BTreeSet<i64>,
    /// From the first launch of any thread to the first mark.
    delay: Duration,
}

fn sighting(args: &str) -> Sighting {
    let mut command = gpu_launch(args);
    command.stdout(Stdio::piped());
    let mut workload = Process::start(command);
    let pid = workload.pid();
    let of_workload = || -> Vec<serde_json::Value> {
        let marks = marks().into_iter();
        marks.filter(|mark| mark["tgid"] == pid).collect()
    };
    let found = eventually(|| (!of_workload().is_empty()).then_some(()));
    assert!(found.is_some(), "no mark");
    std::thread::sleep(Duration::from_millis(1500));
    let marked = of_workload();
    workload.signal(Signal::SIGTERM);
    workload.wait();
    let result: serde_json::Value = serde_json::from_str(&workload.stdout()).expect("JSON");
    let threads = result["threads_detail"].as_array().expect("threads");
    let earliest = |records: &[serde_json::Value], key: &str| {
        let times = records
            .iter()
            .map(|record| record[key].as_u64().expect("ns"));
        times.min().expect("a record")
    };
    let first_launch = earliest(threads, "first_launch_monotonic_ns");
    let tids = |records: &[serde_json::Value]| {
        let tids = records
            .iter()
            .map(|record| record["tid"].as_i64().expect("a TID"));
        tids.collect()
    };
    for mark in &marked {
        assert_eq!(
            (&mark["class"], &mark["source"]),
            (&"launch".into(), &"uprobe".into())
        );
    }
    Sighting {
        marked: tids(&marked),
        launching: tids(threads),
        delay: Duration::from_nanos(
            earliest(&marked, "first_seen_ns").saturating_sub(first_launch),
        ),
    }
}

#[test]
#[ignore = "runs in the lab: make test"]
fn marks_launching_threads_within_a_second_and_not_their_siblings() {
    tier::in_lab(|| {
        let scheduler = Scheduler::start(&[]);
        // The first run is of a libcuda that was never seen; the others of a known one.
        for args in [
            "--profile qwen3 --idle-threads 4 --duration 60",
            "--profile graph --idle-threads 4 --duration 60",
            "--profile eager --threads 2 --idle-threads 4 --duration 60",
        ] {
            let seen = sighting(args);
            assert_eq!(seen.marked, seen.launching, "{args}");
            assert!(
                seen.delay <= Duration::from_secs(1),
                "{args}: {:?}",
                seen.delay
            );
        }
        scheduler.stop();
    });
}

/// How often everybody was to be judged anew.
fn generation() -> i64 {
    // As much of its name as the kernel keeps.
    let [(_, value)] = &dump_map("class_generatio")[..] else {
        panic!("one entry");
    };
    value.as_i64().expect("a number")
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_mark_counts_at_once_and_has_nobody_else_judged_anew() {
    beside_the_scheduler("", |_| {
        let before = generation();
        let processes = busy_loops(2 * nr_cpus());
        for class in ["launch", "handoff"] {
            mark(processes[0].pid(), class);
            let runs = || metrics().cpus.values().any(|cpu| cpu.runs == class);
            let found = eventually(|| runs().then_some(()));
            assert!(found.is_some(), "no {class} runs");
        }
        drop(processes);
        assert_eq!(generation(), before);
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn cgroup_tag_classifies_children_and_follows_moves() {
    beside_the_scheduler(
        "[class.launch]\nmatch = [{ cgroup = \"gpu.slice/**\" }]\n",
        |_| {
            let gpu = Cgroup::new("gpu.slice");
            let inner = Cgroup::new("gpu.slice/inner");
            let process = Process::start(busy_loop());
            let pid = process.pid();
            let tagged = |expected: bool| {
                let reached = eventually(|| (mark_of(pid).is_some() == expected).then_some(()));
                assert!(
                    reached.is_some(),
                    "tagged should be {expected}: {:?}",
                    mark_of(pid)
                );
            };
            tagged(false);
            gpu.add(&process);
            tagged(true);
            assert_eq!(mark_of(pid).unwrap()["source"], "cgroup");
            add_to_cgroup(std::path::Path::new(CGROUPS), &process);
            tagged(false);
            inner.add(&process);
            tagged(true);
            // A folder that is made while the scheduler runs.
            let late = Cgroup::new("gpu.slice/inner/late");
            late.add(&process);
            tagged(true);
            drop(process);
            drop((late, inner, gpu));
        },
    );
}

#[test]
#[ignore = "runs in the lab: make test"]
fn mark_and_unmark_by_hand() {
    beside_the_scheduler("", |_| {
        let process = Process::start(busy_loop());
        super::machine::mark_launch(process.pid());
        assert_eq!(mark_of(process.pid()).unwrap()["source"], "mark");
        let unmark = scx_gpuaware(&["unmark", "--tid", &process.pid().to_string()]).status();
        assert!(unmark.unwrap().success());
        assert!(mark_of(process.pid()).is_none());
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn rests_while_nothing_happens() {
    beside_the_scheduler("", |scheduler| {
        // What runs already is looked at often at first.
        std::thread::sleep(Duration::from_secs(5));
        let cpu_before = scheduler.process.cpu_time();
        let (before, start) = (work_of(scheduler.process.pid()), Instant::now());
        std::thread::sleep(Duration::from_secs(length::of(5, 10)));
        let (after, seconds) = (
            work_of(scheduler.process.pid()),
            start.elapsed().as_secs_f64(),
        );
        let wakeups = (after.0 - before.0) as f64 / seconds;
        let reads = (after.1 - before.1) as f64 / seconds;
        println!("{wakeups:.1} wakeups and {reads:.1} reads a second");
        // Once in 100 ms and once a second, and what is read then: 11 and 16 to 21.
        assert!(wakeups <= 16.0, "{wakeups:.1} wakeups a second");
        assert!(reads <= 40.0, "{reads:.1} reads a second");
        // The gate's window is short: what else the host does shows in it.
        if length::is_full() {
            let used = (scheduler.process.cpu_time() - cpu_before).as_secs_f64() / seconds;
            // Emulation makes each system call a dozen times as expensive.
            assert!(used <= 0.03, "{:.2} % of one CPU", used * 100.0);
        }
    });
}

/// How often the threads of `pid` have gone to sleep, and how often it has read from a file. CPU time would tell how
/// fast the machine is.
fn work_of(pid: i32) -> (u64, u64) {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let tids = threads.map(|thread| thread.expect("a thread").file_name());
    let sleeps = tids.map(|tid| {
        voluntary(
            tid.to_str()
                .and_then(|tid| tid.parse().ok())
                .expect("a TID"),
        )
    });
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).expect("its reads");
    let reads = io.lines().find_map(|line| line.strip_prefix("syscr: "));
    (
        sleeps.sum(),
        reads.and_then(|count| count.parse().ok()).expect("a count"),
    )
}
