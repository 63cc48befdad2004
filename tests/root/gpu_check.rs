// SPDX-License-Identifier: GPL-2.0-only
//! `bench/gpu-check.sh` on the emulated driver: everything that it asks a genuine one.

use std::process::Command;

use serde_json::Value;

use crate::process::{alone_with_cuda, repository};
use crate::tier;

fn gpu_check(args: &[&str]) -> Command {
    let mut command = Command::new(repository().join("bench/gpu-check.sh"));
    command.args(args);
    command
}

/// Whether one of the marks is of a thread of this name and class.
fn has(marks: &Value, comm: &str, class: &str) -> bool {
    let marks = marks.as_array().expect("marks");
    marks
        .iter()
        .any(|mark| mark["comm"] == comm && mark["class"] == class)
}

#[test]
fn every_part_of_the_check_works_on_the_emulated_driver() {
    if !tier::root() {
        return;
    }
    let _alone = alone_with_cuda();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let output = gpu_check(&["--emulated", "--quick", "-o"])
        .arg(&file)
        .output()
        .expect("bench/gpu-check.sh");
    let said = String::from_utf8_lossy(&output.stderr);
    let text = std::fs::read_to_string(&file).expect(&said);
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(result["failed"], serde_json::json!({}), "{said}");
    assert!(output.status.success(), "{said}");

    for (name, point) in result["driver"]["entry_points"]
        .as_object()
        .expect("points")
    {
        assert_eq!(point["get_proc_address_gives_the_same"], true, "{name}");
    }
    let marks = &result["identification"]["marks"];
    for comm in ["launch-0", "launch-1"] {
        assert!(has(marks, comm, "launch"), "{marks:#}");
    }
    assert!(has(marks, "cuda-EvtHandlr", "handoff"), "{marks:#}");
    assert_eq!(marks.as_array().map(Vec::len), Some(3), "{marks:#}");

    let launchers = result["waking"]["launchers"]
        .as_object()
        .expect("launchers");
    let launcher = launchers.values().next().expect("a launcher");
    let wakers = launcher["wakers"].as_object().expect("wakers");
    let count = |count: &Value| count.as_u64().expect("a count");
    let by_all: u64 = wakers.values().map(count).sum();
    assert!(
        count(&wakers["cuda-EvtHandlr"]) * 10 >= by_all * 8,
        "{wakers:?}"
    );

    for (part, cells) in [
        ("workloads", 9),
        ("costs", 10),
        ("probes", 8),
        ("boosting", 4),
    ] {
        let found = result[part].as_array().expect(part);
        assert_eq!(found.len(), cells, "{part}");
        for run in found
            .iter()
            .flat_map(|cell| cell["runs"].as_array().expect("runs"))
        {
            assert!(run["tokens_per_s"].as_f64() > Some(0.0), "{part}: {run}");
            assert_eq!(run["failures"], 0, "{part}: {run}");
        }
    }
    let frameworks = result["frameworks"].as_object().expect("frameworks");
    assert_eq!(frameworks.len(), 6);
    assert!(
        frameworks.values().all(|one| one.get("failed").is_none()),
        "{frameworks:#?}"
    );
}

#[test]
fn what_it_packs_is_small_and_says_what_it_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let packed = gpu_check(&["pack"])
        .arg(folder.path())
        .output()
        .expect("pack");
    assert!(
        packed.status.success(),
        "{}",
        String::from_utf8_lossy(&packed.stderr)
    );
    let sizes = walk(folder.path());
    assert!(sizes < 60 << 20, "{sizes} bytes");
    if !tier::root() {
        return;
    }
    let refused = Command::new(folder.path().join("gpu-check.sh"))
        .args(["--only", "nothing"])
        .output()
        .expect("the packed check");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("--only: unknown: nothing; expected of machine"),
        "{said}"
    );
}

/// Bytes in all files below a folder.
fn walk(folder: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let sizes = entries.map(|entry| {
        let entry = entry.expect("an entry");
        match entry.file_type().expect("a type").is_dir() {
            true => walk(&entry.path()),
            false => entry.metadata().expect("a size").len(),
        }
    });
    sizes.sum()
}
