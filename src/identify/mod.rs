// SPDX-License-Identifier: GPL-2.0-only
//! Which thread is what: loads the probes, arms them when it pays, and keeps cgroup tags.
//!
//! Works under any scheduler. What the classes mean is the scheduler's business.

mod backlog;
pub mod cgroups;
mod class;
mod contexts;
mod counters;
mod devices;
mod events;
mod evidence;
pub mod feed;
pub mod flavour;
mod group;
mod hints;
pub mod libcuda;
pub mod libraries;
pub mod library;
mod listing;
pub mod marks;
mod names;
mod observers;
mod orders;
mod pinned;
pub mod prepared;
mod probe_point;
mod probes;
mod processes;
mod programs;
mod quota;
mod rest;
pub mod rules;
mod spinners;
mod store;
mod tags;
mod trouble;
mod users;
pub mod window;

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::OpenObject;
use log::{info, warn};

use crate::bpf::identify::{IdentifySkel, types};
use crate::bpf::intf;
use crate::limits;
use crate::policy::{Arming, Identify as Bounds, Policy};
use crate::proc::PROC;
use crate::proc::mounts::Mounts;

pub use class::{Class, Source};
pub use counters::Sightings;

use events::{Event, Events};
use hints::Hints;
use listing::Listing;
use marks::Pins;
use names::{Named, Names};
use observers::Observers;
use prepared::Prepared;
use probes::Probes;
use programs::{run_iterator, run_syscall_program};
use rest::cpu_time;
use rules::{Rules, Unmatched};
use spinners::Spinners;
use tags::Tags;
use trouble::Trouble;
use users::Users;

/// How often cgroups, programs and names are looked after: who needs a class has it within 250 ms.
const STEP: Duration = Duration::from_millis(100);
/// Who has made a context of a GPU current and does not launch is forgotten after this, `expire_s` or not.
const CONTEXTS_EXPIRE: Duration = Duration::from_secs(30);
/// Going through all tasks is not cheap.
const LONGEST_EXPIRY_STEP: Duration = Duration::from_secs(10);

/// Identification at work. Detaches and unpins when dropped.
pub struct Identify<'obj> {
    // Dropped in this order: links before the programs that they attach.
    observers: Observers,
    probes: Option<Probes>,
    events: Events,
    listing: Listing,
    skel: IdentifySkel<'obj>,
    pins: Pins,
    rules: Rules,
    /// Are `rules` what the kernel judges by? Not at first, and not after a change that failed halfway.
    rules_stored: bool,
    names: Option<Names>,
    spinners: Spinners,
    tags: Option<Tags>,
    hints: Hints,
    bounds: Bounds,
    next_expiry: Duration,
    unmatched: Unmatched,
    users: Users,
    trouble: Trouble,
    started: Instant,
}

impl<'obj> Identify<'obj> {
    /// Loads and attaches what `policy` asks for. The calling thread is the one that takes steps.
    ///
    /// # Errors
    /// Not enough rights, a kernel without the BPF features, no bpffs below the pins' folder.
    pub fn start(
        policy: &Policy,
        pins: Pins,
        object: &'obj mut MaybeUninit<OpenObject>,
    ) -> Result<Self> {
        Self::of(Prepared::open(object)?, policy, pins)
    }

    /// The same, of what is prepared.
    ///
    /// # Errors
    /// As above.
    pub fn of(prepared: Prepared<'obj>, policy: &Policy, pins: Pins) -> Result<Self> {
        let mut skel = prepared.load()?;
        marks::know_loader(skel.progs.know_loader.as_fd())?;
        let listing = pinned::pin(&mut skel, &pins)?;
        let mounts = Mounts::of_this_process().context("reading mounts")?;
        let mut identify = Self {
            observers: Observers::new(&skel)?,
            probes: None,
            events: Events::new(&skel)?,
            listing,
            skel,
            pins,
            rules: Rules::default(),
            rules_stored: false,
            names: None,
            spinners: Spinners::default(),
            tags: mounts.cgroup2().map(Tags::new),
            hints: Hints::default(),
            bounds: policy.identify.clone(),
            next_expiry: Duration::ZERO,
            unmatched: Unmatched::default(),
            users: Users::default(),
            trouble: Trouble::default(),
            started: Instant::now(),
        };
        identify.follow(policy)?;
        Ok(identify)
    }

