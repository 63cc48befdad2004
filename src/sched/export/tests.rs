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
pub fn sample() -> Metrics {
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

/// The same of a machine with `nr_cpus`.
pub fn sample_of(nr_cpus: u32) -> Metrics {
    let cpus = (0..nr_cpus).map(|cpu| (cpu, CpuMetrics::default()));
    let class = ClassMetrics {
        wakeup_waits: vec![7; 24],
        ..ClassMetrics::default()
    };
    let classes = sample().classes.into_keys();
    Metrics {
        cpus: cpus.collect(),
        classes: classes.map(|name| (name, class.clone())).collect(),
        ..sample()
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

/// The queries of the dashboard, of panels and of templates, each with what its legend shows.
fn queries() -> Vec<(String, String)> {
    let json: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &serde_json::Value| value.as_array().unwrap().clone();
    let panels = list(&json["panels"]).into_iter();
    let targets = panels.flat_map(|panel| list(&panel["targets"]));
    let of_targets = targets.map(|target| (text(&target["expr"]), text(&target["legendFormat"])));
    let templates = list(&json["templating"]["list"]).into_iter();
    let of_templates = templates.map(|template| (text(&template["query"]["query"]), String::new()));
    let queries: Vec<_> = of_targets.chain(of_templates).collect();
    assert!(
        queries
            .iter()
            .any(|(query, _)| query.starts_with("label_values("))
    );
    queries
        .into_iter()
        .filter(|(query, _)| !query.is_empty())
        .collect()
}

/// Labels that Prometheus adds, and that of buckets.
const NOT_OURS: [&str; 3] = ["instance", "job", "le"];

/// Label names, and values where they are no variables, that `query` and `legend` use.
fn labels_of(query: &str, legend: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    for selector in query.split('{').skip(1) {
        let selector = selector.split('}').next().unwrap();
        for term in selector.split(',') {
            let (name, value) = term.trim().split_once('=').unwrap();
            let value = value.trim_matches(|letter: char| "~\"".contains(letter));
            let fixed = (!value.starts_with('$')).then(|| value.to_owned());
            found.push((name.to_owned(), fixed));
        }
    }
    let grouped = query.split(" by (").skip(1);
    let grouped = grouped.flat_map(|rest| rest.split(')').next().unwrap().split(','));
    let asked = query
        .strip_prefix("label_values(")
        .and_then(|rest| rest.rsplit_once(", "));
    let asked = asked.map(|(_, label)| label.trim_end_matches(')'));
    let shown = legend
        .split("{{")
        .skip(1)
        .map(|rest| rest.split("}}").next().unwrap());
    let names = grouped.chain(asked).chain(shown);
    found.extend(names.map(|name| (name.trim().to_owned(), None)));
    found
}

#[test]
fn the_dashboard_uses_only_what_is_exported() {
    let exported: std::collections::BTreeMap<_, _> = (exported().into_iter())
        .map(|(name, _, labels)| (name, labels))
        .collect();
    let page = text();
    for (query, legend) in queries() {
        let words = query.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let names: Vec<_> = words.filter(|word| word.starts_with(PREFIX)).collect();
        let [name] = names[..] else {
            panic!("one name is expected in {query}");
        };
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        let labels = exported.get(name);
        let labels = labels.unwrap_or_else(|| panic!("{name} in {query}"));
        for (label, value) in labels_of(&query, &legend) {
            let known = labels.split(", ").any(|known| known == label);
            assert!(
                known || NOT_OURS.contains(&&*label),
                "{label} in {query}, {legend}"
            );
            let Some(value) = value else { continue };
            let pair = format!("{label}=\"{value}\"");
            let exists =
                |line: &str| line.starts_with(&format!("{name}{{")) && line.contains(&pair);
            assert!(page.lines().any(exists), "{pair} in {query}");
        }
    }
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
fn no_text_that_somebody_else_has_written_is_on_the_page() {
    let mut metrics = sample();
    metrics.policy_error = "p\nevil 1".to_owned();
    metrics.preferred_reason = "r\nevil 1".to_owned();
    for class in metrics.classes.values_mut() {
        class.worst_waiter = "w\" 1\nevil 1".to_owned();
    }
    let page = String::from_utf8(page(&metrics).unwrap()).unwrap();
    assert!(!page.contains("evil"), "{page}");
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
        let required = std::env::var("GPUAWARE_REQUIRE").unwrap_or_default();
        assert!(!required.contains("host"), "no promtool: run make setup");
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
