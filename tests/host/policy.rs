// SPDX-License-Identifier: GPL-2.0-only
//! Policy files through the binary: what is refused and how, what is shipped, what is documented.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::process::{code, repository, scx_gpuaware};
use crate::tier;

/// Malformed policies that the project promises to explain.
const MALFORMED: usize = 40;

fn toml_files(folder: &str) -> Vec<PathBuf> {
    let folder = repository().join(folder);
    let entries = std::fs::read_dir(&folder).unwrap();
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == "toml"));
    files.sort();
    files
}

/// What follows `# KEY: ` on lines of `path`.
fn header(path: &Path, key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let start = format!("# {key}: ");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
    lines.map(str::to_owned).collect()
}

fn policy(args: &[&str]) -> Output {
    let args = [&["policy"], args].concat();
    scx_gpuaware(&args).output().expect("starting scx_gpuaware")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `:4: error: …`
fn says_the_line(expected: &str) -> bool {
    let Some((before, _)) = expected.split_once(": error: ") else {
        return false;
    };
    let line = before.rsplit_once(':').map(|(_, line)| line);
    line.is_some_and(|line| line.parse::<u32>().is_ok())
}

#[test]
fn malformed_policies_are_refused_with_place_and_remedy() {
    let files = toml_files("tests/data/policies/bad");
    assert!(files.len() >= MALFORMED, "{} files", files.len());
    for path in files {
        let expected = header(&path, "expect");
        let with_line = expected.iter().any(|part| says_the_line(part));
        assert!(with_line, "{}: no # expect: :LINE: error", path.display());
        let args = ["--policy", path.to_str().unwrap()];
        let output = scx_gpuaware(&args).output().unwrap();
        let error = stderr(&output);
        assert_eq!(code(output.status), 2, "{}: {error}", path.display());
        for part in &expected {
            assert!(
                error.contains(part),
                "{}: {part:?} in {error}",
                path.display()
            );
        }
        let nr_lines = error
            .lines()
            .filter(|line| line.contains(": error: "))
            .count();
        let of_the_program = 1;
        let several = path.ends_with("several_mistakes.toml");
        assert!(
            several || nr_lines == 1 + of_the_program,
            "{}: one mistake, {nr_lines} errors: {error}",
            path.display()
        );
    }
}

#[test]
fn shipped_policies_are_right_for_their_machine_and_documented() {
    let manual = std::fs::read_to_string(repository().join("docs/policy.md")).unwrap();
    let files = toml_files("scheds/policies");
    assert!(files.len() >= 10);
    for path in files {
        let [cpus] = &header(&path, "CPUs")[..] else {
            panic!("{}: expected one line # CPUs: LIST", path.display());
        };
        assert_eq!(header(&path, "For").len(), 1, "{}", path.display());
        let output = policy(&["check", "--online", cpus, path.to_str().unwrap()]);
        assert_eq!(code(output.status), 0, "{}", stderr(&output));
        assert!(!stderr(&output).contains("warning"), "{}", stderr(&output));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            manual.contains(&format!("`{name}`")),
            "{name} is not in docs/policy.md"
        );
    }
}

#[test]
fn a_file_as_other_editors_save_it_is_read_or_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    let text = "[class.launch]\r\nslice_us = 10000\r\n";
    let check = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        policy(&["check", path.to_str().unwrap()])
    };
    for bytes in [text.to_owned(), format!("\u{feff}{text}")] {
        let output = check(bytes.as_bytes());
        assert_eq!(code(output.status), 0, "{}", stderr(&output));
    }
    let utf16: Vec<_> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (bytes, place) in [
        ([b"\xff\xfe".to_vec(), utf16].concat(), ":1: error: byte 1 "),
        (
            b"version = 1\n# Gr\xfc\xdfe\n".to_vec(),
            ":2: error: byte 5 ",
        ),
    ] {
        let output = check(&bytes);
        assert_eq!(code(output.status), 2);
        assert!(stderr(&output).contains(place), "{}", stderr(&output));
    }
}

