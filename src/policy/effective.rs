// SPDX-License-Identifier: GPL-2.0-only
//! The policy in effect, key by key, and where each value comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use toml::Value;
use toml::map::Map;

use super::cpuset::CpuSet;
use super::document::Document;
use super::file::FF_AFFINITY;
use super::glob::PathGlob;
use super::model::{AUTO_HOLD, Arming, Class, EntryPoints, Identify, Max, Pin, Policy, Smt};
use super::rule::Rule;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "origin", rename_all = "lowercase")]
pub enum Origin {
    /// Nobody said anything else.
    Default,
    /// A line of the policy file.
    File {
        /// From 1.
        line: usize,
    },
    /// A flag on the command line.
    Flag {
        /// As it is written.
        flag: &'static str,
    },
}

/// One key of the policy in effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Dotted path.
    pub key: String,
    /// Its value; `None`: the absence of the key has a meaning.
    pub value: Option<Value>,
    /// Where it comes from.
    #[serde(flatten)]
    pub origin: Origin,
}

/// A policy with what flags change in it.
#[derive(Debug, Clone)]
pub struct Effective {
    /// What is in effect.
    pub policy: Policy,
    /// The same, key by key.
    pub entries: Vec<Entry>,
}

impl Effective {
    /// `document`, with the CPUs that `--preferred-cpus` named.
    pub fn of(document: &Document, preferred: Option<&CpuSet>) -> Self {
        let mut policy = document.policy.clone();
        policy.preferred.cpus = preferred.cloned().or(policy.preferred.cpus);
        Self {
            policy,
            entries: entries(document, preferred),
        }
    }

    /// Do both come to the same, wherever it was written?
    pub fn same_values(&self, other: &Self) -> bool {
        self.changes_since(other).is_empty()
    }

    /// Keys with other values than in `before`, as `key: old -> new`.
    pub fn changes_since(&self, before: &Self) -> Vec<String> {
        let (before, now) = (values(&before.entries), values(&self.entries));
        let keys: BTreeSet<_> = before.keys().chain(now.keys()).collect();
        keys.into_iter()
            .filter(|key| before.get(*key) != now.get(*key))
            .map(|key| {
                format!(
                    "{key}: {} -> {}",
                    shown(before.get(key)),
                    shown(now.get(key))
                )
            })
            .collect()
    }
}

fn values(entries: &[Entry]) -> BTreeMap<&str, &Value> {
    let written = entries.iter();
    written
        .filter_map(|entry| Some((entry.key.as_str(), entry.value.as_ref()?)))
        .collect()
}

fn shown(value: Option<&&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), ToString::to_string)
}

/// The flag that overrides `preferred.cpus`.
const PREFERRED_CPUS: &str = "--preferred-cpus";

/// Every key of `document`, in the order of the documentation; `preferred` are the CPUs that a flag
/// named.
pub fn entries(document: &Document, preferred: Option<&CpuSet>) -> Vec<Entry> {
    let policy = &document.policy;
    let mut list = List {
        document,
        entries: Vec::new(),
    };
    list.add("version", Value::from(1));
    list.groups(policy);
    let cpus = preferred.or(policy.preferred.cpus.as_ref());
    let cpus = cpus.map_or("auto".to_owned(), CpuSet::to_string);
    list.add("preferred.cpus", Value::from(cpus));
    if preferred.is_some()
        && let Some(entry) = list.entries.last_mut()
    {
        let flag = PREFERRED_CPUS;
        entry.origin = Origin::Flag { flag };
    }
    let max = match policy.preferred.max {
        Max::Percent(share) => percent(share),
        Max::Count(count) => Value::from(count),
    };
    list.add("preferred.max", max);
    let smt = match policy.preferred.smt {
        Smt::WholeCore => "whole-core",
        Smt::Shared => "shared",
    };
    list.add("preferred.smt", Value::from(smt));
    list.add("preferred.lend", Value::from(policy.preferred.lend));
    let lent = policy.preferred.lend_yields;
    list.add(
        "preferred.lend_yields_us",
        lent.map_or_else(|| Value::from("auto"), micros),
    );
    let hold = match policy.preferred.hold {
        hold if hold == AUTO_HOLD => Value::from("auto"),
        hold => micros(hold.cap),
    };
    list.add("preferred.hold_us", hold);
    list.add("irq.avoid", Value::from(policy.irq.avoid));
    list.add("irq.heavy_percent", number(policy.irq.heavy_percent));
    list.add("irq.steer", Value::from(policy.irq.steer));
    list.identify(&policy.identify);
    list.class("class.launch", &policy.launch);
    list.class("class.handoff", &policy.handoff);
    list.add("class.background.slice_us", micros(policy.background.slice));
    list.add(
        "class.background.min_share",
        percent(policy.background.min_share),
    );
    list.add("class.background.match", rules(&policy.background.rules));
    let uids = policy.guard.trust_uids.as_ref();
    list.maybe(
        "guard.trust_uids",
        uids.map(|uids| Value::from(uids.clone())),
    );
    let texts = |globs: &Vec<PathGlob>| {
        let texts = globs.iter().map(|glob| glob.text().to_owned());
        Value::from(texts.collect::<Vec<_>>())
    };
    list.maybe(
        "guard.trust_devices",
        policy.guard.trust_devices.as_ref().map(texts),
    );
    let gid = policy.guard.hint_gid;
    list.maybe("guard.hint_gid", gid.map(|gid| Value::from(i64::from(gid))));
    list.add("guard.max_share", percent(policy.guard.max_share));
    for (index, pin) in policy.pins.iter().enumerate() {
        list.pin(policy, index, pin);
    }
    list.entries
}

