// SPDX-License-Identifier: GPL-2.0-only
//! What is counted in the kernel, beside what the program of known behaviour counts.

use std::process::Stdio;
use std::time::Duration;

use super::known::{self, command};
use super::{MOST_UNSHOWN, alone, assert_close, assert_close_but_for};
use crate::disturbed::unless_disturbed;
use crate::process::{Process, busy_loop, code, gpu_launch, lab_folder, scx_gpuaware};

/// The summary of these phases, and what they say themselves.
fn summary(flags: &str, phases: &str) -> (serde_json::Value, Vec<known::Phase>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("summary.json");
    let flags = format!("--format json {flags}");
    let output = command(&flags, &file, phases).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output.status), 0, "{log}");
    let summary = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let phases = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    (summary, phases)
}

/// One thread of a summary.
struct Seen<'a>(&'a serde_json::Value);

impl<'a> Seen<'a> {
    fn of(summary: &'a serde_json::Value, phase: &known::Phase) -> Self {
        let threads = summary["threads"].as_array().unwrap();
        let found = threads.iter().find(|thread| thread["tid"] == phase.tid);
        Self(found.unwrap())
    }

    fn counter(&self, name: &str) -> u64 {
        self.0["counters"][name].as_u64().unwrap()
    }

    fn sum(&self, names: &[&str]) -> u64 {
        names.iter().map(|name| self.counter(name)).sum()
    }

    fn buckets(&self, name: &str) -> Vec<u64> {
        let buckets = self.0["histograms"][name]["buckets"].as_array().unwrap();
        buckets
            .iter()
            .map(|count| count.as_u64().unwrap())
            .collect()
    }

    fn observed(&self, name: &str) -> u64 {
        self.buckets(name).iter().sum()
    }

    /// Values that are from half of to twice `ns`, a power of 2.
    fn observed_near(&self, name: &str, ns: u64) -> u64 {
        let at = ns.ilog2() as usize;
        self.buckets(name)[at..at + 2].iter().sum()
    }
}

/// All of `count` sleeps are near 8 ms, but for those that the program knows were woken late, and for one in fifty at the
/// limit, where its clock and the tracer's may differ.
fn assert_as_long(seen: &Seen<'_>, name: &str, phase: &known::Phase, count: u64) {
    assert!(phase.late_sleeps < count / 5, "{phase:?}");
    let least = count - phase.late_sleeps - count / 50;
    let near = seen.observed_near(name, 1 << 23);
    assert!(near >= least, "{near} of {least} {name}: {}", seen.0);
}

const OFF: [&str; 5] = [
    "preempted_ns",
    "yielded_ns",
    "asleep_ns",
    "wakeup_wait_ns",
    "unknown_ns",
];

#[test]
fn a_summary_accounts_for_all_of_a_threads_time() {
    let Some(_alone) = alone() else { return };
    unless_disturbed(|| {
        // The kernel looks at its clock some 40 ns before the switch, which is 0.9 % of waits for 5 us.
        let (summary, phases) = summary("", "block:300:8000 hog:3000 yield:2000:20000");
        // What the kernel does not show is missing there: see `MOST_UNSHOWN`.
        let missed = summary["end"]["missed"].as_u64().unwrap();
        assert!(missed <= MOST_UNSHOWN, "{missed}");
        for phase in &phases {
            let seen = Seen::of(&summary, phase);
            let sum = seen.counter("on_cpu_ns") + seen.sum(&OFF);
            assert_close(sum, seen.0["traced_ns"].as_u64().unwrap(), "all its time");
            let unknown_ns = seen.counter("unknown_ns");
            assert!(missed > 0 || unknown_ns == 0, "{unknown_ns}: {}", seen.0);
            // The thread does a little more than its phase: it starts, prints and ends.
            let [preempted, yielded, blocked] =
                ["preempted", "yielded", "blocked"].map(|name| seen.counter(name));
            assert!(
                (phase.nvcsw..phase.nvcsw + 20).contains(&blocked),
                "{phase:?} {blocked}"
            );
            let others = preempted + yielded;
            assert!(
                (phase.nivcsw..phase.nivcsw + 20).contains(&others),
                "{phase:?} {others}"
            );
            // Each switch is in a histogram; its end is no sleep, and its start is a wait.
            for (name, wanted) in [
                ("on_cpu", blocked + others),
                ("preempted", preempted),
                ("yielded", yielded),
                ("asleep", blocked - 1),
                ("wakeup_wait", blocked),
            ] {
                let observed = seen.observed(name);
                assert!(
                    observed.abs_diff(wanted) <= missed,
                    "{name}: {observed} of {wanted}"
                );
            }
        }
        let [block, hog, yields] = [0, 1, 2].map(|at| Seen::of(&summary, &phases[at]));
        // As the program and the kernel have it, not only in the sum.
        assert_eq!((block.counter("yielded"), hog.counter("yielded")), (0, 0));
        // Where a switch is missing, it slept nearly all of the time; those that wait did so for a part of it.
        let slept_ns = block.sum(&["asleep_ns", "wakeup_wait_ns", "preempted_ns", "unknown_ns"]);
        assert_close_but_for(
            slept_ns,
            phases[0].asleep_ns,
            phases[0].steal_ns,
            "time in sleeps",
        );
        // A host that stops the CPU within a switch does so on one side of the kernel's clock and on the other of the tracer's.
        assert_close_but_for(
            hog.counter("preempted_ns"),
            phases[1].wait_ns,
            phases[1].steal_ns + hog.counter("unknown_ns"),
            "time preempted",
        );
        assert_close(
            yields.counter("yielded"),
            phases[2].yields_switched,
            "switches in sched_yield",
        );
        let waited_ns = yields.sum(&["yielded_ns", "preempted_ns"]);
        let short_ns = phases[2].wait_ns as f64 - waited_ns as f64;
        println!(
            "waits are {:.0} ns shorter than the kernel's",
            short_ns / phases[2].nivcsw as f64
        );
        assert_close_but_for(
            waited_ns,
            phases[2].wait_ns,
            phases[2].steal_ns + yields.counter("unknown_ns"),
            "time yielded",
        );
        // Sleeps of 8 ms and a little: between 4.19 and 16.8 ms.
        assert_as_long(&block, "asleep", &phases[0], 300);
    });
}

