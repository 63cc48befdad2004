// SPDX-License-Identifier: GPL-2.0-only
//! Keys that are read and checked but that this build does not act on yet: the one place to strike
//! a key from when its feature lands.

use super::Document;

/// Dotted paths.
const PENDING: &[&str] = &["pin"];

/// The keys of `document` that this build does not act on, with their lines.
pub fn keys(document: &Document) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for &key in PENDING {
        found.extend(document.line(key).map(|line| (key.to_owned(), line)));
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
            let pending = PENDING.contains(&key);
            assert_eq!(row.contains("*not yet*"), pending, "{key}");
        }
        for key in PENDING {
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
