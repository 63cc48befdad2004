// SPDX-License-Identifier: GPL-2.0-only
//! Files that others read at any time: whoever does finds the old one or the new one, also when the disk is full.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use anyhow::{Context, Result};

/// What names of files begin with that are not whole yet: somebody was killed who wrote one that is still there.
pub const DRAFT: &str = ".draft-";

/// Writes a file of ours in one step, whether or not it is there. Others than root, who may write it, can read it; the
/// umask still applies.
///
/// # Errors
/// Its folder takes none.
pub fn put(file: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    write(file, bytes.as_ref(), || Ok(None))
}

/// Writes another text into a file of somebody's in one step. It stays its owner's, with its mode.
///
/// # Errors
/// It is not there, or its folder takes no other.
pub fn replace(file: &Path, text: &str) -> Result<()> {
    write(file, text.as_bytes(), || fs::metadata(file).map(Some))
}

fn write(file: &Path, bytes: &[u8], old: impl Fn() -> io::Result<Option<Metadata>>) -> Result<()> {
    let write = || -> Result<()> {
        let folder = file.parent().context("a file without a folder")?;
        let old = old()?;
        let mode = (old.as_ref()).map_or(Permissions::from_mode(0o644), Metadata::permissions);
        let mut draft = tempfile::Builder::new()
            .prefix(DRAFT)
            .permissions(mode)
            .tempfile_in(folder)?;
        if let Some(old) = old {
            fchown(draft.as_file(), Some(old.uid()), Some(old.gid()))?;
        }
        draft.write_all(bytes)?;
        draft.persist(file)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.toml");
        assert!(replace(&file, "a").is_err(), "there is none");
        put(&file, "before").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let read_before = fs::File::open(&file).unwrap();
        replace(&file, "after").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert_eq!(std::io::read_to_string(read_before).unwrap(), "before");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        put(&file, "last").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "last");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
