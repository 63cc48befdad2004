// SPDX-License-Identifier: GPL-2.0-only
//! Files that others read at any time: whoever does finds the old one or the new one, also when the disk is full.

use std::fs::{self, Metadata, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

/// What names of files begin with that are not whole yet: somebody was killed who wrote one that is still there.
pub const DRAFT: &str = ".draft-";

/// Writes a file of ours in one step, whether or not it is there. It stays its owner's where that can be, with its mode,
/// and a link leads to it still. Others than root, who may write a new one, can read it; the umask still applies.
///
/// # Errors
/// Its folder takes none.
pub fn put(file: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    let real = file.canonicalize();
    let real = real.as_deref().unwrap_or(file);
    let write = || -> Result<()> {
        let old = fs::metadata(real).ok();
        let draft = draft(real, bytes.as_ref(), old.as_ref())?;
        if let Some(old) = old {
            let _ = fchown(draft.as_file(), Some(old.uid()), Some(old.gid()));
        }
        draft.persist(real)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

/// Writes another text into a file of somebody's in one step. It stays its owner's, with its mode.
///
/// # Errors
/// It is not there, or its folder takes no other.
pub fn replace(file: &Path, text: &str) -> Result<()> {
    let write = || -> Result<()> {
        let old = fs::metadata(file)?;
        let draft = draft(file, text.as_bytes(), Some(&old))?;
        fchown(draft.as_file(), Some(old.uid()), Some(old.gid()))?;
        draft.persist(file)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

/// What is to take the place of `file`, with its mode.
fn draft(file: &Path, bytes: &[u8], old: Option<&Metadata>) -> Result<NamedTempFile> {
    let folder = file.parent().context("a file without a folder")?;
    let mode = old.map_or(Permissions::from_mode(0o644), Metadata::permissions);
    let mut draft = tempfile::Builder::new()
        .prefix(DRAFT)
        .permissions(mode)
        .tempfile_in(folder)?;
    draft.write_all(bytes)?;
    Ok(draft)
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
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        put(&link, "last").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "last");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        fs::remove_file(&link).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
