// SPDX-License-Identifier: GPL-2.0-only
//! What one policy does otherwise than another, in words. Pure.

use toml::Value;

use super::effective::{Effective, Entry};
use super::model::AUTO_HOLD;

/// One sentence for each key that has another value in `new` than in `old`, in the order of the documentation; where
/// only `old` has the key, at the end.
pub fn differences(old: &Effective, new: &Effective) -> Vec<String> {
    let of = |all: &Effective, key: &str| -> Option<Value> {
        let entry = all.entries.iter().find(|entry| entry.key == key)?;
        entry.value.clone()
    };
    let missing = old
        .entries
        .iter()
        .filter(|entry| new.entries.iter().all(|other| other.key != entry.key));
    let keys = new
        .entries
        .iter()
        .chain(missing)
        .map(|entry: &Entry| entry.key.as_str());
    keys.filter_map(|key| {
        let (before, after) = (of(old, key), of(new, key));
        (before != after).then(|| sentence(key, before.as_ref(), after.as_ref()))
    })
    .collect()
}

fn sentence(key: &str, old: Option<&Value>, new: Option<&Value>) -> String {
    if let (Some(Value::Array(old)), Some(Value::Array(new))) = (old, new) {
        return format!("{key}: {}", lists(old, new));
    }
    let shown = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
    let values = format!("{key}: {} instead of {}", shown(new), shown(old));
    match meaning(key, old, new) {
        Some(meaning) => format!("{values}: {meaning}"),
        None => values,
    }
}

/// What became part of a list and what is no more; of the same in another order, that.
fn lists(old: &[Value], new: &[Value]) -> String {
    let only = |these: &[Value], those: &[Value], word: &str| -> Vec<String> {
        let gone = these.iter().filter(|value| !those.contains(value));
        gone.map(|value| format!("{word} {value}")).collect()
    };
    let changes = [only(new, old, "also"), only(old, new, "no more")].concat();
    if changes.is_empty() {
        return "the same in another order".to_owned();
    }
    changes.join(", ")
}

/// What the change does, where that is plain.
fn meaning(key: &str, old: Option<&Value>, new: Option<&Value>) -> Option<&'static str> {
    let text = new.and_then(Value::as_str);
    match (key, new.and_then(Value::as_bool)) {
        ("preferred.lend", Some(true)) => {
            return Some("others may use preferred CPUs that nobody needs");
        }
        ("preferred.lend", _) => return Some("nobody else may use preferred CPUs"),
        ("irq.avoid", Some(true)) => return Some("CPUs that are busy with interrupts are avoided"),
        ("irq.avoid", _) => {
            return Some("CPUs that are busy with interrupts are preferred like others");
        }
        ("irq.steer", Some(true)) => return Some("interrupts are moved off preferred CPUs"),
        ("irq.steer", _) => return Some("interrupts stay where they are"),
        _ => {}
    }
    match (key, text) {
        ("preferred.lend_yields_us", Some("auto")) => {
            return Some("who waits by sched_yield() lends its CPU where switches are cheap");
        }
        ("preferred.smt", Some("shared")) => return Some("a launcher gets a hardware thread"),
        ("preferred.smt", _) => return Some("a launcher gets a whole core"),
        ("preferred.cpus", Some("auto")) => {
            return Some("the scheduler chooses the preferred CPUs");
        }
        ("preferred.cpus", _) => return Some("these CPUs are preferred, whatever else they do"),
        ("identify.probes", Some("off")) => return Some("launches are not looked for"),
        ("identify.probes", Some("always")) => return Some("every launch is probed"),
        ("identify.probes", _) => return Some("launches are probed in short windows"),
        _ => {}
    }
    match (key, new.and_then(Value::as_integer)) {
        ("preferred.hold_us", Some(0)) => {
            return Some("no CPU waits idle for a launcher that sleeps");
        }
        ("preferred.lend_yields_us", Some(0)) => {
            return Some("who waits by sched_yield() keeps its CPU");
        }
        ("preferred.lend_yields_us", Some(_))
            if old.and_then(Value::as_integer).is_none_or(|old| old == 0) =>
        {
            return Some("who waits by sched_yield() lends its CPU for so long at a time");
        }
        _ => {}
    }
    let (more, less) = directions(key)?;
    let (old, new) = (amount(key, old?)?, amount(key, new?)?);
    Some(if new > old { more } else { less })
}

/// A number, a percentage, or what "auto" comes to at most.
fn amount(key: &str, value: &Value) -> Option<f64> {
    match value {
        Value::String(auto) if auto == "auto" && key == "preferred.hold_us" => {
            Some(AUTO_HOLD.cap.as_micros() as f64)
        }
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        Value::String(text) => text.strip_suffix('%')?.parse().ok(),
        _ => None,
    }
}

