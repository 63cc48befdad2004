// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler that runs says of itself.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use scx_gpuaware::sched::stats::{Metrics, Totals};

use crate::process::{Process, busy_loop, eventually, gpu_launch};
use crate::tier;

use super::machine::{Scheduler, nr_cpus};

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
    if !tier::vm() {
        return;
    }
    let scheduler = Scheduler::start(&["--metrics", ADDRESS]);
    let _noise: Vec<_> = (0..2 * nr_cpus())
        .map(|_| Process::start(busy_loop()))
        .collect();
    let mut command = gpu_launch("--profile eager --duration 25");
    command.stdout(Stdio::null());
    let _workload = Process::start(command);
    // Marks are counted every ten seconds.
    let marks = "marks{class=\"launch\",source=\"uprobe\"}";
    let counted = eventually(Duration::from_secs(20), || {
        std::thread::sleep(Duration::from_millis(500));
        scrape().contains(marks).then_some(())
    });
    assert!(counted.is_some(), "{}", scrape());
    std::thread::sleep(Duration::from_secs(4));
    let page = scrape();
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
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_scrape_under_load_is_cheap() {
    if !tier::vm() {
        return;
    }
    const SCRAPES: u32 = 200;
    let scheduler = Scheduler::start(&["--metrics", ADDRESS]);
    let _noise: Vec<_> = (0..2 * nr_cpus())
        .map(|_| Process::start(busy_loop()))
        .collect();
    let cpu_time = || scheduler.process.cpu_time();
    scrape();
    let idle = cpu_time();
    std::thread::sleep(Duration::from_secs(5));
    let idle = (cpu_time() - idle) / 5;
    let (start, before) = (std::time::Instant::now(), cpu_time());
    for _ in 0..SCRAPES {
        scrape();
    }
    let own = idle.mul_f64(start.elapsed().as_secs_f64());
    let each = (cpu_time() - before).saturating_sub(own) / SCRAPES;
    eprintln!("a scrape took {each:?} of CPU; without scrapes {idle:?} a second");
    // 1 ms is the aim on a real machine; emulation is an order of magnitude slower.
    assert!(each < Duration::from_millis(15), "{each:?}");
    scheduler.stop();
}
