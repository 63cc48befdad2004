// SPDX-License-Identifier: GPL-2.0-only
//! One start of the scheduler for tests that follow one another: each has its policy, which is a reload.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tier;

use super::machine::{Scheduler, times_enabled};

/// A scheduler with a policy file.
pub struct Reloadable {
    pub scheduler: Scheduler,
    pub path: PathBuf,
    enabled: String,
    _folder: tempfile::TempDir,
}

impl Reloadable {
    pub fn start(policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        std::fs::write(&path, policy).unwrap();
        let scheduler = Scheduler::start(&["--policy", path.to_str().unwrap()]);
        Self {
            scheduler,
            path,
            enabled: times_enabled(),
            _folder: folder,
        }
    }

    /// Changes the file, and waits until the scheduler says `line`.
    pub fn change(&mut self, policy: &str, line: &str) {
        let new = self.path.with_extension("new");
        std::fs::write(&new, policy).unwrap();
        std::fs::rename(&new, &self.path).unwrap();
        self.scheduler.process.wait_for_line(line);
    }

    /// Has the scheduler been loaded once, and is it loaded still?
    pub fn assert_never_unloaded(&mut self) {
        self.scheduler.assert_loaded();
        assert_eq!(times_enabled(), self.enabled);
    }
}

/// The one that tests share, with the policy that is in force.
struct Shared {
    reloadable: Reloadable,
    policy: String,
    generation: u64,
}

/// Whoever takes it puts it back, unless the test has failed: the next one starts anew then.
fn shared() -> MutexGuard<'static, Option<Shared>> {
    static SHARED: Mutex<Option<Shared>> = Mutex::new(None);
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn start(policy: &str) -> Self {
        Self {
            reloadable: Reloadable::start(policy),
            policy: policy.to_owned(),
            generation: 1,
        }
    }

    fn follow(&mut self, policy: &str) {
        if self.policy != policy {
            self.generation += 1;
            let line = format!("generation {} is in force", self.generation);
            self.reloadable.change(policy, &line);
            policy.clone_into(&mut self.policy);
        }
    }
}

/// Runs `test` in the lab beside the scheduler with `policy`. Not for tests of what was since its start.
pub fn beside_the_scheduler(policy: &str, test: impl Fn(&Scheduler)) {
    tier::in_lab_as_it_is(|| {
        let found = shared().take();
        let mut scheduler = found.unwrap_or_else(|| Shared::start(policy));
        scheduler.follow(policy);
        test(&scheduler.reloadable.scheduler);
        scheduler.reloadable.assert_never_unloaded();
        *shared() = Some(scheduler);
    });
}

/// Ends it: nobody but the kernel schedules.
pub fn end() {
    let found = shared().take();
    if let Some(shared) = found {
        shared.reloadable.scheduler.stop();
    }
}
