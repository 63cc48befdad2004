// SPDX-License-Identifier: GPL-2.0-only
//! Keeping a CPU idle for a launcher that is about to come back.

use std::process::Stdio;
use std::time::Duration;

use scx_gpuaware::sched::stats::Totals;

use crate::process::{Process, busy_loops, gpu_launch};
use crate::tier;

use super::machine::{launching_threads, nr_cpus};
use super::shared::Reloadable;

const MEASURED: Duration = Duration::from_secs(2);

/// What a launcher that sleeps for about 0.7 ms a token had beside busy loops.
#[derive(Debug)]
struct Held {
    wakeups: u64,
    holds: u64,
    /// CPU time idle while others waited.
    waste: Duration,
}

/// What it has in the time that is measured, once its sleeps are learned.
fn held() -> Held {
    std::thread::sleep(Duration::from_secs(1));
    let mut totals = Totals::connect().expect("the statistics server");
    let before = totals.read().expect("statistics");
    std::thread::sleep(MEASURED);
    let after = totals.read().expect("statistics");
    Held {
        wakeups: after.launch_wakeups - before.launch_wakeups,
        holds: after.holds - before.holds,
        waste: Duration::from_micros(after.hold_waste_us - before.hold_waste_us),
    }
}

fn holding(hold_us: &str) -> String {
    format!("[preferred]\nhold_us = {hold_us}\n")
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_cpu_is_held_for_sleeps_as_long_as_the_policy_says() {
    tier::in_lab(|| {
        let mut reloadable = Reloadable::start(&holding("0"));
        let mut command = gpu_launch("--profile eager --duration 60");
        command.stdout(Stdio::null());
        let workload = Process::start(command);
        launching_threads(workload.pid(), 1);
        // After it: as background beside them it would take a quarter of a minute to its first launch.
        let _neighbours = busy_loops(2 * nr_cpus());
        let never = held();
        assert!(never.wakeups > 100, "{never:?}");
        assert_eq!((never.holds, never.waste), (0, Duration::ZERO), "{never:?}");

        reloadable.change(&holding("20000"), "generation 2 is in force");
        let always = held();
        assert!(always.wakeups > 100, "{always:?}");
        assert!(always.holds * 10 > always.wakeups * 8, "{always:?}");
        // A sleep in three milliseconds, most of it.
        assert!(always.waste > MEASURED / 20, "{always:?}");

        // Others make use of 0.7 ms.
        reloadable.change(&holding("\"auto\""), "generation 3 is in force");
        let short_ones = held();
        assert!(short_ones.wakeups > 100, "{short_ones:?}");
        assert!(short_ones.holds * 10 < short_ones.wakeups, "{short_ones:?}");
        assert!(short_ones.waste < MEASURED / 200, "{short_ones:?}");
        reloadable.scheduler.stop();
    });
}
