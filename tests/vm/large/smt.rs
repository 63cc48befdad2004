// SPDX-License-Identifier: GPL-2.0-only
//! Two hardware threads a core: two launchers side by side cost each other a fifth to a quarter.

use std::process::Stdio;
use std::time::Duration;

use crate::process::{Process, busy_loop, busy_loops, gpu_launch};
use crate::vm::machine::{
    Offline, Scheduler, cpu_of, involuntary, launching_threads, mark_launch, nr_cpus, pin_to, waker,
};
use crate::{length, tier};

/// The CPUs that are there when time is judged: eight busy ones wait for each other on a host of a few.
const TWO_CORES: usize = 4;

/// The lowest CPU of the core of `cpu`.
fn core_of(cpu: usize) -> u32 {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
    let core = std::fs::read_to_string(&file).expect("the CPUs of a core");
    let core: scx_gpuaware::policy::cpuset::CpuSet = core.trim().parse().expect("a CPU list");
    core.iter().next().expect("a CPU")
}

#[test]
#[ignore = "runs in the lab: make test"]
fn two_launchers_run_on_different_cores() {
    tier::in_large_lab(|| {
        let scheduler =
            Scheduler::with_policy("[preferred]\nmax = \"100%\"\n[guard]\nmax_share = \"75%\"\n");
        // They spin while they wait for the GPU: both are runnable all the time.
        let mut command = gpu_launch("--profile eager --threads 2 --sync spin --duration 60");
        command.stdout(Stdio::null());
        let workload = Process::start(command);
        let tids = launching_threads(workload.pid(), 2);
        let neighbours = busy_loops(nr_cpus());
        // The second one's core becomes preferred within a second.
        std::thread::sleep(Duration::from_secs(3));
        let samples: Vec<_> = (0..length::of(100, 200))
            .map(|_| {
                std::thread::sleep(Duration::from_millis(20));
                let cpus = tids.iter().map(|&tid| cpu_of(workload.pid(), tid));
                cpus.collect::<Option<Vec<_>>>().expect("it launches still")
            })
            .collect();
        let stacked = samples
            .iter()
            .filter(|cpus| core_of(cpus[0]) == core_of(cpus[1]))
            .count();
        assert!(
            stacked * 20 <= samples.len(),
            "{stacked} of {} on one core: {samples:?}",
            samples.len()
        );
        drop((workload, neighbours));
        scheduler.stop();
    });
}

/// With an idle core beside it, background that wakes goes where it was: its cache is warm there.
#[test]
#[ignore = "runs in the lab: make test"]
fn background_comes_back_to_its_cpu_while_that_core_is_idle() {
    tier::in_large_lab(|| {
        const SAMPLES: usize = 100;
        let scheduler = Scheduler::start(&[]);
        let process = waker();
        std::thread::sleep(Duration::from_secs(1));
        let pid = process.pid();
        let sample = |_| {
            std::thread::sleep(Duration::from_millis(20));
            cpu_of(pid, pid.into()).expect("its CPU")
        };
        let cpus: Vec<_> = (0..SAMPLES).map(sample).collect();
        let moves = cpus.windows(2).filter(|pair| pair[0] != pair[1]).count();
        println!("{moves} moves in {SAMPLES} samples");
        scheduler.stop();
        assert!(moves < SAMPLES / 4, "{cpus:?}");
    });
}

/// All CPUs that they may use are kept for launchers, of which there are none.
#[test]
#[ignore = "runs in the lab: make test"]
fn who_may_run_only_on_cpus_that_are_not_lent_is_served() {
    tier::in_large_lab(|| {
        const WINDOW: Duration = Duration::from_secs(3);
        let _second_node = Offline::new(TWO_CORES..nr_cpus());
        let cpus = [nr_cpus() - 2, nr_cpus() - 1];
        let policy = format!(
            "[preferred]\ncpus = \"{}-{}\"\nlend = false\n",
            cpus[0], cpus[1]
        );
        let mut scheduler = Scheduler::with_policy(&policy);
        let confined = cpus.map(|_| {
            let process = Process::start(busy_loop());
            pin_to(&process, &cpus);
            process
        });
        let others = busy_loops(nr_cpus());
        let used =
            |processes: &[Process]| processes.iter().map(Process::cpu_time).sum::<Duration>();
        std::thread::sleep(Duration::from_secs(1));
        let before = (used(&confined), used(&others));
        std::thread::sleep(WINDOW);
        let got = used(&confined) - before.0;
        let rest = used(&others) - before.1;
        assert!(got >= WINDOW.mul_f64(1.6), "{got:?} on two CPUs");
        assert!(rest <= WINDOW.mul_f64(2.1), "{rest:?}: not lent");
        scheduler.assert_starves_nobody();
        drop(others);
        scheduler.stop();
    });
}

/// Others always find a CPU, so the queue that all share never looks neglected; and each of the two CPUs owes turns to
/// somebody who is pinned to it, too.
#[test]
#[ignore = "runs in the lab: make test"]
fn who_may_run_only_where_launchers_spin_is_served() {
    tier::in_large_lab(|| {
        let _second_node = Offline::new(TWO_CORES..nr_cpus());
        let mut scheduler = Scheduler::start(&[]);
        let cpus = [nr_cpus() - 2, nr_cpus() - 1];
        let launchers = cpus.map(|cpu| {
            let launcher = Process::start(busy_loop());
            pin_to(&launcher, &[cpu]);
            mark_launch(launcher.pid());
            launcher
        });
        let others = busy_loops(nr_cpus());
        let _pinned = cpus.map(|cpu| {
            let pinned = Process::start(busy_loop());
            pin_to(&pinned, &[cpu]);
            pinned
        });
        let confined = Process::start(busy_loop());
        pin_to(&confined, &cpus);
        std::thread::sleep(Duration::from_secs(1));
        let before = involuntary(confined.pid());
        let seconds = length::of(5, 10);
        std::thread::sleep(Duration::from_secs(seconds));
        let got = involuntary(confined.pid()) - before;
        // It is overdue after 0.4 s, which is looked for every 0.1 s: two turns a second, on a machine that never stalls.
        assert!(got * 10 >= seconds * 12, "{got} turns in {seconds} s");
        scheduler.assert_starves_nobody();
        drop((launchers, others));
        scheduler.stop();
    });
}
