// SPDX-License-Identifier: GPL-2.0-only
//! The policy in force, and when another one is to take its place: on SIGHUP, and when its file
//! changes. What a policy does to the scheduler is not done here.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Error, Result};
use log::{error, info, warn};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use crate::policy::effective::Effective;

/// The file that a policy is from, and how to read it.
pub struct PolicyFile {
    /// As it was named.
    pub path: PathBuf,
    /// Reads and validates it, for the CPUs that are online now.
    pub read: Box<dyn Fn() -> Result<Effective>>,
}

/// What the statistics say of policies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// Policies that have been in force since the start, this one included.
    pub generation: u64,
    /// Times that a policy was refused while an older one stayed.
    pub refused: u64,
    /// Why the last one was refused; empty: the last one that was read is in force.
    pub error: String,
}

/// Has SIGHUP come?
pub type Asked = Arc<AtomicBool>;

/// From now on SIGHUP and SIGUSR1 ask for something, and end nobody. A service manager may send them as soon as the
/// process is there; whoever starts looks at everything, as SIGUSR1 asks for.
///
/// # Errors
/// They cannot be handled.
pub fn hear() -> Result<Asked> {
    let asked = Asked::default();
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&asked))
        .context("handling SIGHUP")?;
    bear_rescans()?;
    Ok(asked)
}

/// From now on SIGUSR1 ends nobody. Whoever starts looks at everything, as it asks for.
///
/// # Errors
/// It cannot be handled.
pub fn bear_rescans() -> Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::default())
        .context("handling SIGUSR1")?;
    Ok(())
}

/// The policy in force.
pub struct Reload {
    in_force: Effective,
    file: Option<PolicyFile>,
    watch: Option<Watch>,
    asked: Asked,
    /// May the file have changed after it was read and before it was followed?
    is_unsure: bool,
    /// Is a part of another policy in force too? The kernel has refused the rest, and the way back.
    is_mixed: bool,
    standing: Standing,
}

impl Reload {
    /// `in_force` is in force; `file` is followed from now on. One that cannot be watched is a warning.
    pub fn start(in_force: Effective, file: Option<PolicyFile>, asked: Asked) -> Self {
        let watch = file.as_ref().and_then(|file| {
            Watch::start(&file.path)
                .inspect_err(|error| warn!("changes are taken on SIGHUP only: {error:#}"))
                .ok()
        });
        Self {
            in_force,
            // A pipe has been read to its end.
            is_unsure: file.as_ref().is_some_and(|file| file.path.is_file()),
            file,
            watch,
            asked,
            is_mixed: false,
            standing: Standing {
                generation: 1,
                ..Standing::default()
            },
        }
    }

    /// The policy in force.
    pub fn in_force(&self) -> &Effective {
        &self.in_force
    }

    /// For the statistics.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The policy that is to be in force from now on, if there is another one. A file that is no
    /// policy is refused here.
    pub fn poll(&mut self) -> Option<Effective> {
        let changed = self.watch.as_mut().is_some_and(Watch::has_changed);
        let changed = std::mem::take(&mut self.is_unsure) || changed;
        let asked = self.asked.swap(false, Ordering::Relaxed);
        if !changed && !asked {
            return None;
        }
        let Some(file) = &self.file else {
            warn!("SIGHUP: the scheduler was started without a policy file, so nothing changes");
            return None;
        };
        // A link may lead elsewhere now. Before the file is read: what is written later is noticed.
        match Watch::start(&file.path) {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => warn!("later changes may be taken on SIGHUP only: {error:#}"),
        }
        match (file.read)() {
            Ok(policy) if !self.is_mixed && policy.same_values(&self.in_force) => {
                self.standing.error.clear();
                if asked {
                    let name = file.path.display();
                    info!(
                        "{name}: reread, generation {} stays",
                        self.standing.generation
                    );
                }
                None
            }
            Ok(policy) => Some(policy),
            Err(error) => {
                let error = format!("{error:#}");
                // The same mistake, seen once by the signal and once by the watch.
                if asked || error != self.standing.error {
                    self.refuse(error);
                }
                None
            }
        }
    }

    /// `policy` is in force now.
    pub fn accept(&mut self, policy: Effective) {
        let mut changes = policy.changes_since(&self.in_force).join(", ");
        if changes.is_empty() {
            changes = "the same, after a reload that failed halfway".to_owned();
        }
        self.in_force = policy;
        self.is_mixed = false;
        self.standing.generation += 1;
        self.standing.error.clear();
        let (file, generation) = (self.name(), self.standing.generation);
        info!(
            event = "policy_in_force", file = file, generation = generation, changes = changes;
            "{file}: generation {generation} is in force: {changes}"
        );
    }

