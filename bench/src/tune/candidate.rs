// SPDX-License-Identifier: GPL-2.0-only
//! A policy that is tried beside the default: its name, its keys, and why it might be better here. Pure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// Whose keys are those of no policy at all.
pub const DEFAULT: &str = "default";

/// Candidates that are not tried, and why.
pub type Dropped = Vec<(String, String)>;

/// A policy that may be better than the default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The name of its arm and of its files.
    pub name: String,
    /// Why it is tried.
    pub why: String,
    /// The policy, TOML.
    pub policy: String,
}

impl Candidate {
    pub fn new(name: &str, why: &str, policy: &str) -> Self {
        Self {
            name: name.to_owned(),
            why: why.to_owned(),
            policy: format!("version = 1\n{policy}"),
        }
    }

    /// What it sets, as dotted paths with their values, but the version.
    pub fn keys(&self) -> Vec<(String, String)> {
        let table: Table = toml::from_str(&self.policy).unwrap_or_default();
        let mut keys = Vec::new();
        flatten("", &table, &mut keys);
        keys.retain(|(key, _)| key != "version");
        keys
    }

    /// Both together, where neither changes what the other sets.
    pub fn with(&self, other: &Self) -> Option<Self> {
        let of = |candidate: &Self| -> BTreeSet<String> {
            candidate.keys().into_iter().map(|(key, _)| key).collect()
        };
        if !of(self).is_disjoint(&of(other)) {
            return None;
        }
        let (own, others): (Table, Table) = (
            toml::from_str(&self.policy).ok()?,
            toml::from_str(&other.policy).ok()?,
        );
        Some(Self {
            name: format!("{}+{}", self.name, other.name),
            why: format!(
                "the best two of the sifting together: {}; {}",
                self.why, other.why
            ),
            policy: toml::to_string(&merged(own, others)).ok()?,
        })
    }
}

impl Candidate {
    /// What it sets, over a policy that is in force; `None`: one of the two is no TOML.
    pub fn on_top_of(&self, policy: &str) -> Option<String> {
        let (below, own): (Table, Table) = (
            toml::from_str(policy).ok()?,
            toml::from_str(&self.policy).ok()?,
        );
        toml::to_string(&merged(below, own)).ok()
    }
}

fn flatten(prefix: &str, table: &Table, keys: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let path = match prefix {
            "" => key.clone(),
            prefix => format!("{prefix}.{key}"),
        };
        match value {
            Value::Table(inner) => flatten(&path, inner, keys),
            value => keys.push((path, value.to_string())),
        }
    }
}

fn merged(mut own: Table, other: Table) -> Table {
    for (key, value) in other {
        let value = match (own.remove(&key), value) {
            (Some(Value::Table(own)), Value::Table(other)) => merged(own, other).into(),
            (_, value) => value,
        };
        own.insert(key, value);
    }
    own
}

/// A name that a file and an arm may have.
pub fn file_name(text: &str) -> String {
    let letter = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => letter,
        _ => '-',
    };
    text.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_join_where_neither_changes_what_the_other_sets() {
        let hold = Candidate::new("hold-0", "w", "[preferred]\nhold_us = 0\n");
        let max = Candidate::new("max-2", "v", "[preferred]\nmax = 2\n[irq]\nsteer = true\n");
        let both = hold.with(&max).unwrap();
        assert_eq!(both.name, "hold-0+max-2");
        let text = |(key, value): (String, String)| format!("{key}={value}");
        let mut keys: Vec<String> = both.keys().into_iter().map(text).collect();
        keys.sort();
        assert_eq!(
            keys,
            ["irq.steer=true", "preferred.hold_us=0", "preferred.max=2"]
        );
        let longer = Candidate::new("hold-9", "w", "[preferred]\nhold_us = 9\n");
        assert_eq!(hold.with(&longer), None);
    }

    #[test]
    fn on_top_of_a_policy_what_it_does_not_set_stays() {
        let hold = Candidate::new("hold-0", "w", "[preferred]\nhold_us = 0\n");
        let text = hold
            .on_top_of("[preferred]\nmax = 2\nhold_us = 9\n")
            .unwrap();
        let table: Table = toml::from_str(&text).unwrap();
        let preferred = &table["preferred"];
        assert_eq!(
            (
                preferred["max"].as_integer(),
                preferred["hold_us"].as_integer()
            ),
            (Some(2), Some(0))
        );
        assert_eq!(hold.on_top_of("no toml"), None);
    }

    #[test]
    fn names_of_files_are_plain() {
        assert_eq!(file_name("../my policy.v2"), "---my-policy-v2");
    }
}