    /// Goes by `policy` from now on. Where its rules are others, what rules said of threads is judged
    /// anew; marks by hand and known launchers stay.
    ///
    /// # Errors
    /// The kernel refuses: all may be changed.
    pub fn follow(&mut self, policy: &Policy) -> Result<()> {
        let rules = Rules::new(policy);
        if !self.rules_stored || rules != self.rules {
            self.follow_rules(rules)?;
        }
        self.bounds = policy.identify.clone();
        let window = window::Bounds {
            always: self.bounds.probes == Arming::Always,
            sweep: self.bounds.sweep,
            max_pause: self.bounds.max_pause,
        };
        let points = self.bounds.entry_points;
        match &mut self.probes {
            _ if !self.rules.by_launch() || self.bounds.probes == Arming::Off => self.probes = None,
            Some(probes) => probes.follow(self.started.elapsed(), &self.skel, window, points),
            None => self.probes = Some(Probes::new(&self.skel, window, points, &self.rules)),
        }
        hints::grant(&self.pins, policy.guard.hint_gid)?;
        self.step()?;
        Ok(())
    }

    /// Judges by `rules` from now on. Every thread keeps its class until all have been judged.
    fn follow_rules(&mut self, rules: Rules) -> Result<()> {
        if self.tags.is_none() && rules.by_cgroup() {
            warn!("no cgroup v2 hierarchy is mounted: cgroup rules of the policy match nothing");
        }
        let same_endpoints = self.rules_stored && rules.endpoints == self.rules.endpoints;
        self.rules_stored = false;
        self.bss()?.endpoints_changed = (!same_endpoints).into();
        self.hold_classes(true)?;
        let exchanged = self.exchange_rules(rules);
        self.hold_classes(false)?;
        store::bump_generation(&self.skel)?;
        exchanged
    }

    fn exchange_rules(&mut self, rules: Rules) -> Result<()> {
        // What is most likely to be refused comes first, and nothing is changed yet.
        self.observers.follow(&self.skel, &rules)?;
        // All rules go before the new ones come: no thread may keep a bit that is another rule's now.
        let nothing = Rules {
            trusted_uids: rules.trusted_uids.clone(),
            trusted_devices: rules.trusted_devices.clone(),
            ..Rules::default()
        };
        store::rules(&mut self.skel, &nothing)?;
        self.forget(None)?;
        store::rules(&mut self.skel, &rules)?;
        self.names = Names::new(&rules, Path::new(PROC));
        self.rules = rules;
        if let Some(tags) = &mut self.tags {
            tags.outdated();
            tags.follow(self.started.elapsed(), &self.skel, &self.rules)?;
        }
        self.hints = Hints::default();
        self.hints.follow(self.started.elapsed(), &self.skel)?;
        self.name_all()?;
        self.rules_stored = true;
        self.unmatched.rules_changed(self.started.elapsed());
        Ok(())
    }

    fn hold_classes(&mut self, hold: bool) -> Result<()> {
        self.bss()?.classes_held = hold.into();
        Ok(())
    }

    fn bss(&mut self) -> Result<&mut types::bss> {
        let bss = self.skel.maps.bss_data.as_deref_mut();
        bss.context("the BPF object has no data")
    }

    /// Where the cgroup v2 hierarchy is mounted.
    pub fn cgroup_root(&self) -> Option<&Path> {
        self.tags.as_ref().map(Tags::root)
    }

