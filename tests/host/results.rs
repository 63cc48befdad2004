// SPDX-License-Identifier: GPL-2.0-only
//! README.md and docs/results.md hold what `gpuaware-bench results` writes, and no figure besides.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

use crate::process::repository;

const WRITTEN: [&str; 9] = [
    "README.md",
    "docs/results.md",
    "docs/pictures/strip.svg",
    "docs/pictures/scatter-eager.svg",
    "docs/pictures/seed-llama.svg",
    "docs/pictures/seed-qwen3.svg",
    "docs/pictures/seed-vectraflow.svg",
    "docs/pictures/seed-vortex.svg",
    "docs/pictures/seed-windflow.svg",
];
const BEGIN: &str = "<!-- results:begin";
const END: &str = "<!-- results:end";

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// README's text outside the generated part.
fn by_hand() -> String {
    let text = read(&repository().join("README.md"));
    let (before, rest) = text.split_once(BEGIN).expect("a generated part");
    let (_, after) = rest.split_once(END).expect("its end");
    format!("{before}{}", after.split_once('\n').expect("a line").1)
}

/// The exit code of a command of the bench on a folder, and what it says.
fn bench(words: &[&str], folder: &Path) -> (i32, String) {
    let program = repository().join("target/release/gpuaware-bench");
    let output = Command::new(program)
        .args(words)
        .arg(folder)
        .output()
        .expect("running the bench");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
    (output.status.code().expect("an exit code"), text)
}

fn results(root: &Path) -> String {
    let (code, text) = bench(&["results", "--root"], root);
    assert_eq!(code, 0, "{text}");
    text
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a file");
    }
}

#[test]
fn a_kept_run_is_reported_from_its_archive() {
    let copy = tempfile::tempdir().expect("a folder");
    copy_files(
        &repository().join("bench/runs/2026-11-21-hold-lead"),
        copy.path(),
    );
    fs::remove_file(copy.path().join("report.md")).expect("a report");
    let (code, text) = bench(&["report"], copy.path());
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("block") && text.contains("isolcpus"),
        "{text}"
    );
    assert!(copy.path().join("report.html").exists());
    let report = read(&copy.path().join("report.md"));
    assert!(report.contains("3feeec4d6a51"), "{report}");
}

#[test]
fn a_run_of_a_changed_tree_is_not_published() {
    let copy = tempfile::tempdir().expect("a folder");
    let runs = copy.path().join("bench/runs");
    fs::create_dir_all(&runs).expect("a folder");
    let own = "2026-11-21-hold-lead";
    for entry in fs::read_dir(repository().join("bench/runs"))
        .expect("runs")
        .flatten()
    {
        if entry.file_name() != own {
            std::os::unix::fs::symlink(entry.path(), runs.join(entry.file_name())).expect("a link");
        }
    }
    copy_files(&repository().join("bench/runs").join(own), &runs.join(own));
    let changed = |text: &str| text.replace("3feeec4d6a51", "3feeec4d6a51 with local changes");
    let facts = runs.join(own).join("facts-host.json");
    fs::write(&facts, changed(&read(&facts))).expect("a file");
    let (code, text) = bench(&["results", "--root"], copy.path());
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains(own) && text.contains("commit, measure again"),
        "{text}"
    );
    assert!(!copy.path().join("docs").exists(), "nothing is written");
}

/// What `git archive` makes of this tree: each file in blocks of 512 bytes, and one more for its name.
#[test]
fn a_clone_without_history_is_below_12_mb() {
    let output = Command::new("git")
        .arg("-C")
        .arg(repository())
        .args(["ls-files", "-z"])
        .output()
        .expect("running git");
    if !output.status.success() {
        eprintln!("SKIPPED: this is no clone");
        return;
    }
    let names = String::from_utf8(output.stdout).expect("UTF-8");
    let size = |name: &str| fs::metadata(repository().join(name)).map_or(0, |file| file.len());
    let blocks = |bytes: u64| bytes.div_ceil(512) * 512 + 512;
    let total: u64 = names.split_terminator('\0').map(size).map(blocks).sum();
    assert!(
        total < 12_000_000,
        "{total} bytes: a run that nothing quotes goes"
    );
    assert!(total > 1_000_000, "{total} bytes: the files were found");
}

