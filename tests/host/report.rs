// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-bench report --check` as CI calls it: figures that cannot be true fail it.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::bench::{Bench, ON_HOST, end_of, script_that};
use crate::process::repository;

/// The exit code, and all that it printed.
fn report(run: &Path, words: &[&str]) -> (i32, String) {
    let program = repository().join("target/release/gpuaware-bench");
    let output = Command::new(program)
        .arg("report")
        .arg(run)
        .args(words)
        .output()
        .expect("running report");
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().expect("an exit code");
    (code, String::from_utf8(text).expect("UTF-8"))
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).expect("a file of the run")).expect("JSON")
}

/// Gives a run on the quiet machine cells beside cpu noise, made by hand: of `plain` and of an arm `other` whose
/// launcher leaves four fifths of the CPUs that it leaves under `plain`. Its neighbours do `work` percent of the work.
fn with_neighbours(run: &Path, work: f64) {
    let mut plan = read(&run.join("plan.json"));
    let cpus = plan["cpus"].as_f64().expect("a count");
    plan["matrix"]["neighbours"] = json!(["none", "cpu"]);
    plan["matrix"]["arms"] = json!(["plain", "other"]);
    fs::write(run.join("plan.json"), plan.to_string()).unwrap();
    for round in 1..=3 {
        let mut cell = read(&run.join(format!("cells/r{round:02}-plain-none-w.json")));
        cell["neighbour"] = json!("cpu");
        for (arm, used, rate) in [("plain", 0.0, 100.0), ("other", 0.2 * cpus, work)] {
            cell["arm"] = json!(arm);
            let measurement = &mut cell["measurement"];
            let seconds = measurement["workload"]["seconds"].as_f64().unwrap();
            measurement["workload"]["cpu_s"] = json!({"user": used * seconds, "sys": 0.0});
            measurement["neighbours"] = json!([{"kind": "stress-ng", "rate": rate, "unit": "bogo-ops/s",
                "own_total": 1.0, "own_seconds": 1.0, "window_evidence": 1, "total_evidence": 1,
                "evidence_unit": "clock ticks of CPU time"}]);
            let file = run.join(format!("cells/r{round:02}-{arm}-cpu-w.json"));
            fs::write(file, cell.to_string()).unwrap();
        }
    }
}

#[test]
fn more_work_than_is_possible_fails_the_check_and_only_the_check() {
    let bench = Bench::new(&script_that(":"), "[\"none\"]", "");
    let run = bench.path("run");
    let words = [ON_HOST, &["--rounds", "3"]].concat();
    let (code, log) = end_of(bench.run(&run, &words));
    assert_eq!(code, 0, "{log}");

    with_neighbours(&run, 76.0);
    let (code, text) = report(&run, &["--check"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("Nobody's neighbours got more done"), "{text}");
    let markdown = fs::read_to_string(run.join("report.md")).unwrap();
    assert!(
        markdown.contains("| 76 [76–76] | 80 [80–80] | 95 [95–95] |"),
        "{markdown}"
    );

    with_neighbours(&run, 88.0);
    let (code, text) = report(&run, &["--check"]);
    assert_eq!(code, 1, "{text}");
    let expected = "Impossible: beside cpu, w: the neighbours of other got 110 [110–110] % of what was possible.";
    assert!(text.contains(expected), "{text}");
    let markdown = fs::read_to_string(run.join("report.md")).unwrap();
    let (_, checks) = markdown.split_once("\n## Checks\n").expect("a heading");
    assert!(
        checks.contains(expected) && checks.contains("Possible causes: "),
        "{checks}"
    );
    let (code, _) = report(&run, &[]);
    assert_eq!(code, 0, "nobody asked");
}
