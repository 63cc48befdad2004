// SPDX-License-Identifier: GPL-2.0-only
//! `gpuaware-sim check` on thousands of random scenarios; and `gpuaware-bench run --on sim`: the records and the report
//! of any run, from cells that are simulated.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::bench::{cell, end_of};
use crate::process::{code, repository};

const MATRIX: &str = "description = \"a small one\"\nrounds = 2\nseconds = 0.5\nneighbours = [\"none\", \"cpu\"]\n\
    arms = [\"eevdf\", \"taskset-nice\", \"isolcpus\", \"gpuaware\", \"gpuaware-hold0\"]\n\
    [[workload]]\nname = \"w\"\nprofile = \"eager\"\n";

fn run(matrix: &str, output: &Path, words: &[&str]) -> (i32, String) {
    let program = repository().join("target/release/gpuaware-bench");
    let mut command = Command::new(program);
    command
        .args(["run", matrix, "--on", "sim", "--seed", "1", "-o"])
        .arg(output)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    end_of(command)
}

fn measurement(output: &Path, arm: &str, neighbour: &str) -> Value {
    let name = format!("r02-{arm}-{neighbour}-w");
    let text = cell(output, &name).unwrap_or_else(|| panic!("no cell {name}"));
    let cell: Value = serde_json::from_str(&text).unwrap();
    cell["measurement"].clone()
}

/// Each kind has seeds of its own. `sim/src/seeds.rs` repeats those that have failed.
#[test]
fn ten_thousand_random_scenarios_hold() {
    for (from, flags) in [
        ("0", &[][..]),
        ("2500", &["--changes", "--threads", "--yields"]),
        ("5000", &["--real-time"]),
        ("7500", &["--interleave", "--yields"]),
    ] {
        let program = repository().join("target/release/gpuaware-sim");
        let checked = Command::new(program)
            .args(["check", "2500", "--from", from])
            .args(flags)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(checked.stdout).unwrap();
        assert_eq!(checked.status.code(), Some(0), "{flags:?}: {said}");
        assert!(said.starts_with("2500 scenarios, "), "{flags:?}: {said}");
        assert!(said.ends_with(" 0 failed\n"), "{flags:?}: {said}");
    }
}

#[test]
fn a_simulated_matrix_has_the_records_and_the_report_of_any_run() {
    let folder = tempfile::tempdir().unwrap();
    let matrix = folder.path().join("small.toml");
    fs::write(&matrix, MATRIX).unwrap();
    let matrix = matrix.to_str().unwrap();
    let (first, second) = (folder.path().join("1"), folder.path().join("2"));
    for output in [&first, &second] {
        let (code, log) = run(matrix, output, &["--machine", "4x2"]);
        assert_eq!(code, 0, "{log}");
        assert_eq!(fs::read_dir(output.join("cells")).unwrap().count(), 20);
    }
    let speed = |arm: &str, neighbour: &str| {
        let seen = measurement(&first, arm, neighbour);
        seen["workload"]["tokens_per_s"].as_f64().unwrap()
    };
    assert!(speed("eevdf", "cpu") < speed("taskset-nice", "cpu"));
    assert!(speed("taskset-nice", "cpu") < speed("gpuaware", "cpu"));
    assert!(speed("gpuaware", "cpu") > 0.95 * speed("eevdf", "none"));
    let work = |arm: &str| measurement(&first, arm, "cpu")["neighbours"][0]["rate"].as_f64();
    assert!(
        work("isolcpus") < work("gpuaware"),
        "CPUs that nobody may use"
    );
    let report = fs::read_to_string(first.join("report.md")).unwrap();
    assert!(
        report.contains("Simulated, not measured, on the machine 4x2 (4 CPUs, 2 caches)"),
        "{report}"
    );
    let native = folder.path().join("native");
    let (code, log) = run(matrix, &native, &["--machine", "4x2", "--native"]);
    assert_eq!(code, 0, "{log}");
    let rate = |of: &Path| measurement(of, "gpuaware", "cpu")["neighbours"][0]["rate"].as_f64();
    assert!(rate(&native) > rate(&first), "callbacks take less");
    let report = fs::read_to_string(native.join("report.md")).unwrap();
    assert!(report.contains("callbacks as on a CPU that is not emulated"));
    for arm in ["eevdf", "gpuaware"] {
        assert_eq!(
            measurement(&first, arm, "cpu"),
            measurement(&second, arm, "cpu"),
            "the same seed says the same"
        );
    }
}

#[test]
fn what_cannot_be_simulated_is_refused_before_the_first_cell() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out");
    for (matrix, words, reason) in [
        (
            "peers",
            &["--arms", "scx_bpfland"][..],
            "arm \"scx_bpfland\"",
        ),
        ("demo", &["--machine", "3x2"], "--machine 3x2: "),
        ("demo", &["--machine", "4", "--cpus", "8"], "--cpus 8: "),
        ("demo", &["--disk", "/dev/null"], "--disk: "),
        (
            "noisy-neighbour",
            &["--arms", "gpuaware", "--neighbours", "memory"],
            "neighbour memory: ",
        ),
        ("llm-serving", &[], "no server and no pipeline"),
    ] {
        let (code, log) = run(matrix, &output, words);
        assert_eq!(code, 2, "{matrix}: {log}");
        assert!(log.contains(reason), "{matrix}: {log}");
        assert!(
            !output.join("cells").exists()
                || fs::read_dir(output.join("cells")).unwrap().count() == 0
        );
    }
    let mut in_lab = Command::new(repository().join("target/release/gpuaware-bench"));
    in_lab.args(["run", "demo", "--native", "-o"]).arg(&output);
    let (code, log) = end_of(in_lab);
    assert_eq!(
        (code, log.contains("--native: expected with --on sim")),
        (2, true),
        "{log}"
    );
}

