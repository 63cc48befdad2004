// SPDX-License-Identifier: GPL-2.0-only
//! Keys that are read and checked but that this build does not act on yet: the one place to strike
//! a key from when its feature lands.

use super::Document;
use super::rule::Rule;

/// Dotted paths.
const PENDING: [&str; 2] = ["pin", "guard.trust_uids"];

/// Terms of rules.
const PENDING_TERMS: [&str; 5] = ["comm", "exe", "cmdline", "wakes", "connects_to"];

/// Are several terms in one rule pending?
const PENDING_SEVERAL_TERMS: bool = true;

/// The keys of `document` that this build does not act on, with their lines.
pub fn keys(document: &Document) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for key in PENDING {
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
            if rules.iter().any(|rule| rule.terms().contains(&term)) {
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
