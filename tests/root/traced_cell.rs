// SPDX-License-Identifier: GPL-2.0-only
//! Cells of a comparison with `trace`, from the matrix to the report or the simulator, and of a graph of stages.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::bench::{cell, run_here};
use crate::process::{alone_with_cuda, repository};
use crate::tier;

const MATRIX: &str = r#"
description = "a traced workload"
rounds = 1
# A window lies anywhere in two seconds: the second one in the first four.
seconds = 4.5
warmup_seconds = 0
neighbours = ["none"]
arms = ["eevdf"]
baseline = "eevdf"
subject = "eevdf"

[[workload]]
name = "qwen3"
profile = "qwen3"
warmup_tokens = 140
trace = "summary"
"#;

/// The cell of that matrix, whose run is in `out` in `folder`.
fn cell_of(matrix: &str, folder: &Path) -> serde_json::Value {
    let output = folder.join("out");
    fs::write(folder.join("traced.toml"), matrix).unwrap();
    let log = run_here("traced", folder, &output, |_| {});
    let cell = fs::read_to_string(output.join("cells/r01-eevdf-none-qwen3.json")).expect(&log);
    serde_json::from_str(&cell).unwrap()
}

#[test]
fn a_traced_cell_has_the_launchers_split_in_its_report() {
    if !tier::root() {
        return;
    }
    let _alone = alone_with_cuda();
    let folder = tempfile::tempdir().unwrap();
    let cell = cell_of(MATRIX, folder.path());
    let measured = &cell["measurement"];
    let launchers = &measured["trace"]["launchers"];
    let of = |name: &str| launchers[name].as_u64().unwrap();
    let whole = of("traced_ns");
    let parts = [
        "on_cpu_ns",
        "preempted_ns",
        "yielded_ns",
        "wakeup_wait_ns",
        "asleep_ns",
    ];
    let sum: u64 = parts.iter().map(|name| of(name)).sum();
    assert!(sum <= whole && sum * 100 > whole * 99, "{launchers}");
    // It waits for the GPU at each token, and does so asleep.
    let tokens = measured["workload"]["tokens"].as_u64().unwrap();
    assert!(
        tokens > 100 && of("blocked") > tokens,
        "{tokens}: {launchers}"
    );
    assert!(of("asleep_ns") > whole / 10, "{launchers}");
    assert!(of("launches") > 0, "a window met launches: {launchers}");
    let report = fs::read_to_string(folder.path().join("out/report.md")).unwrap();
    let table = report
        .split("What the launching threads' time went to")
        .nth(1);
    let table = table.expect("the table of traced cells");
    for part in ["Sched/1K", "asleep %", "qwen3"] {
        assert!(table.contains(part), "{part} in {table}");
    }
}

#[test]
fn a_recorded_cell_has_what_the_simulator_reads() {
    if !tier::root() {
        return;
    }
    let _alone = alone_with_cuda();
    let folder = tempfile::tempdir().unwrap();
    let matrix = MATRIX.replace("\"summary\"", "\"profile\"");
    let cell = cell_of(&matrix, folder.path());
    let profile = &cell["measurement"]["profile"];
    let groups = profile["groups"].as_array().expect("a profile");
    let launch = groups.iter().filter(|group| group["class"] == "launch");
    assert_eq!(launch.count(), 1, "{profile}");
    assert!(cell["measurement"]["trace"].is_null(), "{cell}");
    let file = folder.path().join("profile.json");
    fs::write(&file, profile.to_string()).unwrap();
    let simulator = repository().join("target/release/gpuaware-sim");
    let replayed = Command::new(simulator)
        .args(["run", "--profile"])
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&replayed.stderr);
    assert!(replayed.status.success(), "{said}");
}

#[test]
fn cells_of_a_graph_are_in_the_report_hand_over_by_hand_over() {
    if !tier::root() {
        return;
    }
    let _alone = alone_with_cuda();
    let folder = tempfile::tempdir().unwrap();
    let matrix = "description = \"d\"\nrounds = 1\nseconds = 1\nwarmup_seconds = 0\nneighbours = [\"none\"]\n\
                  arms = [\"eevdf\"]\nbaseline = \"eevdf\"\nsubject = \"eevdf\"\n\
                  [[workload]]\nname = \"wc\"\nprogram = \"pipeline\"\ngraph = \"windflow-wc\"\n\
                  [[sweep]]\nworkloads = [\"wc\"]\nset = [\"stage.aggreg.threads\"]\nvalues = [1, 2]\n\
                  label = \"replicas\"\n";
    fs::write(folder.path().join("graph.toml"), matrix).unwrap();
    let output = folder.path().join("out");
    let log = run_here("graph", folder.path(), &output, |_| {});
    let report = fs::read_to_string(output.join("report.md")).unwrap();
    for words in [
        "source → flatmap ms",
        "flatmap → aggreg ms",
        "aggreg → sink ms",
    ] {
        assert_eq!(report.matches(words).count(), 2, "{words}: {report}");
    }
    for threads in [1, 2] {
        let name = format!("r01-eevdf-none-wc-{threads}");
        let cell: serde_json::Value =
            serde_json::from_str(&cell(&output, &name).expect(&name)).unwrap();
        let measured = &cell["measurement"]["workload"];
        assert_eq!(measured["workload"], "pipeline", "{cell}");
        assert!(measured["items_per_s"].as_f64() > Some(0.0), "{measured}");
    }
    let entries = fs::read_dir(&output).unwrap().flatten();
    let mut names = entries.map(|entry| entry.file_name().into_string().unwrap());
    assert!(names.any(|name| name.starts_with("lines-")), "{log}");
}
