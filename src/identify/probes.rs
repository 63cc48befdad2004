// SPDX-License-Identifier: GPL-2.0-only
//! The launch probes on every libcuda in use, and arming them in time.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use libbpf_rs::Link;
use log::{debug, info, warn};

use crate::bpf::identify::IdentifySkel;
use crate::bpf::intf;

use super::libraries::{Libraries, Library};
use super::marks::Pins;
use super::processes::Strangers;
use super::window::{Action, Bounds, Threads, Window};
use super::{PROC, counters, evidence, store};

/// A libcuda file with its probes.
struct Probed {
    library: Library,
    /// Its number, in the cookies of its probes.
    number: usize,
    _init: Option<Link>,
    launches: Option<Link>,
}

/// All uprobes.
pub struct Probes {
    libraries: Libraries,
    probed: Vec<Probed>,
    strangers: Strangers,
    window: Window,
    /// Libraries that were probed so far.
    nr_added: usize,
    nr_windows: u64,
    nr_rescans: u64,
}

impl Probes {
    /// Finds the libraries in use and arms the probes.
    pub fn new(skel: &IdentifySkel<'_>, bounds: Bounds) -> Self {
        let mut probes = Self {
            libraries: Libraries::default(),
            probed: Vec::new(),
            strangers: Strangers::default(),
            window: Window::new(Duration::ZERO, bounds),
            nr_added: 0,
            nr_windows: 1,
            nr_rescans: 0,
        };
        let found = probes.libraries.find_all();
        probes.add(skel, found);
        probes
    }

    /// See [`super::Identify::step`].
    ///
    /// A launcher that was not seen since `stale_before` is looked for as one that is not known:
    /// its mark is about to expire.
    pub fn step(
        &mut self,
        now: Duration,
        skel: &IdentifySkel<'_>,
        pins: &Pins,
        stale_before: Option<Duration>,
    ) -> Duration {
        let found = self.libraries.look(now);
        self.add(skel, found);
        self.drop_unused(skel);
        let mut counters = counters::probes(skel);
        counters.triggers += self.nr_added as u64 + self.nr_rescans;
        let mut threads = KnownThreads {
            pins,
            strangers: &mut self.strangers,
            users: self.libraries.users().collect(),
            stale_before,
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
        self.window.next_step(now)
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

    /// Process `tgid` started a program at `now`: it may map a libcuda.
    pub fn execed(&mut self, tgid: u32, now: Duration) {
        self.libraries.started(tgid, now);
    }

    /// Any process may have started a program at `now`: looks at all, and at launches at once.
    pub fn rescan(&mut self, now: Duration) {
        self.libraries.any_started(now);
        self.nr_rescans += 1;
    }

    /// Goes by `bounds` from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.window.set_bounds(bounds);
    }

    /// Stops to probe what nobody maps any more.
    fn drop_unused(&mut self, skel: &IdentifySkel<'_>) {
        let unused = self.libraries.take_unused();
        if unused.is_empty() {
            return;
        }
        self.probed.retain(|probed| {
            let is_used = !unused.contains(&probed.library.id);
            if !is_used {
                info!("nobody maps {} any more", probed.library.path.display());
                store::forget_text(skel, evidence::library_key(probed.number));
            }
            is_used
        });
    }

    /// Starts to probe these libraries.
    fn add(&mut self, skel: &IdentifySkel<'_>, found: Vec<Library>) {
        for library in found {
            let name = library.path.display().to_string();
            self.nr_added += 1;
            match Probed::new(skel, library, self.nr_added) {
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
    users: Vec<u32>,
    stale_before: Option<Duration>,
}

impl KnownThreads<'_> {
    fn records(&self) -> Vec<intf::gpuaware_mark_record> {
        self.pins.records().unwrap_or_else(|error| {
            warn!("listing marks: {error:#}");
            Vec::new()
        })
    }
}

impl Threads for KnownThreads<'_> {
    fn strangers_ran(&mut self) -> bool {
        let records = self.records();
        let stale_ns = self.stale_before.map_or(0, |time| time.as_nanos() as u64);
        let known = records.iter().filter(|record| {
            record.source != intf::gpuaware_source_GPUAWARE_SOURCE_UPROBE
                || record.last_seen_ns >= stale_ns
        });
        let known = known.map(|record| record.tid as u32).collect();
        let users = self.users.iter().copied();
        self.strangers.ran(Path::new(PROC), users, &known)
    }

    fn launchers_alive(&mut self) -> bool {
        self.records().iter().any(|record| record.launches != 0)
    }
}

impl Probed {
    fn new(skel: &IdentifySkel<'_>, library: Library, number: usize) -> Result<Self> {
        let init = library.attach_to_init(&skel.progs.cuda_init)?;
        let name = library.path.display().to_string();
        store::text(skel, evidence::library_key(number), &name)?;
        Ok(Self {
            library,
            number,
            _init: init,
            launches: None,
        })
    }

    fn arm(&mut self, skel: &IdentifySkel<'_>) {
        let launches = &self.library.entry_points.launches;
        if self.launches.is_some() || launches.is_empty() {
            return;
        }
        let points: Vec<_> = launches
            .iter()
            .map(|&(symbol, offset)| (evidence::cookie(self.number, symbol), offset))
            .collect();
        match self.library.attach(&skel.progs.launch, &points) {
            Ok(link) => self.launches = Some(link),
            Err(error) => warn!("cannot arm: {error:#}"),
        }
    }
}
