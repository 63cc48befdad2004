// SPDX-License-Identifier: GPL-2.0-only
//! Who gets how much: classes, the guard, cgroup weights and limits.

use std::time::{Duration, Instant};

use gpuaware_stats::median;

use crate::process::{Process, busy_loops};
use crate::{length, tier};

use super::machine::{Cgroup, Scheduler, mark, nr_cpus, pin, preferred_cpu};
use super::shared::beside_the_scheduler;

/// Shares are settled within a second, and CPU time is counted in nanoseconds.
fn window() -> Duration {
    Duration::from_secs(length::of(3, 10))
}

fn total(processes: &[Process]) -> f64 {
    processes
        .iter()
        .map(|process| process.cpu_time().as_secs_f64())
        .sum()
}

/// CPU seconds per second that each group gets, and the whole machine, after a second to settle.
fn shares_of_busy<const N: usize>(groups: [&[Process]; N]) -> ([f64; N], f64) {
    std::thread::sleep(Duration::from_secs(1));
    settled_shares_of_busy(groups)
}

/// The same where nothing has changed for a second.
fn settled_shares_of_busy<const N: usize>(groups: [&[Process]; N]) -> ([f64; N], f64) {
    let start = Instant::now();
    let before = (groups.map(total), busy_time());
    std::thread::sleep(window());
    let after = (groups.map(total), busy_time());
    let seconds = start.elapsed().as_secs_f64();
    let shares = std::array::from_fn(|index| (after.0[index] - before.0[index]) / seconds);
    (shares, (after.1 - before.1) / seconds)
}

/// CPU seconds per second that each group gets, after a second to settle.
pub(super) fn shares<const N: usize>(groups: [&[Process]; N]) -> [f64; N] {
    shares_of_busy(groups).0
}

/// CPU seconds since boot that no CPU was idle in.
fn busy_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
    let line = stat.lines().next().expect("a line for all CPUs");
    let ticks: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().expect("ticks"))
        .collect();
    // user, nice, system, (idle, iowait,) irq, softirq
    (ticks[..3].iter().sum::<f64>() + ticks[5] + ticks[6]) / 100.0
}

