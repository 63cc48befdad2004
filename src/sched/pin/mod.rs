// SPDX-License-Identifier: GPL-2.0-only
//! Keeps the threads that `[[pin]]` matches on their CPUs, and puts everything back.
//!
//! Owns the affinity of every thread that it has changed, and the file that remembers the originals if
//! this process is killed. Where a pinned thread runs among its CPUs is the scheduler's business; which
//! CPUs it gets is dealt in `policy::pin`. docs/decisions/pins-by-affinity.md says why.

mod ledger;
pub mod threads;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use log::{info, warn};

use super::state_file::StateFile;
use crate::limits;
use crate::listed::{LISTED, listed};
use crate::policy::Policy;
use crate::policy::cpuset::CpuSet;
use crate::policy::pin::Dealer;
use crate::printable::printable;
use crate::proc::mounts::Mounts;

use ledger::{Ledger, Pinned};
use threads::{Facts, Thread, Threads, affinity, cpuset_of, set_affinity};

/// What a killed run leaves for the next one.
pub const STATE_FILE: &str = "/run/scx_gpuaware/thread-affinity.json";
/// How often new threads are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// Pins that have matched nobody for so long are named.
const UNMATCHED_AFTER: Duration = Duration::from_secs(60);

/// Pins in force: restores every affinity when dropped.
#[derive(Debug)]
pub struct Pinning {
    policy: Policy,
    dealer: Dealer,
    threads: Threads,
    ledger: Ledger,
    /// Threads, with their start, that the program or somebody else has moved since.
    left_alone: HashSet<(i32, u64)>,
    /// Threads that the kernel refuses to pin, of which was told.
    refused: HashSet<(i32, u64)>,
    state: StateFile<Pinned>,
    cgroup_root: Option<PathBuf>,
    next: Instant,
    /// When to say which pins have matched nobody; `None`: it was said.
    unmatched_due: Option<Instant>,
    /// The last problem, which is said once and not at every look.
    problem: Option<String>,
}

impl Pinning {
    /// Restores what a killed run has left in `state`, and gets ready; nothing is pinned yet.
    ///
    /// One process at a time, the one that holds [`crate::running`]'s lock: a second one would take the first one's
    /// state for that of a killed run.
    ///
    /// # Errors
    /// `state` is not what a run has left; it cannot be removed.
    pub fn start(policy: &Policy, state: &Path) -> Result<Self> {
        let mounts = Mounts::of_this_process().unwrap_or_default();
        let mut pinning = Self {
            policy: policy.clone(),
            dealer: Dealer::new(policy),
            threads: Threads::default(),
            ledger: Ledger::default(),
            left_alone: HashSet::new(),
            refused: HashSet::new(),
            state: StateFile::new(state),
            cgroup_root: mounts.cgroup2(),
            next: Instant::now(),
            unmatched_due: Some(Instant::now() + UNMATCHED_AFTER),
            problem: None,
        };
        if let Some(left) = pinning.state.load()? {
            pinning.ledger = Ledger(left.into_iter().map(|pin| (pin.tid, pin)).collect());
            let restored = pinning.restore()?;
            info!("restored the affinity of {restored} threads that a killed run had pinned");
        }
        Ok(pinning)
    }

    /// Puts another policy's pins into force. Where they are the same, every thread keeps its CPUs.
    pub fn set_policy(&mut self, policy: &Policy) {
        if (&policy.pins, &policy.groups) == (&self.policy.pins, &self.policy.groups) {
            return;
        }
        if let Err(error) = self.restore() {
            warn!("pin: {error:#}");
            // Their turns are over with the policy; each gets its affinity back at the next look.
            for pinned in self.ledger.0.values_mut() {
                pinned.deal = None;
            }
        }
        self.policy = policy.clone();
        self.dealer = Dealer::new(policy);
        self.threads = Threads::default();
        self.next = Instant::now();
        self.unmatched_due = Some(Instant::now() + UNMATCHED_AFTER);
    }

    /// Looks for new threads if it is time. Returns how long the caller may wait before the next call.
    pub fn step(&mut self) -> Duration {
        if self.policy.pins.is_empty() && self.ledger.0.is_empty() {
            return Duration::MAX;
        }
        if Instant::now() >= self.next {
            self.follow();
            self.next = Instant::now() + INTERVAL;
        }
        self.next.saturating_duration_since(Instant::now())
    }