    /// The policy in force stays, because of `error`.
    pub fn refuse(&mut self, error: String) {
        let (file, generation) = (self.name(), self.standing.generation);
        warn!(
            event = "policy_refused", file = file, generation = generation, error = error;
            "{file}: refused, generation {generation} stays in force: {error}"
        );
        self.standing.refused += 1;
        self.standing.error = error;
    }

    /// The kernel has refused a part of the wanted policy, because of `error`; `back` is what became of
    /// putting the one in force back. Tasks stay scheduled either way.
    pub fn roll_back(&mut self, error: &Error, back: Result<()>) {
        self.is_mixed = back.is_err();
        let Err(back) = back else {
            return self.refuse(format!("{error:#}"));
        };
        let (file, generation) = (self.name(), self.standing.generation);
        let error = format!(
            "{error:#}; going back to generation {generation} failed too: {back:#}: parts of both are in \
             force until a reload succeeds"
        );
        error!(
            event = "policy_mixed", file = file, generation = generation, error = error;
            "{file}: refused: {error}"
        );
        self.standing.refused += 1;
        self.standing.error = error;
    }

    fn name(&self) -> String {
        let path = self.file.as_ref().map(|file| file.path.as_path());
        path.unwrap_or(Path::new("policy")).display().to_string()
    }
}

/// Watches the folder of a file, as a file that is replaced takes its own watch with it.
struct Watch {
    inotify: Inotify,
    /// `None`: the file is a link, and its folder may change it by any name, as Kubernetes does.
    name: Option<OsString>,
    /// What is watched.
    folders: HashMap<WatchDescriptor, PathBuf>,
}

