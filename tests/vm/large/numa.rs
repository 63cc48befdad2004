// SPDX-License-Identifier: GPL-2.0-only
//! Two NUMA nodes and a GPU on one of them, which is a display device without a driver: what is
//! looked at is where it hangs.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::stat::{major, minor};
use scx_gpuaware::policy::cpuset::CpuSet;

use crate::process::{Process, busy_loop, busy_loops, eventually, gpu_launch, scx_gpuaware};
use crate::vm::machine::{
    Offline, Scheduler, cpu_of, launching_threads, mark_launch, metrics, nr_cpus, preferred_cpus,
    set_in_map, try_metrics,
};
use crate::{length, tier};

/// The CPUs of the GPU's node.
fn cpus_near_the_gpu() -> CpuSet {
    let output = scx_gpuaware(&["topology", "--json"]).output();
    let output = output.expect("starting scx_gpuaware").stdout;
    let machine: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
    let node = &machine["gpus"][0]["node"];
    assert!(node.is_number(), "firmware does not tell: {machine}");
    let cpus = machine["cpus"].as_array().expect("CPUs").iter();
    let near = cpus.filter(|cpu| &cpu["node"] == node);
    CpuSet::new(near.map(|cpu| cpu["cpu"].as_u64().expect("a number") as u32))
}

#[test]
#[ignore = "runs in the lab: make test"]
fn launchers_stay_on_the_node_of_the_gpu() {
    tier::in_large_lab(|| {
        let near = cpus_near_the_gpu();
        assert!(near.len() < nr_cpus(), "all CPUs are near: {near}");
        let scheduler = Scheduler::start(&[]);
        let mut command = gpu_launch("--profile eager --threads 2 --duration 60");
        command.stdout(Stdio::null());
        let workload = Process::start(command);
        let tids = launching_threads(workload.pid(), 2);
        let neighbours = busy_loops(nr_cpus());
        // A CPU for the second one becomes preferred within a second.
        std::thread::sleep(Duration::from_secs(3));
        let preferred = preferred_cpus();
        assert!(preferred.len() == 2, "{preferred}");
        assert!(preferred.difference(&near).is_empty(), "{preferred}");
        let count = length::of(100, 200);
        let samples: Vec<_> = (0..count)
            .flat_map(|_| {
                std::thread::sleep(Duration::from_millis(20));
                tids.iter().filter_map(|&tid| cpu_of(workload.pid(), tid))
            })
            .collect();
        assert!(samples.len() > count * 3 / 2, "the launchers ended early");
        let away = samples
            .iter()
            .filter(|&&cpu| !near.contains(cpu as u32))
            .count();
        assert!(
            away * 20 <= samples.len(),
            "{away} of {} are not on CPUs {near}: {samples:?}",
            samples.len()
        );
        drop(neighbours);
        scheduler.stop();
    });
}

/// The lab has no driver: two devices that anybody may open stand for those of two GPUs, one on each node.
#[test]
#[ignore = "runs in the lab: make test"]
fn each_process_launches_on_the_node_of_its_own_gpu() {
    tier::in_large_lab(|| {
        let scheduler =
            Scheduler::with_policy("[preferred]\nmax = \"100%\"\n[guard]\nmax_share = \"75%\"\n");
        // The scheduler writes what it finds itself once a minute, the first time as it starts.
        std::thread::sleep(Duration::from_secs(1));
        let gpus = [("/dev/zero", 0), ("/dev/full", 1)];
        for (device, node) in gpus {
            let number = std::fs::metadata(device).expect("a device").rdev();
            let number = (major(number) << 20 | minor(number)) as u32;
            set_in_map("gpu_devices", number, node + 1);
        }
        let workloads = [gpus[0], gpus[1], gpus[1], gpus[0]].map(|(device, node)| {
            let mut command = gpu_launch("--profile eager --duration 60");
            let device = File::open(device).expect("a device");
            command.stdin(device).stdout(Stdio::null());
            (Process::start(command), node)
        });
        let launchers = workloads
            .iter()
            .map(|(it, node)| (it.pid(), launching_threads(it.pid(), 1)[0], *node));
        let launchers: Vec<_> = launchers.collect();
        let neighbours = busy_loops(nr_cpus());
        // CPUs for all of them become preferred within a second.
        std::thread::sleep(Duration::from_secs(3));
        let (mut near, mut all) = (0, 0);
        for _ in 0..length::of(100, 200) {
            std::thread::sleep(Duration::from_millis(20));
            for &(pid, tid, node) in &launchers {
                let cpu = cpu_of(pid, tid).expect("it launches still");
                near += usize::from(node_of(cpu) == node);
                all += 1;
            }
        }
        assert!(near * 20 >= all * 19, "{near} of {all}");
        drop(neighbours);
        scheduler.stop();
    });
}

fn node_of(cpu: usize) -> u32 {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
    let entries = std::fs::read_dir(folder).expect("a CPU").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut nodes = names.filter_map(|name| name.strip_prefix("node")?.parse().ok());
    nodes.next().expect("a node")
}

/// All CPUs of a node but one go at once, under load, and come back.
#[test]
#[ignore = "runs in the lab: make test"]
fn restarts_after_many_cpus_go_and_come_back() {
    tier::in_large_lab(|| {
        let mut scheduler = Scheduler::start(&[]);
        let all = nr_cpus();
        let busy = busy_loops(all);
        let spinner = Process::start(busy_loop());
        mark_launch(spinner.pid());
        let second_node = all / 2 + 1..all;
        let mut settles_with = |nr_online: usize| {
            // It starts anew, more than once if some come or go meanwhile.
            let settled = eventually(|| {
                let seen = try_metrics().ok()?.cpus.len();
                (seen == nr_online).then_some(())
            });
            scheduler.assert_loaded();
            assert!(settled.is_some(), "{:#?}", metrics().cpus);
        };
        let gone = Offline::new(second_node.clone());
        settles_with(all - second_node.len());
        drop(gone);
        settles_with(all);
        scheduler.assert_starves_nobody();
        drop(busy);
        scheduler.stop();
    });
}
