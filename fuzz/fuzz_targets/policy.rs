// SPDX-License-Identifier: GPL-2.0-only
//! Policies: what is wrong is explained at a line that exists, what is right reads back as it is shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use scx_gpuaware::policy::effective::{AsToml, Entry, entries};
use scx_gpuaware::policy::{Document, PolicyError, cpuset::CpuSet};

fn check_explained(error: &PolicyError, text: &str) {
    let nr_lines = text.split('\n').count();
    assert!(!error.0.is_empty());
    for diagnostic in &error.0 {
        assert!((1..=nr_lines).contains(&diagnostic.line), "{diagnostic}");
        assert!(!diagnostic.problem.is_empty());
    }
}

/// What is in effect, wherever it came from.
fn values(entries: &[Entry]) -> Vec<String> {
    let value = |entry: &Entry| format!("{} {:?}", entry.key, entry.value);
    entries.iter().map(value).collect()
}

fuzz_target!(|text: &str| {
    let cpus = CpuSet::new(0..8);
    match Document::parse(text) {
        Ok(document) => {
            if let Err(error) = document.check_on(&cpus) {
                check_explained(&error, text);
            }
            let before = entries(&document, None);
            let shown = AsToml {
                entries: &before,
                file: "policy",
            };
            let text = shown.to_string();
            let again = Document::parse(&text);
            let again = again.unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(values(&entries(&again, None)), values(&before), "{text}");
        }
        Err(error) => check_explained(&error, text),
    }
});
