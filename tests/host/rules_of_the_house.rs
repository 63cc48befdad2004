// SPDX-License-Identifier: GPL-2.0-only
//! The structure that docs/architecture.md promises, checked.

use std::path::{Path, PathBuf};

use crate::process::repository;

/// Every file of that extension below `folder`; at least one.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    assert!(
        !found.is_empty(),
        "no .{extension} below {}",
        folder.display()
    );
    found
}

/// The lines of `file` outside comments that contain one of `words`.
fn uses(file: &Path, words: &[&str]) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .filter(|line| words.iter().any(|word| line.contains(word)))
        .map(|line| format!("{}: {line}", file.display()))
        .collect()
}

fn assert_unused(folder: &str, words: &[&str]) {
    let folder = repository().join(folder);
    let found: Vec<_> = files(&folder, "rs")
        .iter()
        .flat_map(|file| uses(file, words))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn imports_run_downward() {
    assert_unused(
        "src/policy",
        &[
            "crate::sched",
            "crate::identify",
            "crate::cli",
            "crate::topology",
            "crate::trace",
            "crate::bpf",
        ],
    );
    assert_unused(
        "src/topology",
        &[
            "crate::sched",
            "crate::identify",
            "crate::trace",
            "crate::cli",
            "crate::bpf",
        ],
    );
    assert_unused("src/doctor", &["crate::cli", "crate::sched", "libbpf_rs"]);
    assert_unused(
        "src/identify",
        &["crate::sched", "crate::trace", "crate::cli"],
    );
    assert_unused("src/sched", &["crate::trace", "crate::cli", "crate::top::"]);
    assert_unused("src/top", &["crate::cli", "crate::bpf", "libbpf"]);
    assert_unused("src/trace", &["crate::sched", "crate::cli"]);
}

#[test]
fn pure_parts_of_the_tracer_read_no_file_and_no_clock() {
    let words = [
        "std::fs",
        "std::env",
        "Instant::now",
        "SystemTime",
        "clock_gettime",
        "Command::new",
    ];
    for file in [
        "decode.rs",
        "observed.rs",
        "order.rs",
        "threads.rs",
        "window.rs",
    ] {
        let found = uses(&repository().join("src/trace").join(file), &words);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn what_top_shows_is_pure() {
    let words = ["std::fs", "std::env", "Instant", "SystemTime", "println!"];
    for file in ["screen.rs", "view.rs"] {
        let found = uses(&repository().join("src/top").join(file), &words);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn policy_reads_no_file_and_no_clock() {
    assert_unused(
        "src/policy",
        &[
            "std::fs",
            "std::env",
            "Instant::now",
            "SystemTime",
            "Command::new",
        ],
    );
}

#[test]
fn choice_of_cpus_reads_no_file_and_no_clock() {
    for part in [
        "choose",
        "demand",
        "explain",
        "irq_load",
        "proc_stat",
        "score",
        "units",
    ] {
        let file = repository().join(format!("src/topology/{part}.rs"));
        let found = uses(&file, &["std::fs", "sysfs", "Instant", "SystemTime"]);
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn the_crate_of_traces_is_pure_and_knows_neither_tracer_nor_bench() {
    let words = ["std::fs", "std::env", "Instant::now", "SystemTime"];
    assert_unused("trace/src", &[&words[..], &["Command::new"]].concat());
    let manifest = std::fs::read_to_string(repository().join("trace/Cargo.toml")).unwrap();
    for stranger in ["scx_", "libbpf", "nix", "gpuaware-bench", "clap"] {
        let linked = manifest.lines().any(|line| line.starts_with(stranger));
        assert!(!linked, "trace/Cargo.toml: {stranger}");
    }
}

#[test]
fn bench_never_links_the_scheduler() {
    let manifest = std::fs::read_to_string(repository().join("bench/Cargo.toml")).unwrap();
    let linked = manifest.lines().any(|line| line.starts_with("scx_"));
    assert!(!linked, "bench spawns schedulers, it links none");
    assert_unused("bench/src", &["scx_gpuaware::"]);
}

#[test]
fn statistics_read_no_file_and_no_clock() {
    let words = ["std::fs", "std::env", "Instant", "SystemTime"];
    assert_unused("bench/stats/src", &words);
}

#[test]
fn the_simulator_links_neither_scheduler_nor_bench_and_neither_links_it() {
    for (folder, strangers) in [
        ("sim", &["scx_gpuaware", "gpuaware-bench", "scx_utils"][..]),
        ("bench", &["gpuaware-sim"][..]),
        (".", &["gpuaware-sim"][..]),
    ] {
        let file = repository().join(folder).join("Cargo.toml");
        let manifest = std::fs::read_to_string(&file).unwrap();
        let begins = |line: &str| strangers.iter().any(|name| line.starts_with(name));
        let found: Vec<&str> = manifest.lines().filter(|line| begins(line)).collect();
        assert!(found.is_empty(), "{}: {found:?}", file.display());
    }
    let words = ["std::fs", "std::env", "Instant", "SystemTime"];
    // Flags and how long a run took; the copy for the dynamic loader; how long callbacks take this host; a
    // machine's files; what tests read and compile.
    let others = [
        "main.rs",
        "native.rs",
        "meter.rs",
        "compare.rs",
        "sysfs.rs",
        "tests.rs",
        "mutants.rs",
    ];
    for file in files(&repository().join("sim/src"), "rs") {
        if !others.iter().any(|other| file.ends_with(other)) {
            let found = uses(&file, &words);
            assert!(found.is_empty(), "{found:#?}");
        }
    }
}

#[test]
fn files_stay_short() {
    for (folder, extension, limit) in [
        ("src", "rs", 500),
        ("bench/src", "rs", 500),
        ("bench/stats", "rs", 500),
        ("bench/workloads", "rs", 500),
        ("tests", "rs", 500),
        ("bpf", "c", 700),
        ("bpf", "h", 700),
        ("bench/fakecuda", "c", 700),
        ("sim", "rs", 500),
        ("sim", "c", 700),
        ("sim/shim", "h", 700),
        ("trace", "rs", 500),
    ] {
        for file in files(&repository().join(folder), extension) {
            let lines = std::fs::read_to_string(&file).unwrap().lines().count();
            assert!(
                lines <= limit,
                "{} has {lines} lines, limit {limit}",
                file.display()
            );
        }
    }
}

#[test]
fn every_source_file_names_its_licence() {
    for (folder, extension) in [
        ("src", "rs"),
        ("bench/src", "rs"),
        ("bench/stats", "rs"),
        ("bench/workloads", "rs"),
        ("tests", "rs"),
        ("fuzz/fuzz_targets", "rs"),
        ("bench/fuzz/fuzz_targets", "rs"),
        ("bpf", "c"),
        ("bpf", "h"),
        ("sim", "rs"),
        ("sim", "c"),
        ("sim/shim", "h"),
        ("trace", "rs"),
    ] {
        for file in files(&repository().join(folder), extension) {
            let text = std::fs::read_to_string(&file).unwrap();
            let first = text.lines().next().unwrap_or_default();
            assert!(
                first.contains("SPDX-License-Identifier: GPL-2.0-only"),
                "{}",
                file.display()
            );
        }
    }
}

/// `scx_bpf_now()` goes backwards from one CPU to the next: a plain difference of what two of them read may be
/// 2^64 less a little. Interrupts stay on their CPU, the tracer and identification read another clock.
#[test]
fn the_scheduler_takes_differences_of_times_that_cannot_wrap() {
    let other_clocks = ["irq", "identify", "observe", "trace"];
    let folder = repository().join("bpf");
    let headers = files(&folder, "h").into_iter().chain(files(&folder, "c"));
    let found: Vec<_> = headers
        .filter(|file| {
            let name = file.file_name().expect("a name").to_string_lossy();
            !other_clocks.iter().any(|other| name.starts_with(other))
        })
        .flat_map(|file| uses(&file, &["now - ", "end - "]))
        // A time that is asked of, not how long ago it was.
        .filter(|line| !line.contains("now - tunables.") && !line.contains("now - interval"))
        .collect();
    assert!(found.is_empty(), "use time_delta(): {found:#?}");
}
