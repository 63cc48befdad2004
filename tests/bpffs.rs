// SPDX-License-Identifier: GPL-2.0-only
//! A bpffs of a test's own, so that tests on a machine in use leave `/sys/fs/bpf` alone.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Unmounts when dropped.
pub struct Bpffs {
    folder: tempfile::TempDir,
}

impl Bpffs {
    pub fn mount() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        mount(
            Some("bpf"),
            folder.path(),
            Some("bpf"),
            MsFlags::empty(),
            None::<&Path>,
        )
        .expect("mounting a bpffs");
        Self { folder }
    }

    /// Where to pin.
    pub fn pins(&self) -> PathBuf {
        self.folder.path().join("pins")
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = umount2(self.folder.path(), MntFlags::MNT_DETACH);
    }
}
