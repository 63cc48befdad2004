// SPDX-License-Identifier: GPL-2.0-only
//! Takes this machine's own places out of what is written into a run's folder: where somebody keeps
//! his files is no result, and a run is shown to others.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::folders;

/// Paths of this machine and what is written instead.
#[derive(Debug, Default)]
pub struct Places {
    /// Longer paths before those that contain them.
    names: Vec<(String, String)>,
}

impl Places {
    pub fn of_this_machine(target_dir: &Path) -> Self {
        let mut places = Self::default();
        places.add(Some(target_dir), "{target}");
        places.add(folders::cache_dir().ok().as_deref(), "{cache}");
        // In the repository paths are relative to it.
        places.add(folders::repository().as_deref(), "");
        let home = std::env::var_os("HOME");
        places.add(home.as_deref().map(Path::new), "~");
        let cargo = home.map(|home| Path::new(&home).join(".cargo"));
        let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(cargo);
        places.add_registries(&cargo.unwrap_or_default());
        places
    }

    /// Where cargo keeps sources, which programs of other crates name in what they log, is called after
    /// the registry that they came from.
    fn add_registries(&mut self, cargo: &Path) {
        let registries = fs::read_dir(cargo.join("registry/src"));
        for entry in registries.into_iter().flatten().flatten() {
            self.add(Some(&entry.path()), "{crates}");
        }
    }

    fn add(&mut self, place: Option<&Path>, name: &str) {
        let Some(place) = place else { return };
        for path in [Some(place.to_owned()), place.canonicalize().ok()] {
            let path = path.unwrap_or_default().to_string_lossy().into_owned();
            // "/" as somebody's home would take every path apart.
            if path.len() > 1 && path.starts_with('/') {
                self.names.push((path, name.to_owned()));
            }
        }
        self.names
            .sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        self.names.dedup();
    }

    /// The text without this machine's places.
    pub fn strip(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (path, name)| {
                let below = if name.is_empty() {
                    String::new()
                } else {
                    format!("{name}/")
                };
                let text = text.replace(&format!("{path}/"), &below);
                replace_whole(&text, path, if name.is_empty() { "." } else { name })
            })
    }

    /// The same without this machine's places in any of its texts.
    pub fn strip_from<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<T> {
        let mut json = serde_json::to_value(value).context("cannot write as JSON")?;
        self.strip_json(&mut json);
        serde_json::from_value(json).context("cannot read what was just written as JSON")
    }

    fn strip_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.strip(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.strip_json(value)),
            Value::Object(map) => map.values_mut().for_each(|value| self.strip_json(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Rewrites the files in `folder`, which programs wrote that know nothing of this.
    pub fn strip_files(&self, folder: &Path) -> Result<()> {
        let entries =
            fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let bytes =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let text = String::from_utf8_lossy(&bytes);
            let stripped = self.strip(&text);
            if stripped != text {
                fs::write(&path, stripped)
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// Replaces `path` where no longer name begins with it.
fn replace_whole(text: &str, path: &str, name: &str) -> String {
    let mut parts = text.split(path);
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let goes_on = part.starts_with(|c: char| c.is_alphanumeric() || "_-.".contains(c));
        whole += if goes_on { path } else { name };
        whole += part;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        let mut places = Places::default();
        places.add(Some(Path::new("/home/me")), "~");
        places.add(Some(Path::new("/home/me/repo")), "");
        places.add(Some(Path::new("/home/me/repo/target")), "{target}");
        places
    }

    #[test]
    fn paths_are_relative_to_the_target_folder_the_repository_and_the_home() {
        let strip = |text| places().strip(text);
        assert_eq!(
            strip("[INFO] probing /home/me/repo/target/lab/libcuda.so.1 (8 entry points)"),
            "[INFO] probing {target}/lab/libcuda.so.1 (8 entry points)"
        );
        assert_eq!(strip("/home/me/repo/bench/x: no"), "bench/x: no");
        // The longer name of something else, as far as can be seen.
        assert_eq!(strip("in /home/me/repo.old"), "in ~/repo.old");
        assert_eq!(strip("in /home/me/repo"), "in .");
        assert_eq!(
            strip("/home/me/other and /usr/lib/x"),
            "~/other and /usr/lib/x"
        );
        assert_eq!(strip("/home/melissa/x"), "/home/melissa/x");
    }

    #[test]
    fn sources_of_crates_do_not_name_their_registry() {
        let cargo = tempfile::tempdir().unwrap();
        let sources = cargo.path().join("registry/src/registry.example-0123");
        fs::create_dir_all(&sources).unwrap();
        let mut places = Places::default();
        places.add_registries(cargo.path());
        let said = sources.join("some-1.0/src/main.rs").display().to_string();
        assert_eq!(places.strip(&said), "{crates}/some-1.0/src/main.rs");
    }

    #[test]
    fn logs_and_cells_of_a_run_hold_no_place_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        let places = Places::of_this_machine(&target);
        let logs = dir.path().join("logs");
        fs::create_dir(&logs).unwrap();
        let repository = folders::repository().unwrap();
        let said = format!("probing {}/lab/libcuda.so.1\nnot UTF-8: ", target.display());
        fs::write(logs.join("a.log"), [said.as_bytes(), b"\xff\n"].concat()).unwrap();
        fs::write(
            logs.join("b.log"),
            repository.join("Makefile").display().to_string(),
        )
        .unwrap();
        places.strip_files(&logs).unwrap();
        let read = |name: &str| fs::read_to_string(logs.join(name)).unwrap();
        assert!(read("a.log").starts_with("probing {target}/lab/libcuda.so.1\n"));
        assert_eq!(read("b.log"), "Makefile");

        let cell = serde_json::json!({"marks": [{"evidence": target.join("lab/x")}], "n": 1.25});
        let cell = places.strip_from(&cell).unwrap();
        assert_eq!(cell["marks"][0]["evidence"], "{target}/lab/x");
    }
}
