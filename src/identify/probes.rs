// SPDX-License-Identifier: GPL-2.0-only
//! The uprobes: which libcuda files are in use, and attaching to them in time.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{Link, ProgramMut, RingBuffer, RingBufferBuilder, UprobeMultiOpts};
use log::{debug, info, warn};

use crate::bpf::identify::IdentifySkel;

use super::Source;
use super::libcuda::{self, EntryPoints};
use super::marks::{Mark, Pins};
use super::processes::{Looks, Strangers};
use super::window::{Action, Counters, Threads, Window};

const PROC: &str = "/proc";

/// A libcuda file in use.
struct Library {
    /// Keeps the inode, so that attaching works after the last path to it is gone.
    file: File,
    path: PathBuf,
    entry_points: EntryPoints,
    _init: Option<Link>,
    launches: Option<Link>,
}

/// Device and inode number as `stat` has them.
type FileId = (u64, u64);

/// All uprobes.
pub struct Probes {
    libraries: HashMap<FileId, Library>,
    /// Which processes map a libcuda.
    users: HashSet<u32>,
    looks: Looks,
    strangers: Strangers,
    window: Window,
    nr_windows: u64,
    nr_found_libraries: u64,
    lost_execs_seen: u64,
    execs: RingBuffer<'static>,
    execed: mpsc::Receiver<u32>,
}

/// What the BPF side has counted. The values are written by the kernel at any time.
pub fn counters(skel: &IdentifySkel<'_>) -> Counters {
    let Some(bss) = skel.maps.bss_data.as_deref() else {
        return Counters::default();
    };
    Counters {
        hits: read(&bss.nr_launch_hits),
        finds: read(&bss.nr_new_launchers),
        triggers: read(&bss.nr_cuda_inits) + read(&bss.nr_gpu_forks),
    }
}

/// How often cgroups were made, removed or renamed.
pub fn cgroup_changes(skel: &IdentifySkel<'_>) -> u64 {
    let bss = skel.maps.bss_data.as_deref();
    bss.map_or(0, |bss| read(&bss.nr_cgroup_changes))
}

fn read(counter: &u64) -> u64 {
    // SAFETY: a valid, aligned reference; volatile because the kernel writes behind our back.
    unsafe { std::ptr::read_volatile(counter) }
}

impl Probes {
    /// Finds the libraries in use and arms the probes.
    pub fn new(skel: &IdentifySkel<'_>) -> Result<Self> {
        let (sender, execed) = mpsc::channel();
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&skel.maps.process_events, move |bytes| {
                if let Ok(tgid) = bytes.try_into() {
                    // The receiver lives as long as the ring buffer.
                    let _ = sender.send(u32::from_ne_bytes(tgid));
                }
                0
            })
            .context("reading process events")?;
        let mut probes = Self {
            libraries: HashMap::new(),
            users: HashSet::new(),
            looks: Looks::default(),
            strangers: Strangers::default(),
            window: Window::new(Duration::ZERO),
            nr_windows: 1,
            nr_found_libraries: 0,
            lost_execs_seen: 0,
            execs: builder.build().context("reading process events")?,
            execed,
        };
        for path in loader_cache() {
            probes.add_library(skel, &path, &path);
        }
        for tgid in all_processes() {
            probes.look_at(skel, tgid, Duration::ZERO);
            probes.looks.started(tgid, Duration::ZERO);
        }
        Ok(probes)
    }

    /// See [`super::Identify::step`].
    pub fn step(
        &mut self,
        now: Duration,
        skel: &IdentifySkel<'_>,
        pins: &Pins,
    ) -> Result<Duration> {
        self.follow_execs(now, skel)?;
        while let Some(tgid) = self.looks.next(now) {
            self.look_at(skel, tgid, now);
        }
        let mut counters = counters(skel);
        counters.triggers += self.nr_found_libraries;
        let mut threads = KnownThreads {
            pins,
            strangers: &mut self.strangers,
            users: &self.users,
        };
        let action = self.window.step(now, counters, &mut threads);
        if let Some(action) = action {
            debug!("{action:?} at {now:?}: {counters:?}");
        }
        match action {
            Some(Action::Arm) => {
                self.nr_windows += 1;
                for library in self.libraries.values_mut() {
                    library.arm(skel);
                }
            }
            Some(Action::Disarm) => {
                for library in self.libraries.values_mut() {
                    library.launches = None;
                }
            }
            None => {}
        }
        Ok(self.window.next_step(now))
    }

    /// Number of libcuda files that are probed.
    pub fn nr_libraries(&self) -> usize {
        self.libraries.len()
    }

    /// Times that the probes were armed.
    pub fn nr_windows(&self) -> u64 {
        self.nr_windows
    }

    /// Are the launch probes on?
    pub fn is_armed(&self) -> bool {
        self.window.is_armed()
    }

    fn follow_execs(&mut self, now: Duration, skel: &IdentifySkel<'_>) -> Result<()> {
        self.execs.consume().context("reading process events")?;
        while let Ok(tgid) = self.execed.try_recv() {
            self.looks.started(tgid, now);
        }
        let lost = skel.maps.bss_data.as_deref();
        let lost = lost.map_or(0, |bss| read(&bss.nr_lost_execs));
        if lost != self.lost_execs_seen {
            self.lost_execs_seen = lost;
            for tgid in all_processes() {
                self.looks.started(tgid, now);
            }
        }
        Ok(())
    }

    /// Does process `tgid` map a libcuda by now?
    fn look_at(&mut self, skel: &IdentifySkel<'_>, tgid: u32, now: Duration) {
        let dir = Path::new(PROC).join(tgid.to_string());
        let Ok(maps) = std::fs::read(dir.join("maps")) else {
            self.looks.ended(tgid);
            self.users.remove(&tgid);
            return;
        };
        let mappings = libcuda::mappings(&maps);
        if mappings.is_empty() {
            self.users.remove(&tgid);
            return;
        }
        if self.users.insert(tgid) {
            debug!("process {tgid} maps libcuda after {now:?}");
        }
        for mapping in mappings {
            let file = dir.join("map_files").join(&mapping.range);
            self.add_library(skel, &file, &mapping.path);
        }
    }

    /// Starts to probe the library at `file`, unless it is known. `name` is for people.
    fn add_library(&mut self, skel: &IdentifySkel<'_>, file: &Path, name: &Path) {
        let opened = File::open(file).and_then(|file| {
            let metadata = file.metadata()?;
            Ok((file, (metadata.dev(), metadata.ino())))
        });
        let (file, id) = match opened {
            Ok(opened) => opened,
            Err(error) => return debug!("{}: {error}", file.display()),
        };
        if self.libraries.contains_key(&id) {
            return;
        }
        match Library::new(skel, file, name) {
            Ok(mut library) => {
                info!(
                    "probing {} ({} launch entry points)",
                    name.display(),
                    library.entry_points.launches.len()
                );
                if self.window.is_armed() {
                    library.arm(skel);
                }
                self.nr_found_libraries += 1;
                self.libraries.insert(id, library);
            }
            Err(error) => warn!("cannot probe {}: {error:#}", name.display()),
        }
    }
}

