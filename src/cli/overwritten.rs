// SPDX-License-Identifier: GPL-2.0-only
//! A file that a command writes over. The simulator includes this file, too.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A file that a command writes, which keeps what it held until the first byte of something new: a command that fails
/// before has lost nothing. One that was not there is gone again where nothing was written.
#[derive(Debug)]
pub struct Overwritten {
    file: File,
    is_emptied: bool,
    /// The path of a file that was made here and has nothing in it yet.
    made: Option<PathBuf>,
}

impl Overwritten {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        let new = options.write(true).create_new(true).open(path);
        let made = new.is_ok().then(|| path.to_owned());
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let file = new.or_else(|_| options.open(path));
        let file = file.with_context(|| format!("creating {}", path.display()))?;
        // A pipe or a terminal holds nothing.
        let is_emptied = !file.metadata().is_ok_and(|metadata| metadata.is_file());
        Ok(Self {
            file,
            is_emptied,
            made,
        })
    }
}

impl AsFd for Overwritten {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Overwritten {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Write for Overwritten {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.made = None;
        if !self.is_emptied {
            self.file.set_len(0)?;
            self.is_emptied = true;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_held_is_gone_with_the_first_new_byte_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        let held = || std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "of last week").unwrap();
        let mut file = Overwritten::open(&path).unwrap();
        file.flush().unwrap();
        assert_eq!(held(), "of last week");
        file.write_all(b"of").unwrap();
        file.write_all(b" today").unwrap();
        assert_eq!(held(), "of today");
        drop(Overwritten::open(&path).unwrap());
        assert_eq!(held(), "of today");
        let new = folder.path().join("new.csv");
        drop(Overwritten::open(&new).unwrap());
        assert!(!new.exists());
        Overwritten::open(&new).unwrap().write_all(b"x").unwrap();
        assert!(new.exists());
    }

    #[test]
    fn what_is_no_file_is_written_as_it_is() {
        let mut null = Overwritten::open(Path::new("/dev/null")).unwrap();
        null.write_all(b"gone").unwrap();
        let error = Overwritten::open(Path::new("/")).unwrap_err();
        assert!(
            format!("{error:#}").starts_with("creating /: "),
            "{error:#}"
        );
    }
}
