// SPDX-License-Identifier: GPL-2.0-only
//! Which keys exist, from the JSON Schema of the file's types; and the keys that do not.

use schemars::generate::SchemaSettings;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::file::File;
use super::report::{Report, join};
use super::spelling::nearest;

/// Endings of durations that operators write by habit; the policy has microseconds only.
const UNITS: [&str; 7] = ["_ns", "_ms", "_s", "_sec", "_usec", "_msec", "_micros"];

/// JSON Schema (2020-12) of a policy file, for editors.
pub fn json_schema() -> Value {
    let settings = SchemaSettings::draft2020_12();
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<File>()
        .to_value();
    forget_null(&mut schema);
    schema
}

/// TOML has no null: an absent key is what `Option` means.
fn forget_null(node: &mut Value) {
    match node {
        Value::Object(members) => {
            if members.get("default") == Some(&Value::Null) {
                members.remove("default");
            }
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = &types[..] {
                    let only = only.clone();
                    members.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(values)) = members.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            for choice in ["anyOf", "oneOf"] {
                if let Some(Value::Array(choices)) = members.get_mut(choice) {
                    choices.retain(|schema| schema.get("type") != Some(&"null".into()));
                    if let [Value::Object(only)] = &choices[..] {
                        let only = only.clone();
                        members.remove(choice);
                        for (key, value) in only {
                            members.entry(key).or_insert(value);
                        }
                    }
                }
            }
            members.values_mut().for_each(forget_null);
        }
        Value::Array(elements) => elements.iter_mut().for_each(forget_null),
        _ => {}
    }
}

/// The keys of a policy file.
pub struct Shape {
    schema: Value,
}

impl Shape {
    /// From the file's types.
    pub fn of_policy() -> Self {
        Self {
            schema: json_schema(),
        }
    }

    fn resolve<'s>(&'s self, node: &'s Value) -> &'s Value {
        let mut node = node;
        while let Some(pointer) = node.get("$ref").and_then(Value::as_str) {
            match self.schema.pointer(pointer.trim_start_matches('#')) {
                Some(target) => node = target,
                None => break,
            }
        }
        node
    }

    /// The alternatives of `node`.
    fn choices<'s>(&'s self, node: &'s Value) -> Vec<&'s Value> {
        let node = self.resolve(node);
        match node.get("oneOf").or_else(|| node.get("anyOf")) {
            Some(Value::Array(choices)) => choices.iter().map(|node| self.resolve(node)).collect(),
            _ => vec![node],
        }
    }

    fn table<'s>(&'s self, node: &'s Value) -> Option<&'s Value> {
        let mut choices = self.choices(node).into_iter();
        choices.find(|node| node.get("properties").is_some())
    }

    fn element<'s>(&'s self, node: &'s Value) -> Option<&'s Value> {
        let mut choices = self.choices(node).into_iter();
        choices.find_map(|node| node.get("items"))
    }

    /// Takes the keys of `tree` out that no policy has, and reports each.
    pub fn take_unknown_keys(&self, tree: &mut DeTable<'_>, report: &mut Report<'_>) {
        self.take_from(tree, &self.schema, "", report);
    }

    fn take_from(&self, tree: &mut DeTable<'_>, node: &Value, path: &str, report: &mut Report<'_>) {
        let Some(Value::Object(known)) = self.table(node).and_then(|node| node.get("properties"))
        else {
            return;
        };
        let open = self.table(node).is_some_and(|node| {
            node.get("additionalProperties")
                .is_some_and(Value::is_object)
        });
        let mut unknown = Vec::new();
        for (key, value) in tree.iter_mut() {
            let path = join(path, key.get_ref());
            let node = known.get(key.get_ref().as_ref());
            if let Some(problem) =
                node.and_then(|node| self.misshapen(value.get_ref(), node, &path))
            {
                report.error_in_key(key.span(), path, problem);
                unknown.push(key.get_ref().to_string());
                continue;
            }
            match node {
                Some(node) => self.descend(value.get_mut(), node, &path, report),
                None if open => {}
                None => {
                    let known: Vec<_> = known.keys().map(String::as_str).collect();
                    let problem = self.unknown(key.get_ref(), &known);
                    report.error_in_key(key.span(), path, problem);
                    unknown.push(key.get_ref().to_string());
                }
            }
        }
        for key in unknown {
            tree.remove(key.as_str());
        }
    }