/// The marks of the running system.
struct KnownThreads<'a> {
    pins: &'a Pins,
    strangers: &'a mut Strangers,
    users: &'a HashSet<u32>,
}

impl KnownThreads<'_> {
    fn marks(&self) -> Vec<Mark> {
        self.pins.list().unwrap_or_else(|error| {
            warn!("listing marks: {error:#}");
            Vec::new()
        })
    }
}

impl Threads for KnownThreads<'_> {
    fn strangers_ran(&mut self) -> bool {
        let marked = self.marks().iter().map(|mark| mark.tid as u32).collect();
        let users = self.users.iter().copied();
        self.strangers.ran(Path::new(PROC), users, &marked)
    }

    fn launchers_alive(&mut self) -> bool {
        let marks = self.marks();
        marks.iter().any(|mark| mark.source == Source::Uprobe)
    }
}

impl Library {
    fn new(skel: &IdentifySkel<'_>, file: File, name: &Path) -> Result<Self> {
        let entry_points = libcuda::entry_points(&by_fd(&file))?;
        let init = entry_points
            .init
            .map(|offset| attach(&skel.progs.cuda_init, &file, &[(0, offset)]))
            .transpose()
            .context("attaching to cuInit")?;
        Ok(Self {
            file,
            path: name.to_path_buf(),
            entry_points,
            _init: init,
            launches: None,
        })
    }

    fn arm(&mut self, skel: &IdentifySkel<'_>) {
        if self.launches.is_some() || self.entry_points.launches.is_empty() {
            return;
        }
        match attach(&skel.progs.launch, &self.file, &self.entry_points.launches) {
            Ok(link) => self.launches = Some(link),
            Err(error) => warn!("cannot arm {}: {error:#}", self.path.display()),
        }
    }
}

fn by_fd(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Attaches to file offsets of `file`, in every process that maps it now or later. The cookie of
/// each is its number in `points`.
fn attach(program: &ProgramMut<'_>, file: &File, points: &[(usize, usize)]) -> Result<Link> {
    let opts = UprobeMultiOpts {
        offsets: points.iter().map(|&(_, offset)| offset).collect(),
        cookies: points.iter().map(|&(index, _)| index as u64).collect(),
        ..UprobeMultiOpts::default()
    };
    const EVERY_PROCESS: i32 = -1;
    program
        .attach_uprobe_multi_with_opts(EVERY_PROCESS, by_fd(file), "", opts)
        .context("attaching uprobes")
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
