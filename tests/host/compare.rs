// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench compare` as CI calls it: what it says, and how it exits.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::{Bench, ON_HOST, end_of, script_that};
use crate::process::repository;

/// A run of three rounds of a workload that reports so many tokens/s.
fn measured(bench: &Bench, name: &str, words: &[&str]) -> PathBuf {
    let output = bench.path(name);
    let words = [ON_HOST, &["--rounds", "3"], words].concat();
    let (code, log) = end_of(bench.run(&output, &words));
    assert_eq!(code, 0, "{log}");
    output
}

fn at_speed(tokens_per_s: u32) -> Bench {
    let script = script_that(":");
    let report = format!("\"tokens_per_s\":{tokens_per_s},");
    let changed = script.replace("\"tokens_per_s\":1,", &report);
    assert_ne!(script, changed);
    Bench::new(&changed, "[\"none\"]", "")
}

/// The exit code, and all that it printed.
fn compare(before: &Path, after: &Path, words: &[&str]) -> (i32, String) {
    let program = repository().join("target/release/gpuaware-bench");
    let output = Command::new(program)
        .arg("compare")
        .args([before, after])
        .args(words)
        .output()
        .expect("running compare");
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().expect("an exit code");
    (code, String::from_utf8(text).expect("UTF-8"))
}

#[test]
fn what_is_slower_fails_and_what_is_faster_or_the_same_does_not() {
    let (fast, slow) = (at_speed(100), at_speed(50));
    let (fast, slow) = (measured(&fast, "fast", &[]), measured(&slow, "slow", &[]));
    let speed = |text: &str| {
        let line = text.lines().find(|line| line.contains("tokens/s"));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    };

    let (code, text) = compare(&fast, &slow, &[]);
    assert_eq!(code, 1, "{text}");
    assert!(speed(&text).contains("0.500 [0.500–0.500]"), "{text}");
    assert!(speed(&text).ends_with("WORSE"), "{text}");
    assert!(text.contains("\n1 of 2 became worse, 0 better; "), "{text}");
    // Tokens/s, p50, idle; one token is too few for a p99. Idle time is what it is.
    assert!(
        text.contains(" 95 % intervals in the two reports overlap: "),
        "{text}"
    );

    let (code, text) = compare(&slow, &fast, &["--gate", "5"]);
    assert_eq!(code, 0, "{text}");
    assert!(speed(&text).ends_with("better"), "{text}");
    assert!(
        text.contains("with no change at all, 5 % of the runs"),
        "{text}"
    );

    let (code, text) = compare(&fast, &fast, &["--arms", "all"]);
    assert_eq!(code, 0, "{text}");
    assert!(speed(&text).ends_with("the same within 2 %"), "{text}");
    assert!(text.contains("overlap: 100.0 %."), "{text}");
}

#[test]
fn where_nothing_can_be_judged_that_is_no_success() {
    let bench = at_speed(100);
    let output = bench.path("two");
    let words = [ON_HOST, &["--rounds", "2"]].concat();
    let (code, log) = end_of(bench.run(&output, &words));
    assert_eq!(code, 0, "{log}");
    let (code, text) = compare(&output, &output, &[]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("error: nothing could be judged"), "{text}");
    assert!(text.contains("run both with --rounds 3 or more"), "{text}");
}

#[test]
fn what_cannot_be_compared_is_bad_usage() {
    let bench = at_speed(100);
    let run = measured(&bench, "run", &[]);
    let longer = measured(&bench, "longer", &["--seconds", "2"]);

    let (code, text) = compare(&run, &longer, &[]);
    assert_eq!(code, 2, "{text}");
    let expected =
        "error: the runs were not measured alike:\n  seconds of a cell: 1 before, 2 after\n";
    assert!(text.contains(expected), "{text}");
    let (code, text) = compare(&run, &longer, &["--anyway"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("warning: seconds of a cell: 1 before, 2 after"),
        "{text}"
    );

    let (code, text) = compare(&run, &run, &["--arms", "other"]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("--arms: expected arms of both runs, \"other\" is not in"),
        "{text}"
    );
    let (code, text) = compare(&run, &bench.path("matrices"), &[]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("holds no run: no plan.json in it"), "{text}");
    let (code, text) = compare(&run, &run, &["--gate", "0"]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("expected percent above 0, up to 50, got \"0\""),
        "{text}"
    );
}
