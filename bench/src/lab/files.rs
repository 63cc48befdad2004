// SPDX-License-Identifier: GPL-2.0-only
//! What one run keeps on disk: the guest's script, the scratch disk, links to the writable
//! directories. All of it is gone when the run is over.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::guest::{self, Setup};
use super::hostload;
use super::kernel::Kernel;
use super::spec::{DiskDriver, Lab};
use crate::folders;

/// The guest sees this folder of the host's, and a socket's path must be short.
const RUN_DIR: &str = "/tmp";
/// Where virtme-ng mounts the writable directories (relative to the guest's root).
const RW_MOUNTS: &str = "run/gpuaware-lab/rw";

/// What a run keeps on disk; removed when dropped.
pub struct Files {
    pub dir: TempDir,
    pub guest_script: PathBuf,
    /// Has no name, so that nothing is left of it whatever happens to this process.
    disk: Option<File>,
    /// (where virtme-ng mounts it, relative to the guest's root; where it is on this machine)
    pub rw_mounts: Vec<(PathBuf, PathBuf)>,
    /// What ends the command's streams.
    pub end_mark: String,
}

impl Files {
    pub fn create(lab: &Lab, command: &[String], kernel: &Kernel) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("gpuaware-lab.")
            .tempdir_in(RUN_DIR)
            .with_context(|| format!("cannot create a folder in {RUN_DIR}"))?;
        prepare_modules_dir()?;
        let mut rw_mounts = Vec::new();
        let mut binds = Vec::new();
        for (n, wanted) in lab.rw_dirs.iter().enumerate() {
            let target = wanted
                .canonicalize()
                .with_context(|| format!("no directory {} for --rwdir", wanted.display()))?;
            ensure!(
                target.is_dir(),
                "{} is not a directory (--rwdir)",
                target.display()
            );
            // virtme-ng accepts only plain letters in the paths that it mounts; virtiofsd does not
            // follow a link, but a folder's "." is the folder.
            let link = dir.path().join(format!("rw{n}"));
            std::os::unix::fs::symlink(&target, &link)?;
            let mount = Path::new(RW_MOUNTS).join(n.to_string());
            binds.push((Path::new("/").join(&mount), target));
            rw_mounts.push((mount, link.join(".")));
        }
        let end_mark = dir
            .path()
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut env = passed_on(std::env::vars_os());
        let host_load = hostload::file(dir.path()).to_string_lossy().into_owned();
        env.push((hostload::VARIABLE.to_owned(), host_load));
        env.extend(lab.env.iter().cloned());
        let working_dir = std::env::current_dir().context("cannot tell the working directory")?;
        let guest_script = dir.path().join("guest.sh");
        let text = guest::script(&Setup {
            command,
            env: &env,
            working_dir: &working_dir,
            kernel,
            rw_mounts: &binds,
            disk: (lab.disk_mib > 0).then_some((lab.disk_driver, lab.disk_mib)),
            end_mark: &end_mark,
        });
        std::fs::write(&guest_script, text)?;
        let disk = (lab.disk_mib > 0 && lab.disk_driver == DiskDriver::VirtioBlk)
            .then(|| scratch_disk(lab.disk_mib))
            .transpose()?;
        Ok(Self {
            dir,
            guest_script,
            disk,
            rw_mounts,
            end_mark,
        })
    }

    /// The path by which another process of this user can open the scratch disk.
    pub fn disk_path(&self) -> Option<PathBuf> {
        let fd = self.disk.as_ref()?.as_raw_fd();
        Some(format!("/proc/{}/fd/{fd}", std::process::id()).into())
    }
}

/// The variables that the guest gets. Any of them may have any bytes, in the guest's script they are text.
fn passed_on(all: impl Iterator<Item = (OsString, OsString)>) -> Vec<(String, String)> {
    let text = |word: OsString| word.to_string_lossy().into_owned();
    all.map(|(key, value)| (text(key), text(value)))
        .filter(|(key, _)| guest::passes_on(key))
        .collect()
}

/// The guest mounts its modules on /lib/modules, which a machine without a kernel of its own may lack.
fn prepare_modules_dir() -> Result<()> {
    std::fs::create_dir_all("/lib/modules")
        .context("the lab's guest needs the directory /lib/modules on this machine: mkdir /lib/modules as root")
}

/// A sparse file in the cache: /tmp may be memory.
fn scratch_disk(mib: u64) -> Result<File> {
    let dir = folders::cache_dir()?;
    let disk = tempfile::tempfile_in(&dir).and_then(|file| {
        file.set_len(mib * 1024 * 1024)?;
        Ok(file)
    });
    disk.with_context(|| {
        format!(
            "cannot create the scratch disk of {mib} MiB in {}",
            dir.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn variables_of_any_bytes_neither_stop_the_lab_nor_are_lost() {
        let bytes = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let all = [
            (bytes(b"HOME"), bytes(b"/h\xff")),
            (bytes(b"LS_COLORS"), bytes(b"\xff")),
            (bytes(b"\xff"), bytes(b"x")),
            (bytes(b"CI"), bytes(b"1")),
        ];
        let expected = [("HOME", "/h\u{fffd}"), ("CI", "1")];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(passed_on(all.into_iter()), expected);
    }
}