#[test]
fn cgroups_that_systemd_has_escaped_are_written_in_either_way_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    for (value, is_right) in [
        (r"'a.slice/a-vllm\x2dserver.slice'", true),
        (r#""a.slice/a-vllm\\x2dserver.slice""#, true),
        (r#""a.slice/a-vllm\x2dserver.slice""#, false),
    ] {
        let text = format!("[class.handoff]\nmatch = {{ cgroup = {value} }}\n");
        std::fs::write(&path, text).unwrap();
        let output = policy(&["check", path.to_str().unwrap()]);
        assert_eq!(code(output.status) == 0, is_right, "{}", stderr(&output));
    }
}

#[test]
fn check_names_every_refused_file() {
    let bad = toml_files("tests/data/policies/bad");
    let good = repository().join("scheds/policies/single-gpu.toml");
    let files = [&good, &bad[0], &bad[1]].map(|path| path.to_str().unwrap());
    let output = policy(&["check", "--online", "0-7", files[0], files[1], files[2]]);
    assert_eq!(code(output.status), 2);
    assert!(stdout(&output).contains("single-gpu.toml: ok"));
    for file in &files[1..] {
        assert!(
            stderr(&output).contains(&format!("{file}:")),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn show_prints_a_policy_that_means_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    let shown = |args: &[&str]| {
        let output = policy(args);
        assert_eq!(code(output.status), 0, "{}", stderr(&output));
        stdout(&output)
    };
    std::fs::write(
        &path,
        "[preferred]\ncpus = \"0\"\n[class.launch]\nslice_us = 7000\n",
    )
    .unwrap();
    let path = path.to_str().unwrap();
    let first = shown(&["show", "-p", path]);
    assert!(first.contains("slice_us = 7000"), "{first}");
    assert!(first.contains("policy.toml:4"), "{first}");
    let json = shown(&["show", "-p", path, "--json"]);
    let entries: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let entry = entries
        .iter()
        .find(|entry| entry["key"] == "class.launch.slice_us")
        .unwrap();
    assert_eq!(entry["value"], 7000);
    assert_eq!(entry["origin"], "file");
    assert_eq!(entry["line"], 4);
    std::fs::write(path, &first).unwrap();
    let values = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .map(|line| line.rsplit_once(" # ").map_or(line, |(line, _)| line));
        lines.map(|line| line.trim_end().to_owned()).collect()
    };
    assert_eq!(values(&shown(&["show", "-p", path])), values(&first));
}

#[test]
fn diff_says_in_words_what_a_policy_does_otherwise() {
    let shared = repository().join("scheds/policies/shared-host.toml");
    let shared = shared.to_str().unwrap();
    let output = policy(&["diff", "--online", "0-31", "default", shared]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let text = stdout(&output);
    let hold =
        "preferred.hold_us: 0 instead of \"auto\": no CPU waits idle for a launcher that sleeps";
    assert!(text.lines().any(|line| line == hold), "{text}");
    let same = policy(&["diff", "--online", "0-31", shared, shared]);
    assert_eq!(
        (code(same.status), stdout(&same).as_str()),
        (0, "no difference\n")
    );
    let missing = policy(&["diff", "default", "no/such.toml"]);
    assert_eq!(code(missing.status), 2);
    assert!(
        stderr(&missing).contains("no/such.toml"),
        "{}",
        stderr(&missing)
    );
}

#[test]
fn init_writes_a_policy_that_this_machine_accepts() {
    let output = policy(&["init"]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    std::fs::write(&path, &output.stdout).unwrap();
    let output = policy(&["check", path.to_str().unwrap()]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

/// Dotted paths of the keys of a JSON Schema, without elements' indices.
fn keys(root: &serde_json::Value, node: &serde_json::Value, path: &str, found: &mut Vec<String>) {
    let mut node = node;
    while let Some(pointer) = node["$ref"].as_str() {
        node = root.pointer(pointer.trim_start_matches('#')).unwrap();
    }
    for choice in ["oneOf", "anyOf"] {
        for node in node[choice].as_array().into_iter().flatten() {
            keys(root, node, path, found);
        }
    }
    if node["items"].is_object() {
        keys(root, &node["items"], path, found);
    }
    for (key, node) in node["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        found.push(path.clone());
        keys(root, node, &path, found);
    }
}

#[test]
fn every_key_of_the_schema_is_documented() {
    let output = policy(&["schema"]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found = Vec::new();
    keys(&schema, &schema, "", &mut found);
    assert!(found.len() > 30, "{found:?}");
    let manual = std::fs::read_to_string(repository().join("docs/policy.md")).unwrap();
    for key in found {
        let tables = ["preferred", "irq", "identify", "class", "guard"];
        let is_table = tables.contains(&key.as_str())
            || key.starts_with("class.") && key.matches('.').count() == 1;
        let row = match key.split_once(".match.") {
            Some((_, term)) => format!("| `{term}` |"),
            None if is_table => format!("[{key}"),
            None => format!("| `{key}` |"),
        };
        assert!(manual.contains(&row), "{row} is not in docs/policy.md");
    }
}

/// Prints the files that the schema on standard input refuses, by name.
const VALIDATE: &str = "import json, sys, tomllib, jsonschema
schema = json.load(sys.stdin)
validator = jsonschema.validators.validator_for(schema)
validator.check_schema(schema)
for path in sys.argv[1:]:
    with open(path, 'rb') as file:
        text = tomllib.load(file)
    if not validator(schema).is_valid(text):
        print(path.rsplit('/')[-1])
";

#[test]
fn the_schema_takes_what_is_shipped_and_refuses_what_is_malformed() {
    let Some(python) = tier::python_with_jsonschema() else {
        return;
    };
    let refused = |files: Vec<PathBuf>| -> Vec<String> {
        let mut command = Command::new(python);
        command.arg("-c").arg(VALIDATE).args(files);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let schema = policy(&["schema"]).stdout;
        child.stdin.take().unwrap().write_all(&schema).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        stdout(&output).lines().map(str::to_owned).collect()
    };
    let mut shipped = toml_files("scheds/policies");
    shipped.push(repository().join("packaging/policy.toml"));
    assert_eq!(refused(shipped), [""; 0]);
    // What is wrong with its meaning only, or is no TOML, is beyond a schema.
    let malformed = [
        "flag_in_quotes",
        "max_in_quotes",
        "misspelt_key",
        "misspelt_table",
        "misspelt_value",
        "pin_without_cpus",
        "share_as_a_fraction",
        "slice_too_short",
        "table_as_a_list",
        "uid_by_name",
        "unit_in_the_key",
        "unit_in_the_value",
        "wakes_another_class",
    ];
    let malformed = malformed.map(|name| format!("{name}.toml"));
    let folder = repository().join("tests/data/policies/bad");
    let files = malformed.iter().map(|name| folder.join(name)).collect();
    assert_eq!(refused(files), malformed);
}

/// Rows of the tables of keys in docs/policy.md: key, default, example, as code or as words.
fn documented_keys() -> Vec<[String; 3]> {
    let manual = std::fs::read_to_string(repository().join("docs/policy.md")).unwrap();
    let manual = manual.replace("\\|", "\u{1}");
    let rows = manual
        .lines()
        .filter(|line| line.starts_with("| `") && line.matches('|').count() == 6);
    let cell = |row: &str, n: usize| {
        let cell = row.split('|').nth(n).unwrap().trim().replace('\u{1}', "|");
        let code = cell
            .strip_prefix('`')
            .and_then(|rest| rest.split('`').next());
        code.map_or(cell.clone(), str::to_owned)
    };
    rows.map(|row| [cell(row, 1), cell(row, 4), cell(row, 5)])
        .collect()
}

#[test]
fn the_defaults_in_the_manual_are_those_of_the_program() {
    let output = policy(&["show", "--json"]);
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    let documented = documented_keys();
    let default_of = |key: &str| {
        let row = documented.iter().find(|[found, ..]| found == key);
        row.map(|[_, default, _]| default.clone())
    };
    for entry in entries {
        let key = entry["key"].as_str().unwrap();
        let default = default_of(key).unwrap_or_else(|| panic!("{key} has no row"));
        let absent = default == "none" || default.starts_with("absent");
        if absent {
            let empty = entry["value"].is_null() || entry["value"] == serde_json::json!([]);
            assert!(empty, "{key}: {}", entry["value"]);
            continue;
        }
        let value: toml::Table = format!("value = {default}").parse().unwrap();
        let value = serde_json::to_value(&value["value"]).unwrap();
        assert_eq!(value, entry["value"], "{key}");
    }
}

/// A policy with the line `example` of the table that `key` is in, and what it refers to.
fn with_example(key: &str, example: &str) -> String {
    let groups = "[cpusets]\nnear_gpu = \"8-15\"\nodd = \"[1:4:2]\"\neven = \"[0:4:2]\"\n";
    match key {
        "version" => example.to_owned(),
        "pin" => format!("{example}\nmatch = {{ comm = \"a\" }}\ncpus = \"0\"\n"),
        "pin.match" => format!("[[pin]]\n{example}\ncpus = \"0\"\n"),
        "pin.cpus" => format!("{groups}[[pin]]\nmatch = {{ comm = \"a\" }}\n{example}\n"),
        "preferred.cpus" => format!("{groups}[preferred]\n{example}\n"),
        _ => {
            let table = match key {
                "cpusets" => key,
                _ => key.rsplit_once('.').unwrap().0,
            };
            format!("[{table}]\n{example}\n")
        }
    }
}

#[test]
fn the_examples_in_the_manual_are_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    let keys = documented_keys();
    assert!(keys.len() > 25, "{keys:?}");
    for [key, _, example] in keys {
        std::fs::write(&path, with_example(&key, &example)).unwrap();
        let output = policy(&["check", "--online", "0-63", path.to_str().unwrap()]);
        assert_eq!(
            code(output.status),
            0,
            "{key}: {example}: {}",
            stderr(&output)
        );
    }
    let manual = std::fs::read_to_string(repository().join("docs/policy.md")).unwrap();
    let whole = manual
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    std::fs::write(&path, whole).unwrap();
    let output = policy(&["check", "--online", "0-63", path.to_str().unwrap()]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
}