struct List<'d> {
    document: &'d Document,
    entries: Vec<Entry>,
}

impl List<'_> {
    fn add(&mut self, key: &str, value: Value) {
        self.maybe(key, Some(value));
    }

    fn maybe(&mut self, key: &str, value: Option<Value>) {
        self.push(key, key, value);
    }

    /// Adds `key`, which the file has under `written`.
    fn push(&mut self, key: &str, written: &str, value: Option<Value>) {
        let origin = match self.document.line(written) {
            Some(line) => Origin::File { line },
            None => Origin::Default,
        };
        self.entries.push(Entry {
            key: key.to_owned(),
            value,
            origin,
        });
    }

    fn groups(&mut self, policy: &Policy) {
        let mut groups: Vec<_> = policy.groups.iter().collect();
        groups.sort_by_key(|group| &group.label);
        for group in groups {
            let Some(label) = &group.label else { continue };
            let key = format!("cpusets.{label}");
            let text = Some(Value::from(group.cpus.to_string()));
            if self.document.line(&key).is_some() {
                self.push(&key, &key, text);
            } else {
                self.push(&key, &format!("cpusets.{FF_AFFINITY}"), text);
            }
        }
    }

    fn class(&mut self, key: &str, class: &Class) {
        self.add(&format!("{key}.slice_us"), micros(class.slice));
        self.add(&format!("{key}.match"), rules(&class.rules));
    }

    fn identify(&mut self, identify: &Identify) {
        let probes = match identify.probes {
            Arming::Auto => "auto",
            Arming::Always => "always",
            Arming::Off => "off",
        };
        self.add("identify.probes", Value::from(probes));
        let points = match identify.entry_points {
            EntryPoints::Libcuda => "libcuda",
            EntryPoints::Libcudart => "libcudart",
            EntryPoints::Both => "both",
        };
        self.add("identify.entry_points", Value::from(points));
        self.add("identify.sweep_us", micros(identify.sweep));
        self.add("identify.max_pause_us", micros(identify.max_pause));
        let expire_s = identify.expire.as_secs() as i64;
        self.add("identify.expire_s", Value::from(expire_s));
    }

    fn pin(&mut self, policy: &Policy, index: usize, pin: &Pin) {
        let groups = pin.groups.iter().map(|&group| &policy.groups[group]);
        let names: Vec<_> = groups
            .map(|group| {
                group
                    .label
                    .clone()
                    .unwrap_or_else(|| group.cpus.to_string())
            })
            .collect();
        self.add(&format!("pin[{index}].match"), rules(&pin.rules));
        self.add(
            &format!("pin[{index}].cpus"),
            Value::from(names.join(" | ")),
        );
    }
}

fn micros(duration: std::time::Duration) -> Value {
    Value::from(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

/// Without a point where it is a whole number.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 {
        Value::from(value as i64)
    } else {
        Value::from(value)
    }
}

/// A share as it is written, without the noise of binary fractions.
fn percent(share: f64) -> Value {
    Value::from(format!("{}%", (share * 100_000.0).round() / 1000.0))
}

fn rules(rules: &[Rule]) -> Value {
    Value::Array(rules.iter().map(rule).collect())
}