    fn descend(&self, value: &mut DeValue<'_>, node: &Value, path: &str, report: &mut Report<'_>) {
        match value {
            DeValue::Table(table) => self.take_from(table, node, path, report),
            DeValue::Array(array) => {
                let Some(node) = self.element(node) else {
                    return;
                };
                for (index, element) in array.iter_mut().enumerate() {
                    let path = format!("{path}[{index}]");
                    if let DeValue::Table(table) = element.get_mut() {
                        self.take_from(table, node, &path, report);
                    }
                }
            }
            _ => {}
        }
    }

    /// One table where a list of them is expected, or the other way round: serde would take the
    /// list for the fields of the table in turn.
    fn misshapen(&self, value: &DeValue<'_>, node: &Value, path: &str) -> Option<String> {
        let (table, list) = (self.table(node).is_some(), self.element(node).is_some());
        match value {
            DeValue::Array(_) if table && !list => {
                Some(format!("a list of tables: write [{path}], not [[{path}]]"))
            }
            DeValue::Table(_) if list && !table => Some(format!(
                "one table, where there may be several: write [[{path}]], not [{path}]"
            )),
            _ => None,
        }
    }

    /// Why `key` is unknown where `known` are expected, and what was probably meant.
    fn unknown(&self, key: &str, known: &[&str]) -> String {
        let expected = format!("unknown key: expected {}", known.join(", "));
        let in_us = UNITS
            .iter()
            .find_map(|unit| key.strip_suffix(unit))
            .map(|stem| format!("{stem}_us"));
        if let Some(meant) = in_us.filter(|meant| known.contains(&meant.as_str())) {
            return format!("{expected}; did you mean {meant}, in microseconds?");
        }
        if let Some(meant) = nearest(key, known.iter().copied()) {
            return format!("{expected}; did you mean {meant}?");
        }
        match &self.homes_of(key)[..] {
            [] => expected,
            homes => format!("{expected}; {key} belongs in {}", homes.join(" or ")),
        }
    }

    /// The tables that have `key`.
    fn homes_of(&self, key: &str) -> Vec<String> {
        let mut homes = Vec::new();
        for path in self.paths() {
            if let Some(home) = path.strip_suffix(&format!(".{key}"))
                && !home.contains("match")
            {
                homes.push(match home {
                    "pin" => "[[pin]]".to_owned(),
                    _ => format!("[{home}]"),
                });
            }
        }
        homes
    }

    /// Dotted paths of all keys, tables included.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.list(&self.schema, "", &mut paths);
        paths
    }

    fn list(&self, node: &Value, path: &str, paths: &mut Vec<String>) {
        let node = self.element(node).unwrap_or(node);
        let Some(Value::Object(known)) = self.table(node).and_then(|node| node.get("properties"))
        else {
            return;
        };
        for (key, node) in known {
            let path = join(path, key);
            paths.push(path.clone());
            self.list(node, &path, paths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_every_key_of_the_contract() {
        let paths = Shape::of_policy().paths();
        for key in [
            "version",
            "cpusets",
            "cpusets.ff_affinity",
            "preferred.cpus",
            "preferred.max",
            "preferred.smt",
            "preferred.lend",
            "preferred.lend_yields_us",
            "preferred.hold_us",
            "irq.avoid",
            "irq.heavy_percent",
            "irq.steer",
            "class.launch.slice_us",
            "class.launch.match.cuda_launch",
            "class.handoff.match.wakes",
            "class.handoff.match.spins_with",
            "class.handoff.match.connects_to",
            "class.background.min_share",
            "guard.trust_uids",
            "guard.max_share",
            "pin.match.comm",
            "pin.cpus",
        ] {
            assert!(paths.iter().any(|path| path == key), "{key} in {paths:#?}");
        }
    }

    #[test]
    fn schema_knows_no_null() {
        let schema = json_schema().to_string();
        assert!(!schema.contains("null"), "{schema}");
    }

    #[test]
    fn unknown_keys_are_traced_to_their_homes() {
        let shape = Shape::of_policy();
        let known = ["avoid", "heavy_percent", "steer"];
        assert!(
            shape
                .unknown("heavy_pct", &known)
                .contains("did you mean heavy_percent?")
        );
        let moved = shape.unknown("slice_us", &known);
        assert!(
            moved.contains("belongs in [class.background] or [class.handoff]"),
            "{moved}"
        );
        let unit = shape.unknown("hold_ms", &["hold_us", "lend"]);
        assert!(unit.contains("hold_us, in microseconds"), "{unit}");
    }
}
