// SPDX-License-Identifier: GPL-2.0-only
//! What real-time tasks do to those that are ours: a class above takes a CPU whenever it likes.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{Process, busy_loop, eventually};
use crate::tier;

use super::machine::{Scheduler, cpu_of, mark, mark_launch, pin, preferred_cpu};

/// For how long a real-time task has its CPU.
const TAKEN: Duration = Duration::from_secs(3);

/// Takes `cpu` from everybody else for [`TAKEN`], but for the twentieth that the kernel leaves.
fn take(cpu: usize) -> Process {
    // Whoever ends it must not wait for it, and it must not read its program when it is real-time.
    let mut command = Command::new("timeout");
    command.args([&TAKEN.as_secs().to_string(), "taskset", "-c"]);
    command.args([&cpu.to_string(), "sh", "-c"]);
    command.arg("chrt --fifo --pid 1 $$; while :; do :; done");
    Process::start(command)
}

/// What share of the time `process` runs while a real-time task has `cpu`.
fn share_while_taken(process: &Process, cpu: usize) -> f64 {
    let mut real_time = take(cpu);
    let (began, ran) = (Instant::now(), process.cpu_time());
    real_time.wait(4 * TAKEN);
    (process.cpu_time() - ran).as_secs_f64() / began.elapsed().as_secs_f64()
}

fn cpu_that_runs(process: &Process) -> usize {
    cpu_of(process.pid(), process.pid().into()).expect("it runs")
}

#[test]
#[ignore = "runs in the lab: make test"]
fn who_loses_a_cpu_to_a_real_time_task_goes_on_elsewhere() {
    tier::in_lab(|| {
        let scheduler = Scheduler::start(&[]);
        for class in [None, Some("handoff"), Some("launch")] {
            let spinner = Process::start(busy_loop());
            if let Some(class) = class {
                mark(spinner.pid(), class);
            }
            std::thread::sleep(Duration::from_millis(300));
            let share = share_while_taken(&spinner, cpu_that_runs(&spinner));
            assert!(share > 0.6, "{class:?} ran {:.0} % of it", share * 100.0);
        }
        scheduler.stop();
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_launcher_comes_back_from_where_a_real_time_task_drove_it() {
    tier::in_lab(|| {
        let scheduler = Scheduler::start(&[]);
        let launcher = Process::start(busy_loop());
        mark_launch(launcher.pid());
        let at_home = || (cpu_that_runs(&launcher) == preferred_cpu()).then_some(());
        eventually(Duration::from_secs(5), at_home).expect("on a preferred CPU");
        let mut real_time = take(preferred_cpu());
        eventually(TAKEN, || at_home().is_none().then_some(())).expect("driven away");
        real_time.wait(4 * TAKEN);
        eventually(Duration::from_secs(5), at_home).expect("back on a preferred CPU");
        scheduler.stop();
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_pinned_launcher_that_waits_for_a_real_time_task_disturbs_nobody_elsewhere() {
    tier::in_lab(|| {
        let scheduler = Scheduler::start(&[]);
        let launcher = Process::start(busy_loop());
        pin(&launcher, preferred_cpu());
        mark_launch(launcher.pid());
        let other = Process::start(busy_loop());
        std::thread::sleep(Duration::from_millis(300));
        let share = share_while_taken(&other, preferred_cpu());
        assert!(share > 0.6, "background ran {:.0} % of it", share * 100.0);
        // And it is served when the CPU is its own again.
        let ran = launcher.cpu_time();
        let served = || (launcher.cpu_time() - ran > Duration::from_secs(1)).then_some(());
        eventually(Duration::from_secs(10), served).expect("the launcher goes on");
        scheduler.stop();
    });
}