#[test]
fn no_thread_of_many_that_end_at_once_is_missed() {
    let Some(_alone) = alone() else { return };
    let (summary, _) = summary("", "crowd:3000");
    let missed = &summary["end"]["missed_by"];
    assert_eq!(missed["no_memory"], serde_json::Value::Null, "{missed}");
    let threads = summary["threads"].as_array().unwrap();
    // With the main thread and that of the phase.
    assert_eq!(threads.len(), 3002);
}

#[test]
fn a_summary_says_who_preempted_and_which_interrupts() {
    let Some(_alone) = alone() else { return };
    let (summary, phases) = summary("", "hog:1000 udp:300");
    let of_process = &summary["threads"][0]["tgid"];
    let total = |table: &str, is: &dyn Fn(&serde_json::Value) -> bool| -> u64 {
        let rows = summary[table].as_array().unwrap();
        let rows = rows.iter().filter(|row| is(row));
        rows.map(|row| row["count"].as_u64().unwrap()).sum()
    };
    let totals = Seen(&summary["totals"]);
    let all = total("preemptors", &|row| row["victim_tgid"] == *of_process);
    // Blame is laid when it runs again, and a preemption is counted before: see `MOST_UNSHOWN`.
    let missed = summary["end"]["missed"].as_u64().unwrap();
    assert!(missed <= MOST_UNSHOWN, "{missed}");
    let preempted = totals.counter("preempted");
    assert!(all.abs_diff(preempted) <= missed, "{all} of {preempted}");
    // The thread that was started to preempt has its starter's name.
    let by_hog = total("preemptors", &|row| row["comm"] == "hog");
    let victim = Seen::of(&summary, &phases[0]).counter("preempted");
    assert!(by_hog > 50 && by_hog * 2 > victim, "{by_hog} of {victim}");
    for (kind, counter) in [
        ("hard_irq", "hard_irqs"),
        ("soft_irq", "soft_irqs"),
        ("vector_irq", "vector_irqs"),
    ] {
        let counted = total("interrupts", &|row| row["kind"] == kind);
        assert_eq!(counted, totals.counter(counter), "{kind}");
    }
    let net = total("interrupts", &|row| row["name"] == "NET_RX");
    assert!(net >= phases[1].datagrams * 99 / 100, "{net}");
}

