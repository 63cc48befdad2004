// SPDX-License-Identifier: GPL-2.0-only
//! Another policy takes over while the scheduler runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::process::{Process, busy_loop};
use crate::tier;

use super::machine::{Scheduler, mark_launch, mark_of, nr_cpus};

const LIMIT: Duration = Duration::from_secs(20);
const RELOADS: u64 = 1000;

/// A scheduler with a policy file.
struct Reloadable {
    scheduler: Scheduler,
    path: PathBuf,
    enabled: String,
    _folder: tempfile::TempDir,
}

impl Reloadable {
    fn start(policy: &str) -> Self {
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
    fn change(&mut self, policy: &str, line: &str) {
        let new = self.path.with_extension("new");
        std::fs::write(&new, policy).unwrap();
        std::fs::rename(&new, &self.path).unwrap();
        self.scheduler.process.wait_for_line(line, LIMIT);
    }

    /// Has the scheduler been loaded once, and is it loaded still?
    fn assert_never_unloaded(&mut self) {
        self.scheduler.assert_loaded();
        assert_eq!(times_enabled(), self.enabled);
    }
}

/// How often a sched_ext scheduler has been enabled since the boot.
fn times_enabled() -> String {
    let path = Path::new("/sys/kernel/sched_ext/enable_seq");
    std::fs::read_to_string(path).expect("enable_seq")
}

/// CPUs that `tasks` get together, after a moment to settle.
fn cpus_used(tasks: &[Process]) -> f64 {
    let total = || -> f64 {
        let times = tasks.iter().map(|task| task.cpu_time().as_secs_f64());
        times.sum()
    };
    std::thread::sleep(Duration::from_millis(500));
    let before = total();
    std::thread::sleep(Duration::from_secs(3));
    (total() - before) / 3.0
}

/// Keeps the last CPU for launchers, or lends it.
fn lending(lend: bool) -> String {
    format!("[preferred]\ncpus = \"{}\"\nlend = {lend}\n", nr_cpus() - 1)
}

#[test]
#[ignore = "runs in the lab: make test"]
fn another_policy_takes_over_and_a_bad_one_does_not() {
    if !tier::vm() {
        return;
    }
    let mut reloadable = Reloadable::start(&lending(true));
    let tasks: Vec<_> = (0..2 * nr_cpus())
        .map(|_| Process::start(busy_loop()))
        .collect();
    let launcher = Process::start(busy_loop());
    mark_launch(launcher.pid());
    launcher.signal(Signal::SIGSTOP);
    let (all, rest) = (nr_cpus() as f64, nr_cpus() as f64 - 1.0);

    let used = cpus_used(&tasks);
    assert!(used > 0.85 * all, "lent: {used:.2} CPUs");
    reloadable.change(&lending(false), "generation 2 is in force");
    let used = cpus_used(&tasks);
    assert!(used < rest + 0.1, "not lent: {used:.2} CPUs");
    // Refused with what is wrong and where, and still not lent.
    reloadable.change("[preferred]\nlend = 1\n", "policy.toml:2: error");
    let used = cpus_used(&tasks);
    assert!(used < rest + 0.1, "after a bad policy: {used:.2} CPUs");
    reloadable.change(&lending(true), "generation 3 is in force");
    let used = cpus_used(&tasks);
    assert!(used > 0.85 * all, "lent again: {used:.2} CPUs");
    // Nothing has changed, and the operator who asks is answered.
    reloadable.scheduler.process.signal(Signal::SIGHUP);
    let process = &mut reloadable.scheduler.process;
    process.wait_for_line("generation 3 stays", LIMIT);

    assert!(mark_of(launcher.pid()).is_some(), "the mark is lost");
    reloadable.assert_never_unloaded();
    reloadable.scheduler.stop();
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_thousand_reloads_under_noise_unload_nothing_and_lose_no_mark() {
    if !tier::vm() {
        return;
    }
    let mut reloadable = Reloadable::start("");
    let noise: Vec<_> = (0..2 * nr_cpus())
        .map(|_| Process::start(busy_loop()))
        .collect();
    let launcher = Process::start(busy_loop());
    mark_launch(launcher.pid());
    for number in 0..RELOADS {
        if number % 2 == 0 {
            reloadable.scheduler.process.signal(Signal::SIGHUP);
        }
        if number % 3 == 2 {
            let key = format!("nonsense_{number}");
            reloadable.change(&format!("{key} = 1\n"), &format!("{key}: unknown key"));
        } else {
            let slice = 1000 + number;
            let policy = format!("[class.background]\nslice_us = {slice}\n");
            reloadable.change(&policy, &format!("-> {slice}"));
        }
    }
    launcher.signal(Signal::SIGSTOP);
    reloadable.change(&lending(false), "is in force: class.background.slice_us");
    let used = cpus_used(&noise);
    assert!(
        used < nr_cpus() as f64 - 0.9,
        "the final policy is not in force: {used:.2} CPUs"
    );
    assert!(mark_of(launcher.pid()).is_some(), "the mark is lost");
    reloadable.assert_never_unloaded();
    reloadable.scheduler.stop();
}
