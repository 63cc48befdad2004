// SPDX-License-Identifier: GPL-2.0-only
//! One library through which launches go: which file it is, and attaching to it. When and what to attach is up to the
//! callers.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;

use anyhow::{Context, Result};
use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts};

use crate::bpf::intf;

use super::libcuda::EntryPoints;
use super::programs::ask_syscall_program;

/// Device and inode number as `stat` has them.
pub type FileId = (u64, u64);

/// Tells which file a process has at an address: device and inode number as the kernel has them.
/// `None`: not now, and then files are told apart as `stat` does.
pub type MappedFile<'a> = &'a dyn Fn(u32, u64) -> Option<FileId>;

/// A library in use: libcuda, libamdhip64 or a runtime.
pub struct Library {
    /// Keeps the inode, so that attaching works after the last path to it is gone.
    pub(super) file: File,
    /// Which file it is.
    pub id: FileId,
    /// What people call it.
    pub path: PathBuf,
    /// Where its functions are.
    pub entry_points: EntryPoints,
    /// User of the process that was seen mapping it; `None`: it is in the loader's cache.
    pub mapped_by: Option<u32>,
}

impl Library {
    /// Attaches `program` to file offsets of the library, in every process that maps it now or
    /// later. The cookie of each is its number in `points`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, program: &ProgramMut<'_>, points: &[(usize, usize)]) -> Result<Link> {
        self.attach_at(program, points, false)
    }

    /// Attaches `program` to where the functions at these offsets return.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach_returns(
        &self,
        program: &ProgramMut<'_>,
        points: &[(usize, usize)],
    ) -> Result<Link> {
        self.attach_at(program, points, true)
    }

    /// Attaches `program` to what processes call before they launch, if the library has it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach_to_init(&self, program: &ProgramMut<'_>) -> Result<Option<Link>> {
        let inits = self.entry_points.inits.iter();
        let points: Vec<_> = inits.map(|&offset| (0, offset)).collect();
        (!points.is_empty())
            .then(|| self.attach(program, &points))
            .transpose()
            .context("attaching to where the library is initialised")
    }

    fn attach_at(
        &self,
        program: &ProgramMut<'_>,
        points: &[(usize, usize)],
        retprobe: bool,
    ) -> Result<Link> {
        let opts = UprobeMultiOpts {
            offsets: points.iter().map(|&(_, offset)| offset).collect(),
            cookies: points.iter().map(|&(index, _)| index as u64).collect(),
            retprobe,
            ..UprobeMultiOpts::default()
        };
        const EVERY_PROCESS: i32 = -1;
        program
            .attach_uprobe_multi_with_opts(EVERY_PROCESS, by_fd(&self.file), "", opts)
            .with_context(|| format!("attaching uprobes to {}", self.path.display()))
    }
}

/// What the BPF program `find_mapped_file` says: see [`MappedFile`].
pub fn mapped_file(program: BorrowedFd<'_>, tgid: u32, address: u64) -> Option<FileId> {
    let mut request = intf::gpuaware_mapped_file {
        address,
        inode: 0,
        tgid: tgid.try_into().ok()?,
        device: 0,
    };
    ask_syscall_program(program, &mut request).ok()?;
    (request.inode != 0).then_some((request.device.into(), request.inode))
}

/// A path to it that holds when the last other is gone.
pub fn by_fd(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
