// SPDX-License-Identifier: GPL-2.0-only
//! What fio writes to on a host: what the user names, else a file beside the results, gone at the end.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::datafile::DataError;
use crate::matrix::Matrix;
use crate::plan::Where;
use crate::record::neighbour::Kind;
use crate::watchdog::{Cleanup, Guarded};

/// In the output folder.
const NAME: &str = ".fio";
/// fio's four jobs need some room.
const MIN_BYTES: u64 = 16 << 20;

/// A file or a device that may be overwritten.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    /// Whether it was made here, and is removed when this process dies as well.
    made: Option<Guarded>,
}

impl Disk {
    /// The user's, else one in `output` if the matrix has a neighbour that needs one.
    ///
    /// # Errors
    /// The user's is no device and no file that is large enough; the other one cannot be made.
    pub fn on_host(named: Option<&Path>, matrix: &Matrix, output: &Path) -> Result<Option<Self>> {
        if let Some(path) = named {
            return Ok(Some(Self {
                path: checked(path)?,
                made: None,
            }));
        }
        let needs = |kinds: &[Kind]| kinds.contains(&Kind::Fio);
        if !matrix.neighbours.iter().any(|n| needs(n.kinds())) {
            return Ok(None);
        }
        let path = output.join(NAME);
        let made = Guarded::new(Cleanup::Remove(path.clone()));
        File::create(&path)
            .and_then(|file| file.set_len(matrix.lab.disk_mib << 20))
            .with_context(|| format!("cannot make {}: name another with --disk", path.display()))?;
        Ok(Some(Self {
            path,
            made: Some(made),
        }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.made.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether the disk that the user names can be one. Nothing is made.
///
/// # Errors
/// It is no device and no file that is large enough, or the cells run elsewhere.
pub fn check(named: Option<&Path>, on: Where) -> Result<(), DataError> {
    match (named, on) {
        (None, _) => Ok(()),
        (Some(path), Where::Host) => checked(path).map(drop),
        (Some(_), Where::Lab | Where::Sim) => Err(DataError::Usage(
            "--disk: expected with --on host, where fio writes to a file of this machine"
                .to_owned(),
        )),
    }
}

fn checked(path: &Path) -> Result<PathBuf, DataError> {
    let path_there = path.canonicalize().ok();
    let kind = path_there.as_ref().and_then(|path| fs::metadata(path).ok());
    match (path_there, kind) {
        (Some(path), Some(kind))
            if kind.file_type().is_block_device() || kind.len() >= MIN_BYTES =>
        {
            Ok(path)
        }
        _ => Err(DataError::Usage(format!(
            "--disk: expected a block device or a file of 16 MiB or more, which may be overwritten, got {}: \
             make one with truncate --size 512M FILE",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::samples;

    #[test]
    fn a_file_of_its_own_is_there_while_it_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let mut matrix = samples::matrix();
        let disk = Disk::on_host(None, &matrix, dir.path()).unwrap().unwrap();
        let path = disk.path().to_owned();
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            matrix.lab.disk_mib << 20
        );
        drop(disk);
        assert!(!path.exists());
        matrix.neighbours.retain(|n| n.kinds().is_empty());
        assert!(Disk::on_host(None, &matrix, dir.path()).unwrap().is_none());
    }

    #[test]
    fn what_the_user_names_must_be_there_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let matrix = samples::matrix();
        let path = dir.path().join("disk");
        let named = || Disk::on_host(Some(&path), &matrix, dir.path());
        let refused = |result: Result<Option<Disk>>| {
            let error = result.unwrap_err().to_string();
            assert!(
                error.starts_with("--disk: expected a block device"),
                "{error}"
            );
        };
        refused(named());
        fs::write(&path, "small").unwrap();
        refused(named());
        assert!(check(Some(&path), Where::Host).is_err());
        File::create(&path).unwrap().set_len(MIN_BYTES).unwrap();
        drop(named().unwrap());
        assert!(path.exists());
        check(Some(&path), Where::Host).unwrap();
        check(None, Where::Lab).unwrap();
        for on in [Where::Lab, Where::Sim] {
            let error = check(Some(&path), on).unwrap_err().to_string();
            assert!(
                error.starts_with("--disk: expected with --on host"),
                "{error}"
            );
        }
    }
}
