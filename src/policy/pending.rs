// SPDX-License-Identifier: GPL-2.0-only
//! Keys that are read and checked but that this build does not act on yet: the one place to strike
//! a key from when its feature lands.

use super::Document;
use super::rule::Rule;

/// Dotted paths.
const PENDING: &[&str] = &["guard.trust_uids"];

/// Terms of rules.
const PENDING_TERMS: &[&str] = &["comm", "exe", "cmdline", "wakes", "connects_to"];

/// Are several terms in one rule pending?
const PENDING_SEVERAL_TERMS: bool = true;

/// The keys of `document` that this build does not act on, with their lines.
pub fn keys(document: &Document) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for &key in PENDING {
        found.extend(document.line(key).map(|line| (key.to_owned(), line)));
    }
    let policy = &document.policy;
    for (key, rules) in [
        ("class.launch.match", &policy.launch.rules),
        ("class.handoff.match", &policy.handoff.rules),
        ("class.background.match", &policy.background.rules),
    ] {
        let line = document.line(key).unwrap_or(1);
        for term in PENDING_TERMS {
            if rules.iter().any(|rule| rule.terms().contains(term)) {
                found.push((format!("{key}: {term}"), line));
            }
        }
        let has_several = |rule: &Rule| rule.terms().len() > 1;
        if PENDING_SEVERAL_TERMS && rules.iter().any(has_several) {
            found.push((format!("{key}: several terms in one rule"), line));
        }
    }
    found.sort_by_key(|(_, line)| *line);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = include_str!("../../docs/policy.md");

    #[test]
    fn the_manual_marks_the_keys_that_are_pending_and_no_others() {
        let rows = MANUAL.lines().filter_map(|line| line.strip_prefix("| `"));
        for (key, row) in rows.filter_map(|row| row.split_once("` |")) {
            let pending = PENDING.contains(&key) || PENDING_TERMS.contains(&key);
            assert_eq!(row.contains("*not yet*"), pending, "{key}");
        }
        for key in PENDING.iter().chain(PENDING_TERMS) {
            assert!(MANUAL.contains(&format!("| `{key}` |")), "{key}");
        }
    }

    #[test]
    fn each_key_that_is_written_is_listed_once() {
        let document = Document::parse(super::super::tests::EVERY_KEY).unwrap();
        let mut found = keys(&document);
        for key in PENDING.iter().filter(|key| document.line(key).is_some()) {
            let times = found.iter().filter(|(listed, _)| listed == key).count();
            assert_eq!(times, 1, "{key} in {found:?}");
        }
        let listed = found.len();
        found.dedup();
        assert_eq!(found.len(), listed, "{found:?}");
        assert!(keys(&Document::parse("").unwrap()).is_empty());
    }
}
