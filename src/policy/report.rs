// SPDX-License-Identifier: GPL-2.0-only
//! What is wrong with a policy, and where: the line, the key, what was expected.

use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// Does it stop the policy from being used?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Yes.
    Error,
    /// No, but it is probably not what was meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Line in the text, from 1.
    pub line: usize,
    /// Error or warning.
    pub severity: Severity,
    /// Dotted path of the key; empty: the text as a whole.
    pub key: String,
    /// What is wrong, what was expected, how to mend it.
    pub problem: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{}: {severity}: ", self.line)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.problem)
    }
}

/// Why a policy is refused: at least one error, and the warnings. The caller adds the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError(pub Vec<Diagnostic>);

impl PolicyError {
    /// One line for each diagnostic, as compilers print them: `FILE:LINE: error: KEY: problem`.
    pub fn in_file(&self, file: &str) -> String {
        in_file(&self.0, file)
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_file("policy"))
    }
}

impl std::error::Error for PolicyError {}

/// One line for each diagnostic.
pub fn in_file(diagnostics: &[Diagnostic], file: &str) -> String {
    let lines: Vec<_> = diagnostics
        .iter()
        .map(|diagnostic| format!("{file}:{diagnostic}"))
        .collect();
    lines.join("\n")
}

/// The text of a policy and what was found wrong in it so far.
pub struct Report<'t> {
    text: &'t str,
    keys: Vec<(Range<usize>, String)>,
    found: Vec<(usize, Diagnostic)>,
}

impl<'t> Report<'t> {
    /// A report on `text`, of which `tree` is what the TOML parser made.
    pub fn new(text: &'t str, tree: &DeTable<'_>) -> Self {
        let mut keys = Vec::new();
        list_keys(tree, "", &mut |path, _, value| keys.push((value, path)));
        Self {
            text,
            keys,
            found: Vec::new(),
        }
    }

    /// Refuses the policy for what stands at `span`.
    pub fn error(&mut self, span: Range<usize>, problem: impl Into<String>) {
        let key = self.key_at(&span);
        self.add(Severity::Error, span, key, problem.into());
    }

    /// As [`Report::error`], unless something within `span` was refused already: the rest follows
    /// from it.
    pub fn error_once(&mut self, span: Range<usize>, problem: impl Into<String>) {
        let key = self.key_at(&span);
        let refused =
            |found: &Diagnostic| found.severity == Severity::Error && found.key.starts_with(&key);
        if !self.found.iter().any(|(_, found)| refused(found)) {
            self.add(Severity::Error, span, key, problem.into());
        }
    }

    /// Warns of what stands at `span`.
    pub fn warning(&mut self, span: Range<usize>, problem: impl Into<String>) {
        let key = self.key_at(&span);
        self.add(Severity::Warning, span, key, problem.into());
    }

    /// Refuses the policy for `key` at `span`, which is not the span of a value.
    pub fn error_in_key(&mut self, span: Range<usize>, key: String, problem: impl Into<String>) {
        self.add(Severity::Error, span, key, problem.into());
    }

    fn add(&mut self, severity: Severity, span: Range<usize>, key: String, problem: String) {
        let diagnostic = Diagnostic {
            line: line_of(self.text, span.start),
            severity,
            key,
            problem,
        };
        self.found.push((span.start, diagnostic));
    }

    /// What is written at `span`.
    pub fn written(&self, span: &Range<usize>) -> &'t str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// Line of `span`, from 1.
    pub fn line(&self, span: &Range<usize>) -> usize {
        line_of(self.text, span.start)
    }

    /// The innermost key whose value holds `span`.
    pub fn key_at(&self, span: &Range<usize>) -> String {
        self.keys
            .iter()
            .filter(|(value, _)| value.start <= span.start && span.end <= value.end)
            .min_by_key(|(value, path)| (value.len(), Reverse(path.len())))
            .map(|(_, path)| path.clone())
            .unwrap_or_default()
    }

    /// Does an error refuse the policy?
    pub fn has_errors(&self) -> bool {
        self.found
            .iter()
            .any(|(_, diagnostic)| diagnostic.severity == Severity::Error)
    }

    /// All of it, in the order of the text.
    pub fn into_diagnostics(mut self) -> Vec<Diagnostic> {
        self.found.sort_by_key(|(start, _)| *start);
        self.found
            .into_iter()
            .map(|(_, diagnostic)| diagnostic)
            .collect()
    }
}

/// Line of the byte `offset` of `text`, from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// Calls `each` with the dotted path, the span of the key and the span of the value of everything
/// in `table`, elements of arrays included.
pub fn list_keys(
    table: &DeTable<'_>,
    prefix: &str,
    each: &mut impl FnMut(String, Range<usize>, Range<usize>),
) {
    for (key, value) in table.iter() {
        let path = join(prefix, key.get_ref());
        each(path.clone(), key.span(), value.span());
        match value.get_ref() {
            DeValue::Table(table) => list_keys(table, &path, each),
            DeValue::Array(array) => {
                for (index, element) in array.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    each(path.clone(), element.span(), element.span());
                    if let DeValue::Table(table) = element.get_ref() {
                        list_keys(table, &path, each);
                    }
                }
            }
            _ => {}
        }
    }
}

/// `prefix.key`.
pub fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() {
        key.to_owned()
    } else {
        format!("{prefix}.{key}")
    }
}