fn rule(rule: &Rule) -> Value {
    let mut terms = Map::new();
    for (name, value) in rule.values() {
        terms.insert(name.to_owned(), value);
    }
    Value::Table(terms)
}

/// The policy in effect as TOML that can be read back, each line with its origin.
pub struct AsToml<'e> {
    /// From [`entries`].
    pub entries: &'e [Entry],
    /// Name of the policy file, for origins.
    pub file: &'e str,
}

impl fmt::Display for AsToml<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut section = String::new();
        for entry in self.entries {
            let (table, key) = entry.key.rsplit_once('.').unwrap_or(("", &entry.key));
            if table != section {
                match table.split_once('[') {
                    Some((list, _)) => writeln!(f, "\n[[{list}]]")?,
                    None => writeln!(f, "\n[{table}]")?,
                }
                section = table.to_owned();
            }
            let line = match &entry.value {
                Some(value) => format!("{key} = {value}"),
                None => format!("# {key} is absent"),
            };
            let origin = match &entry.origin {
                Origin::Default => "default".to_owned(),
                Origin::File { line } => format!("{}:{line}", self.file),
                Origin::Flag { flag } => (*flag).to_owned(),
            };
            writeln!(f, "{line:<40} # {origin}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "[cpusets]\nff_affinity = \"a[0:4:2]rr, b[1, 3]\"\n\
        [class.launch]\nmatch = [{ cuda_launch = true, cgroup = \"g/**\" }]\n\
        [preferred]\nmax = \"33.3%\"\nhold_us = 0\n[irq]\nheavy_percent = 2.5\n\
        [[pin]]\nmatch = { comm = \"m\\\"*\" }\ncpus = \"a | 0-1 | b\"\n";

    fn shown(document: &Document) -> String {
        let entries = entries(document, None);
        let file = "p.toml";
        AsToml {
            entries: &entries,
            file,
        }
        .to_string()
    }

    fn origin(text: &str, key: &str, flag: Option<&CpuSet>) -> Origin {
        let document = Document::parse(text).unwrap();
        let mut entries = entries(&document, flag).into_iter();
        entries.find(|entry| entry.key == key).unwrap().origin
    }

    #[test]
    fn every_value_has_its_origin() {
        assert_eq!(
            origin(POLICY, "preferred.max", None),
            Origin::File { line: 6 }
        );
        assert_eq!(origin(POLICY, "preferred.lend", None), Origin::Default);
        assert_eq!(origin(POLICY, "cpusets.b", None), Origin::File { line: 2 });
        assert_eq!(
            origin(POLICY, "pin[0].cpus", None),
            Origin::File { line: 12 }
        );
        let cpus = CpuSet::new([1]);
        let flag = PREFERRED_CPUS;
        assert_eq!(
            origin(POLICY, "preferred.cpus", Some(&cpus)),
            Origin::Flag { flag }
        );
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        for policy in ["", POLICY] {
            let document = Document::parse(policy).unwrap();
            let first = shown(&document);
            let again = Document::parse(&first).unwrap_or_else(|error| panic!("{error}\n{first}"));
            let values = |document: &Document| -> Vec<_> {
                let entries = entries(document, None).into_iter();
                entries.map(|entry| (entry.key, entry.value)).collect()
            };
            assert_eq!(values(&again), values(&document));
        }
    }

    #[test]
    fn changes_are_values_and_not_lines() {
        let effective = |text: &str| Effective::of(&Document::parse(text).unwrap(), None);
        let before = effective(POLICY);
        assert!(effective(&format!("# a comment\n{POLICY}")).same_values(&before));
        let after = effective("[preferred]\nhold_us = 100\n");
        let changes = after.changes_since(&effective("[guard]\ntrust_uids = [0]\n"));
        assert_eq!(
            changes,
            [
                "guard.trust_uids: [0] -> absent",
                "preferred.hold_us: \"auto\" -> 100"
            ]
        );
    }

    #[test]
    fn every_key_of_the_schema_is_shown() {
        let document = Document::parse(POLICY).unwrap();
        let text = format!("{:?}", entries(&document, None));
        for path in super::super::shape::Shape::of_policy().paths() {
            let is_term = path.contains(".match.") || path == "cpusets.ff_affinity";
            let is_table =
                !path.contains('.') || path.matches('.').count() == 1 && path.starts_with("class");
            let shown = path.replace("pin.", "pin[0].");
            assert!(
                is_term || is_table && path != "version" || text.contains(&shown),
                "{path}"
            );
        }
    }
}
