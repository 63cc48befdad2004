// SPDX-License-Identifier: GPL-2.0-only
//! Which thread is what: loads the probes, arms them when it pays, and keeps cgroup tags.
//!
//! Works under any scheduler. What the classes mean is the scheduler's business.

pub mod cgroups;
pub mod libcuda;
pub mod libraries;
pub mod marks;
mod probes;
mod processes;
pub mod window;

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject};
use log::{debug, info, warn};
use serde::Serialize;

use crate::bpf::identify::{IdentifySkel, IdentifySkelBuilder};
use crate::bpf::intf;
use crate::policy::{CgroupGlob, Policy};

use marks::Pins;
use probes::Probes;

/// What a task is to the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Launches GPU work: runs at once, on a preferred CPU.
    Launch,
    /// Hands work to launchers: comes right after them.
    Handoff,
    /// Everybody else: shares fairly.
    Background,
}

/// Who said which class a task has, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// `scx_gpuaware mark`.
    Mark,
    /// Its cgroup, by a glob of the policy.
    Cgroup,
    /// It called a CUDA launch function.
    Uprobe,
}

impl Class {
    /// In a word, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Handoff => "handoff",
            Self::Background => "background",
        }
    }

    pub(crate) fn wire(self) -> u32 {
        match self {
            Self::Launch => intf::gpuaware_class_GPUAWARE_CLASS_LAUNCH,
            Self::Handoff => intf::gpuaware_class_GPUAWARE_CLASS_HANDOFF,
            Self::Background => intf::gpuaware_class_GPUAWARE_CLASS_BACKGROUND,
        }
    }

    fn from_wire(class: u32) -> Option<Self> {
        [Self::Launch, Self::Handoff, Self::Background]
            .into_iter()
            .find(|candidate| candidate.wire() == class)
    }
}

impl Source {
    /// In a word, as in JSON.
    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            _ => String::new(),
        }
    }

    fn from_wire(source: u32) -> Option<Self> {
        match source {
            intf::gpuaware_source_GPUAWARE_SOURCE_MARK => Some(Self::Mark),
            intf::gpuaware_source_GPUAWARE_SOURCE_CGROUP => Some(Self::Cgroup),
            intf::gpuaware_source_GPUAWARE_SOURCE_UPROBE => Some(Self::Uprobe),
            _ => None,
        }
    }
}

/// Identification at work. Detaches and unpins when dropped.
pub struct Identify<'obj> {
    // Dropped in this order: links before the programs that they attach.
    _links: Vec<Link>,
    probes: Option<Probes>,
    skel: IdentifySkel<'obj>,
    pins: Pins,
    rules: Vec<(CgroupGlob, Class)>,
    cgroup_root: Option<PathBuf>,
    tagged: HashMap<u64, Class>,
    cgroup_changes_seen: Option<u64>,
    started: Instant,
}

/// What identification has seen since it was loaded, for the statistics.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sightings {
    /// Probed launches.
    pub launch_hits: u64,
    /// Threads that a probe marked.
    pub launchers_found: u64,
    /// libcuda files in use that are probed.
    pub libraries: usize,
    /// Are the launch probes armed now?
    pub armed: bool,
    /// Times that they were armed.
    pub windows: u64,
}

impl<'obj> Identify<'obj> {
    /// Loads and attaches what `policy` asks for.
    ///
    /// # Errors
    /// Not enough rights, a kernel without the BPF features, no bpffs below the pins' folder.
    pub fn start(
        policy: &Policy,
        pins: Pins,
        object: &'obj mut MaybeUninit<OpenObject>,
    ) -> Result<Self> {
        let open = IdentifySkelBuilder::default()
            .open(object)
            .context("opening the identification programs")?;
        let skel = open.load().context("loading the identification programs")?;
        let links = attach_observers(&skel)?;
        pin(&skel, &pins)?;
        let mounts = std::fs::read_to_string("/proc/self/mounts").context("reading mounts")?;
        let rules = cgroups::rules(policy);
        let cgroup_root = cgroups::mount_point(&mounts);
        if cgroup_root.is_none() && !rules.is_empty() {
            warn!("no cgroup v2 hierarchy is mounted: cgroup rules of the policy match nothing");
        }
        let started = Instant::now();
        let probes = policy
            .launch
            .cuda_launch()
            .then(|| Probes::new(&skel))
            .transpose()?;
        let mut identify = Self {
            _links: links,
            probes,
            skel,
            pins,
            rules,
            cgroup_root,
            tagged: HashMap::new(),
            cgroup_changes_seen: None,
            started,
        };
        identify.step()?;
        Ok(identify)
    }

    /// Goes by another policy. Marks stay, except that what probes saw counts no longer where the
    /// policy does not want it.
    ///
    /// # Errors
    /// The probes cannot be set up, the kernel refuses a change of a map.
    pub fn follow(&mut self, policy: &Policy) -> Result<()> {
        if !policy.launch.cuda_launch() {
            self.probes = None;
            self.forget_observed()?;
        } else if self.probes.is_none() {
            self.probes = Some(Probes::new(&self.skel)?);
        }
        self.rules = cgroups::rules(policy);
        self.cgroup_changes_seen = None;
        if self.rules.is_empty() {
            self.store_tags(&HashMap::new())?;
            self.tagged.clear();
        }
        Ok(())
    }

    fn forget_observed(&self) -> Result<()> {
        let marks = self.pins.list()?.into_iter();
        for mark in marks.filter(|mark| mark.source == Source::Uprobe) {
            if let Err(error) = self.pins.mark(mark.tid, None) {
                debug!("a thread that has ended meanwhile: {error:#}");
            }
        }
        Ok(())
    }

