// SPDX-License-Identifier: GPL-2.0-only
//! What is known of a machine and of what is on it, by name, and what differs between two of them. `run` gathers it.

use std::collections::BTreeMap;

/// Facts by name; the names are the report's.
pub type Facts = BTreeMap<String, String>;

/// Facts that a comparison rests on: with another of them its cells are not one run's.
pub const SETTLED: &[&str] = &[
    "cpu model",
    "cpus",
    "kernel",
    "kernel parameters",
    "HZ",
    "preemption",
    "tick",
    "autogroup",
    "EEVDF's slice",
    "memory",
    "virtualisation",
    "governor",
    "turbo",
    "smt",
    "mitigations",
    "gpu",
    "gpu driver",
    "stress-ng",
    "iperf3",
    "fio",
    "qemu",
    "scx_gpuaware",
    "programs",
    "peers",
];
/// What is worth a note, but no reason to refuse: data and programs are compared themselves.
pub const NOTED: &[&str] = &["git revision"];

/// What the revision says after its name where files of the tree were changed.
pub const CHANGED: &str = "with local changes";

/// Whether others can check out what was measured: only such a run is kept and published.
pub fn can_be_repeated(revision: &str) -> bool {
    !revision.is_empty() && !revision.contains(CHANGED)
}

/// Which of these have changed since a run began, one text a fact. What an older run did not note is no difference.
pub fn differences(names: &[&str], before: &Facts, now: &Facts) -> Vec<String> {
    let changed =
        |name: &&&str| before.contains_key(**name) && before.get(**name) != now.get(**name);
    let in_words = |name: &&str| {
        let value = |facts: &Facts| {
            facts
                .get(*name)
                .map_or("not known", String::as_str)
                .to_owned()
        };
        format!("{name}: {}, now {}", value(before), value(now))
    };
    names.iter().filter(changed).map(in_words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kernel_is_a_difference_and_another_load_is_none() {
        let facts = |pairs: &[(&str, &str)]| {
            let owned = pairs.iter().map(|&(a, b)| (a.to_owned(), b.to_owned()));
            owned.collect::<Facts>()
        };
        let before = facts(&[("kernel", "6.1"), ("load average", "1"), ("smt", "on")]);
        let now = facts(&[
            ("kernel", "6.18"),
            ("load average", "9"),
            ("programs", "ab"),
        ]);
        assert_eq!(
            differences(SETTLED, &before, &now),
            ["kernel: 6.1, now 6.18", "smt: on, now not known"]
        );
        assert!(differences(SETTLED, &before, &before).is_empty());
    }
}