#[test]
fn a_summary_says_what_the_time_between_launches_was_lost_to() {
    let Some(_alone) = alone() else { return };
    unless_disturbed(|| {
        // Each launch but the first has a sleep before it.
        let (lagging, phases) = summary("--all-launches", "lag:200:8000");
        let seen = Seen::of(&lagging, &phases[0]);
        assert_eq!(seen.sum(&["launches", "graph_launches"]), 200);
        assert_eq!(seen.counter("intervals_disturbed"), 199);
        assert_eq!(seen.counter("intervals_calm"), 0);
        assert_eq!(seen.counter("bursts"), 0, "8 ms are between two launches");
        assert_as_long(&seen, "interval_disturbed", &phases[0], 199);
        let lost = seen.sum(&[
            "interval_asleep_ns",
            "interval_wakeup_wait_ns",
            "interval_preempted_ns",
        ]);
        assert_close(
            lost,
            phases[0].asleep_ns / 200 * 199,
            "lost between launches",
        );
        let per_1k = seen.0["switches_per_1k_launches"].as_f64().unwrap();
        let wanted = seen.counter("window_switches") as f64 * 5.0;
        assert!((per_1k - wanted).abs() < 1e-6, "{per_1k} {wanted}");
        assert!(seen.counter("window_switches") >= 200);
        // These have none.
        let (busy, phases) = summary("--all-launches", "launch:2000");
        let seen = Seen::of(&busy, &phases[0]);
        let disturbed = seen.counter("intervals_disturbed");
        assert!(disturbed < 50, "{disturbed}");
        assert_eq!(seen.counter("intervals_calm"), 1999 - disturbed);
        assert_eq!(seen.observed("interval_calm"), 1999 - disturbed);
        let [bursts, launches] = ["bursts", "burst_launches"].map(|name| seen.counter(name));
        // What is shorter than 66 µs is within a burst, unless it stands alone between longer ones.
        let of = |name| seen.buckets(name)[..=16].iter().sum::<u64>();
        let short = of("interval_calm") + of("interval_disturbed");
        let longer = 1999 - short;
        let counted = format!("{bursts} bursts of {launches}, {short} short");
        assert!(
            launches + longer + 1 >= short && launches <= 2000,
            "{counted}"
        );
        assert!(launches >= 3 * bursts && bursts <= longer + 1, "{counted}");
        assert!(seen.counter("bursts_disturbed") <= disturbed.min(bursts));
    });
}

#[test]
fn launches_in_windows_estimate_all() {
    let Some(_alone) = alone() else { return };
    const LAUNCHES: f64 = 30_000.0;
    let mut errors = Vec::new();
    for _ in 0..3 {
        // One in 100 µs for three seconds: a window has 200.
        let (summary, phases) = summary("--window-ms 20 --every-ms 100", "pace:30000:100000");
        let seen = Seen::of(&summary, &phases[0]);
        let counted = seen.counter("launches") as f64;
        assert!(counted < LAUNCHES / 2.0, "{counted}");
        let estimate = seen.0["launches_estimate"].as_f64().unwrap();
        let error = seen.0["launches_standard_error"].as_f64().unwrap();
        eprintln!("~{estimate:.0} ±{error:.0} of {LAUNCHES}");
        // The standard error is of how windows differ. It does not see that the thread lives a little longer than
        // it launches.
        let most = 4.0 * error + 0.02 * LAUNCHES;
        assert!((estimate - LAUNCHES).abs() < most, "{estimate} ±{error}");
        errors.push(error);
        if error < 0.1 * LAUNCHES {
            return;
        }
        // A thread that was held up catches up, within a window it may be: these do differ then.
    }
    panic!("no estimate is good: {errors:?}");
}

#[test]
fn without_a_target_whoever_launches_is_traced() {
    let Some(_alone) = alone() else { return };
    let bystander = Process::start(busy_loop());
    let mut workload = gpu_launch("--profile eager --duration 60");
    workload
        .stdout(Stdio::null())
        .env("LD_LIBRARY_PATH", lab_folder());
    let workload = Process::start(workload);
    std::thread::sleep(Duration::from_millis(300));
    let output = scx_gpuaware(&[
        "trace",
        "--duration",
        "2",
        "--format",
        "json",
        "--every-ms",
        "200",
    ])
    .output()
    .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output.status), 0, "{log}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let threads = summary["threads"].as_array().unwrap();
    let traced = |pid: i32| threads.iter().any(|thread| thread["tgid"] == pid);
    assert!(
        traced(workload.pid()) && !traced(bystander.pid()),
        "{summary:#}"
    );
    let launcher = &threads[0];
    let counted = launcher["counters"]["launches"].as_f64().unwrap();
    let fraction = summary["sampled_fraction"].as_f64().unwrap();
    // One window of 3 ms at least; how many more, and how long each is, is the machine's to say.
    assert!(
        counted > 0.0 && (0.001..0.3).contains(&fraction),
        "{counted} in {fraction}"
    );
    let estimate = launcher["launches_estimate"].as_f64().unwrap();
    let of_its_time =
        launcher["sampled_ns"].as_f64().unwrap() / launcher["traced_ns"].as_f64().unwrap();
    assert!((estimate - counted / of_its_time).abs() < 1.0);
}
