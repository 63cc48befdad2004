// SPDX-License-Identifier: GPL-2.0-only
//! Which libcuda files are in use, by the loader's cache and by what processes map; where it is asked for, which
//! runtimes are.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use log::{debug, warn};

use crate::printable::printable;
use crate::proc::{PROC, numbers_in};

use super::flavour::{Flavour, PLACES};
use super::libcuda;
use super::library::{FileId, Library, MappedFile, by_fd};
use super::processes::Looks;
use super::quota::Quota;

/// A program that starts again at once has its library before it was looked at.
const LET_GO_AFTER: Duration = Duration::from_secs(1);

/// What a file was when it was looked at: written anew in place, its functions are elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    modified: (i64, i64),
    bytes: u64,
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            bytes: metadata.len(),
        }
    }
}

/// Finds libraries, each once, and again when it was written anew.
#[derive(Default)]
pub struct Libraries {
    known: HashMap<FileId, Version>,
    /// Those among them that cannot be probed: a rescan tries again.
    failed: HashSet<FileId>,
    /// Those that were written anew since they were taken, whether or not they can be probed.
    rewritten: HashSet<FileId>,
    /// Each container's overlay gives the one file below another id. The kernel's id of that file to the
    /// id that we know.
    below: HashMap<FileId, FileId>,
    /// The other ids that such a file has.
    aliases: HashMap<FileId, FileId>,
    /// In the loader's cache: of use whether or not a process maps them now.
    installed: HashSet<FileId>,
    /// Which processes map which libcudas.
    users: HashMap<u32, Vec<FileId>>,
    /// When a process was first seen not to map one any more since unused libraries were taken.
    lost_user_at: Option<Duration>,
    looks: Looks,
    quota: Quota,
    /// Are runtimes looked for too?
    with_runtimes: bool,
    /// Is HIP's library?
    with_hip: bool,
}

impl Libraries {
    /// Those for the GPUs of every maker; by default NVIDIA's alone.
    pub fn of_all_makers() -> Self {
        Self {
            with_hip: true,
            ..Self::default()
        }
    }

    /// Looks for runtimes too, or no longer, from the next look at each process on.
    pub fn set_with_runtimes(&mut self, with_runtimes: bool) {
        self.with_runtimes = with_runtimes;
    }

    fn is_wanted(&self, path: &[u8]) -> bool {
        libcuda::is_libcuda(path)
            || self.with_hip && libcuda::is_libamdhip(path)
            || self.with_runtimes && libcuda::is_libcudart(path)
    }

    /// Those in the loader's cache and those that processes map now.
    pub fn find_all(&mut self, mapped_file: MappedFile<'_>) -> Vec<Library> {
        let mut found = self.find_installed();
        for tgid in all_processes() {
            found.extend(self.look_at(tgid, Duration::ZERO, mapped_file));
        }
        found
    }

