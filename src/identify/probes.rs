// SPDX-License-Identifier: GPL-2.0-only
//! The launch probes on every libcuda and libamdhip64 in use, and arming them in time.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Result;
use libbpf_rs::Link;
use log::{debug, info, warn};

use crate::bpf::identify::IdentifySkel;
use crate::bpf::intf;
use crate::pidfd;
use crate::policy::EntryPoints;
use crate::printable::printable;

use super::backlog::Backlog;
use super::contexts::Contexts;
use super::group::Group;
use super::libraries::{self, Libraries};
use super::library::{self, FileId, Library};
use super::listing::Listing;
use super::orders::Orders;
use super::rest::{Spent, cpu_time, spending};
use super::rules::Rules;
use super::window::{Action, Bounds, Phase, Threads, Window};
use super::{counters, evidence, programs, store};

/// How often it is checked whether those that map a libcuda are still there.
const CENSUS: Duration = Duration::from_secs(1);
/// How often devices are looked for that make a process trusted.
const DEVICES: Duration = Duration::from_secs(5);
/// How often the others, GPUs: a driver may be loaded late.
const GPUS: Duration = Duration::from_secs(60);

/// A libcuda file with its probes.
struct Probed {
    library: Library,
    /// Its number, in the cookies of its probes.
    number: usize,
    _init: Option<Link>,
    launches: Group,
    contexts: Group,
}

/// All uprobes.
pub struct Probes {
    libraries: Libraries,
    mappers: Backlog,
    /// Has the loader's cache to be read again?
    is_cache_old: bool,
    /// CPU time that asking the kernel took since processes were looked at.
    asking: Duration,
    next_census: Duration,
    /// When to look again which devices there are: a driver may be loaded at any time.
    next_devices: Duration,
    probed: Vec<Probed>,
    window: Window,
    contexts: Contexts,
    /// Triggers, orders and finds so far.
    seen_news: u64,
    points: EntryPoints,
    /// Libraries that were probed so far.
    nr_added: usize,
    nr_windows: u64,
    /// Which libraries are looked at at once.
    orders: Orders,
    /// How many were, and rescans.
    nr_orders: u64,
    /// The other libraries of trusted users.
    nr_triggers: u64,
}

impl Probes {
    /// Finds the libraries in use and arms the probes.
    pub fn new(
        skel: &IdentifySkel<'_>,
        bounds: Bounds,
        points: EntryPoints,
        rules: &Rules,
    ) -> Self {
        let mut probes = Self {
            libraries: Libraries::of_all_makers(),
            mappers: Backlog::default(),
            is_cache_old: false,
            asking: Duration::ZERO,
            next_census: Duration::ZERO,
            next_devices: Duration::ZERO,
            probed: Vec::new(),
            window: Window::new(Duration::ZERO, bounds),
            contexts: Contexts::new(Duration::ZERO, counters::context_hits(skel)),
            seen_news: 0,
            points,
            nr_added: 0,
            nr_windows: 1,
            orders: Orders::default(),
            nr_orders: 0,
            nr_triggers: 0,
        };
        probes.libraries.set_with_runtimes(points.libcudart());
        let found = probes
            .libraries
            .find_all(&|tgid, address| mapped_file(skel, tgid, address));
        probes.add(skel, found);
        probes.remember_users(skel, rules);
        probes
    }

    /// A process that maps the library already may have called `cuInit` unseen: its new threads are
    /// treated as if it had.
    fn remember_users(&self, skel: &IdentifySkel<'_>, rules: &Rules) {
        let users = self.libraries.users();
        let trusted = users.filter(|&tgid| is_of_trusted_user(tgid, rules));
        for tgid in trusted {
            if let Err(error) = store::gpu_process(skel, tgid) {
                warn!("{error:#}");
            }
        }
    }

