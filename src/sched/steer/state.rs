// SPDX-License-Identifier: GPL-2.0-only
//! The state file: what has to be restored should this process be killed. Owns its format and that
//! a reader sees all of it or nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::ledger::{Change, Known, Ledger, Target};
use crate::policy::cpuset::CpuSet;

const VERSION: u32 = 1;

/// CPU sets are lists such as `0-3,8`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    affinities: Vec<Affinity>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Affinity {
    /// Absent: the default for new interrupts.
    #[serde(skip_serializing_if = "Option::is_none")]
    irq: Option<u32>,
    name: String,
    /// Absent: seen, but not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<ChangeEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeEntry {
    original: String,
    ours: Vec<String>,
}

/// Where the state of one run is kept.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
}

impl StateFile {
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// What a killed run has left. `None`: nothing.
    ///
    /// # Errors
    /// The file is there and is not what it should be.
    pub fn load(&self) -> Result<Option<Ledger>> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("reading {}", self.path.display()));
            }
        };
        decode(&text).map(Some).with_context(|| {
            format!(
                "{}: expected the interrupt affinities that an earlier run has changed: set them \
                 by hand and remove the file",
                self.path.display()
            )
        })
    }

    /// Puts `ledger` in the place of what was there, in one step.
    pub fn save(&self, ledger: &Ledger) -> Result<()> {
        let draft = self.path.with_extension("json.new");
        let write = || -> io::Result<()> {
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&draft, encode(ledger)?)?;
            fs::rename(&draft, &self.path)
        };
        write().with_context(|| format!("writing {}", self.path.display()))
    }

    /// There is nothing to restore any more.
    pub fn remove(&self) -> Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

fn encode(ledger: &Ledger) -> io::Result<Vec<u8>> {
    let affinities = ledger.known.iter().map(|(&target, known)| Affinity {
        irq: match target {
            Target::Default => None,
            Target::Irq(irq) => Some(irq),
        },
        name: known.name.clone(),
        change: known.change.as_ref().map(entry),
    });
    let document = Document {
        version: VERSION,
        affinities: affinities.collect(),
    };
    let mut text = serde_json::to_vec(&document)?;
    text.push(b'\n');
    Ok(text)
}

fn entry(change: &Change) -> ChangeEntry {
    ChangeEntry {
        original: change.original.to_string(),
        ours: change.ours.iter().map(CpuSet::to_string).collect(),
    }
}

fn decode(text: &str) -> Result<Ledger> {
    let document: Document = serde_json::from_str(text)?;
    if document.version != VERSION {
        bail!("version {}, this program knows {VERSION}", document.version);
    }
    let mut ledger = Ledger::default();
    for affinity in document.affinities {
        let known = Known {
            name: affinity.name,
            change: affinity.change.map(change).transpose()?,
            ..Known::default()
        };
        let target = affinity.irq.map_or(Target::Default, Target::Irq);
        ledger.known.insert(target, known);
    }
    Ok(ledger)
}

fn change(entry: ChangeEntry) -> Result<Change> {
    let ours: Result<Vec<CpuSet>, _> = entry.ours.iter().map(|list| list.parse()).collect();
    Ok(Change {
        original: entry.original.parse()?,
        ours: ours?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let change = Change {
            original: CpuSet::new([0, 1, 2, 3]),
            ours: vec![CpuSet::new([0, 1]), CpuSet::new([0])],
        };
        let known = |change| Known {
            name: "eth0-rx-0".to_owned(),
            change,
            ..Known::default()
        };
        let known = [
            (Target::Default, known(Some(change.clone()))),
            (Target::Irq(24), known(Some(change))),
            (Target::Irq(25), known(None)),
        ];
        Ledger {
            known: known.into(),
            ..Ledger::default()
        }
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(&folder.path().join("a/b/state.json"));
        assert_eq!(file.load().unwrap(), None);
        file.save(&ledger()).unwrap();
        assert_eq!(file.load().unwrap(), Some(ledger()));
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
            let error = format!("{:#}", StateFile::new(&path).load().unwrap_err());
            assert!(error.contains("state.json: expected"), "{error}");
            assert!(error.contains("remove the file"), "{error}");
        }
    }
}
