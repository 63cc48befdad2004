// SPDX-License-Identifier: GPL-2.0-only
//! A file that remembers which affinities have to be restored should this process be killed. Owns
//! that a reader sees all of it or nothing; what an entry says is its user's business.
//!
//! Such files lie in /run: it is empty after a boot, when nothing is left to restore.

use std::fs;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<T> {
    version: u32,
    affinities: Vec<T>,
}

/// Where the state of one run is kept.
#[derive(Debug)]
pub struct StateFile<T> {
    path: PathBuf,
    entry: PhantomData<T>,
}

impl<T: Serialize + DeserializeOwned> StateFile<T> {
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            entry: PhantomData,
        }
    }

    /// What a killed run has left. `None`: nothing.
    ///
    /// # Errors
    /// The file is there and is not what it should be.
    pub fn load(&self) -> Result<Option<Vec<T>>> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("reading {}", self.path.display()));
            }
        };
        decode(&text).map(Some).with_context(|| {
            format!(
                "{}: expected the affinities that an earlier run has changed: set them by hand and \
                 remove the file",
                self.path.display()
            )
        })
    }

    /// Puts `affinities` in the place of what was there, in one step.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, affinities: Vec<T>) -> Result<()> {
        let document = Document {
            version: VERSION,
            affinities,
        };
        let draft = self.path.with_extension("json.new");
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec(&document)?;
            text.push(b'\n');
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&draft, text)?;
            fs::rename(&draft, &self.path)
        };
        write().with_context(|| format!("writing {}", self.path.display()))
    }

    /// There is nothing to restore any more.
    ///
    /// # Errors
    /// The file is there and cannot be removed.
    pub fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

fn decode<T: DeserializeOwned>(text: &str) -> Result<Vec<T>> {
    let document: Document<T> = serde_json::from_str(text)?;
    if document.version != VERSION {
        bail!("version {}, this program knows {VERSION}", document.version);
    }
    Ok(document.affinities)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::<u32>::new(&folder.path().join("a/b/state.json"));
        assert_eq!(file.load().unwrap(), None);
        file.save(vec![1, 2]).unwrap();
        assert_eq!(file.load().unwrap(), Some(vec![1, 2]));
        file.remove().unwrap();
        assert_eq!(file.load().unwrap(), None);
        file.remove().unwrap();
    }

    #[test]
    fn a_file_that_is_not_ours_is_named_and_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        for text in ["", "{\"version\":2,\"affinities\":[]}", "{\"version\":1}"] {
            fs::write(&path, text).unwrap();
            let loaded = StateFile::<u32>::new(&path).load();
            let error = format!("{:#}", loaded.unwrap_err());
            assert!(error.contains("state.json: expected"), "{error}");
            assert!(error.contains("remove the file"), "{error}");
        }
    }
}
