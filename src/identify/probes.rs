// SPDX-License-Identifier: GPL-2.0-only
//! The launch probes on every libcuda in use, and arming them in time.

use std::collections::HashSet;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{Link, RingBuffer, RingBufferBuilder};
use log::{debug, info, warn};

use crate::bpf::identify::IdentifySkel;

use super::Source;
use super::libraries::{Libraries, Library};
use super::marks::{Mark, Pins};
use super::processes::Strangers;
use super::window::{Action, Counters, Threads, Window};

const PROC: &str = "/proc";

/// A libcuda file with its probes.
struct Probed {
    library: Library,
    _init: Option<Link>,
    launches: Option<Link>,
}

/// All uprobes.
pub struct Probes {
    libraries: Libraries,
    probed: Vec<Probed>,
    strangers: Strangers,
    window: Window,
    nr_windows: u64,
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
            libraries: Libraries::default(),
            probed: Vec::new(),
            strangers: Strangers::default(),
            window: Window::new(Duration::ZERO),
            nr_windows: 1,
            lost_execs_seen: 0,
            execs: builder.build().context("reading process events")?,
            execed,
        };
        let found = probes.libraries.find_all();
        probes.add(skel, found);
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
        let found = self.libraries.look(now);
        self.add(skel, found);
        let mut counters = counters(skel);
        counters.triggers += self.probed.len() as u64;
        let mut threads = KnownThreads {
            pins,
            strangers: &mut self.strangers,
            users: self.libraries.users(),
        };
        let action = self.window.step(now, counters, &mut threads);
        if let Some(action) = action {
            debug!("{action:?} at {now:?}: {counters:?}");
        }
        match action {
            Some(Action::Arm) => {
                self.nr_windows += 1;
                for probed in &mut self.probed {
                    probed.arm(skel);
                }
            }
            Some(Action::Disarm) => {
                for probed in &mut self.probed {
                    probed.launches = None;
                }
            }
            None => {}
        }
        Ok(self.window.next_step(now))
    }

    /// Number of libcuda files that are probed.
    pub fn nr_libraries(&self) -> usize {
        self.probed.len()
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
            self.libraries.started(tgid, now);
        }
        let lost = skel.maps.bss_data.as_deref();
        let lost = lost.map_or(0, |bss| read(&bss.nr_lost_execs));
        if lost != self.lost_execs_seen {
            self.lost_execs_seen = lost;
            self.libraries.any_started(now);
        }
        Ok(())
    }

    /// Starts to probe these libraries.
    fn add(&mut self, skel: &IdentifySkel<'_>, found: Vec<Library>) {
        for library in found {
            let name = library.path.display().to_string();
            match Probed::new(skel, library) {
                Ok(mut probed) => {
                    info!(
                        "probing {name} ({} launch entry points)",
                        probed.library.entry_points.launches.len()
                    );
                    if self.window.is_armed() {
                        probed.arm(skel);
                    }
                    self.probed.push(probed);
                }
                Err(error) => warn!("cannot probe {name}: {error:#}"),
            }
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

impl Probed {
    fn new(skel: &IdentifySkel<'_>, library: Library) -> Result<Self> {
        let init = library.attach_to_init(&skel.progs.cuda_init)?;
        Ok(Self {
            library,
            _init: init,
            launches: None,
        })
    }

    fn arm(&mut self, skel: &IdentifySkel<'_>) {
        let launches = &self.library.entry_points.launches;
        if self.launches.is_some() || launches.is_empty() {
            return;
        }
        match self.library.attach(&skel.progs.launch, launches) {
            Ok(link) => self.launches = Some(link),
            Err(error) => warn!("cannot arm: {error:#}"),
        }
    }
}