    /// File descriptors of the maps that the scheduler shares: task marks, cgroup classes, the
    /// class generation.
    pub fn shared_maps(&self) -> [BorrowedFd<'_>; 3] {
        let maps = &self.skel.maps;
        [
            maps.task_marks.as_fd(),
            maps.cgroup_classes.as_fd(),
            maps.class_generation.as_fd(),
        ]
    }

    /// Where the cgroup v2 hierarchy is mounted.
    pub fn cgroup_root(&self) -> Option<&Path> {
        self.cgroup_root.as_deref()
    }

    /// Every task that has a class, and why. Walks all tasks of the machine.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn marks(&self) -> Result<Vec<marks::Mark>> {
        self.pins.list()
    }

    /// One round of work: looks at new processes, arms or disarms the probes, follows cgroups.
    /// Returns how long the caller may wait before the next round.
    ///
    /// # Errors
    /// The kernel refuses a change of a map. Processes and libraries that vanish are no error.
    pub fn step(&mut self) -> Result<Duration> {
        self.follow_cgroups()?;
        let now = self.started.elapsed();
        match &mut self.probes {
            Some(probes) => probes.step(now, &self.skel, &self.pins),
            None => Ok(Duration::from_millis(100)),
        }
    }

    /// Counters for the statistics.
    pub fn sightings(&self) -> Sightings {
        let counters = probes::counters(&self.skel);
        let mut sightings = Sightings {
            launch_hits: counters.hits,
            launchers_found: counters.finds,
            ..Sightings::default()
        };
        if let Some(probes) = &self.probes {
            sightings.libraries = probes.nr_libraries();
            sightings.armed = probes.is_armed();
            sightings.windows = probes.nr_windows();
        }
        sightings
    }

    /// Matches the policy's globs anew when a cgroup was made, removed or renamed.
    fn follow_cgroups(&mut self) -> Result<()> {
        let Some(root) = self
            .cgroup_root
            .as_deref()
            .filter(|_| !self.rules.is_empty())
        else {
            return Ok(());
        };
        let changes = probes::cgroup_changes(&self.skel);
        if self.cgroup_changes_seen == Some(changes) {
            return Ok(());
        }
        let tagged = cgroups::classify(root, &self.rules)?;
        self.cgroup_changes_seen = Some(changes);
        if tagged != self.tagged {
            self.store_tags(&tagged)?;
            info!("{} cgroups have a class", tagged.len());
            self.tagged = tagged;
        }
        Ok(())
    }

    fn store_tags(&self, tagged: &HashMap<u64, Class>) -> Result<()> {
        let map = &self.skel.maps.cgroup_classes;
        for id in self.tagged.keys().filter(|id| !tagged.contains_key(id)) {
            map.delete(&id.to_ne_bytes())
                .with_context(|| format!("forgetting cgroup {id}"))?;
        }
        for (id, class) in tagged {
            map.update(
                &id.to_ne_bytes(),
                &class.wire().to_ne_bytes(),
                MapFlags::ANY,
            )
            .with_context(|| format!("tagging cgroup {id}"))?;
        }
        bump_generation(&self.skel)
    }
}

impl Drop for Identify<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.pins.remove() {
            warn!("{error:#}");
        }
    }
}

/// Makes the scheduler derive every task's class anew.
fn bump_generation(skel: &IdentifySkel<'_>) -> Result<()> {
    let map = &skel.maps.class_generation;
    let key = 0u32.to_ne_bytes();
    let now = map
        .lookup(&key, MapFlags::ANY)
        .context("reading the class generation")?
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_ne_bytes);
    // BPF programs add to it atomically; a step of 2^32 cannot meet a value that a task has seen.
    let next = now.wrapping_add(1 << 32);
    map.update(&key, &next.to_ne_bytes(), MapFlags::ANY)
        .context("changing the class generation")
}

fn attach_observers(skel: &IdentifySkel<'_>) -> Result<Vec<Link>> {
    let progs = &skel.progs;
    let observers = [
        (&progs.task_started, "task_newtask"),
        (&progs.process_execed, "sched_process_exec"),
        (&progs.cgroup_made, "cgroup_mkdir"),
        (&progs.cgroup_removed, "cgroup_rmdir"),
        (&progs.cgroup_renamed, "cgroup_rename"),
    ];
    observers
        .into_iter()
        .map(|(program, tracepoint)| {
            program
                .attach()
                .with_context(|| format!("attaching to tracepoint {tracepoint}"))
        })
        .collect()
}

fn pin(skel: &IdentifySkel<'_>, pins: &Pins) -> Result<()> {
    pins.prepare()?;
    let pinned = |what: &str, path: &Path| format!("pinning {what} at {}", path.display());
    // SAFETY: the program is loaded and lives as long as the skeleton; pinning only reads it.
    let ret = unsafe {
        let path = std::ffi::CString::new(pins.mark_task().to_string_lossy().as_bytes())?;
        libbpf_rs::libbpf_sys::bpf_obj_pin(
            std::os::fd::AsRawFd::as_raw_fd(&skel.progs.mark_task.as_fd()),
            path.as_ptr(),
        )
    };
    if ret < 0 {
        return Err(std::io::Error::from_raw_os_error(-ret))
            .with_context(|| pinned("mark_task", &pins.mark_task()));
    }
    let mut link = skel
        .progs
        .list_marks
        .attach()
        .context("attaching the task iterator")?;
    link.pin(pins.marks())
        .with_context(|| pinned("list_marks", &pins.marks()))?;
    debug!("pinned below {}", pins.dir().display());
    Ok(())
}
