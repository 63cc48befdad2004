// SPDX-License-Identifier: GPL-2.0-only
//! The probes on calls into libcuda: on every libcuda in use, all together on or off.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Result;
use libbpf_rs::Link;
use log::{info, warn};

use crate::bpf::trace::TraceSkel;
use crate::identify::libcuda::LAUNCH_SYMBOLS;
use crate::identify::libraries::Libraries;
use crate::identify::library::{self, FileId, Library};
use crate::printable::printable;

/// A libcuda and what is attached to it.
struct Probed {
    library: Library,
    _init: Option<Link>,
    links: Vec<Link>,
}

/// All probes.
pub struct Calls {
    libraries: Libraries,
    probed: Vec<Probed>,
    armed: bool,
}

impl Calls {
    /// Finds the libraries in use, and those that a program started with this search path
    /// (`LD_LIBRARY_PATH`) would use. Nothing is armed yet.
    pub fn new(skel: &TraceSkel<'_>, search_path: Option<&OsStr>) -> Self {
        let mut calls = Self {
            libraries: Libraries::default(),
            probed: Vec::new(),
            armed: false,
        };
        let mut found = calls.libraries.find_all(&mapped_file(skel));
        calls.libraries.any_started(Duration::ZERO);
        if let Some(path) = search_path {
            found.extend(calls.libraries.find_in(path));
        }
        calls.add(skel, found);
        calls
    }

    /// Process `tgid` started a program at `now`.
    pub fn started(&mut self, tgid: u32, now: Duration) {
        self.libraries.started(tgid, now);
    }

    /// Some process may have started a program at `now`.
    pub fn any_started(&mut self, now: Duration) {
        self.libraries.any_started(now);
    }

    /// Probes what was mapped for the first time, and no longer what nobody maps any more. Returns how
    /// many new libraries there are.
    pub fn look(&mut self, skel: &TraceSkel<'_>, now: Duration) -> usize {
        let found = self.libraries.look(now, &mapped_file(skel));
        let rewritten = self.libraries.take_rewritten();
        self.probed
            .retain(|probed| !rewritten.contains(&probed.library.id));
        let unused = self.libraries.take_unused(now);
        if !unused.is_empty() {
            let is_used = |probed: &Probed| !unused.contains(&probed.library.id);
            self.probed.retain(is_used);
            // There may be room for what was passed over.
            for tgid in self.libraries.take_turned_away() {
                self.libraries.started(tgid, now);
            }
        }
        let nr_found = found.len();
        self.add(skel, found);
        nr_found
    }

    /// Attaches to every call.
    pub fn arm(&mut self, skel: &TraceSkel<'_>) {
        self.armed = true;
        for probed in &mut self.probed {
            probed.arm(skel);
        }
    }

    /// Takes these probes away.
    pub fn disarm(&mut self) {
        self.armed = false;
        for probed in &mut self.probed {
            // The hot ones first: each waits for the kernel's grace period once it is off.
            while let Some(link) = probed.links.pop() {
                drop(link);
            }
        }
    }

    fn add(&mut self, skel: &TraceSkel<'_>, found: Vec<Library>) {
        for library in found {
            let (id, name) = (library.id, printable(&library.path.display().to_string()));
            match Probed::new(skel, library) {
                Ok(mut probed) => {
                    info!("probing {name}");
                    if self.armed {
                        probed.arm(skel);
                    }
                    self.probed.push(probed);
                }
                Err(error) => {
                    warn!("cannot probe {name}: {error:#}");
                    self.libraries.failed(id);
                }
            }
        }
    }
}

/// See [`library::MappedFile`].
fn mapped_file(skel: &TraceSkel<'_>) -> impl Fn(u32, u64) -> Option<FileId> {
    let program = skel.progs.find_mapped_file.as_fd();
    move |tgid, address| library::mapped_file(program, tgid, address)
}

impl Probed {
    fn new(skel: &TraceSkel<'_>, library: Library) -> Result<Self> {
        let init = library.attach_to_init(&skel.progs.cuda_init)?;
        Ok(Self {
            library,
            _init: init,
            links: Vec::new(),
        })
    }

    fn arm(&mut self, skel: &TraceSkel<'_>) {
        if !self.links.is_empty() {
            return;
        }
        match self.attach(skel) {
            Ok(links) => self.links = links,
            Err(error) => warn!("cannot arm: {error:#}"),
        }
    }

    fn attach(&self, skel: &TraceSkel<'_>) -> Result<Vec<Link>> {
        let points = &self.library.entry_points;
        let launches = |prefix: &str, but: &str| -> Vec<_> {
            let named = |index: usize| LAUNCH_SYMBOLS[index];
            let matches = |index| named(index).starts_with(prefix);
            let excluded = |index| !but.is_empty() && named(index).starts_with(but);
            let all = points.launches.iter().copied();
            all.filter(|&(index, _)| matches(index) && !excluded(index))
                .collect()
        };
        let (plain, ex) = (
            launches("cuLaunch", "cuLaunchKernelEx"),
            launches("cuLaunchKernelEx", ""),
        );
        let graph = launches("cuGraphLaunch", "");
        let progs = &skel.progs;
        let mut links = Vec::new();
        // Returns first: a call that is seen to begin is seen to end. What is called most comes last,
        // and is taken away first: it is on no longer than the window.
        for (program, points, returns) in [
            (&progs.graph_launch_return, &graph, true),
            (&progs.sync_return, &points.syncs, true),
            (&progs.sync, &points.syncs, false),
            (&progs.graph_launch, &graph, false),
            (&progs.launch_ex, &ex, false),
            (&progs.launch, &plain, false),
        ] {
            if points.is_empty() {
                continue;
            }
            links.push(if returns {
                self.library.attach_returns(program, points)?
            } else {
                self.library.attach(program, points)?
            });
        }
        Ok(links)
    }
}
