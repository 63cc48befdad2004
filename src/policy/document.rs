// SPDX-License-Identifier: GPL-2.0-only
//! A policy together with its text: warnings, where each key was written, and whether it fits a
//! machine.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, Deserializer};

use super::cpuset::CpuSet;
use super::file::File;
use super::groups::CpusNamed;
use super::model::{Max, Policy};
use super::report::{Diagnostic, PolicyError, Report, Severity, line_of, list_keys};
use super::shape::Shape;
use super::validate;

/// Wrong values that are looked for before giving up.
const MAX_WRONG_VALUES: usize = 100;

/// A policy that was read from a text.
#[derive(Debug, Clone)]
pub struct Document {
    /// What it comes to.
    pub policy: Policy,
    /// What was probably not meant, in the order of the text.
    pub warnings: Vec<Diagnostic>,
    /// Line of each key that is written, by dotted path.
    pub lines: BTreeMap<String, usize>,
    cpus_named: Vec<CpusNamed>,
}

impl Document {
    /// Parses and validates a policy.
    ///
    /// # Errors
    /// Everything that is wrong with it: text that is not TOML, unknown keys, values that cannot
    /// be, rules that contradict each other.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let (tree, errors) = DeTable::parse_recoverable(text);
        let tree = tree.into_inner();
        let mut report = Report::new(text, &tree);
        if !errors.is_empty() {
            for error in errors {
                let at = error.span().unwrap_or(0..0);
                let mut problem = format!("not TOML: {}", error.message());
                // The parser shows where, and not which.
                if error.message() == "duplicate key" {
                    problem += &format!(" `{}`", report.written(&at).trim());
                }
                report.error_in_key(at, String::new(), problem);
            }
            return Err(PolicyError(report.into_diagnostics()));
        }
        let mut lines = BTreeMap::new();
        list_keys(&tree, "", &mut |path, key, _| {
            lines.insert(path, line_of(text, key.start));
        });
        let file = read(tree, &mut report);
        let (policy, cpus_named) = validate::policy(file, &mut report);
        if report.has_errors() {
            return Err(PolicyError(report.into_diagnostics()));
        }
        Ok(Self {
            policy,
            warnings: report.into_diagnostics(),
            lines,
            cpus_named,
        })
    }

    /// Refuses a policy that names CPUs which are not among `online`, or keeps all of them.
    ///
    /// # Errors
    /// The keys and the CPUs.
    pub fn check_on(&self, online: &CpuSet) -> Result<(), PolicyError> {
        let mut found = Vec::new();
        let mut error = |line: usize, key: &str, problem: String| {
            found.push(Diagnostic {
                line,
                severity: Severity::Error,
                key: key.to_owned(),
                problem,
            });
        };
        for CpusNamed { key, line, cpus } in &self.cpus_named {
            let missing = cpus.difference(online);
            if !missing.is_empty() {
                let problem = format!("CPU {missing} is not online: this machine has {online}");
                error(*line, key, problem);
            }
        }
        let preferred = &self.policy.preferred;
        if let Some(line) = self.lines.get("preferred.max")
            && let Max::Count(count) = preferred.max
            && count as usize > online.len()
        {
            let problem = format!("{count} CPUs: this machine has {} online", online.len());
            error(*line, "preferred.max", problem);
        }
        if let Some(line) = self.lines.get("preferred.lend")
            && !preferred.lend
            && (preferred.cpus.as_ref()).is_some_and(|cpus| online.difference(cpus).is_empty())
        {
            let problem = "false, while preferred.cpus is every CPU of this machine: nothing is left \
                           for everybody else";
            error(*line, "preferred.lend", problem.to_owned());
        }
        if found.is_empty() {
            return Ok(());
        }
        found.sort_by_key(|diagnostic| diagnostic.line);
        Err(PolicyError(found))
    }

    /// Line of `key`, if it is written.
    pub fn line(&self, key: &str) -> Option<usize> {
        self.lines.get(key).copied()
    }
}

/// Reads `tree` into the file's types. What is wrong is reported and taken out, so that one mistake
/// does not hide the next.
fn read(mut tree: DeTable<'_>, report: &mut Report<'_>) -> File {
    Shape::of_policy().take_unknown_keys(&mut tree, report);
    for _ in 0..MAX_WRONG_VALUES {
        let spanned = toml::Spanned::new(0..0, tree.clone());
        let error = match File::deserialize(Deserializer::from(spanned)) {
            Ok(file) => return file,
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        report.error(span.clone(), plain(error.message()));
        if !take_out(&mut tree, &span) {
            break;
        }
    }
    File::default()
}

/// Removes the innermost value that holds `span`; false if there is none.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> bool {
    let holds = |value: Range<usize>| value.start <= span.start && span.end <= value.end;
    let mut taken = false;
    for (_, value) in table.iter_mut() {
        taken |= match value.get_mut() {
            DeValue::Table(table) => take_out(table, span),
            DeValue::Array(array) => array.iter_mut().any(|element| match element.get_mut() {
                DeValue::Table(table) => take_out(table, span),
                _ => false,
            }),
            _ => false,
        };
    }
    if !taken {
        let mut entries = table.iter();
        let key = entries
            .find(|(_, value)| holds(value.span()))
            .map(|(key, _)| key.get_ref().to_string());
        taken = key.is_some_and(|key| table.remove(key.as_str()).is_some());
    }
    taken
}

/// serde's words in ours.
fn plain(message: &str) -> String {
    let message = message.strip_prefix("invalid type: ").unwrap_or(message);
    let (found, expected) = match message.split_once(", expected ") {
        Some(parts) => parts,
        None => return message.to_owned(),
    };
    let found = match found {
        "map" => "a table",
        "sequence" => "a list",
        other => other,
    };
    let expected = match expected {
        "a map" => "a table",
        "a sequence" => "a list in [ ]",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    format!("{found}: expected {expected}")
}

impl Policy {
    /// Parses and validates a policy; warnings are dropped. See [`Document::parse`].
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        Document::parse(text).map(|document| document.policy)
    }
}
