// SPDX-License-Identifier: GPL-2.0-only
//! What a package holds beside the program. `packaging/try-deb.sh` installs one.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::process::{repository, scx_gpuaware};

fn stdout(args: &[&str]) -> String {
    let output = scx_gpuaware(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "{args:?}: {said}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The effective policy: its keys and values.
fn values(args: &[&str]) -> Vec<(Value, Value)> {
    let entries: Vec<Value> = serde_json::from_str(&stdout(args)).unwrap();
    let pair = |entry: &Value| (entry["key"].clone(), entry["value"].clone());
    entries.iter().map(pair).collect()
}

#[test]
fn the_policy_of_the_package_is_the_default() {
    let policy = repository().join("packaging/policy.toml");
    let policy = policy.to_str().unwrap();
    stdout(&["policy", "check", policy]);
    let defaults = values(&["policy", "show", "--json"]);
    assert_eq!(
        values(&["policy", "show", "--json", "-p", policy]),
        defaults
    );
}

#[test]
fn man_pages_and_completions_cover_every_subcommand() {
    let folder = tempfile::tempdir().unwrap();
    stdout(&["generate", folder.path().to_str().unwrap()]);
    let read = |name: &str| {
        let path = folder.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let page = read("man/scx_gpuaware.1");
    assert!(page.contains("preferred\\-cpus"), "{page}");
    let help = stdout(&["--help"]);
    let commands = help.split("Commands:").nth(1).unwrap().lines().skip(1);
    let commands: Vec<_> = commands
        .take_while(|line| !line.is_empty())
        // What does not fit into the line goes on below, further in.
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty())
        .filter(|&name| name != "help")
        .collect();
    assert!(commands.contains(&"marks"), "{help}");
    for command in commands {
        assert!(page.contains(command), "{command}");
        read(&format!("man/scx_gpuaware-{command}.1"));
        for shell in ["scx_gpuaware.bash", "scx_gpuaware.fish", "_scx_gpuaware"] {
            let completions = read(&format!("completions/{shell}"));
            assert!(completions.contains(command), "{command} in {shell}");
        }
    }
    read("man/scx_gpuaware-policy-check.1");
}

/// Files below `folder`, as paths from it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let path = path.strip_prefix(folder).unwrap();
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Relative links of the Markdown page `path`.
fn links(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split([')', '#']).next());
    let relative = |target: &&str| !target.is_empty() && !target.contains(':');
    targets.filter(relative).map(str::to_owned).collect()
}

/// Fails if a page below `folder` links to what is not below it.
fn assert_links_hold(folder: &Path) {
    let pages = files(folder);
    let pages: Vec<_> = pages.iter().filter(|page| page.ends_with(".md")).collect();
    assert!(pages.len() > 10, "{pages:?}");
    for page in pages {
        let page = folder.join(page);
        for link in links(&page) {
            let target = page.parent().unwrap().join(&link);
            assert!(target.exists(), "{} links to {link}", page.display());
        }
    }
}

/// What the Debian package has in /usr/share/doc, laid out in `folder`, as Cargo.toml says.
fn lay_out_documents(folder: &Path) {
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let assets = &manifest["package"]["metadata"]["deb"]["assets"];
    for asset in assets.as_array().unwrap() {
        let (from, to) = (asset[0].as_str().unwrap(), asset[1].as_str().unwrap());
        let Some(to) = to.strip_prefix("usr/share/doc/scx-gpuaware/") else {
            continue;
        };
        let (parent, pattern) = from.rsplit_once('/').unwrap();
        let pattern = globset::Glob::new(pattern).unwrap().compile_matcher();
        std::fs::create_dir_all(folder.join(to)).unwrap();
        let entries = std::fs::read_dir(repository().join(parent)).unwrap();
        let matching = entries
            .flatten()
            .filter(|entry| pattern.is_match(entry.file_name()));
        let copied: Vec<_> = matching
            .map(|entry| {
                std::fs::copy(entry.path(), folder.join(to).join(entry.file_name())).unwrap()
            })
            .collect();
        assert!(!copied.is_empty(), "{from}");
    }
}

#[test]
fn pages_of_the_package_link_to_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    lay_out_documents(folder.path());
    assert_links_hold(folder.path());
}

#[test]
fn make_uninstall_takes_back_what_make_install_has_put() {
    let folder = tempfile::tempdir().unwrap();
    let make = |target: &str| {
        let output = Command::new("make")
            .args([target, "PREFIX=/opt/scx"])
            .arg(format!("DESTDIR={}", folder.path().display()))
            .current_dir(repository())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "make {target}: {said}");
    };
    make("install");
    let policy = folder.path().join("etc/scx_gpuaware/policy.toml");
    let installed = std::fs::read_to_string(&policy).unwrap();
    assert!(
        installed.contains("/opt/scx/share/doc/scx-gpuaware/"),
        "{installed}"
    );
    std::fs::write(&policy, "# of this host\n").unwrap();
    make("install");
    assert_eq!(std::fs::read_to_string(policy).unwrap(), "# of this host\n");
    let installed = files(folder.path());
    for file in [
        "opt/scx/bin/scx_gpuaware",
        "opt/scx/share/man/man1/scx_gpuaware.1",
    ] {
        assert!(installed.iter().any(|found| found == file), "{installed:?}");
    }
    let unit = folder
        .path()
        .join("opt/scx/lib/systemd/system/scx_gpuaware.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    assert!(
        unit.contains("ExecStart=/opt/scx/bin/scx_gpuaware "),
        "{unit}"
    );
    let documents = folder.path().join("opt/scx/share/doc/scx-gpuaware");
    assert_links_hold(&documents);
    make("uninstall");
    assert_eq!(
        files(folder.path()),
        ["etc/default/scx_gpuaware", "etc/scx_gpuaware/policy.toml"]
    );
}
