// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler that runs says of itself.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use scx_gpuaware::sched::stats::{Metrics, Totals};

use crate::process::{Process, busy_loops, code, eventually, gpu_launch, scx_gpuaware};
use crate::{length, tier};

use super::known::{hinting, named_shell};
use super::machine::{Scheduler, launching_threads, nr_cpus};

const ADDRESS: &str = "127.0.0.1:9819";

/// The page, as Prometheus gets it.
fn scrape() -> String {
    let mut stream = TcpStream::connect(ADDRESS).expect("the page");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("asking");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer
}

/// The value of a line of the page.
fn value(page: &str, line: &str) -> f64 {
    let line = format!("scx_gpuaware_{line} ");
    let found = page.lines().find_map(|found| found.strip_prefix(&line));
    let text = found.unwrap_or_else(|| panic!("{line} in {page}"));
    text.parse().expect("a number")
}

fn totals() -> Metrics {
    let mut totals = Totals::connect().expect("the statistics server");
    totals.read().expect("statistics")
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_launcher_beside_noise_is_counted_where_it_belongs() {
    tier::in_lab(|| {
        let scheduler = Scheduler::start(&["--metrics", ADDRESS]);
        let mut command = gpu_launch("--profile eager --duration 90");
        command.stdout(Stdio::null());
        let workload = Process::start(command);
        launching_threads(workload.pid(), 1);
        // After it: beside them it would take a quarter of a minute to its first launch.
        let _noise = busy_loops(2 * nr_cpus());
        let marks = "marks{class=\"launch\",source=\"uprobe\"}";
        // For the first one who asks they are counted at once.
        let first = scrape();
        assert!(first.contains(marks), "{first}");
        std::thread::sleep(Duration::from_secs(4));
        let page = scrape();
        check_with_promtool(&page);
        assert_eq!(value(&page, marks), 1.0);
        let launch = |name: &str| value(&page, &format!("{name}{{class=\"launch\"}}"));
        let wakeups = launch("wakeup_wait_seconds_count");
        assert!(
            wakeups > 100.0 && launch("preemptions_total") > 0.0,
            "{page}"
        );
        let mean = launch("wakeup_wait_seconds_sum") / wakeups;
        let worst = launch("worst_wait_seconds");
        assert!(mean > 0.0 && mean < worst && worst < 5.0, "{mean} {worst}");
        let run = |class: &str, cpus: &str| {
            value(
                &page,
                &format!("run_seconds_total{{class=\"{class}\",cpus=\"{cpus}\"}}"),
            )
        };
        assert!(run("launch", "preferred") > 10.0 * run("launch", "other"));
        assert!(run("background", "other") > 1.0 && run("background", "preferred") > 0.0);
        let background = |name: &str| value(&page, &format!("{name}{{class=\"background\"}}"));
        assert!(
            background("tasks_runnable") >= 2.0 * nr_cpus() as f64 - 1.0,
            "{page}"
        );
        assert!(background("preempted_total") > 0.0, "{page}");
        assert!(value(&page, "cpu_irq_seconds_total{cpu=\"0\",kind=\"soft\"}") > 0.0);
        assert_eq!(value(&page, "probed_libraries"), 1.0);
        assert!(value(&page, "hold_waste_seconds_total") <= value(&page, "hold_seconds_total"));

        // The kernel says the same of all CPUs together.
        let totals = totals();
        let run_us: u64 = totals.classes.values().map(|class| class.run_us()).sum();
        assert!(
            run_us > 5_000_000 && totals.policy_generation == 1,
            "{run_us}"
        );
        scheduler.stop();
    });
}

/// Prometheus's own checker.
fn check_with_promtool(answer: &str) {
    let (_, page) = answer.split_once("\r\n\r\n").expect("a body");
    let Some(promtool) = tier::promtool() else {
        return;
    };
    let mut checker = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    let mut stdin = checker.stdin.take().expect("a pipe");
    stdin.write_all(page.as_bytes()).expect("the page");
    drop(stdin);
    let output = checker.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
#[ignore = "runs in the lab: make test"]
fn sightings_that_do_not_count_are_counted_once() {
    tier::in_lab(|| {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy.toml");
        std::fs::write(&policy, "[guard]\ntrust_uids = [12345]\n").unwrap();
        let scheduler =
            Scheduler::start(&["--metrics", ADDRESS, "--policy", policy.to_str().unwrap()]);
        let refused = || value(&scrape(), "sightings_refused_total");
        let hints: Vec<_> = (1..=3)
            .map(|count| {
                let mut hint = Process::start(hinting("handoff"));
                // Its start takes a loaded lab 15 s.
                hint.wait_for_line("hinted: True");
                let seen = eventually(|| (refused() >= f64::from(count)).then_some(()));
                assert!(seen.is_some(), "{count} hints, {} refused", refused());
                hint
            })
            .collect();
        assert_eq!(refused(), 3.0, "each hint counts once");
        let mut command = gpu_launch("--profile eager --duration 90");
        command.stdout(Stdio::null());
        let _workload = Process::start(command);
        let marks = "marks{class=\"background\",source=\"refused\"}";
        let shown = eventually(|| {
            std::thread::sleep(Duration::from_millis(500));
            scrape().contains(marks).then_some(())
        });
        assert!(shown.is_some(), "{}", scrape());
        assert!(refused() > 3.0);
        drop(hints);
        scheduler.stop();
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn the_monitor_prints_what_the_scheduler_reports() {
    tier::in_lab(|| {
        // Seldom enough that what is printed fits a pipe, which is read at the end.
        const EVERY: &str = "0.5";
        let monitor = |args: &[&str]| {
            let mut command = scx_gpuaware(args);
            command.stdout(Stdio::piped());
            Process::start(command)
        };
        let mut alone = monitor(&["--monitor", EVERY]);
        let status = alone.wait();
        assert_eq!(code(status), 1);
        assert!(
            alone.log.concat().contains("does not run"),
            "{:?}",
            alone.log
        );

        let folder = tempfile::tempdir().expect("a folder");
        let policy = folder.path().join("policy.toml");
        let rule = "[class.launch]\nmatch = [{ comm = \"monitored\" }]\n";
        std::fs::write(&policy, rule).expect("writing the policy");
        // There before anybody asks: marks are counted at the first question, and then every thirty seconds.
        let mut command = Command::new(named_shell(folder.path(), "monitored"));
        command.args(["-c", "while :; do :; done"]);
        let _launcher = Process::start(command);
        let mut scheduler = monitor(&[
            "--stats",
            EVERY,
            "--policy",
            policy.to_str().expect("UTF-8"),
        ]);
        scheduler.wait_for_line("attached");
        let mut beside = monitor(&["--monitor", EVERY]);
        // Until both have printed more often than is asked for.
        std::thread::sleep(Duration::from_secs(5));
        scheduler.signal(Signal::SIGINT);
        assert_eq!(code(scheduler.wait()), 0);
        let status = beside.wait();
        assert_eq!(code(status), 1, "a monitor ends with its scheduler");
        assert!(
            beside.log.concat().contains("has ended"),
            "{:?}",
            beside.log
        );
        for printed in [scheduler.stdout(), beside.stdout()] {
            let lines = |start: &str| {
                printed
                    .lines()
                    .filter(|line| line.starts_with(start))
                    .count()
            };
            for start in [
                "launch:",
                "handoff:",
                "background:",
                "holds:",
                "interrupts:",
                "probes:",
                "policy: generation 1, 0 refused",
            ] {
                assert!(lines(start) >= 5, "{start} in {printed}");
            }
            assert!(lines("marks: 1 launch by rule") >= 5, "{printed}");
            let ran = |line: &str| line.contains("launch:") && !line.contains("     0 ms run");
            assert!(printed.lines().any(ran), "{printed}");
        }
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_scrape_under_load_is_cheap() {
    tier::in_lab(|| {
        const INTERVAL: Duration = Duration::from_millis(500);
        let scrapes = length::of(4, 8);
        let scheduler = Scheduler::start(&["--metrics", ADDRESS]);
        let _noise = busy_loops(2 * nr_cpus());
        // Counts marks, which is no part of a scrape and is done again after half a minute: when all is over.
        scrape();
        let rest = INTERVAL * scrapes;
        let idle = cpu_times_over(&scheduler, || std::thread::sleep(rest));
        let start = Instant::now();
        let loaded = cpu_times_over(&scheduler, || {
            for _ in 0..scrapes {
                scrape();
                std::thread::sleep(INTERVAL);
            }
        });
        let time = start.elapsed().as_secs_f64() / rest.as_secs_f64();
        let each: BTreeMap<_, _> = loaded
            .into_iter()
            .map(|(name, total)| {
                let own = idle.get(&name).copied().unwrap_or_default().mul_f64(time);
                (name, total.saturating_sub(own) / scrapes)
            })
            .collect();
        let sum: Duration = each.values().sum();
        eprintln!("a scrape took {sum:?} of CPU, by thread {each:?}");
        // 1 ms is the aim on a real machine; emulation is an order of magnitude slower, and never the same twice.
        assert!(sum < Duration::from_millis(100), "{each:?}");
        scheduler.stop();
    });
}

/// CPU time that the scheduler's threads take for `work`, by their names.
fn cpu_times_over(scheduler: &Scheduler, work: impl FnOnce()) -> BTreeMap<String, Duration> {
    let tasks = format!("/proc/{}/task", scheduler.process.pid());
    let now = || -> BTreeMap<String, Duration> {
        let mut times = BTreeMap::new();
        for task in std::fs::read_dir(&tasks).expect("its threads").flatten() {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file));
            let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else {
                continue;
            };
            let ran = stat.split(' ').next().expect("the time that it ran");
            let ran = Duration::from_nanos(ran.parse().expect("nanoseconds"));
            *times.entry(name.trim().to_owned()).or_default() += ran;
        }
        times
    };
    let before = now();
    work();
    let mut times = now();
    for (name, time) in &mut times {
        *time = time.saturating_sub(before.get(name).copied().unwrap_or_default());
    }
    times
}
