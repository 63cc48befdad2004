// SPDX-License-Identifier: GPL-2.0-only
//! Keeps what is said of cgroups up with the hierarchy, and with the xattrs of its folders.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use log::{info, warn};
use nix::errno::Errno;
use nix::libc;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};

use crate::bpf::identify::IdentifySkel;

use super::cgroups::{self, Tag};
use super::rest::{Rest, cpu_time};
use super::rules::Rules;
use super::{counters, store};

/// The tags of a hierarchy.
pub struct Tags {
    root: PathBuf,
    tagged: HashMap<u64, Tag>,
    /// How often they have changed.
    changes: u64,
    /// `None`: the rules are new.
    changes_seen: Option<u64>,
    /// An xattr has changed since all folders were matched.
    xattrs_changed: bool,
    /// From matching them: whoever has a cgroup of his own can change it in a loop.
    rest: Rest,
    /// Tells of changed xattrs; cgroups that come and go are told of by BPF.
    xattrs: Option<Fanotify>,
}

impl Tags {
    /// Of the cgroup v2 hierarchy that is mounted at `root`.
    pub fn new(root: PathBuf) -> Self {
        let xattrs = watch_xattrs(&root)
            .inspect_err(|error| {
                warn!("{error:#}: a changed {} is noticed late", cgroups::XATTR);
            })
            .ok();
        Self {
            root,
            tagged: HashMap::new(),
            changes: 0,
            changes_seen: None,
            xattrs_changed: false,
            rest: Rest::default(),
            xattrs,
        }
    }

    /// Where the hierarchy is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How often tags have changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The users whose folders have a class by an xattr. Sorted.
    pub fn owners(&self) -> Vec<u32> {
        let owners: BTreeSet<u32> = self.tagged.values().filter_map(|tag| tag.owner).collect();
        owners.into_iter().collect()
    }

    /// The rules are others: all folders are matched anew.
    pub fn outdated(&mut self) {
        self.changes_seen = None;
    }

    /// Matches all folders anew when one was made, removed or renamed, or an xattr changed, and it is time at `now`.
    ///
    /// # Errors
    /// The hierarchy cannot be read, the kernel refuses a change of a map.
    pub fn follow(&mut self, now: Duration, skel: &IdentifySkel<'_>, rules: &Rules) -> Result<()> {
        self.xattrs_changed |= self.take_xattr_events();
        // New rules do not wait.
        if self.changes_seen.is_some() && !self.rest.is_over(now) {
            return Ok(());
        }
        let changes = counters::cgroup_changes(skel);
        let has_changed = self.changes_seen != Some(changes);
        // Where no rule asks for cgroups, one that is made has nothing to say.
        let matters = self.changes_seen.is_none() || rules.by_cgroup() || !self.tagged.is_empty();
        let outdated = self.xattrs_changed || has_changed && matters;
        if !outdated {
            return Ok(());
        }
        self.xattrs_changed = false;
        let start = cpu_time();
        let stored =
            cgroups::classify(&self.root, rules).and_then(|tagged| self.store(skel, tagged));
        self.rest.begin(now, cpu_time().saturating_sub(start));
        // Until it succeeds they are outdated.
        match stored {
            Ok(()) => self.changes_seen = Some(changes),
            Err(_) => self.xattrs_changed = true,
        }
        stored
    }

    fn store(&mut self, skel: &IdentifySkel<'_>, tagged: HashMap<u64, Tag>) -> Result<()> {
        if tagged != self.tagged {
            store::tags(skel, &self.tagged, &tagged)?;
            info!("{} cgroups have a class", tagged.len());
            if tagged.len() == cgroups::MAX_TAGS && self.tagged.len() < tagged.len() {
                warn!(
                    "more cgroups have no room: expected at most {}; rules by a folder above them do",
                    cgroups::MAX_TAGS
                );
            }
            self.tagged = tagged;
            self.changes += 1;
        }
        Ok(())
    }

    fn take_xattr_events(&self) -> bool {
        let Some(xattrs) = &self.xattrs else {
            return false;
        };
        let mut events = [0; 4096];
        let mut changed = false;
        while matches!(
            nix::unistd::read(xattrs, &mut events),
            Ok(1..) | Err(Errno::EINTR)
        ) {
            changed = true;
        }
        changed
    }
}

/// One mark for the whole hierarchy, folders that are made later included.
fn watch_xattrs(root: &Path) -> Result<Fanotify> {
    // Without it, the kernel tells of opened and changed files only.
    let by_id = InitFlags::from_bits_retain(libc::FAN_REPORT_FID);
    let flags = by_id | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
    let watch = Fanotify::init(flags, EventFFlags::empty());
    let watch = watch.context("watching xattrs: fanotify_init")?;
    watch
        .mark(
            MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM,
            MaskFlags::FAN_ATTRIB | MaskFlags::FAN_ONDIR,
            nix::fcntl::AT_FDCWD,
            Some(root),
        )
        .with_context(|| format!("watching xattrs below {}", root.display()))?;
    Ok(watch)
}
