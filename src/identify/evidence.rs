// SPDX-License-Identifier: GPL-2.0-only
//! Why a thread has its class, in words.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::bpf::{intf, text};
use crate::proc::mounts::Mounts;
use crate::proc::{self, PROC};

use super::class::Source;
use super::libcuda;
use super::rules::Rules;

/// Where the texts of libraries begin, after those of rules.
const FIRST_LIBRARY: u32 = 1 << 16;
/// Key of the text that says that an xattr gave a cgroup its class.
pub const XATTR: u32 = FIRST_LIBRARY - 1;
/// Key of the text that says why somebody was refused; empty where only his user can be why. The number between is
/// no text's: see GPUAWARE_NO_RULE.
pub const REFUSED: u32 = FIRST_LIBRARY - 3;
const SYMBOL_BITS: usize = 8;
const _: () = assert!(libcuda::FIRST_CONTEXT + libcuda::CONTEXT_SYMBOLS.len() <= 1 << SYMBOL_BITS);

/// What a text that is not there reads as.
const UNKNOWN: &str = "?";

/// What [`REFUSED`] is to say where these rules hold.
pub fn why_refused(rules: &Rules) -> &'static str {
    match (&rules.trusted_uids, &rules.trusted_devices) {
        (_, None) => "",
        (None, Some(_)) => "its process has no device of guard.trust_devices open",
        (Some(_), Some(_)) => {
            "its user is not in guard.trust_uids, or its process has no device of guard.trust_devices open"
        }
    }
}

/// Key of the text that names library `number`.
pub fn library_key(number: usize) -> u32 {
    FIRST_LIBRARY + number as u32
}

/// What a probe at symbol `symbol` of library `number` says of a thread.
pub fn cookie(number: usize, symbol: usize) -> usize {
    number << SYMBOL_BITS | symbol
}

/// The entry point of the first launch that a uprobe saw, or of the context before it.
pub fn symbol(record: &intf::gpuaware_mark_record) -> Option<&'static str> {
    libcuda::symbol(symbol_index(record))
}

/// Was it seen making a context current, and not launching since?
pub fn is_context(record: &intf::gpuaware_mark_record) -> bool {
    symbol_index(record) >= libcuda::FIRST_CONTEXT
}

fn symbol_index(record: &intf::gpuaware_mark_record) -> usize {
    record.symbol as usize & ((1 << SYMBOL_BITS) - 1)
}

/// What explains records.
pub struct Evidence {
    texts: Option<MapHandle>,
    cgroup_root: Option<PathBuf>,
}

impl Evidence {
    /// By the texts that are pinned at `texts`. What cannot be read is not explained.
    pub fn of(texts: &Path) -> Self {
        let mounts = Mounts::of_this_process().unwrap_or_default();
        Self {
            texts: MapHandle::from_pinned_path(texts).ok(),
            cgroup_root: mounts.cgroup2(),
        }
    }

    /// What speaks for `record`.
    pub fn in_words(&self, source: Source, record: &intf::gpuaware_mark_record) -> String {
        let rule = || self.text(record.rule);
        match source {
            Source::Mark => "by hand".to_owned(),
            Source::Hint => "by itself".to_owned(),
            Source::Cgroup => match self.tagged_folder(record) {
                Some(folder) => format!("{folder} by {}", rule()),
                None => format!("cgroup id {} by {}", record.tag_id, rule()),
            },
            Source::Rule | Source::Spins | Source::Connects => rule(),
            Source::Uprobe => format!("{} by {}", self.launch(record), rule()),
            Source::Wakes => format!("{} a second by {}", record.rate, rule()),
            Source::Refused => {
                let what = match (record.launches, record.rule) {
                    (0, intf::gpuaware_limits_GPUAWARE_NO_RULE) => "a hint".to_owned(),
                    (0, _) => rule(),
                    (_, _) => self.launch(record),
                };
                match self.text(REFUSED).as_str() {
                    "" | UNKNOWN => {
                        format!("{what}: uid {} is not in guard.trust_uids", record.uid)
                    }
                    why => format!("{what}: {why}"),
                }
            }
        }
    }

    fn launch(&self, record: &intf::gpuaware_mark_record) -> String {
        let library = self.text(library_key((record.symbol >> SYMBOL_BITS) as usize));
        format!("{} of {library}", symbol(record).unwrap_or("?"))
    }

    fn text(&self, key: u32) -> String {
        let value = self
            .texts
            .as_ref()
            .and_then(|texts| texts.lookup(&key.to_ne_bytes(), MapFlags::ANY).ok()?);
        value.map_or_else(|| UNKNOWN.to_owned(), |value| text(&value).into_owned())
    }

    /// The folder at or above that of the thread which has its tag.
    fn tagged_folder(&self, record: &intf::gpuaware_mark_record) -> Option<String> {
        let folder = proc::cgroup(&Path::new(PROC).join(record.tid.to_string()))?;
        tagged_above(self.cgroup_root.as_deref()?, &folder, record.tag_id)
    }
}

fn tagged_above(root: &Path, folder: &Path, id: u64) -> Option<String> {
    folder.ancestors().find_map(|folder| {
        let metadata = std::fs::metadata(root.join(folder)).ok()?;
        (metadata.ino() == id).then(|| format!("/{}", folder.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_folder_that_has_the_tag() {
        let root = tempfile::tempdir().unwrap();
        let folder = Path::new("gpu.slice/a b/c");
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
        let id = |folder: &str| std::fs::metadata(root.path().join(folder)).unwrap().ino();
        let found = tagged_above(root.path(), folder, id("gpu.slice/a b"));
        assert_eq!(found.as_deref(), Some("/gpu.slice/a b"));
        assert_eq!(
            tagged_above(root.path(), folder, id("")).as_deref(),
            Some("/")
        );
        assert_eq!(tagged_above(root.path(), folder, 1), None);
    }

    #[test]
    fn symbols_and_libraries_share_a_cookie() {
        let cookie = cookie(3, 6);
        assert_eq!((cookie >> 8, cookie & 0xff), (3, 6));
    }
}
