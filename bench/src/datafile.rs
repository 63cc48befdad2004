// SPDX-License-Identifier: GPL-2.0-only
//! TOML data files: read whole, and errors that say file, line, key and what was expected.
//! A file may include
//! another one. What the keys mean is the business of `matrix` and `arm`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// A data file that cannot be used: the user's to mend, so exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error("{file}: cannot read: {why}")]
    Read { file: PathBuf, why: std::io::Error },
    #[error("{file}:{line}: {key}: {message}")]
    Parse {
        file: PathBuf,
        line: usize,
        key: String,
        message: String,
    },
    #[error("no {what} {name:?} in {folder}; there is: {known}")]
    Unknown {
        what: &'static str,
        name: String,
        folder: PathBuf,
        known: String,
    },
    #[error("{0}")]
    Usage(String),
}

/// More than anybody nests, so that a file that includes itself is found out.
const MAX_DEPTH: usize = 8;

/// Reads and checks one file.
pub fn read<T: DeserializeOwned>(file: &Path) -> Result<T, DataError> {
    parse(file, &text(file)?)
}

pub fn text(file: &Path) -> Result<String, DataError> {
    let bytes = fs::read(file).map_err(|why| DataError::Read {
        file: file.to_owned(),
        why,
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let begin = before.iter().rposition(|&byte| byte == b'\n');
        let column = before.len() - begin.map_or(0, |at| at + 1) + 1;
        DataError::Usage(format!(
            "{}:{line}: byte {column} is not UTF-8: save the file as UTF-8",
            file.display()
        ))
    })
}

/// The file and all that it includes, itself first. `read` reads one, and returns what it includes: the stem of a
/// file in the same folder, or a path from there.
pub fn with_included<T>(
    what: &'static str,
    file: &Path,
    read: impl Fn(&Path) -> Result<(T, Option<String>), DataError>,
) -> Result<Vec<T>, DataError> {
    let mut all = Vec::new();
    let mut at: PathBuf = file.to_owned();
    while all.len() < MAX_DEPTH {
        let (one, include) = read(&at)?;
        all.push(one);
        let Some(name) = include else {
            return Ok(all);
        };
        let folder = at.parent().unwrap_or(Path::new("."));
        at = if name.ends_with(".toml") {
            folder.join(&name)
        } else {
            find(what, &name, folder)?
        };
    }
    Err(DataError::Usage(format!(
        "{}: include: expected at most {MAX_DEPTH} files in a row: does one include itself?",
        file.display()
    )))
}

pub fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, DataError> {
    toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text[..offset].matches('\n').count() + 1;
        DataError::Parse {
            file: file.to_owned(),
            line,
            key: key_on_line(text, line),
            message: error.message().replace('\n', ", "),
        }
    })
}

fn key_on_line(text: &str, line: usize) -> String {
    let content = text.lines().nth(line - 1).unwrap_or_default();
    let key = content.split('=').next().unwrap_or_default().trim();
    if key.is_empty() { "(whole file)" } else { key }.to_owned()
}

/// Finds `name` (a path, or the stem of a file in `folder`).
pub fn find(what: &'static str, name: &str, folder: &Path) -> Result<PathBuf, DataError> {
    if name.ends_with(".toml") || name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let file = folder.join(format!("{name}.toml"));
    if file.is_file() {
        return Ok(file);
    }
    let known = names(folder)?;
    Err(DataError::Unknown {
        what,
        name: name.to_owned(),
        folder: folder.to_owned(),
        known: if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        },
    })
}

/// The stems of the TOML files in `folder`, sorted.
pub fn names(folder: &Path) -> Result<Vec<String>, DataError> {
    let entries = fs::read_dir(folder).map_err(|why| DataError::Read {
        file: folder.to_owned(),
        why,
    })?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_what_there_is_when_a_name_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("demo.toml"), "").unwrap();
        let error = find("matrix", "dmo", dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("no matrix \"dmo\" in "), "{error}");
        assert!(error.ends_with("there is: demo"), "{error}");
    }

    #[test]
    fn a_key_that_is_written_twice_is_named() {
        let parsed = |text: &str| parse::<toml::Table>(Path::new("a.toml"), text);
        let error = |text: &str| parsed(text).unwrap_err().to_string();
        let twice = error("[run]\ncells = 1\ncells = 2\n");
        assert_eq!(twice, "a.toml:3: cells: duplicate key");
        let table = error("[run]\ncells = 1\n[run]\n");
        assert_eq!(table, "a.toml:3: [run]: duplicate key");
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_named_with_their_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), b"a = 1\nb = \"\xff\"\n").unwrap();
        let error = text(file.path()).unwrap_err().to_string();
        assert!(
            error.ends_with(":2: byte 6 is not UTF-8: save the file as UTF-8"),
            "{error}"
        );
    }

    #[test]
    fn names_the_file_that_cannot_be_read() {
        let error = read::<toml::Table>(Path::new("/no/such.toml")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/no/such.toml: cannot read: ")
        );
    }
}
