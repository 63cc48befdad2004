// SPDX-License-Identifier: GPL-2.0-only
//! Which libcuda files are in use, by the loader's cache and by what processes map, and attaching
//! to them. When and what to attach is up to the callers.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{Link, ProgramMut, UprobeMultiOpts};
use log::{debug, warn};

use super::libcuda::{self, EntryPoints};
use super::processes::Looks;

const PROC: &str = "/proc";

/// Device and inode number as `stat` has them.
pub type FileId = (u64, u64);

/// A libcuda file in use.
pub struct Library {
    /// Keeps the inode, so that attaching works after the last path to it is gone.
    file: File,
    /// Which file it is.
    pub id: FileId,
    /// What people call it.
    pub path: PathBuf,
    /// Where its functions are.
    pub entry_points: EntryPoints,
}

/// Finds libraries, each once.
#[derive(Default)]
pub struct Libraries {
    known: HashSet<FileId>,
    /// In the loader's cache: of use whether or not a process maps them now.
    installed: HashSet<FileId>,
    /// Which processes map which libcudas.
    users: HashMap<u32, Vec<FileId>>,
    /// Did a process stop to map one since unused libraries were taken?
    has_lost_users: bool,
    looks: Looks,
}

impl Libraries {
    /// Those in the loader's cache and those that processes map now.
    pub fn find_all(&mut self) -> Vec<Library> {
        let mut found: Vec<_> = loader_cache()
            .iter()
            .filter_map(|path| self.open(path, path))
            .collect();
        self.installed
            .extend(found.iter().map(|library| library.id));
        for tgid in all_processes() {
            found.extend(self.look_at(tgid, Duration::ZERO));
            self.looks.started(tgid, Duration::ZERO);
        }
        found
    }

    /// Those in the folders of `search_path`, separated by colons as in `LD_LIBRARY_PATH`.
    pub fn find_in(&mut self, search_path: &OsStr) -> Vec<Library> {
        let files: Vec<_> = std::env::split_paths(search_path)
            .filter_map(|folder| std::fs::read_dir(folder).ok())
            .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
            .filter(|path| libcuda::is_libcuda(path.as_os_str().as_bytes()))
            .collect();
        files
            .iter()
            .filter_map(|path| self.open(path, path))
            .collect()
    }

    /// Process `tgid` started a program at `now`.
    pub fn started(&mut self, tgid: u32, now: Duration) {
        self.looks.started(tgid, now);
    }

    /// Some process may have started a program at `now`.
    pub fn any_started(&mut self, now: Duration) {
        for tgid in all_processes() {
            self.looks.started(tgid, now);
        }
    }

    /// What the processes that are due for a look at `now` have mapped since the last one.
    pub fn look(&mut self, now: Duration) -> Vec<Library> {
        let mut found = Vec::new();
        while let Some(tgid) = self.looks.next(now) {
            found.extend(self.look_at(tgid, now));
        }
        found
    }

    /// The processes that map a libcuda.
    pub fn users(&self) -> impl Iterator<Item = u32> + '_ {
        self.users.keys().copied()
    }

    /// Takes out the libraries that no process maps any more: found again, they are new.
    pub fn take_unused(&mut self) -> HashSet<FileId> {
        if !std::mem::take(&mut self.has_lost_users) {
            return HashSet::new();
        }
        let used: HashSet<_> = self.users.values().flatten().copied().collect();
        let is_unused = |id: &FileId| !used.contains(id) && !self.installed.contains(id);
        self.known.extract_if(is_unused).collect()
    }

    fn lost_user(&mut self, tgid: u32) {
        self.has_lost_users |= self.users.remove(&tgid).is_some();
    }

    /// Does process `tgid` map a libcuda by now?
    fn look_at(&mut self, tgid: u32, now: Duration) -> Vec<Library> {
        let dir = Path::new(PROC).join(tgid.to_string());
        let Ok(maps) = std::fs::read(dir.join("maps")) else {
            self.looks.ended(tgid);
            self.lost_user(tgid);
            return Vec::new();
        };
        let mappings = libcuda::mappings(&maps);
        if mappings.is_empty() {
            self.lost_user(tgid);
            return Vec::new();
        }
        let files: Vec<_> = mappings
            .into_iter()
            .map(|mapping| (dir.join("map_files").join(&mapping.range), mapping.path))
            .collect();
        let ids = files.iter().filter_map(|(file, _)| {
            let metadata = std::fs::metadata(file).ok()?;
            Some((metadata.dev(), metadata.ino()))
        });
        let ids: Vec<_> = ids.collect();
        match self.users.insert(tgid, ids.clone()) {
            Some(before) => self.has_lost_users |= before != ids,
            None => debug!("process {tgid} maps libcuda after {now:?}"),
        }
        files
            .iter()
            .filter_map(|(file, name)| self.open(file, name))
            .collect()
    }

    /// The library at `file`, unless it is known. `name` is for people.
    fn open(&mut self, file: &Path, name: &Path) -> Option<Library> {
        let opened = File::open(file).and_then(|file| {
            let metadata = file.metadata()?;
            Ok((file, (metadata.dev(), metadata.ino())))
        });
        let (file, id) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                debug!("{}: {error}", file.display());
                return None;
            }
        };
        if !self.known.insert(id) {
            return None;
        }
        match libcuda::entry_points(&by_fd(&file)) {
            Ok(entry_points) => Some(Library {
                file,
                id,
                path: name.to_path_buf(),
                entry_points,
            }),
            Err(error) => {
                warn!("cannot probe {}: {error:#}", name.display());
                None
            }
        }
    }
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

    /// Attaches `program` to `cuInit`, if the library has it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach_to_init(&self, program: &ProgramMut<'_>) -> Result<Option<Link>> {
        let init = self.entry_points.init;
        init.map(|offset| self.attach(program, &[(0, offset)]))
            .transpose()
            .context("attaching to cuInit")
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

fn by_fd(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn loader_cache() -> Vec<PathBuf> {
    let output = Command::new("/sbin/ldconfig").arg("-p").output();
    match output {
        Ok(output) => libcuda::in_loader_cache(&String::from_utf8_lossy(&output.stdout))
            .into_iter()
            .collect(),
        Err(error) => {
            debug!("no loader cache: ldconfig: {error}");
            Vec::new()
        }
    }
}

fn all_processes() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(PROC) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}