    /// The number of tasks that have a class, by class and who said so. Walks all tasks of the machine.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn count_marks(&self) -> Result<marks::Counts> {
        self.listing.count()
    }

    /// The marks of all threads that have a class, if one may have changed since `seen`, which is then
    /// up to date; it begins as `None`. Walks all tasks of the machine for it.
    ///
    /// # Errors
    /// The kernel does not list them.
    pub fn changed_marks(
        &self,
        seen: &mut Option<(u64, u64)>,
    ) -> Result<Option<Vec<intf::gpuaware_mark_record>>> {
        let now = (
            store::generation(&self.skel)?,
            counters::mark_changes(&self.skel),
        );
        // Not counted: threads that enter or leave a tagged cgroup, and those that begin with a name that
        // matches.
        let counted = self.names.is_none() && !store::has_tags(&self.skel);
        if *seen == Some(now) && counted {
            return Ok(None);
        }
        let marks = self.listing.records()?;
        *seen = Some(now);
        Ok(Some(marks))
    }

    /// One round of work: looks at new processes, arms or disarms the probes, follows cgroups.
    /// Returns how long the caller may wait before the next round.
    ///
    /// # Errors
    /// The kernel refuses a change of a map. Processes and libraries that vanish are no error.
    pub fn step(&mut self) -> Result<Duration> {
        let now = self.started.elapsed();
        if let Some(tags) = &mut self.tags {
            tags.follow(now, &self.skel, &self.rules)?;
        }
        if let Some(probes) = &mut self.probes {
            probes.ask(now, &self.skel)?;
        }
        self.follow_events(now)?;
        self.note_spinners(now)?;
        self.hints.follow(now, &self.skel)?;
        self.expire(now)?;
        self.tell_unmatched(now)?;
        self.tell_users(now)?;
        let stale_before = self.seen_before(self.bounds.expire / 2)?;
        match &mut self.probes {
            Some(probes) => Ok(probes
                .step(now, &self.skel, &self.listing, &self.rules, stale_before)
                .min(STEP)),
            None => Ok(STEP),
        }
    }

    /// The same, which logs an error and waits for a while after it.
    pub fn step_anyway(&mut self) -> Duration {
        let round = limits::expect_free_files().and_then(|()| self.step());
        if round.is_err() {
            // Where it was cut off it may have taken what it could not open for gone.
            self.events.ask_rescan();
        }
        self.trouble.wait_after(round)
    }

    fn tell_unmatched(&mut self, now: Duration) -> Result<()> {
        if !self.unmatched.is_due(now) {
            return Ok(());
        }
        for rule in self.rules.unmatched(&self.listing.records()?) {
            info!("nobody has a class by the rule {rule}, a minute after it came into force");
        }
        Ok(())
    }

    /// Where nobody is said to be trusted everybody is, and the log has who makes use of that.
    fn tell_users(&mut self, now: Duration) -> Result<()> {
        let tags = self.tags.as_ref();
        let changes = counters::mark_changes(&self.skel) + tags.map_or(0, Tags::changes);
        if self.rules.trusted_uids.is_some() || !self.users.are_due(now, changes) {
            return Ok(());
        }
        let start = cpu_time();
        let owners = tags.map(Tags::owners).unwrap_or_default();
        self.users.tell(&self.listing.records()?, &owners);
        let cpu = cpu_time().saturating_sub(start);
        self.users.looked(now, changes, cpu);
        Ok(())
    }

    /// The moment that is `ago`, of CLOCK_MONOTONIC; `None` if nothing ever expires.
    fn seen_before(&self, ago: Duration) -> Result<Option<Duration>> {
        if self.bounds.expire.is_zero() {
            return Ok(None);
        }
        Ok(Some(marks::monotonic_now()?.saturating_sub(ago)))
    }

    /// Forgets what was not seen again in time.
    fn expire(&mut self, now: Duration) -> Result<()> {
        if now < self.next_expiry || !self.rules.by_sight() {
            return Ok(());
        }
        let expire = self.bounds.expire;
        let step = match expire.is_zero() {
            true if !self.rules.by_launch() => return Ok(()),
            true => LONGEST_EXPIRY_STEP,
            false => (expire / 10).clamp(STEP, LONGEST_EXPIRY_STEP),
        };
        self.next_expiry = now + step;
        let seen_before = self.seen_before(expire)?;
        self.forget(Some(seen_before.unwrap_or_default()))
    }

    /// Counters for the statistics.
    pub fn sightings(&self) -> Sightings {
        let counters = counters::probes(&self.skel);
        let mut sightings = Sightings {
            launch_hits: counters.hits + counters::context_hits(&self.skel),
            launchers_found: counters.finds,
            triggers: counters.triggers,
            refused: counters::refused(&self.skel),
            ..Sightings::default()
        };
        if let Some(probes) = &self.probes {
            sightings.libraries = probes.nr_libraries();
            sightings.armed = probes.is_armed();
            sightings.phase = probes.phase(self.started.elapsed());
            sightings.pause = probes.pause();
            sightings.windows = probes.nr_windows();
        }
        sightings
    }

    /// Processes that mapped something may map libcuda; programs that started and threads that were
    /// renamed may match other rules.
    fn follow_events(&mut self, now: Duration) -> Result<()> {
        // Of those that are looked at later `/proc` has the new names by then.
        let mut renamed = HashMap::new();
        for event in self.events.take(&self.skel, now)? {
            match event {
                Event::Execed { tgid } => self.is_to_be_named(tgid),
                Event::Mapped { tgid } => {
                    if let Some(probes) = &mut self.probes {
                        probes.mapped(tgid);
                    }
                }
                Event::Renamed { tid, tgid, comm } => {
                    renamed.insert(tid, comm);
                    self.is_to_be_named(tgid);
                }
                Event::Spins { tid, tgid } => self.spinners.push(tgid, tid),
                Event::Rescan => {
                    if let Some(probes) = &mut self.probes {
                        probes.rescan();
                    }
                    self.name_all()?;
                }
                Event::Lost => {
                    let start = cpu_time();
                    self.name_all()?;
                    self.events.looked(now, cpu_time().saturating_sub(start));
                }
            }
        }
        let Some(mut names) = self.names.take() else {
            return Ok(());
        };
        let mut result = Ok(());
        names.look(now, &renamed, |named| {
            if result.is_ok() {
                result = self.name(named);
            }
        });
        self.names = Some(names);
        result
    }

    fn note_spinners(&mut self, now: Duration) -> Result<()> {
        let launchers = || {
            let launches = |record: &intf::gpuaware_mark_record| {
                (record.class == Class::Launch.wire()).then_some(record.tgid as u32)
            };
            Ok(self
                .listing
                .records()?
                .iter()
                .filter_map(launches)
                .collect())
        };
        let program = self.skel.progs.note_spinner.as_fd();
        for spinner in self.spinners.look(now, Path::new(PROC), launchers)? {
            // Threads that vanish meanwhile are no error.
            run_syscall_program(program, &spinner)?;
        }
        Ok(())
    }

    fn is_to_be_named(&mut self, tgid: u32) {
        if let Some(names) = &mut self.names {
            names.push(tgid);
        }
    }

    /// Looks every thread up that there is.
    fn name_all(&self) -> Result<()> {
        let Some(names) = &self.names else {
            return Ok(());
        };
        let mut result = Ok(());
        names.of_all(|named| {
            if result.is_ok() {
                result = self.name(named);
            }
        });
        result
    }

    fn name(&self, named: Named) -> Result<()> {
        let request = intf::gpuaware_name_request {
            tid: named.tid as i32,
            pad: 0,
            start_ticks: named.start_ticks,
            rules: named.rules,
        };
        // Threads that vanish meanwhile are no error.
        let program = self.skel.progs.name_task.as_fd();
        run_syscall_program(program, &request).map(|_| ())
    }

    /// Forgets what was observed before `expired` and not since; `None`: what rules said.
    fn forget(&mut self, expired: Option<Duration>) -> Result<()> {
        let longest_ago = marks::monotonic_now()?.saturating_sub(CONTEXTS_EXPIRE);
        let contexts = expired.map(|time| time.max(longest_ago));
        // Who has not launched did so at 0.
        let ns = |time: Option<Duration>| time.map_or(0, |time| time.as_nanos().max(1) as u64);
        let bss = self.bss()?;
        bss.expire_before_ns = ns(expired);
        bss.contexts_before_ns = ns(contexts);
        bss.rules_changed = expired.is_none().into();
        run_iterator(&self.skel.progs.forget_outdated)
    }
}

impl Drop for Identify<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.pins.remove() {
            warn!("{error:#}");
        }
    }
}
