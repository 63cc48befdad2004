// SPDX-License-Identifier: GPL-2.0-only
//! Hand-made traces, each figure computed by hand.

mod legacy;
mod native;
mod reports;

use super::figures::Analysis;
use super::read::LEGACY_HEADER;
use super::{About, analyze};

/// A row of cuda_sched_trace; `us` is its time in microseconds, `rest` what follows the CPU.
fn row(us: u64, event: &str, rest: &str) -> String {
    format!("{},{event},100,100,runcu,3,{rest}\n", us * 1000)
}

fn launch(us: u64) -> String {
    row(us, "cuLaunchKernel", "1,1,1,32,1,1,0,0x0,0,0")
}

fn off(us: u64) -> String {
    row(us, "schedSwitch", &format!(",,,,,,,,{},0", 700_000 + us))
}

fn on(us: u64) -> String {
    row(us, "schedSwitch", &format!(",,,,,,,,0,{}", 700_000 + us))
}

fn irq(us: u64, event: &str, number: u32, name: &str, duration_ns: u64) -> String {
    row(
        us,
        event,
        &format!(",,,,,,,,,,{number},{name},{duration_ns}"),
    )
}

/// Eight launches in 40 ms: bursts of four and of three, both pauses 15 ms long.
fn legacy() -> String {
    let mut text = format!("{LEGACY_HEADER}\n");
    for us in [0, 2, 4, 6] {
        text += &launch(us);
    }
    text += &(off(10) + &on(38));
    text += &(launch(15_006) + &launch(15_010) + &off(15_011) + &on(15_013) + &launch(15_014));
    // A hard interrupt nested in a soft one: the tracer forgets when the soft one began, and says
    // 8 µs instead of 10.
    text += &irq(20_000, "softirqEntry", 3, "NET_RX", 0);
    text += &irq(20_002, "hardirqEntry", 17, "eth0", 0);
    text += &irq(20_006, "hardirqExit", 17, "eth0", 4000);
    text += &irq(20_010, "softirqExit", 3, "NET_RX", 8000);
    text += &launch(30_014);
    text += &irq(39_998, "softirqEntry", 1, "TIMER", 0);
    text + &irq(40_000, "softirqExit", 1, "TIMER", 2000)
}

fn about(tokens: Option<f64>) -> About {
    About {
        file: "t.csv".to_owned(),
        label: "t".to_owned(),
        tokens,
        tokens_per_s: None,
    }
}

fn analysis(text: &str) -> Analysis {
    analyze(&about(Some(2.0)), text.as_bytes()).unwrap()
}

#[track_caller]
fn near(found: f64, expected: f64) {
    let tolerance = 1e-9 * expected.abs().max(1e-9);
    assert!(
        (found - expected).abs() <= tolerance,
        "{found}, expected {expected}"
    );
}

#[test]
fn what_the_fuzzer_begins_with_are_traces_without_a_bad_row() {
    for text in [
        include_str!("../../../../tests/data/traces/cuda_sched_trace.csv"),
        include_str!("../../../../tests/data/traces/ours.csv"),
        include_str!("../../../../tests/data/traces/ours.ndjson"),
    ] {
        let source = analysis(text).source;
        assert_eq!(source.malformed, 0, "{:?}", source.problems);
    }
}