    /// Pins the threads that have come since the last look, and those whose name has changed. A thread is
    /// pinned once it is a tenth of a second old.
    pub fn follow(&mut self) {
        let problem = self.try_follow().err().map(|error| format!("{error:#}"));
        if problem != self.problem {
            if let Some(problem) = &problem {
                warn!("pinning threads: {problem}");
            }
            self.problem = problem;
        }
        if self.unmatched_due.is_some_and(|due| Instant::now() >= due) {
            self.unmatched_due = None;
            self.tell_unmatched();
        }
    }

    /// A pin with a typing error is quiet.
    fn tell_unmatched(&self) {
        let deals = self
            .ledger
            .0
            .values()
            .filter_map(|pinned| pinned.deal.as_ref());
        let matched: HashSet<_> = deals.map(|deal| deal.pin).collect();
        for (number, pin) in self.policy.pins.iter().enumerate() {
            if !matched.contains(&number) {
                let rules: Vec<_> = pin.rules.iter().map(ToString::to_string).collect();
                info!(
                    "no thread is pinned by {}, a minute after it came into force",
                    rules.join(" or ")
                );
            }
        }
    }

    fn try_follow(&mut self) -> Result<()> {
        limits::expect_free_files()?;
        let before = self.ledger.clone();
        let mut new = Vec::new();
        for thread in self.threads.look() {
            // What its own affinity is, it takes for the CPUs that launchers may have.
            if thread.tgid.unsigned_abs() == std::process::id() {
                continue;
            }
            let facts = Facts::read(&thread);
            let pin = self.policy.pin_of(&facts.with_name(&thread.comm));
            let dealt = self
                .ledger
                .of(&thread)
                .and_then(|pinned| pinned.deal.as_ref());
            if pin == dealt.map(|deal| deal.pin) && pin.is_some() {
                continue;
            }
            let Ok(now) = affinity(thread.tid) else {
                continue;
            };
            self.give_back(&thread, &now, facts.cgroup.as_deref());
            if let Some(pin) = pin.filter(|_| !self.left_alone.contains(&key(&thread))) {
                self.deal(&thread, pin, &now, facts.cgroup.as_deref());
                new.push(thread);
            }
        }
        self.forget_the_dead();
        if self.ledger == before {
            return Ok(());
        }
        // Before the first write: from here on a kill can be undone.
        if let Err(error) = self.remember() {
            // Nobody was pinned. The next look takes them for new ones, as they are.
            for thread in &new {
                self.forget(thread.tid);
                self.threads.forget(thread.tid);
            }
            return Err(error);
        }
        self.pin(&new);
        self.remember()
    }

    /// Undoes the pin of a thread that another pin or none matches by now, or that only inherited it.
    fn give_back(&mut self, thread: &Thread, now: &CpuSet, cgroup: Option<&Path>) {
        let line = self.threads.line_of(thread.tgid);
        let original = match self.ledger.of(thread).cloned() {
            Some(pinned) => {
                if let Some(deal) = &pinned.deal {
                    self.dealer.take_back(deal);
                }
                self.ledger.0.remove(&thread.tid);
                if !pinned.is_ours(now, &self.allowed(cgroup)) {
                    self.left_alone.insert(key(thread));
                    return;
                }
                Some(pinned.original)
            }
            None if thread.is_new => self.ledger.inherited(thread, &line, now),
            None => None,
        };
        if let Some(original) = original {
            // A thread that is gone meanwhile has nothing to be given back.
            let _ = set_affinity(thread.tid, original.as_ref());
        }
    }

    /// Enters the thread; its affinity is set afterwards.
    fn deal(&mut self, thread: &Thread, pin: usize, now: &CpuSet, cgroup: Option<&Path>) {
        let now = affinity(thread.tid).unwrap_or_else(|_| now.clone());
        let deal = self.dealer.deal(&self.policy, pin);
        let pinned = Pinned {
            tid: thread.tid,
            tgid: thread.tgid,
            started: thread.started,
            since: threads::now_ticks(),
            original: Some(now).filter(|now| !now.is_empty() && *now != self.allowed(cgroup)),
            asked: deal.cpus.clone(),
            granted: deal.cpus.clone(),
            deal: Some(deal),
        };
        self.ledger.0.insert(thread.tid, pinned);
    }

