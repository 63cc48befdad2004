// SPDX-License-Identifier: GPL-2.0-only
//! What the running scheduler makes of interrupts: a CPU that drowns in them is not preferred, and
//! those that can be moved are kept away from CPUs that are.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use scx_gpuaware::policy::cpuset::CpuSet;

use crate::process::{Process, eventually};
use crate::tier;

use super::irq::{affinities, movable};
use super::machine::{Scheduler, metrics, preferred_cpu};

const STEER: &str = "[irq]\nsteer = true\n";

/// Network traffic of a CPU with itself: its softirqs receive the packets, which are small.
struct Storm {
    _server: Process,
    _client: Process,
}

impl Storm {
    fn on(cpu: usize) -> Self {
        let bound = |args: &str| {
            let mut command = Command::new("taskset");
            command
                .args(["-c", &cpu.to_string(), "iperf3"])
                .args(args.split_whitespace())
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            Process::start(command)
        };
        let server = bound("-s -B 127.0.0.1");
        std::thread::sleep(Duration::from_millis(500));
        Self {
            _client: bound("-c 127.0.0.1 -P 4 -l 200 -N -t 600"),
            _server: server,
        }
    }
}

fn prefers(cpu: usize, limit: Duration) {
    let wanted = cpu.to_string();
    let reached = eventually(limit, || (metrics().preferred_cpus == wanted).then_some(()));
    let now = metrics();
    let loads: Vec<_> = now
        .cpus
        .iter()
        .map(|(cpu, it)| (cpu, it.irq_percent))
        .collect();
    assert!(
        reached.is_some(),
        "CPU {cpu} is not preferred but {:?} ({}); IRQ-heavy {:?}, percent {loads:?}",
        now.preferred_cpus,
        now.preferred_reason,
        now.irq_heavy_cpus
    );
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_cpu_under_an_interrupt_storm_is_not_preferred_until_it_is_over() {
    if !tier::vm() {
        return;
    }
    let scheduler = Scheduler::start(&[]);
    let cpu = preferred_cpu();
    let storm = Storm::on(cpu);
    let start = Instant::now();
    prefers(0, Duration::from_secs(20));
    let left = start.elapsed();
    assert!(left <= Duration::from_secs(5), "it took {left:?}");
    drop(storm);
    // The average has to calm down, and ten calm seconds to pass: they begin again whenever the host
    // takes a virtual CPU away inside an interrupt, which then has taken that long.
    prefers(cpu, Duration::from_secs(90));
    scheduler.stop();
}

/// Every interrupt that can be moved is kept away from `cpu`, the only one that is preferred.
fn assert_steered_away_from(cpu: usize) {
    let preferred = CpuSet::new([cpu as u32]);
    let movable = movable();
    assert!(!movable.is_empty());
    for (file, affinity) in movable {
        let affinity: CpuSet = affinity.parse().expect("a CPU list");
        assert_eq!(
            affinity.difference(&preferred),
            affinity,
            "{}",
            file.display()
        );
    }
}

#[test]
#[ignore = "runs in the lab: make test"]
fn steered_interrupts_follow_the_preferred_cpus_and_are_restored() {
    if !tier::vm() {
        return;
    }
    let before = affinities();
    let cpu = preferred_cpu();
    let mut scheduler = Scheduler::with_policy(STEER);
    scheduler
        .process
        .wait_for_line("interrupt affinities changed", Duration::from_secs(15));
    assert_steered_away_from(cpu);

    let storm = Storm::on(cpu);
    prefers(0, Duration::from_secs(20));
    scheduler
        .process
        .wait_for_line("interrupt affinities changed", Duration::from_secs(15));
    assert_steered_away_from(0);
    drop(storm);
    scheduler.stop();
    assert_eq!(affinities(), before);

    let mut scheduler = Scheduler::with_policy(STEER);
    scheduler
        .process
        .wait_for_line("interrupt affinities changed", Duration::from_secs(15));
    scheduler.process.signal(Signal::SIGKILL);
    scheduler.process.wait(Duration::from_secs(20));
    assert_ne!(affinities(), before);
    // One that does not steer puts back what the killed one has changed.
    let scheduler = Scheduler::start(&[]);
    assert_eq!(affinities(), before);
    scheduler.stop();
}
