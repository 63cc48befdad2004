// SPDX-License-Identifier: GPL-2.0-only
//! What is exported is what the manual and the dashboard name.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::*;
use crate::sched::stats::MarkMetrics;

const MANUAL: &str = include_str!("../../../docs/metrics.md");
const DASHBOARD: &str = include_str!("../../../packaging/grafana/scx_gpuaware.json");

/// Statistics in which nothing is missing.
fn sample() -> Metrics {
    let class = ClassMetrics {
        wakeup_waits: [3, 2, 1].to_vec(),
        wakeup_wait_us: 1_500_000,
        run_preferred_us: 2_000_000,
        ..ClassMetrics::default()
    };
    let mark = MarkMetrics {
        class: "launch".to_owned(),
        source: "uprobe".to_owned(),
        tasks: 2,
    };
    Metrics {
        classes: ["launch", "handoff", "background"]
            .map(|name| (name.to_owned(), class.clone()))
            .into(),
        cpus: [(0, CpuMetrics::default()), (1, CpuMetrics::default())].into(),
        marks: vec![mark],
        preferred_changes: [("irq".to_owned(), 1)].into(),
        policy_error: "policy.toml:1: error".to_owned(),
        ..Metrics::default()
    }
}

fn text() -> String {
    String::from_utf8(page(&sample()).unwrap()).unwrap()
}

/// Name, kind and the names of the labels of each family.
fn exported() -> BTreeSet<(String, String, String)> {
    let families = families(&sample());
    let described = families.iter().map(|family| {
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        let metric = family.get_metric().first().unwrap();
        let labels: Vec<_> = metric.get_label().iter().map(LabelPair::name).collect();
        (family.name().to_owned(), kind, labels.join(", "))
    });
    described.collect()
}

#[test]
fn the_manual_lists_what_is_exported_and_no_more() {
    let rows = MANUAL.lines().filter(|line| line.starts_with("| `"));
    let manual: BTreeSet<_> = rows
        .map(|row| {
            let cell = |n| row.split('|').nth(n).unwrap().trim().replace('`', "");
            (cell(1), cell(2), cell(3))
        })
        .collect();
    assert_eq!(manual, exported());
}

#[test]
fn the_dashboard_uses_only_what_is_exported() {
    let json: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = json["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let exported: BTreeSet<_> = exported().into_iter().map(|(name, ..)| name).collect();
    let mut used = 0;
    for target in targets {
        let query = target["expr"].as_str().unwrap();
        let words = query.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        for word in words.filter(|word| word.starts_with(PREFIX)) {
            let name = word.strip_suffix("_bucket").unwrap_or(word);
            assert!(exported.contains(name), "{name} in {query}");
            used += 1;
        }
    }
    assert!(
        used >= panels.len(),
        "{used} names in {} panels",
        panels.len()
    );
}

#[test]
fn waits_are_cumulative_buckets_in_seconds() {
    let text = text();
    for line in [
        "scx_gpuaware_wakeup_wait_seconds_bucket{class=\"launch\",le=\"0.000001024\"} 3",
        "scx_gpuaware_wakeup_wait_seconds_bucket{class=\"launch\",le=\"0.000002048\"} 5",
        "scx_gpuaware_wakeup_wait_seconds_bucket{class=\"launch\",le=\"+Inf\"} 6",
        "scx_gpuaware_wakeup_wait_seconds_sum{class=\"launch\"} 1.5",
        "scx_gpuaware_wakeup_wait_seconds_count{class=\"launch\"} 6",
        "scx_gpuaware_run_seconds_total{class=\"background\",cpus=\"preferred\"} 2",
        "scx_gpuaware_policy_error 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[test]
fn nothing_counted_yet_is_a_page_too() {
    let page = String::from_utf8(page(&Metrics::default()).unwrap()).unwrap();
    assert!(page.contains("scx_gpuaware_policy_error 0\n"), "{page}");
}

/// Prometheus's own checker, from `make setup` or the path.
fn promtool() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).chain([cache.join("scx_gpuaware/bin")]);
    folders
        .map(|folder| folder.join("promtool"))
        .find(|file| file.exists())
}

#[test]
fn promtool_accepts_it() {
    let Some(promtool) = promtool() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no promtool: run make setup");
        return;
    };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