    /// Has the kernel tell who may map a library that it did not. The answers are events, for
    /// [`Probes::mapped`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn ask(&mut self, now: Duration, skel: &IdentifySkel<'_>) -> Result<()> {
        if self.mappers.is_due(now) {
            let start = cpu_time();
            programs::run_syscall_program(skel.progs.find_new_code.as_fd(), &0u64)?;
            self.asking += cpu_time().saturating_sub(start);
        }
        Ok(())
    }

    /// Process `tgid` may map a library that it did not.
    pub fn mapped(&mut self, tgid: u32) {
        self.mappers.push(tgid);
    }

    /// Looks at those that wait for it. Returns what they map that is new.
    fn look(&mut self, now: Duration, skel: &IdentifySkel<'_>) -> Vec<Library> {
        let mut found = Vec::new();
        if std::mem::take(&mut self.is_cache_old) {
            found = self.libraries.find_installed();
        }
        if !self.mappers.is_due(now) {
            return found;
        }
        if now >= self.next_census {
            self.next_census = now + CENSUS;
            let users = self.libraries.users();
            users
                .filter(|&tgid| is_gone(tgid))
                .for_each(|tgid| self.mappers.push(tgid));
        }
        let (libraries, spent) = (&mut self.libraries, spending());
        self.mappers.look(
            now,
            || {
                let Spent { cpu, clock } = spent();
                Spent {
                    cpu: self.asking + cpu,
                    clock,
                }
            },
            |tgid| {
                let mapped_file = |tgid, address| mapped_file(skel, tgid, address);
                found.extend(libraries.look_at(tgid, now, &mapped_file));
            },
        );
        self.asking = Duration::ZERO;
        found
    }

    /// See [`super::Identify::step`].
    ///
    /// A launcher that was not seen since `stale_before` is looked for as one that is not known:
    /// its mark is about to expire.
    pub fn step(
        &mut self,
        now: Duration,
        skel: &IdentifySkel<'_>,
        listing: &Listing,
        rules: &Rules,
        stale_before: Option<Duration>,
    ) -> Duration {
        self.look_for_devices(now, skel, rules);
        let found = self.look(now, skel);
        let rewritten = self.libraries.take_rewritten();
        self.let_go(skel, "it was written anew", |id| rewritten.contains(&id));
        let trusts = |library: &&Library| library.mapped_by.is_none_or(|uid| rules.trusts(uid));
        for library in found.iter().filter(trusts) {
            match self.orders.take(library.mapped_by) {
                true => self.nr_orders += 1,
                false => self.nr_triggers += 1,
            }
        }
        if !found.is_empty() {
            self.add(skel, found);
            self.remember_users(skel, rules);
        }
        self.drop_unused(now, skel);
        let mut counters = counters::probes(skel);
        counters.orders = self.nr_orders;
        counters.triggers += self.nr_triggers;
        let mut threads = KnownThreads {
            listing,
            rules,
            skel,
            libraries: &self.libraries,
            stale_before,
        };
        let action = self.window.step(now, counters, &mut threads);
        if let Some(action) = action {
            debug!("{action:?} at {now:?}: {counters:?}");
        }
        let is_opened = action == Some(Action::Arm);
        self.nr_windows += u64::from(is_opened);
        let news = counters.triggers + counters.orders + counters.finds;
        let is_called = is_opened || news != std::mem::replace(&mut self.seen_news, news);
        self.contexts
            .step(now, counters::context_hits(skel), is_called);
        self.arm(skel, is_called);
        self.window.next_step(now)
    }

    /// Has those probes attached that are wanted now; `again`, those too that the kernel refused.
    fn arm(&mut self, skel: &IdentifySkel<'_>, again: bool) {
        let launches = self.window.is_armed();
        let contexts = self.contexts.are_probed() || self.window.is_always();
        for probed in &mut self.probed {
            probed.arm(skel, self.points, (launches, contexts), again);
        }
    }

    fn look_for_devices(&mut self, now: Duration, skel: &IdentifySkel<'_>, rules: &Rules) {
        if now < self.next_devices {
            return;
        }
        let trusted = rules.trusted_devices.as_deref();
        self.next_devices = now + trusted.map_or(GPUS, |_| DEVICES);
        let told = trusted.map_or(Ok(()), |globs| store::trusted_devices(skel, globs));
        if let Err(error) = told.and_then(|()| store::gpu_devices(skel)) {
            warn!("{error:#}");
        }
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

    /// What the probes do at `now`.
    pub fn phase(&self, now: Duration) -> Phase {
        self.window.phase(now)
    }

    /// How long they are taken away the next time that they are.
    pub fn pause(&self) -> Duration {
        self.window.pause()
    }

    /// Looks at every process and into the loader's cache, and at launches at once.
    pub fn rescan(&mut self) {
        self.is_cache_old = true;
        self.libraries.forget_failed();
        for tgid in libraries::all_processes() {
            self.mappers.push(tgid);
        }
        self.nr_orders += 1;
    }

    /// Goes by `bounds` and probes at `points` from now, which is `now`, on.
    pub fn follow(
        &mut self,
        now: Duration,
        skel: &IdentifySkel<'_>,
        bounds: Bounds,
        points: EntryPoints,
    ) {
        self.window.set_bounds(now, bounds);
        if points == self.points {
            return;
        }
        self.points = points;
        self.libraries.set_with_runtimes(points.libcudart());
        for probed in &mut self.probed {
            (probed.launches, probed.contexts) = Default::default();
        }
        self.arm(skel, true);
        self.rescan();
    }

    /// Stops to probe what nobody maps any more.
    fn drop_unused(&mut self, now: Duration, skel: &IdentifySkel<'_>) {
        // A process that waits for its look may map it, such as the child of one that did.
        if !self.mappers.is_empty() {
            return;
        }
        let unused = self.libraries.take_unused(now);
        if unused.is_empty() {
            return;
        }
        // There may be room for what was passed over.
        for tgid in self.libraries.take_turned_away() {
            self.mappers.push(tgid);
        }
        self.let_go(skel, "nobody maps it any more", |id| unused.contains(&id));
    }

    fn let_go(&mut self, skel: &IdentifySkel<'_>, why: &str, goes: impl Fn(FileId) -> bool) {
        self.probed.retain(|probed| {
            let goes = goes(probed.library.id);
            if goes {
                let name = probed.library.path.display().to_string();
                info!("no probes on {}: {why}", printable(&name));
                store::forget_text(skel, evidence::library_key(probed.number));
            }
            !goes
        });
    }

    /// Starts to probe these libraries.
    fn add(&mut self, skel: &IdentifySkel<'_>, found: Vec<Library>) {
        for library in found {
            let (id, name) = (library.id, printable(&library.path.display().to_string()));
            self.nr_added += 1;
            match Probed::new(skel, library, self.nr_added) {
                Ok(probed) => {
                    info!(
                        "probing {name} ({} launch entry points)",
                        probed.launch_points(self.points).len()
                    );
                    self.probed.push(probed);
                }
                Err(error) => {
                    warn!("cannot probe {name}: {error:#}");
                    self.libraries.failed(id);
                }
            }
        }
        self.arm(skel, true);
    }
}

