// SPDX-License-Identifier: GPL-2.0-only
//! The shipped comparisons: all of them can be read, and together they compare every arm.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::process::repository;

/// The stems of the TOML files in a folder of the repository.
fn stems(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(repository().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// What a study's command may take on two cores.
const LONGEST_MINUTES: u32 = 45;

#[test]
fn a_dry_run_says_how_long_a_study_takes_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let studies = stems("bench/matrices");
    let studies = studies.iter().filter(|name| name.starts_with("seed-"));
    let mut seen = 0;
    for name in studies {
        let mut command = Command::new(repository().join("target/release/gpuaware-bench"));
        command.args(["run", name, "--dry-run"]).current_dir(&dir);
        // As on a machine with two cores; one that says how many CPUs it wants has them.
        if name != "seed-windflow" {
            command.args(["--cpus", "2"]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let (_, about) = text.rsplit_once(": about ").unwrap();
        let (minutes, _) = about.split_once(" min").unwrap();
        assert!(minutes.parse::<u32>().unwrap() < LONGEST_MINUTES, "{text}");
        seen += 1;
    }
    assert_eq!(seen, 5);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn a_dry_run_of_a_host_prints_every_command() {
    let dry = |name: &str| {
        let output = Command::new(repository().join("target/release/gpuaware-bench"))
            .args([
                "run",
                name,
                "--on",
                "host",
                "--dry-run",
                "--disk",
                "/dev/nullb0",
            ])
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = dry("host-launch");
    for words in [
        "\ngpuaware: ",
        "  scheduler: ",
        "/release/scx_gpuaware ",
        " nice -n -10 /",
        "/lab/gpu_launch --profile eager ",
        "  heavy: fio --name=neighbour ",
        " --filename=/dev/nullb0 ",
        "  heavy: iperf3 --client 127.0.0.1 ",
        "  heavy: stress-ng --cpu ",
        "  workload: in the cgroup ",
        "  cpu: chrt --idle 0 stress-ng ",
    ] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
    let text = dry("host-vllm");
    for words in [
        "vllm serve Qwen/Qwen3-0.6B ",
        "vllm bench serve --backend openai ",
    ] {
        assert!(text.contains(words), "{words:?} in {text}");
    }
}

#[test]
fn list_explains_every_matrix_and_every_arm_is_in_one() {
    let program = repository().join("target/release/gpuaware-bench");
    let output = Command::new(program).arg("list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");

    let explained: BTreeSet<String> = text
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| Some(line.split_once(": ")?.0.to_owned()))
        .collect();
    assert_eq!(explained, stems("bench/matrices"));
    let times = text.matches(" rounds of ").count();
    assert_eq!(times, explained.len(), "{text}");

    let compared: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("  arm "))
        .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
        .collect();
    assert_eq!(
        compared,
        stems("scheds/arms"),
        "arms that are in no matrix, or arms that are not there"
    );
    for neighbour in [
        "none",
        "cpu",
        "network",
        "disk",
        "irq",
        "hackbench",
        "memory",
        "heavy",
    ] {
        assert!(
            text.contains(&format!("\n  neighbour  {neighbour} ")),
            "{neighbour}: {text}"
        );
    }
}
