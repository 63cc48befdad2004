// SPDX-License-Identifier: GPL-2.0-only
//! docs/security.md promises nothing by a test that is not there.

use std::path::PathBuf;

use crate::process::repository;

/// Where the module of a test may be: `root::trust` in tests/, `identify::rest::tests` in src/.
fn files_of(module: &str) -> Vec<PathBuf> {
    let is_integration = ["host::", "root::", "vm::"]
        .iter()
        .any(|tier| module.starts_with(tier));
    let folder = repository().join(if is_integration { "tests" } else { "src" });
    let path = module.trim_end_matches("::tests").replace("::", "/");
    let ends = [".rs", "/mod.rs", "/tests.rs"];
    ends.iter()
        .map(|end| folder.join(format!("{path}{end}")))
        .collect()
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let page = std::fs::read_to_string(repository().join("docs/security.md")).unwrap();
    let quoted = page.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| text.contains("::") && !text.ends_with(':') && !text.contains(' ');
    let (mut nr_tests, mut missing) = (0, Vec::new());
    for test in quoted.filter(is_path) {
        let (module, name) = test.rsplit_once("::").unwrap();
        let defines = |file: PathBuf| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.contains(&format!("fn {name}("))
        };
        nr_tests += 1;
        if !files_of(module).into_iter().any(defines) {
            missing.push(test);
        }
    }
    assert!(nr_tests > 30, "{nr_tests} tests are named");
    assert!(missing.is_empty(), "{missing:#?}");
}