    /// Those in the loader's cache as it is now. What is not in it any more is let go when nobody maps it.
    pub fn find_installed(&mut self) -> Vec<Library> {
        let mut paths = loader_cache(|path| self.is_wanted(path));
        let elsewhere = PLACES.map(|place| Path::new(place).join("libcuda.so.1"));
        paths.extend(elsewhere.into_iter().filter(|path| path.exists()));
        // A process that maps a stub all the same is looked at when it does.
        paths.retain(|path| Flavour::of(path) != Flavour::Stub);
        let ids = paths.iter().filter_map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.dev(), metadata.ino()))
        });
        let before = std::mem::replace(&mut self.installed, ids.collect());
        if !before.is_subset(&self.installed) {
            self.lost_user_at.get_or_insert(Duration::ZERO);
        }
        paths
            .iter()
            .filter_map(|path| self.open(path, path, None))
            .collect()
    }

    /// Those in the folders of `search_path`, separated by colons as in `LD_LIBRARY_PATH`.
    pub fn find_in(&mut self, search_path: &OsStr) -> Vec<Library> {
        let files: Vec<_> = std::env::split_paths(search_path)
            .filter_map(|folder| std::fs::read_dir(folder).ok())
            .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
            .filter(|path| libcuda::is_libcuda(path.as_os_str().as_bytes()))
            .filter(|path| Flavour::of(path) != Flavour::Stub)
            .collect();
        let found: Vec<_> = files
            .iter()
            .filter_map(|path| self.open(path, path, None))
            .collect();
        // Of use before any process maps them.
        self.installed
            .extend(found.iter().map(|library| library.id));
        found
    }

    /// Process `tgid` started a program at `now`: [`Libraries::look`] is to look at it now and then.
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
    pub fn look(&mut self, now: Duration, mapped_file: MappedFile<'_>) -> Vec<Library> {
        let mut found = Vec::new();
        while let Some(tgid) = self.looks.next(now) {
            found.extend(self.look_at(tgid, now, mapped_file));
        }
        found
    }

    /// The processes that map a libcuda.
    pub fn users(&self) -> impl Iterator<Item = u32> + '_ {
        self.users.keys().copied()
    }

    /// Takes out the libraries that no process has mapped for a while at `now`: found again, they
    /// are new.
    pub fn take_unused(&mut self, now: Duration) -> HashSet<FileId> {
        if self.lost_user_at.is_none_or(|at| now < at + LET_GO_AFTER) {
            return HashSet::new();
        }
        self.lost_user_at = None;
        let used: HashSet<_> = self.users.values().flatten().copied().collect();
        self.quota.retain(|id| used.contains(id));
        let is_unused = |id: &FileId| !used.contains(id) && !self.installed.contains(id);
        let unused = self.known.extract_if(|id, _| is_unused(id));
        let unused: HashSet<_> = unused.map(|(id, _)| id).collect();
        self.failed.retain(|id| !unused.contains(id));
        for ids in [&mut self.below, &mut self.aliases] {
            ids.retain(|_, id| !unused.contains(id));
        }
        unused
    }

    /// Takes out the processes that map libraries which were passed over because their user had too
    /// many then.
    pub fn take_turned_away(&mut self) -> HashSet<u32> {
        self.quota.take_turned_away()
    }

    /// The id under which the file is known, or will be, that `stat` calls `id` and process `tgid` of
    /// `user` maps at `range`. `None`: that user has too many, and nothing of it is kept.
    fn known_as(
        &mut self,
        id: FileId,
        (tgid, user): (u32, u32),
        range: &str,
        mapped_file: MappedFile<'_>,
    ) -> Option<FileId> {
        if self.known.contains_key(&id) {
            return Some(id);
        }
        // What could not be opened has left its ids here, but is not known.
        let is_known = |known: &FileId| *known != id && self.known.contains_key(known);
        if let Some(&alias) = self.aliases.get(&id).filter(|&alias| is_known(alias)) {
            return Some(alias);
        }
        let start = range.split('-').next();
        let start = start.and_then(|start| u64::from_str_radix(start, 16).ok());
        let below = start.and_then(|start| mapped_file(tgid, start));
        let known = below.and_then(|below| self.below.get(&below).copied());
        if let Some(known) = known.filter(is_known) {
            self.aliases.insert(id, known);
            return Some(known);
        }
        if !self.quota.admits(id, user, tgid) {
            return None;
        }
        self.below.extend(below.map(|below| (below, id)));
        Some(id)
    }

    fn lost_user(&mut self, tgid: u32, now: Duration) {
        if self.users.remove(&tgid).is_some() {
            self.lost_user_at.get_or_insert(now);
        }
    }

    /// What process `tgid` maps at `now` and nobody was seen to map before.
    pub fn look_at(
        &mut self,
        tgid: u32,
        now: Duration,
        mapped_file: MappedFile<'_>,
    ) -> Vec<Library> {
        let Some((dir, maps)) = maps_of(tgid) else {
            self.looks.ended(tgid);
            self.lost_user(tgid, now);
            return Vec::new();
        };
        let mappings = libcuda::mappings(&maps, |path| self.is_wanted(path));
        let user = (!mappings.is_empty()).then(|| user_of(tgid)).flatten();
        let Some(user) = user else {
            self.lost_user(tgid, now);
            return Vec::new();
        };
        let files = mappings.into_iter().filter_map(|mapping| {
            let file = dir.join("map_files").join(&mapping.range);
            let metadata = std::fs::metadata(&file).ok()?;
            let own = (metadata.dev(), metadata.ino());
            let id = self.known_as(own, (tgid, user), &mapping.range, mapped_file)?;
            let is_new = match self.known.get(&id) {
                None => true,
                // Of another id of its own it says nothing.
                Some(known) => id == own && *known != Version::of(&metadata),
            };
            Some((file, mapping.path, id, is_new))
        });
        let files: Vec<_> = files.collect();
        let ids: Vec<_> = files.iter().map(|&(_, _, id, _)| id).collect();
        if ids.is_empty() {
            self.lost_user(tgid, now);
            return Vec::new();
        }
        match self.users.insert(tgid, ids.clone()) {
            Some(before) if before != ids => {
                self.lost_user_at.get_or_insert(now);
            }
            Some(_) => {}
            None => debug!("process {tgid} maps libcuda after {now:?}"),
        }
        files
            .iter()
            .filter(|(.., is_new)| *is_new)
            .filter_map(|(file, name, ..)| self.open(file, name, Some(user)))
            .collect()
    }

    /// Takes out the libraries that were written anew: probes that they had are where functions were.
    pub fn take_rewritten(&mut self) -> HashSet<FileId> {
        std::mem::take(&mut self.rewritten)
    }

    /// Library `id` cannot be probed.
    pub fn failed(&mut self, id: FileId) {
        self.failed.insert(id);
    }

    /// Takes those that could not be probed for new.
    pub fn forget_failed(&mut self) {
        for id in self.failed.drain() {
            self.known.remove(&id);
        }
    }

    /// The library at `file`, unless it is known. `name` is for people.
    fn open(&mut self, file: &Path, name: &Path, mapped_by: Option<u32>) -> Option<Library> {
        let opened = File::open(file).and_then(|file| {
            let metadata = file.metadata()?;
            let id = (metadata.dev(), metadata.ino());
            Ok((file, id, Version::of(&metadata)))
        });
        let (file, id, version) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                debug!("{}: {error}", file.display());
                return None;
            }
        };
        match self.known.insert(id, version) {
            Some(known) if known == version => return None,
            Some(_) => drop(self.rewritten.insert(id)),
            None => {}
        }
        self.failed.remove(&id);
        match libcuda::entry_points(&by_fd(&file)) {
            Ok(entry_points) => Some(Library {
                file,
                id,
                path: name.to_path_buf(),
                entry_points,
                mapped_by,
            }),
            Err(error) => {
                let name = printable(&name.display().to_string());
                warn!("cannot probe {name}: {error:#}");
                self.failed(id);
                None
            }
        }
    }
}

