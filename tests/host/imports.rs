// SPDX-License-Identifier: GPL-2.0-only
//! No file takes anything, by whatever way, from a file that takes something from it: the rooms of docs/architecture.md
//! stand above each other. For Rust the imports and paths are read as text; for C, who defines what is called.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::rules_of_the_house::files;
use crate::process::repository;

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The rings of files in which each reaches the others, as sorted names.
fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from.to_owned()];
        while let Some(next) = open.pop() {
            for to in graph.get(&next).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|file| (file, reach(file))).collect();
    let ring = |file: &String| -> Vec<String> {
        let there = reached[file].iter();
        let back = |other: &&String| reached.get(other).is_some_and(|it| it.contains(file));
        there.filter(back).cloned().collect()
    };
    let rings: BTreeSet<Vec<String>> = graph.keys().map(ring).collect();
    rings.into_iter().filter(|ring| !ring.is_empty()).collect()
}

/// What stands outside tests and comments.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let end = ["#[cfg(test)]\nmod tests", "#[cfg(test)]\npub mod"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    let lines = text[..end.unwrap_or(text.len())].lines();
    let code = lines.map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn spread(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let braces = tree.find('{').zip(tree.rfind('}'));
    let Some((open, close)) = braces.filter(|(open, close)| open < close) else {
        let name = tree.split(" as ").next().unwrap_or_default();
        paths.push(format!("{prefix}{}", name.trim()));
        return;
    };
    let prefix = format!("{prefix}{}", tree[..open].trim());
    let inside = &tree[open + 1..close];
    let (mut depth, mut from) = (0, 0);
    for (at, letter) in inside.char_indices().chain([(inside.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inside[from..at].trim().is_empty() {
                    spread(&prefix, inside[from..at].trim(), paths);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// Every path that begins with one of `roots`, in `use` lines and elsewhere.
fn paths(code: &str, roots: &BTreeSet<&str>) -> Vec<String> {
    let mut paths = Vec::new();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        let words = statement.find("use ").filter(|at| {
            let before = statement[..*at].chars().next_back();
            before.is_none_or(|letter| letter.is_whitespace())
        });
        match words {
            Some(at) => spread(
                "",
                statement[at + 4..].trim_end_matches(';').trim(),
                &mut paths,
            ),
            None => rest += statement,
        }
    }
    let in_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    for word in rest.split(|letter| !in_path(letter)) {
        if word.contains("::") {
            paths.push(word.to_owned());
        }
    }
    paths.retain(|path| roots.contains(path.split("::").next().unwrap_or_default()));
    paths
}

/// Files by the path of their module below the crate: `report::html`.
fn modules(folder: &Path) -> BTreeMap<Vec<String>, PathBuf> {
    let name = |file: &Path| -> Vec<String> {
        let relative = file.strip_prefix(folder).unwrap().with_extension("");
        let parts = relative
            .iter()
            .map(|part| part.to_string_lossy().into_owned());
        parts
            .filter(|part| !["mod", "main", "lib"].contains(&part.as_str()))
            .collect()
    };
    let all = files(folder, "rs").into_iter();
    all.map(|file| (name(&file), file)).collect()
}

/// The file that a path leads to, seen from the module `from`.
fn target(
    path: &str,
    from: &[String],
    modules: &BTreeMap<Vec<String>, PathBuf>,
) -> Option<Vec<String>> {
    let mut parts: Vec<String> = path.split("::").map(str::to_owned).collect();
    let mut at = match parts[0].as_str() {
        "crate" => Vec::new(),
        _ => from.to_vec(),
    };
    while parts.first().is_some_and(|part| part == "super") {
        at.pop();
        parts.remove(0);
    }
    if ["crate", "self"].contains(&parts.first()?.as_str()) {
        parts.remove(0);
    }
    at.extend(parts);
    while !at.is_empty() && !modules.contains_key(&at) {
        at.pop();
    }
    (!at.is_empty() && at != from).then_some(at)
}

fn rust_graph(folder: &Path) -> Graph {
    let modules = modules(folder);
    let imports = |(name, file): (&Vec<String>, &PathBuf)| {
        let is_child =
            |other: &&Vec<String>| other.len() == name.len() + 1 && other.starts_with(name);
        let children = modules
            .keys()
            .filter(is_child)
            .map(|child| child.last().unwrap().as_str());
        let roots = children.chain(["crate", "super", "self"]).collect();
        let paths = paths(&code(file), &roots);
        let to = paths.iter().filter_map(|path| target(path, name, &modules));
        (name.join("::"), to.map(|to| to.join("::")).collect())
    };
    modules.iter().map(imports).collect()
}

/// C: a file takes from another what that one alone defines at the left margin.
fn c_graph(folder: &Path, prefix: &str) -> Graph {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let texts: BTreeMap<String, String> = files(folder, "c")
        .into_iter()
        .filter(|file| file.parent() == Some(folder))
        .map(|file| {
            (
                file.file_name().unwrap().to_string_lossy().into_owned(),
                code(&file),
            )
        })
        .collect();
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for (file, text) in &texts {
        let starts = text.lines().filter(|line| {
            line.starts_with(is_name) && line.contains('(') && !line.starts_with("static")
        });
        for line in starts {
            let name = line[..line.find('(').unwrap()]
                .rsplit(|l| !is_name(l))
                .next()
                .unwrap();
            if name.starts_with(prefix) {
                owners.insert(name, file);
            }
        }
    }
    let takes = |(file, text): (&String, &String)| {
        let words = text.split(|letter| !is_name(letter));
        let from = words
            .filter_map(|word| owners.get(word))
            .filter(|owner| **owner != file);
        (
            file.clone(),
            from.map(|owner| (*owner).to_owned()).collect(),
        )
    };
    texts.iter().map(takes).collect()
}

#[test]
fn no_file_of_a_crate_is_part_of_a_circle() {
    for folder in [
        "src",
        "bench/src",
        "bench/stats/src",
        "bench/workloads/busy/src",
        "bench/workloads/llm_client/src",
        "bench/workloads/llm_server/src",
        "bench/workloads/pipeline/src",
        "sim/src",
        "trace/src",
    ] {
        let found = circles(&rust_graph(&repository().join(folder)));
        assert!(found.is_empty(), "{folder}: {found:#?}");
    }
}

#[test]
fn no_file_of_the_emulated_driver_is_part_of_a_circle() {
    let graph = c_graph(&repository().join("bench/fakecuda"), "fk_");
    let edges: usize = graph.values().map(BTreeSet::len).sum();
    assert!(edges > 50, "only {edges} calls between files were found");
    let found = circles(&graph);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let file = dir.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    write("main.rs", "mod a;\nmod b;\nfn main() { a::run() }\n");
    write(
        "a/mod.rs",
        "mod inner;\npub struct Shared;\npub fn run() { inner::go() }\n",
    );
    write("a/inner.rs", "use super::Shared;\npub fn go() {}\n");
    write("b.rs", "use crate::{\n    c::{self, Thing},\n};\n");
    write("c.rs", "pub fn f() { let _ = crate::d::g(); }\n");
    write(
        "d.rs",
        "// crate::b\n#[cfg(test)]\nmod tests { use crate::b; }\n",
    );
    let ring = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
    };
    let a = ring(&["a", "a::inner"]);
    assert_eq!(circles(&rust_graph(dir.path())), std::slice::from_ref(&a));
    write("d.rs", "use std::fmt;\npub fn g() -> crate::b::X { }\n");
    assert_eq!(
        circles(&rust_graph(dir.path())),
        [a, ring(&["b", "c", "d"])]
    );
}