#[test]
#[ignore = "runs in the lab: make test"]
fn handoff_comes_after_launchers_and_before_background() {
    beside_the_scheduler("", |_| {
        let handoff = busy_loops(1);
        let background = busy_loops(1);
        for process in handoff.iter().chain(&background) {
            pin(process, preferred_cpu());
        }
        mark(handoff[0].pid(), "handoff");
        let [got, left] = shares([&handoff, &background]);
        assert!(
            got > 0.85 && left > 0.02,
            "handoff {got:.3}, background {left:.3}"
        );
        let launcher = busy_loops(1);
        pin(&launcher[0], preferred_cpu());
        mark(launcher[0].pid(), "launch");
        let [launch, handoff, background] = shares([&launcher, &handoff, &background]);
        let all = format!("launch {launch:.3}, handoff {handoff:.3}, background {background:.3}");
        assert!(launch > 0.75, "{all}");
        assert!(handoff > 0.01 && background > 0.01, "{all}");
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn busy_loops_that_call_themselves_launchers_get_no_more_than_the_guard_allows() {
    beside_the_scheduler("", |_| {
        let cpus = nr_cpus();
        let pretenders = busy_loops(cpus);
        let others = busy_loops(cpus);
        for pretender in &pretenders {
            mark(pretender.pid(), "launch");
        }
        // Everybody else's time is the others', the kernel's own work included: nothing may be idle.
        let (shares_of_loops, busy) = shares_of_busy([&pretenders, &others]);
        let [taken, loops] = shares_of_loops.map(|share| share / cpus as f64);
        // Ticks are sampled, and may have missed some: what the loops got by their own clocks is theirs.
        let left = (busy / cpus as f64 - taken).max(loops);
        let all =
            format!("pretenders {taken:.3} of the CPUs, busy loops {loops:.3}, others {left:.3}");
        assert!(taken <= 0.5 + 0.03, "{all}");
        assert!(left >= 1.0 - 0.5 - 0.03 - 0.03 && loops >= 0.4, "{all}");
        // Nobody else wants the CPUs: the guard lets them go.
        drop(others);
        let [alone] = shares([&pretenders]);
        assert!(
            alone / cpus as f64 > 0.9,
            "alone they got {:.3} of the CPUs",
            alone / cpus as f64
        );
    });
}

/// One launcher beside many that pretend, each in a cgroup that their user has made in the one that he was given.
#[test]
#[ignore = "runs in the lab: make test"]
fn launchers_of_one_tenant_leave_another_his_part() {
    const NOBODY: u32 = 65534;
    beside_the_scheduler("", |_| {
        let (given, other) = (Cgroup::new("given"), Cgroup::new("other"));
        let cgroups: Vec<_> = (0..4 * nr_cpus())
            .map(|nr| Cgroup::new(&format!("given/{nr}")))
            .collect();
        let pretenders = busy_loops(cgroups.len());
        for (pretender, cgroup) in pretenders.iter().zip(&cgroups) {
            std::os::unix::fs::chown(cgroup.path(), Some(NOBODY), None).expect("giving it away");
            cgroup.add(pretender);
            mark(pretender.pid(), "launch");
        }
        let genuine = busy_loops(1);
        other.add(&genuine[0]);
        mark(genuine[0].pid(), "launch");
        let others = busy_loops(nr_cpus());
        let [got, taken, left] = shares([&genuine, &pretenders, &others]);
        let all = format!("it got {got:.3} CPUs, pretenders {taken:.3}, others {left:.3}");
        println!("{all}");
        // Half of what launchers may have together, which is half of all CPUs; others are not given more for that.
        let part = nr_cpus() as f64 / 4.0;
        assert!(got > 0.8 * part.min(1.0) && taken < 1.2 * part, "{all}");
        drop((genuine, pretenders, others));
        drop(cgroups);
        drop((given, other));
    });
}

/// Of two cgroups that weigh 300 and 100, and then the same.
pub(super) fn weights_share_the_cpus() {
    let (light, heavy) = (Cgroup::new("light"), Cgroup::new("heavy"));
    light.set("cpu.weight", "100");
    heavy.set("cpu.weight", "300");
    // Unequal numbers of tasks: it is the cgroups that share, not their tasks.
    let few = busy_loops(nr_cpus());
    let many = busy_loops(3 * nr_cpus());
    for process in &few {
        heavy.add(process);
    }
    for process in &many {
        light.add(process);
    }
    let [heavy_share, light_share] = shares([&few, &many]);
    let ratio = heavy_share / light_share;
    println!("300:100 became {ratio:.3}");
    assert!(
        (2.85..3.15).contains(&ratio),
        "300:100 became {ratio:.3} ({heavy_share:.3} and {light_share:.3} CPUs)"
    );
    heavy.set("cpu.weight", "100");
    let [heavy_share, light_share] = shares([&few, &many]);
    let ratio = heavy_share / light_share;
    assert!((0.95..1.05).contains(&ratio), "100:100 became {ratio:.3}");
    drop((few, many));
}

#[test]
#[ignore = "runs in the lab: make test"]
fn cgroup_weights_share_the_cpus() {
    beside_the_scheduler("", |_| weights_share_the_cpus());
}

#[test]
#[ignore = "runs in the lab: make test"]
fn cgroup_weights_are_hierarchical() {
    beside_the_scheduler("", |_| {
        let (left, right) = (Cgroup::new("left"), Cgroup::new("right"));
        right.set("cgroup.subtree_control", "+cpu");
        let (first, second) = (Cgroup::new("right/first"), Cgroup::new("right/second"));
        first.set("cpu.weight", "1000");
        let groups = [busy_loops(2), busy_loops(2), busy_loops(2)];
        for (processes, cgroup) in groups.iter().zip([&left, &first, &second]) {
            for process in processes {
                cgroup.add(process);
            }
        }
        // left : right is 1 : 1, and within right first : second is 10 : 1. Of three windows, as the host of the lab now
        // and then stops a CPU for 90 ms: that is a quarter of what second gets in one.
        std::thread::sleep(Duration::from_secs(1));
        let ratios = [(); 3].map(|()| {
            let groups = [&groups[0][..], &groups[1], &groups[2]];
            let [left, first, second] = settled_shares_of_busy(groups).0;
            (left / (first + second), first / second)
        });
        println!("1:1 and 10:1 became {ratios:.3?}");
        let across = median(&ratios.map(|(across, _)| across)).unwrap();
        let within = median(&ratios.map(|(_, within)| within)).unwrap();
        assert!(
            (0.9..1.1).contains(&across) && (8.5..11.5).contains(&within),
            "1:1 and 10:1 became {ratios:.3?}"
        );
        drop(groups);
        drop((first, second));
        drop((left, right));
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn cpu_max_limits_a_cgroup() {
    tier::in_lab(|| {
        let limited = Cgroup::new("limited");
        limited.set("cpu.max", "30000 100000");
        let mut scheduler = Scheduler::start(&[]);
        let log = &scheduler.process.log;
        let warns = |line: &String| line.contains("cpu.max") && line.contains("limited");
        let warned = log.iter().any(warns);
        assert_eq!(warned, !has_cgroup_set_bandwidth(), "{log:#?}");
        if warned {
            // Linux 6.16 does not tell schedulers of it: that it says so is all that it can do.
            scheduler.stop();
            return;
        }
        let processes = busy_loops(2);
        for process in &processes {
            limited.add(process);
        }
        let [got] = shares([&processes]);
        assert!(
            (0.25..0.36).contains(&got),
            "30 % of a CPU became {:.1} %",
            got * 100.0
        );
        limited.set("cpu.max", "max");
        let [got] = shares([&processes]);
        assert!(got > 1.5, "without a limit it got {got:.3} CPUs");
        scheduler.assert_loaded();
        drop(processes);
        scheduler.stop();
    });
}

/// Does the kernel tell schedulers of `cpu.max`?
pub(super) fn has_cgroup_set_bandwidth() -> bool {
    is_at_least(6, 17)
}

/// Does the kernel tell schedulers of `cpu.idle`?
pub(super) fn has_cgroup_set_idle() -> bool {
    is_at_least(6, 19)
}

fn is_at_least(major: u32, minor: u32) -> bool {
    let release = nix::sys::utsname::uname().expect("uname");
    let release = release.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}