impl Watch {
    fn start(path: &Path) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .context("watching for changes of files")?;
        let mut folders = vec![folder_of(path)];
        let is_link = path.symlink_metadata().is_ok_and(|data| data.is_symlink());
        if is_link && let Ok(target) = path.canonicalize() {
            folders.push(folder_of(&target));
        }
        // Not the creation of a file, but that of a link: a file has no text yet.
        let mut events = AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO;
        events.set(AddWatchFlags::IN_CREATE, is_link);
        let watched = folders.into_iter().map(|folder| {
            let watch = inotify.add_watch(&folder, events);
            let watch = watch.with_context(|| format!("watching {}", folder.display()))?;
            Ok((watch, folder))
        });
        let folders = watched.collect::<Result<_>>()?;
        let name = path.file_name().filter(|_| !is_link);
        Ok(Self {
            inotify,
            name: name.map(OsStr::to_owned),
            folders,
        })
    }

    /// Is it the creation of a file, whose text comes later?
    fn is_new_file(&self, event: &InotifyEvent) -> bool {
        let folder = self.folders.get(&event.wd);
        let path = folder.zip(event.name.as_ref());
        let is_whole = |path: &Path| {
            let data = path.symlink_metadata();
            // A link, or another name of a file that is somewhere else.
            data.is_ok_and(|data| data.is_symlink() || data.nlink() > 1)
        };
        event.mask.contains(AddWatchFlags::IN_CREATE)
            && !event.mask.contains(AddWatchFlags::IN_ISDIR)
            && !path.is_some_and(|(folder, name)| is_whole(&folder.join(name)))
    }

    /// Has the file changed since this was asked last?
    fn has_changed(&mut self) -> bool {
        let mut changed = false;
        // Ends with EAGAIN when all have been read.
        while let Ok(events) = self.inotify.read_events() {
            changed |= events.iter().any(|event| {
                event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW)
                    || self.name.is_none() && !self.is_new_file(event)
                    || self.name.is_some() && event.name == self.name
            });
        }
        changed
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Document;

    fn effective(text: &str) -> Result<Effective> {
        let document = Document::parse(text).map_err(anyhow::Error::from)?;
        Ok(Effective::of(&document, None))
    }

    /// Follows `path`, which has the default policy.
    fn follow(path: &Path) -> Reload {
        std::fs::write(path, "").unwrap();
        let file = path.to_path_buf();
        let read = move || effective(&std::fs::read_to_string(&file)?);
        let file = PolicyFile {
            path: path.to_path_buf(),
            read: Box::new(read),
        };
        Reload::start(effective("").unwrap(), Some(file), Asked::default())
    }

    const HOLD_0: &str = "[preferred]\nhold_us = 0\n";

    #[test]
    fn what_was_written_before_the_file_is_followed_comes_into_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        let mut reload = follow(&path);
        let file = reload.file.take();
        std::fs::write(&path, HOLD_0).unwrap();
        let mut reload = Reload::start(effective("").unwrap(), file, Asked::default());
        assert!(reload.poll().is_some());
    }

    #[test]
    fn a_changed_file_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        let mut reload = follow(&path);
        assert!(reload.poll().is_none());
        std::fs::write(&path, HOLD_0).unwrap();
        let next = reload.poll().expect("a new policy");
        assert!(next.policy.preferred.hold.cap.is_zero());
        reload.accept(next);
        assert!(reload.poll().is_none());
        assert_eq!(reload.standing().generation, 2);
    }

    #[test]
    fn a_replaced_file_and_its_target_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        let mut reload = follow(&path);
        let other = folder.path().join("new.toml");
        std::fs::write(&other, HOLD_0).unwrap();
        assert!(reload.poll().is_none(), "another file of the folder");
        std::fs::rename(&other, &path).unwrap();
        assert!(reload.poll().is_some());

        let elsewhere = tempfile::tempdir().unwrap();
        let target = elsewhere.path().join("target.toml");
        let link = folder.path().join("link.toml");
        std::fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut reload = follow(&link);
        std::fs::write(&target, HOLD_0).unwrap();
        let next = reload.poll().expect("another text");
        reload.accept(next);
        // Made anew in place, slowly: half of it is no policy.
        std::fs::remove_file(&target).unwrap();
        let mut half = std::fs::File::create(&target).unwrap();
        assert!(reload.poll().is_none(), "no text yet");
        std::io::Write::write_all(&mut half, b"[preferred]\nhold_us = 9\n").unwrap();
        drop(half);
        assert!(reload.poll().is_some());
    }

    /// As `ln -sfn` does it, twice.
    #[test]
    fn the_new_target_of_a_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("policy.toml");
        let lead_to = |name: &str| {
            let target = folder.path().join(name).join("policy.toml");
            std::fs::create_dir(target.parent().unwrap()).unwrap();
            std::fs::write(&target, "").unwrap();
            let new = folder.path().join("new");
            std::os::unix::fs::symlink(&target, &new).unwrap();
            std::fs::rename(&new, &link).unwrap();
            target
        };
        lead_to("first");
        let mut reload = follow(&link);
        for name in ["second", "third"] {
            let target = lead_to(name);
            if let Some(next) = reload.poll() {
                reload.accept(next);
            }
            std::fs::write(&target, HOLD_0).unwrap();
            let next = reload.poll().expect(name);
            reload.accept(next);
        }
        assert_eq!(reload.standing().generation, 4);
    }

    /// As the kubelet puts another version of a ConfigMap into a volume.
    #[test]
    fn a_swap_of_the_folder_behind_a_link_is_followed() {
        let volume = tempfile::tempdir().unwrap();
        let version = |name: &str, text: &str| {
            std::fs::create_dir(volume.path().join(name)).unwrap();
            std::fs::write(volume.path().join(name).join("policy.toml"), text).unwrap();
            std::os::unix::fs::symlink(name, volume.path().join("..data_tmp")).unwrap();
            std::fs::rename(
                volume.path().join("..data_tmp"),
                volume.path().join("..data"),
            )
            .unwrap();
        };
        version("..first", "");
        let path = volume.path().join("policy.toml");
        std::os::unix::fs::symlink("..data/policy.toml", &path).unwrap();
        let mut reload = follow(&path);
        for (name, before, text) in [("..second", "..first", HOLD_0), ("..third", "..second", "")] {
            assert!(reload.poll().is_none());
            version(name, text);
            std::fs::remove_dir_all(volume.path().join(before)).unwrap();
            let next = reload.poll().expect("a new policy");
            reload.accept(next);
        }
        assert_eq!(reload.standing().generation, 3);
    }

    #[test]
    fn a_bad_file_is_refused_once_and_the_old_policy_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        let mut reload = follow(&path);
        for _ in 0..2 {
            std::fs::write(&path, "[preferred]\nhold_us = true\n").unwrap();
            assert!(reload.poll().is_none());
        }
        assert_eq!(
            (reload.standing().generation, reload.standing().refused),
            (1, 1)
        );
        assert!(reload.standing().error.contains("hold_us"));
        assert!(!reload.in_force().policy.preferred.hold.cap.is_zero());
        // Mended without a change of values: the error is history.
        std::fs::write(&path, "# nothing\n").unwrap();
        assert!(reload.poll().is_none());
        assert_eq!(reload.standing().error, "");
    }

    #[test]
    fn what_is_mixed_is_put_into_force_again_by_the_next_reload() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        let mut reload = follow(&path);
        std::fs::write(&path, HOLD_0).unwrap();
        assert!(reload.poll().is_some());
        reload.roll_back(&Error::msg("no room"), Err(Error::msg("none left")));
        let standing = reload.standing();
        assert_eq!((standing.generation, standing.refused), (1, 1));
        assert!(
            standing
                .error
                .starts_with("no room; going back to generation 1")
        );
        assert!(standing.error.contains("none left"));
        // The policy that was in force, written by the operator.
        std::fs::write(&path, "").unwrap();
        let next = reload.poll().expect("all of it again");
        reload.accept(next);
        assert_eq!(reload.standing().error, "");
        std::fs::write(&path, "").unwrap();
        assert!(reload.poll().is_none(), "nothing is mixed any more");
    }
}