    /// Sets the affinities of `new` threads, all of which are entered.
    fn pin(&mut self, new: &[Thread]) {
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        for thread in new {
            let Some(pinned) = self.ledger.0.get_mut(&thread.tid) else {
                continue;
            };
            let comm = printable(&thread.comm);
            let name = format!("{comm} ({}) to CPUs {}", thread.tid, pinned.asked);
            let outcome =
                set_affinity(thread.tid, Some(&pinned.asked)).and_then(|()| affinity(thread.tid));
            match outcome {
                Ok(granted) => {
                    pinned.granted = granted;
                    done.push(name);
                    continue;
                }
                Err(error) if error.raw_os_error() != Some(nix::libc::ESRCH) => {
                    if self.refused.insert(key(thread)) {
                        refused.push(format!("{name}: {error}"));
                    }
                }
                Err(_) => {}
            }
            self.forget(thread.tid);
        }
        if !done.is_empty() {
            info!("pinned {}", listed(&done, LISTED));
        }
        if !refused.is_empty() {
            warn!(
                "threads that cannot be pinned: {}",
                listed(&refused, LISTED)
            );
        }
    }

    fn forget(&mut self, tid: i32) {
        if let Some(deal) = self.ledger.0.remove(&tid).and_then(|pinned| pinned.deal) {
            self.dealer.take_back(&deal);
        }
    }

    fn forget_the_dead(&mut self) {
        let lives = |tid: i32, started: u64| self.threads.started(tid) == Some(started);
        self.left_alone
            .retain(|&(tid, started)| lives(tid, started));
        self.refused.retain(|&(tid, started)| lives(tid, started));
        let dead: Vec<_> = (self.ledger.0.values())
            .filter(|pinned| !lives(pinned.tid, pinned.started))
            .map(|pinned| pinned.tid)
            .collect();
        for tid in dead {
            self.forget(tid);
        }
    }

    /// The CPUs that the cpuset of `cgroup` allows; all, where it cannot be seen.
    fn allowed(&self, cgroup: Option<&Path>) -> CpuSet {
        let cpuset = cgroup.and_then(|cgroup| cpuset_of(self.cgroup_root.as_deref(), cgroup));
        let online = || {
            let list = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
            list.parse().ok()
        };
        cpuset.or_else(online).unwrap_or_default()
    }

    fn remember(&self) -> Result<()> {
        if self.ledger.0.is_empty() {
            return self.state.remove();
        }
        self.state.save(self.ledger.0.values().cloned().collect())
    }

    /// Gives every thread back what it had before its pin, and those that it started; returns how
    /// many.
    fn restore(&mut self) -> Result<usize> {
        limits::expect_free_files()?;
        let mut nr_restored = 0;
        for thread in self.threads.all() {
            let line = self.threads.line_of(thread.tgid);
            if !self.ledger.knows(&line) {
                continue;
            }
            match self.restore_one(&thread, &line) {
                Ok(done) => nr_restored += usize::from(done),
                Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                Err(error) => warn!(
                    "{} ({}) stays pinned: {error}",
                    printable(&thread.comm),
                    thread.tid
                ),
            }
        }
        self.ledger = Ledger::default();
        self.state.remove()?;
        Ok(nr_restored)
    }

    fn restore_one(&self, thread: &Thread, line: &[i32]) -> io::Result<bool> {
        let now = affinity(thread.tid)?;
        let original = match self.ledger.of(thread) {
            Some(pinned) => {
                let cgroup = Facts::read(thread).cgroup;
                let is_ours = pinned.is_ours(&now, &self.allowed(cgroup.as_deref()));
                is_ours.then(|| pinned.original.clone())
            }
            None => self.ledger.inherited(thread, line, &now),
        };
        let Some(original) = original else {
            return Ok(false);
        };
        match set_affinity(thread.tid, original.as_ref()) {
            // Its CPUs are offline by now.
            Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => {
                set_affinity(thread.tid, None)?;
            }
            done => done?,
        }
        Ok(true)
    }
}

impl Drop for Pinning {
    fn drop(&mut self) {
        if !self.ledger.0.is_empty()
            && let Err(error) = self.restore()
        {
            warn!("{error:#}");
        }
    }
}

fn key(thread: &Thread) -> (i32, u64) {
    (thread.tid, thread.started)
}
