// SPDX-License-Identifier: GPL-2.0-only
//! What pages for people promise: lines that fit a screen, short records of decisions, links and tests that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use super::rules_of_the_house::files;
use crate::process::repository;

/// Every page that somebody has written. Programs write those of runs and docs/results.md, whose table rows hold more
/// figures with intervals than a line of 120 characters does.
fn pages() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["README.md", "CHANGELOG.md", "bench/runs/README.md"]
        .iter()
        .map(|page| repository().join(page))
        .collect();
    for folder in ["docs", "bench/fakecuda", "bench/workloads"] {
        found.extend(files(&repository().join(folder), "md"));
    }
    found.retain(|page| !page.ends_with("docs/results.md"));
    found
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

fn name(page: &Path) -> String {
    let inside = page.strip_prefix(repository()).unwrap_or(page);
    inside.display().to_string()
}

#[test]
fn no_line_of_a_page_is_longer_than_120_characters() {
    let mut long = Vec::new();
    for page in pages() {
        for (at, line) in read(&page).lines().enumerate() {
            let length = line.chars().count();
            if length > 120 {
                long.push(format!("{}:{}: {length}", name(&page), at + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than 120 characters: {long:#?}");
}

#[test]
fn the_changelog_tells_of_this_version_in_at_most_25_lines() {
    let changelog = read(&repository().join("CHANGELOG.md"));
    let versions: Vec<&str> = changelog.split("\n## ").skip(1).collect();
    let names: Vec<_> = versions.iter().map(|text| text.lines().next()).collect();
    let this = env!("CARGO_PKG_VERSION");
    assert!(names.contains(&Some(this)), "{this} is not in {names:?}");
    for version in versions {
        let lines = version.lines().count();
        assert!(lines <= 25, "{lines} lines: {version}");
    }
}

#[test]
fn a_decision_is_a_short_page_that_is_listed_and_linked() {
    let folder = repository().join("docs/decisions");
    let list = read(&folder.join("README.md"));
    let mut pages = pages();
    pages.retain(|page| page.parent() == folder.parent());
    let pages: String = pages.iter().map(|page| read(page)).collect();
    for decision in files(&folder, "md") {
        let (file, text) = (name(&decision), read(&decision));
        let link = file.replace("docs/decisions/", "");
        if link == "README.md" {
            continue;
        }
        let lines = text.lines().count();
        assert!(lines <= 40, "{file}: {lines} lines");
        for part in ["# ", "**Question.**", "**Decision.**"] {
            assert!(text.contains(part), "{file}: no {part}");
        }
        assert!(list.contains(&format!("]({link})")), "{file} is not listed");
        let linked = pages.contains(&format!("](decisions/{link})"));
        assert!(linked, "no page of docs/ links to {file}");
    }
}

#[test]
fn no_page_has_figures_whose_raw_results_were_not_kept() {
    let mut pages = pages();
    pages.push(repository().join("docs/results.md"));
    let admitted =
        Regex::new(r"(?i)\braw (results )?((was|were|is|are) )?not kept|\(by hand").unwrap();
    for page in pages {
        let text = read(&page);
        let text: Vec<&str> = text.split_whitespace().collect();
        let found = admitted
            .find(&text.join(" "))
            .map(|found| found.as_str().to_owned());
        assert_eq!(
            found,
            None,
            "{}: keep the raw or drop the claim",
            name(&page)
        );
    }
    assert!(admitted.is_match("2.9 ms (by hand, raw not kept)"));
}

/// Targets of links within the repository.
fn links(text: &str) -> Vec<String> {
    let code = Regex::new(r"(?s)```.*?```|`[^`]*`").unwrap();
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let text = code.replace_all(text, " ");
    let targets = link.captures_iter(&text).map(|found| found[1].to_owned());
    targets.filter(|target| !target.contains(':')).collect()
}

/// What links call the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let code = Regex::new(r"(?s)```.*?```").unwrap();
    let text = code.replace_all(text, " ");
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter })
            .collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_lead_to_pages_and_headings_that_are_there() {
    let mut broken = Vec::new();
    let mut pages = pages();
    pages.push(repository().join("docs/results.md"));
    for page in pages {
        for link in links(&read(&page)) {
            let (file, heading) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = match file {
                "" => page.clone(),
                _ => page.with_file_name(file),
            };
            let there = target.exists()
                && (heading.is_empty() || anchors(&read(&target)).contains(heading));
            if !there {
                broken.push(format!("{}: {link}", name(&page)));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Tests of `tests/` begin with their tier; those of `src/` are in a module `tests`.
fn is_in_a_tier(path: &str) -> bool {
    ["host::", "root::", "vm::", "gpu::"]
        .iter()
        .any(|tier| path.starts_with(tier))
}

/// Where a module of tests may be: `root::trust` in tests/, `identify::rest::tests` in src/,
/// `gpuaware_trace::summary::tests` in trace/src/.
fn files_of(module: &str) -> Vec<PathBuf> {
    let (folder, module) = match module.strip_prefix("gpuaware_trace::") {
        Some(module) => ("trace/src", module),
        None if is_in_a_tier(module) => ("tests", module),
        None => ("src", module),
    };
    let folder = repository().join(folder);
    let path = module.trim_end_matches("::tests").replace("::", "/");
    let ends = [".rs", "/mod.rs", "/tests.rs"];
    ends.iter()
        .map(|end| folder.join(format!("{path}{end}")))
        .collect()
}

#[test]
fn tests_that_pages_name_exist() {
    let quoted = Regex::new(r"`((?:\w+::)+)(\w+)`").unwrap();
    let (mut nr_named, mut nr_promised, mut missing) = (0, 0, Vec::new());
    for page in pages() {
        // What it says is held by a test, which has its whole name there.
        let promises = page.ends_with("docs/security.md");
        for found in quoted.captures_iter(&read(&page)) {
            let (path, module, last) = (found[0].trim_matches('`'), &found[1], &found[2]);
            if !promises && !is_in_a_tier(path) && !path.contains("::tests::") {
                continue;
            }
            let end = if promises { "(" } else { "" };
            let function = format!("fn {last}{end}");
            let defines = |file: &PathBuf| {
                fs::read_to_string(file).is_ok_and(|text| text.contains(&function))
            };
            // Elsewhere a filter may stand, which is the beginning of a test's name or a module of them.
            let is_module = || !promises && files_of(path).iter().any(|file| file.exists());
            let module = module.trim_end_matches("::");
            if !files_of(module).iter().any(defines) && !is_module() {
                missing.push(format!("{} names {path}", name(&page)));
            }
            nr_named += 1;
            nr_promised += usize::from(promises);
        }
    }
    assert!(
        nr_named > 40 && nr_promised > 30,
        "{nr_named} {nr_promised}"
    );
    assert!(missing.is_empty(), "{missing:#?}");
}