fn loader_cache(is_wanted: impl Fn(&[u8]) -> bool) -> Vec<PathBuf> {
    let output = Command::new("/sbin/ldconfig").arg("-p").output();
    match output {
        Ok(output) => libcuda::in_loader_cache(&String::from_utf8_lossy(&output.stdout), is_wanted)
            .into_iter()
            .collect(),
        Err(error) => {
            debug!("no loader cache: ldconfig: {error}");
            Vec::new()
        }
    }
}

/// User of process `tgid`; `None`: it is gone.
pub fn user_of(tgid: u32) -> Option<u32> {
    let folder = std::fs::metadata(Path::new(PROC).join(tgid.to_string()));
    Some(folder.ok()?.uid())
}

/// What process `tgid` maps, and the folder in `/proc` of the thread that shows it: the first thread
/// may have ended before others, and shows nothing then.
fn maps_of(tgid: u32) -> Option<(PathBuf, Vec<u8>)> {
    let of_thread = |tid: &OsStr| {
        let dir = Path::new(PROC).join(tid);
        let maps = std::fs::read(dir.join("maps")).ok()?;
        Some((dir, maps))
    };
    let (dir, maps) = of_thread(OsStr::new(&tgid.to_string()))?;
    if !maps.is_empty() {
        return Some((dir, maps));
    }
    let threads = std::fs::read_dir(dir.join("task")).into_iter().flatten();
    let mut others = threads
        .flatten()
        .filter_map(|thread| of_thread(&thread.file_name()));
    let shows = others.find(|(_, maps)| !maps.is_empty());
    Some(shows.unwrap_or((dir, maps)))
}

/// Every process there is.
pub fn all_processes() -> Vec<u32> {
    numbers_in(Path::new(PROC))
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn processes_that_vanish_meanwhile_are_passed_over() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
                    child.wait().unwrap();
                }
            });
            let mut libraries = Libraries::default();
            for round in 1..20 {
                let now = Duration::from_secs(round);
                libraries.any_started(now);
                libraries.look(now + Duration::from_millis(20), &|_, _| None);
                libraries.take_unused(now);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
