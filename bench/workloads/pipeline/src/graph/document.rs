// SPDX-License-Identifier: GPL-2.0-only
//! The text of a graph with what `--set` changes in it, and errors that say where they are. Pure.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

/// Bad input, the user's to mend: exit code 2.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {key}: {message}")]
pub struct GraphError {
    /// FILE:LINE, or the `--set` that is wrong.
    place: String,
    key: String,
    message: String,
}

/// What is wrong with the value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub span: Range<usize>,
    pub key: String,
    /// What was expected, what there is, and a way out.
    pub message: String,
}

/// A file's text, and changes to it, each as if it stood behind what is before it: a place in all of them is one
/// number.
#[derive(Debug)]
pub struct Document<'a> {
    name: &'a str,
    text: &'a str,
    /// Each behind as many blanks as there is text before it.
    changes: Vec<String>,
}

impl<'a> Document<'a> {
    /// `changes`: KEY=VALUE each, as TOML; a value that is none is a string.
    pub fn new(name: &'a str, text: &'a str, changes: &[String]) -> Self {
        let mut document = Self {
            name,
            text,
            changes: Vec::new(),
        };
        for change in changes {
            let offset = document.len() + 1;
            document.changes.push(" ".repeat(offset) + &quoted(change));
        }
        document
    }

    fn len(&self) -> usize {
        self.changes.last().map_or(self.text.len(), String::len)
    }

    pub fn read<T: DeserializeOwned>(&self) -> Result<T, GraphError> {
        let wrong = |error: &toml::de::Error| {
            let span = error.span().unwrap_or(0..0);
            self.error(Problem {
                key: self.key_at(span.start),
                message: error.message().replace('\n', ", "),
                span,
            })
        };
        let parse = |text| DeTable::parse(text).map_err(|error| wrong(&error));
        let mut table = parse(self.text)?.into_inner();
        for change in &self.changes {
            let changed = parse(change.as_str())?.into_inner();
            merge(&mut table, changed, depth(change));
        }
        T::deserialize(Deserializer::from(Spanned::new(0..0, table))).map_err(|error| wrong(&error))
    }

    pub fn error(&self, problem: Problem) -> GraphError {
        let at = problem.span.start;
        let place = match self.change_at(at) {
            Some(change) => format!("--set {}", change.trim()),
            None => format!("{}:{}", self.name, self.line(at)),
        };
        GraphError {
            place,
            key: problem.key,
            message: problem.message,
        }
    }

    /// The change that holds this place.
    fn change_at(&self, at: usize) -> Option<&str> {
        let mut changes = self.changes.iter();
        let change = changes.find(|change| at < change.len())?;
        (at > self.text.len()).then_some(change)
    }

    fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        before.iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    /// What stands before the `=` there.
    fn key_at(&self, at: usize) -> String {
        let line = match self.change_at(at) {
            Some(change) => change,
            None => (self.text.lines().nth(self.line(at) - 1)).unwrap_or_default(),
        };
        let key = line.split('=').next().unwrap_or_default().trim();
        if key.is_empty() { "(whole file)" } else { key }.to_owned()
    }
}

fn quoted(change: &str) -> String {
    match change.split_once('=') {
        Some((key, value)) if DeTable::parse(change).is_err() => {
            format!("{key}={}", toml::Value::from(value))
        }
        _ => change.to_owned(),
    }
}

/// How many names the key of a change has.
fn depth(change: &str) -> usize {
    let key = change.split('=').next().unwrap_or_default();
    key.split('.').count()
}

/// Tables that the key of a change leads through become one; what it leads to, `depth` tables down, is replaced.
fn merge<'a>(into: &mut DeTable<'a>, from: DeTable<'a>, depth: usize) {
    for (key, value) in from {
        let span = value.span();
        let old = into.get_mut(&**key.get_ref()).map(Spanned::get_mut);
        match (old, value.into_inner()) {
            (Some(DeValue::Table(old)), DeValue::Table(new)) if depth > 1 => {
                merge(old, new, depth - 1);
            }
            (_, new) => {
                // The key as well as the value: an unknown one is looked for where it was written.
                into.remove(&**key.get_ref());
                into.insert(key, Spanned::new(span, new));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\n[b]\nc = 2\nd = \"x\"\n";

    fn read(text: &str, changes: &[&str]) -> Result<toml::Table, String> {
        let changes: Vec<String> = changes.iter().map(|&change| change.to_owned()).collect();
        let document = Document::new("g.toml", text, &changes);
        document.read().map_err(|error| error.to_string())
    }

    #[test]
    fn a_change_takes_the_place_of_what_the_file_says() {
        let table = read(TEXT, &["b.c=5", "b.e.f=[1, 2]", "b.d=some words"]).unwrap();
        let b = table["b"].as_table().unwrap();
        assert_eq!(b["c"].as_integer(), Some(5));
        assert_eq!(b["d"].as_str(), Some("some words"));
        assert_eq!(b["e"]["f"].as_array().unwrap().len(), 2);
        assert_eq!(table["a"].as_integer(), Some(1));
    }

    #[test]
    fn a_table_that_is_given_whole_replaces_the_old_one() {
        let table = read(TEXT, &["b={ d = \"y\" }"]).unwrap();
        let b = table["b"].as_table().unwrap();
        assert_eq!((b.len(), b["d"].as_str()), (1, Some("y")));
    }

    #[test]
    fn an_error_says_where_it_is() {
        let problem = |at: usize| Problem {
            span: at..at,
            key: "k".to_owned(),
            message: "m".to_owned(),
        };
        let changes = ["b.c=0".to_owned(), "a=-1".to_owned()];
        let document = Document::new("g.toml", TEXT, &changes);
        let place = |at: usize| document.error(problem(at)).to_string();
        assert_eq!(place(TEXT.find("c =").unwrap()), "g.toml:3: k: m");
        let first = document.changes[0].len();
        assert_eq!(place(first - 1), "--set b.c=0: k: m");
        assert_eq!(place(document.len() - 1), "--set a=-1: k: m");
    }

    #[test]
    fn what_is_no_toml_has_its_line() {
        let error = read("a = 1\nb = = 2\n", &[]).unwrap_err();
        assert!(error.starts_with("g.toml:2: b: "), "{error}");
        let error = read(TEXT, &["= 3"]).unwrap_err();
        assert!(error.starts_with("--set ="), "{error}");
    }
}
