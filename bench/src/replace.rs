// SPDX-License-Identifier: GPL-2.0-only
//! Another text for a file that others read at any time.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

use anyhow::{Context, Result};

/// Writes `text` in one step: whoever reads the file finds the old one or the new one, also when the disk is full. The
/// file stays its owner's.
///
/// # Errors
/// It is not there, or its folder takes no other.
pub fn replace(file: &Path, text: &str) -> Result<()> {
    let write = || -> Result<()> {
        let folder = file.parent().context("a file without a folder")?;
        let old = fs::metadata(file)?;
        let mut draft = tempfile::Builder::new()
            .permissions(old.permissions())
            .tempfile_in(folder)?;
        fchown(draft.as_file(), Some(old.uid()), Some(old.gid()))?;
        draft.write_all(text.as_bytes())?;
        draft.persist(file)?;
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.toml");
        assert!(replace(&file, "a").is_err(), "there is none");
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let read_before = fs::File::open(&file).unwrap();
        replace(&file, "after").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert_eq!(std::io::read_to_string(read_before).unwrap(), "before");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