/// What a larger and a smaller value do.
fn directions(key: &str) -> Option<(&'static str, &'static str)> {
    Some(match key {
        "preferred.max" => ("more CPUs may be preferred", "fewer CPUs may be preferred"),
        "preferred.hold_us" => (
            "a CPU waits longer for a launcher that sleeps",
            "a CPU waits for shorter sleeps only",
        ),
        "preferred.lend_yields_us" => (
            "who waits by sched_yield() lends its CPU for longer at a time",
            "who waits by sched_yield() lends its CPU for shorter at a time",
        ),
        "irq.heavy_percent" => (
            "a CPU may have more interrupts before it is avoided",
            "a CPU is avoided with fewer interrupts",
        ),
        "class.launch.slice_us" => (
            "launchers that share a CPU take turns later",
            "launchers that share a CPU take turns sooner",
        ),
        "class.handoff.slice_us" => (
            "handoff threads run longer at a time",
            "handoff threads run shorter at a time",
        ),
        "class.background.slice_us" => (
            "background runs longer at a time while others wait",
            "background runs shorter at a time while others wait",
        ),
        "class.background.min_share" => (
            "background keeps more of a CPU that launchers want whole",
            "background keeps less of a CPU that launchers want whole",
        ),
        "guard.max_share" => (
            "launch and handoff may take more while others wait",
            "launch and handoff may take less while others wait",
        ),
        "identify.expire_s" => (
            "what a thread was seen doing is remembered longer",
            "what a thread was seen doing is forgotten sooner",
        ),
        "identify.max_pause_us" => (
            "a new launcher may be found later",
            "a new launcher is found sooner",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Document;
    use super::*;

    fn between(old: &str, new: &str) -> Vec<String> {
        let effective = |text: &str| Effective::of(&Document::parse(text).unwrap(), None);
        differences(&effective(old), &effective(new))
    }

    #[test]
    fn every_change_has_its_values_and_what_it_does() {
        let new = "[preferred]\nhold_us = 0\nlend = false\nmax = \"50%\"\n[class.background]\nslice_us = 2000\n";
        assert_eq!(
            between("", new),
            [
                "preferred.max: \"50%\" instead of \"25%\": more CPUs may be preferred",
                "preferred.lend: false instead of true: nobody else may use preferred CPUs",
                "preferred.hold_us: 0 instead of \"auto\": no CPU waits idle for a launcher that sleeps",
                "class.background.slice_us: 2000 instead of 4000: background runs shorter at a time while others wait",
            ]
        );
        assert_eq!(between(new, "").len(), 4);
        let yields = |old: &str, new: &str| {
            let lent = |us: &str| format!("[preferred]\nlend_yields_us = {us}\n");
            between(&lent(old), &lent(new)).concat()
        };
        for (old, new, what) in [
            ("\"auto\"", "0", "keeps its CPU"),
            ("0", "\"auto\"", "lends its CPU where switches are cheap"),
            ("\"auto\"", "50", "lends its CPU for so long at a time"),
            ("0", "100", "lends its CPU for so long at a time"),
            ("50", "100", "lends its CPU for longer at a time"),
            ("100", "50", "lends its CPU for shorter at a time"),
        ] {
            let said = format!(
                "preferred.lend_yields_us: {new} instead of {old}: who waits by sched_yield() {what}"
            );
            assert_eq!(yields(old, new), said);
        }
        let longer = "preferred.hold_us: 2000 instead of \"auto\": a CPU waits longer for a launcher that sleeps";
        assert_eq!(between("", "[preferred]\nhold_us = 2000\n"), [longer]);
    }

    #[test]
    fn of_lists_it_is_said_what_came_and_what_went() {
        let old = "[class.handoff]\nmatch = [{ wakes = \"launch\" }]\n";
        let new = "[class.handoff]\nmatch = [{ comm = \"tok*\" }]\n";
        assert_eq!(
            between(old, new),
            ["class.handoff.match: also { comm = \"tok*\" }, no more { wakes = \"launch\" }"]
        );
    }

    #[test]
    fn what_is_written_otherwise_and_comes_to_the_same_is_no_difference() {
        assert_eq!(
            between("", "# a comment\nversion = 1\n[irq]\navoid = true\n"),
            [""; 0]
        );
        let pinned = "[[pin]]\nmatch = { comm = \"m*\" }\ncpus = \"1\"\n";
        assert_eq!(between(pinned, "").len(), 2, "the pin is gone");
    }
}