#[test]
fn the_command_writes_what_the_repository_holds() {
    let copy = tempfile::tempdir().expect("a folder");
    let root = copy.path();
    fs::create_dir_all(root.join("docs")).expect("a folder");
    fs::create_dir_all(root.join("bench")).expect("a folder");
    std::os::unix::fs::symlink(repository().join("bench/runs"), root.join("bench/runs"))
        .expect("a link");
    fs::write(root.join("README.md"), "").expect("a file");
    // What stands between the markers is made anew, not taken over.
    let text = read(&repository().join("README.md"));
    let (before, rest) = text.split_once(BEGIN).expect("a generated part");
    let marker = rest.lines().next().expect("a marker");
    let (_, after) = rest.split_once(END).expect("its end");
    fs::write(
        root.join("README.md"),
        format!("{before}{BEGIN}{marker}\n{END}{after}"),
    )
    .expect("a file");
    results(root);
    for file in WRITTEN {
        let (held, made) = (read(&repository().join(file)), read(&root.join(file)));
        let differs = held
            .lines()
            .zip(made.lines())
            .find(|(held, made)| held != made);
        assert!(
            held == made,
            "{file}: make results writes something else: {differs:?}"
        );
    }
    let again = results(root);
    assert!(!again.contains("written"), "{again}");
}

/// Numbers in prose that are no result, by kind.
const NO_RESULT: [&str; 7] = [
    // Versions.
    r"Linux [67]\.\d+",
    r"Debian 12( (or|and) 13)?",
    r"Rust\s+1\.\d+",
    r"clang \d+",
    r"GPL-2\.0-only",
    // The machine.
    r"\d+ CPUs",
    // Names.
    r"[A-Za-z_]\w*\d\w*",
];

/// The text without code, addresses and comments.
fn prose(text: &str) -> String {
    let no_prose = Regex::new(r"(?s)```.*?```|`[^`]*`|\]\([^)]*\)|<!--.*?-->").expect("a regex");
    no_prose.replace_all(text, " ").into_owned()
}

#[test]
fn readme_has_no_figure_outside_the_generated_part() {
    let mut text = prose(&by_hand());
    for kind in NO_RESULT {
        text = Regex::new(kind)
            .expect("a regex")
            .replace_all(&text, " ")
            .into_owned();
    }
    let left: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(|c: char| c.is_ascii_digit()))
        .collect();
    assert!(left.is_empty(), "figures that no command wrote: {left:#?}");
    assert!(
        prose("it is 98.5 % of `x 3`").contains("98.5"),
        "figures are seen"
    );
}

#[test]
fn readme_is_for_somebody_with_one_minute() {
    let readme = read(&repository().join("README.md"));
    assert!(
        readme.lines().count() <= 100,
        "{} lines",
        readme.lines().count()
    );
    // Tables cannot wrap; README's fits all the same.
    let results = read(&repository().join("docs/results.md"));
    let prose = results.lines().filter(|line| !line.starts_with(['|', '#']));
    for line in readme.lines().chain(prose) {
        assert!(
            line.chars().count() <= 120,
            "longer than 120 characters: {line}"
        );
    }
}

/// Documents and data that may quote a run: all text but the runs themselves.
fn quoting() -> Vec<PathBuf> {
    let mut found = vec![
        repository().join("README.md"),
        repository().join("CHANGELOG.md"),
    ];
    let mut folders: Vec<PathBuf> = [
        "docs",
        "scheds",
        "bench/matrices",
        "bench/studies",
        "bench/workloads",
        "bench/fakecuda",
    ]
    .iter()
    .map(|folder| repository().join(folder))
    .collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md" || e == "toml") {
                found.push(path);
            }
        }
    }
    found.push(repository().join("bench/runs/README.md"));
    found
}

#[test]
fn the_index_lists_every_kept_run_and_who_quotes_it() {
    let index = read(&repository().join("bench/runs/index.toml"));
    let index: toml::Table = index.parse().expect("TOML");
    let mut listed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for run in index["run"].as_array().expect("runs") {
        let quoted = run["quoted"].as_array().expect("files").iter();
        let quoted = quoted.map(|file| file.as_str().expect("a name").to_owned());
        listed.insert(
            run["run"].as_str().expect("a name").to_owned(),
            quoted.collect(),
        );
    }
    let dated = Regex::new(r"\b20\d\d-\d\d-\d\d-[a-z][a-z0-9-]*[a-z0-9]").expect("a regex");
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(repository().join("bench/runs"))
        .expect("runs")
        .flatten()
    {
        let name = entry.file_name().into_string().expect("UTF-8");
        if dated.is_match(&name) {
            found.insert(name, BTreeSet::new());
        }
    }
    for file in quoting() {
        let place = file
            .strip_prefix(repository())
            .expect("inside")
            .display()
            .to_string();
        for name in dated.find_iter(&read(&file)) {
            let run = found.get_mut(name.as_str());
            run.unwrap_or_else(|| panic!("{place} quotes {}, which is not kept", name.as_str()))
                .insert(place.clone());
        }
    }
    assert_eq!(listed, found, "index.toml (left) and who quotes (right)");
    let unquoted: Vec<_> = found.iter().filter(|(_, files)| files.is_empty()).collect();
    assert!(unquoted.is_empty(), "nothing quotes {unquoted:?}");
}