/// A host of two CPUs with a launcher beside busy loops, as it was recorded.
fn profile() -> String {
    let file = repository().join("tests/data/profiles/launcher-beside-loops.json");
    file.to_str().unwrap().to_owned()
}

fn replay(words: &[&str]) -> (i32, String, String) {
    let program = repository().join("target/release/gpuaware-bench");
    let output = Command::new(program)
        .arg("replay")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        code(output.status),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_recorded_host_is_replayed_under_each_policy() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("no-hold.toml");
    fs::write(&policy, "version = 1\n[preferred]\nhold_us = 0\n").unwrap();
    let policy = policy.to_str().unwrap();
    let profile = profile();
    let words = ["--repeats", "3", "--seconds", "0.5", "--policy", policy];
    let words = [&[profile.as_str()][..], &words].concat();
    let (code, table, log) = replay(&words);
    assert_eq!(code, 0, "{log}");
    let cells = |row: &str| -> Vec<f64> {
        let line = table.lines().find(|line| line.starts_with(row)).unwrap();
        let figures = line[row.len()..].split("  ").filter(|it| !it.is_empty());
        let value = |it: &str| it.split_whitespace().next().unwrap().parse().unwrap();
        figures.map(value).collect()
    };
    let (eevdf, default) = (cells("eevdf"), cells("default"));
    assert!(default[1] < eevdf[1], "p99: {table}");
    assert!(default[2] > eevdf[2], "the launcher's CPU time: {table}");
    assert_eq!(eevdf[4], 100.0, "{table}");
    assert_eq!(cells(policy).len(), 5, "{table}");
    assert_eq!(replay(&words).1, table, "the same seeds say the same");
    let (code, table, log) = replay(&[&profile, "--repeats", "1", "--machine", "1"]);
    assert_eq!(code, 0, "{log}");
    assert!(
        log.contains("interrupts of CPUs 1 to 1 are left out"),
        "{log}"
    );
    assert!(table.contains("on a machine of 1 CPUs"), "{table}");
}

/// Of four launchers on eight CPUs the default prefers a quarter. Runs with the same seeds differ by what differs.
#[test]
fn a_replayed_policy_has_the_preferred_cpus_that_the_scheduler_chooses_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(profile()).unwrap()).unwrap();
    let groups = recording["groups"].as_array_mut().unwrap();
    let mut launchers = groups.iter_mut().filter(|one| one["class"] == "launch");
    let launcher = launchers.next().expect("somebody launches");
    for key in ["threads", "alive_ns", "cpu_ns", "ready_ns"] {
        launcher[key] = (4 * launcher[key].as_u64().unwrap()).into();
    }
    let file = folder.path().join("four.json");
    fs::write(&file, recording.to_string()).unwrap();
    let [one, two] = [1, 2].map(|max| {
        let policy = folder.path().join(format!("{max}.toml"));
        fs::write(&policy, format!("version = 1\n[preferred]\nmax = {max}\n")).unwrap();
        policy.to_str().unwrap().to_owned()
    });
    let words = ["--machine", "8x2", "--repeats", "1", "--seconds", "0.5"];
    let policies = ["--policy", &one, "--policy", &two];
    let (code, table, log) = replay(&[&[file.to_str().unwrap()][..], &words, &policies].concat());
    assert_eq!(code, 0, "{log}");
    let row = |name: &str| {
        let line = table.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in {table}")).trim()
    };
    assert_eq!(row("default"), row(&two), "{table}");
    assert_ne!(row("default"), row(&one), "{table}");
}

#[test]
fn what_cannot_be_replayed_is_refused_by_file_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let good = profile();
    let text = fs::read_to_string(&good).unwrap();
    let newer = write("newer.json", &text.replace("\"schema\":1", "\"schema\":2"));
    let named = text.replacen("\"nice\":", "\"comm\":\"x\",\"nice\":", 1);
    let named = write("named.json", &named);
    let cut = write("cut.json", &text[..text.len() / 2]);
    let negative = write(
        "negative.json",
        &text.replacen("\"hz\":250", "\"hz\":-1", 1),
    );
    let policy = write("policy.toml", "[identify]\nprobes = \"always\"\n");
    for (words, reason) in [
        (&["/no/such/profile"][..], "/no/such/profile: cannot read"),
        (&[&newer], "newer.json: schema: expected 1, got 2"),
        (&[&named], "unknown field `comm`"),
        (&[&cut], "cut.json: expected what scx_gpuaware trace"),
        (&[&negative], "at line 1 column "),
        (
            &[&good, "--policy", &policy],
            "identify.probes = \"always\"",
        ),
        (
            &[&good, "--policy", "/no/such/policy"],
            "/no/such/policy: cannot read",
        ),
        (&[&good, "--machine", "3x2"], "3x2"),
        (&[&good, "--repeats", "0"], "--repeats"),
        (&[&good, "--seconds", "0"], "--seconds"),
        (&[], "<PROFILE>"),
    ] {
        let (code, table, log) = replay(words);
        assert_eq!(code, 2, "{words:?}: {log}");
        assert!(log.contains(reason), "{words:?}: {log}");
        assert!(table.is_empty(), "{words:?}: {table}");
    }
}