/// See [`library::MappedFile`].
fn mapped_file(skel: &IdentifySkel<'_>, tgid: u32, address: u64) -> Option<FileId> {
    library::mapped_file(skel.progs.find_mapped_file.as_fd(), tgid, address)
}

/// Did a thread of process `tgid` run that has no mark, or an old one, since this was asked last?
fn strangers_of(skel: &IdentifySkel<'_>, tgid: u32, stale_ns: u64) -> bool {
    let mut request = intf::gpuaware_strangers_request {
        tgid: tgid as i32,
        ran: 0,
        stale_ns,
    };
    match programs::ask_syscall_program(skel.progs.find_strangers.as_fd(), &mut request) {
        Ok(_) => request.ran != 0,
        Err(error) => {
            warn!("looking for threads that run: {error:#}");
            true
        }
    }
}

fn is_of_trusted_user(tgid: u32, rules: &Rules) -> bool {
    let user = || libraries::user_of(tgid);
    rules.trusted_uids.is_none() || user().is_some_and(|uid| rules.trusts(uid))
}

/// Also if its parent has not waited for it.
fn is_gone(tgid: u32) -> bool {
    pidfd::of_process(tgid.cast_signed()).map_or(true, |process| pidfd::has_ended(&process))
}

/// The marks of the running system.
struct KnownThreads<'a, 'obj> {
    listing: &'a Listing,
    rules: &'a Rules,
    skel: &'a IdentifySkel<'obj>,
    libraries: &'a Libraries,
    stale_before: Option<Duration>,
}

impl KnownThreads<'_, '_> {
    fn records(&self) -> Vec<intf::gpuaware_mark_record> {
        self.listing.records().unwrap_or_else(|error| {
            warn!("listing marks: {error:#}");
            Vec::new()
        })
    }
}

impl Threads for KnownThreads<'_, '_> {
    fn strangers_ran(&mut self) -> bool {
        let stale_ns = self.stale_before.map_or(0, |time| time.as_nanos() as u64);
        // For a thread that would be refused nobody is to pay.
        let users = self.libraries.users();
        let users = users.filter(|&tgid| is_of_trusted_user(tgid, self.rules));
        // All are asked, so that what each has run is known the next time.
        let ran = users.map(|tgid| strangers_of(self.skel, tgid, stale_ns));
        ran.fold(false, |any, ran| any | ran)
    }

    fn launchers_alive(&mut self) -> bool {
        let launched = |record: &intf::gpuaware_mark_record| {
            record.launches != 0 && !evidence::is_context(record)
        };
        self.records().iter().any(launched)
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
            launches: Group::default(),
            contexts: Group::default(),
        })
    }

    /// Cookie and file offset of each launch that is asked for.
    fn launch_points(&self, wanted: EntryPoints) -> Vec<(usize, usize)> {
        let found = &self.library.entry_points;
        let driver = found.launches.iter().filter(|_| wanted.libcuda());
        let runtime = found.runtime_launches.iter();
        let runtime = runtime.filter(|_| wanted.libcudart());
        driver
            .chain(runtime)
            .chain(&found.hip_launches)
            .map(|&point| self.point(point))
            .collect()
    }

    /// The same of contexts. Of HIP there is one library, and no choice.
    fn context_points(&self, wanted: EntryPoints) -> Vec<(usize, usize)> {
        let found = &self.library.entry_points;
        let contexts = found.contexts.iter();
        contexts
            .filter(|_| wanted.libcuda() || !found.hip_launches.is_empty())
            .map(|&point| self.point(point))
            .collect()
    }

    fn point(&self, (symbol, offset): (usize, usize)) -> (usize, usize) {
        (evidence::cookie(self.number, symbol), offset)
    }

    /// Has the probes attached that are asked for, and no others.
    fn arm(
        &mut self,
        skel: &IdentifySkel<'_>,
        wanted: EntryPoints,
        (launches, contexts): (bool, bool),
        again: bool,
    ) {
        if self.launches.is_to_change(launches, again) {
            let points = self.launch_points(wanted);
            let program = &skel.progs.launch;
            self.launches.set(launches, &self.library, program, &points);
        }
        if self.contexts.is_to_change(contexts, again) {
            let points = self.context_points(wanted);
            let program = &skel.progs.context_entered;
            self.contexts.set(contexts, &self.library, program, &points);
        }
    }
}
