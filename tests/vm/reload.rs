// SPDX-License-Identifier: GPL-2.0-only
//! Another policy takes over while the scheduler runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::process::{Process, busy_loop, busy_loops, eventually};
use crate::{length, tier};

use super::known::{self, Known, named_shell};
use super::machine::{mark_launch, mark_of, metrics, nr_cpus};
use super::noise::{BeforeNoise, Noise};
use super::shared::Reloadable;

/// Every kind of reload among them: steering begins with the fortieth and ends with the ninetieth.
fn nr_reloads() -> u64 {
    length::of(100, 1000)
}

/// CPUs that `tasks` get together, after a moment to settle.
fn cpus_used(tasks: &[Process]) -> f64 {
    let total = || -> f64 {
        let times = tasks.iter().map(|task| task.cpu_time().as_secs_f64());
        times.sum()
    };
    std::thread::sleep(Duration::from_millis(500));
    let before = total();
    let (start, window) = (Instant::now(), Duration::from_secs(length::of(2, 3)));
    std::thread::sleep(window);
    (total() - before) / start.elapsed().as_secs_f64()
}

/// Keeps the last CPU for launchers, or lends it.
fn lending(lend: bool) -> String {
    format!("[preferred]\ncpus = \"{}\"\nlend = {lend}\n", nr_cpus() - 1)
}

#[test]
#[ignore = "runs in the lab: make test"]
fn another_policy_takes_over_and_a_bad_one_does_not() {
    tier::in_lab(|| {
        let mut reloadable = Reloadable::start(&lending(true));
        let tasks = busy_loops(2 * nr_cpus());
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
        let refused = metrics();
        assert_eq!((refused.policy_generation, refused.policy_refused), (2, 1));
        assert!(
            refused.policy_error.contains("preferred.lend"),
            "{}",
            refused.policy_error
        );
        let used = cpus_used(&tasks);
        assert!(used < rest + 0.1, "after a bad policy: {used:.2} CPUs");
        reloadable.change(&lending(true), "generation 3 is in force");
        let accepted = metrics();
        assert_eq!(
            (accepted.policy_generation, accepted.policy_refused),
            (3, 1)
        );
        assert_eq!(accepted.policy_error, "");
        let used = cpus_used(&tasks);
        assert!(used > 0.85 * all, "lent again: {used:.2} CPUs");
        // Nothing has changed, and the operator who asks is answered.
        reloadable.scheduler.process.signal(Signal::SIGHUP);
        let process = &mut reloadable.scheduler.process;
        process.wait_for_line("generation 3 stays");

        assert!(mark_of(launcher.pid()).is_some(), "the mark is lost");
        reloadable.assert_never_unloaded();
        reloadable.scheduler.stop();
    });
}

/// Rules that give threads by every source their class, and what `change` says beside them.
struct Everything {
    /// A rule before all others, so that their numbers change.
    first: &'static str,
    pinned: usize,
    steer: bool,
    slice_us: u64,
}

impl Everything {
    fn policy(&self) -> String {
        let Self {
            first,
            pinned,
            steer,
            slice_us,
        } = self;
        let (launch, handoff) = (known::LAUNCH, known::handoff());
        format!(
            "identify = {{ expire_s = 0 }}\n[irq]\nsteer = {steer}\n\
             [class.launch]\nmatch = [{first}{launch}]\n\
             [class.handoff]\nmatch = [{handoff}]\n\
             [class.background]\nslice_us = {slice_us}\n\
             [[pin]]\nmatch = {{ comm = \"pinned*\" }}\ncpus = \"{pinned}\"\n"
        )
    }

    fn new(slice_us: u64) -> Self {
        Self {
            first: "",
            pinned: 0,
            steer: false,
            slice_us,
        }
    }
}

/// A thread that the policies above pin.
fn pinned_shell(folder: &Path) -> Process {
    let mut command = Command::new(named_shell(folder, "pinned"));
    command
        .args(["-c", "while :; do read line; done"])
        .stdin(Stdio::piped());
    Process::start(command)
}

fn cpus_of(process: &Process) -> String {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", process.pid())).expect("status");
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.expect("its CPUs").trim().to_owned()
}

fn is_soon_on(process: &Process, cpu: usize) -> bool {
    eventually(|| (cpus_of(process) == cpu.to_string()).then_some(())).is_some()
}

/// Nobody who is known has lost a mark by reload `number`, not even for a moment.
fn assert_none_lost(known: &Known, number: u64) {
    let lost = known.lost();
    assert!(
        lost.is_empty(),
        "reload {number}: lost or made anew: {lost:#?}"
    );
}

#[test]
#[ignore = "runs in the lab: make test"]
fn a_reload_forgets_nobody_and_pins_nobody_anew() {
    tier::in_lab(|| {
        let mut reloadable = Reloadable::start(&Everything::new(4000).policy());
        let folder = tempfile::tempdir().unwrap();
        let pinned = pinned_shell(folder.path());
        let known = Known::start();
        assert!(is_soon_on(&pinned, 0), "{}", cpus_of(&pinned));
        // Nobody is judged anew, and nobody is un-pinned in between.
        reloadable.change(&Everything::new(3000).policy(), "generation 2 is in force");
        assert_none_lost(&known, 1);
        assert_eq!(cpus_of(&pinned), "0");
        // All are, by rules with other numbers.
        let first = "{ comm = \"nobody\" }, ";
        let last = nr_cpus() - 1;
        let others = Everything {
            first,
            pinned: last,
            ..Everything::new(3000)
        };
        reloadable.change(&others.policy(), "generation 3 is in force");
        assert_none_lost(&known, 2);
        assert!(is_soon_on(&pinned, last), "{}", cpus_of(&pinned));
        std::thread::sleep(Duration::from_secs(2));
        reloadable.scheduler.process.drain();
        let log = &reloadable.scheduler.process.log;
        let pins = log.iter().filter(|line| line.contains("pinned pinned"));
        assert_eq!(pins.count(), 2, "{log:#?}");
        reloadable.assert_never_unloaded();
        reloadable.scheduler.stop();
    });
}

/// Sets how many file descriptors `process` may have: `spare` more than it has, or many.
fn limit_files(process: &Process, spare: Option<usize>) {
    let list = format!("/proc/{}/fd", process.pid());
    let open = || -> BTreeSet<usize> {
        let files = std::fs::read_dir(&list).expect("its files").flatten();
        files
            .filter_map(|file| file.file_name().to_str()?.parse().ok())
            .collect()
    };
    // Files that are open for a moment are not in every look.
    let lasting = (0..20).fold(open(), |lasting, _| {
        std::thread::sleep(Duration::from_millis(20));
        lasting.intersection(&open()).copied().collect()
    });
    let free = |limit: usize| limit - lasting.range(..limit).count();
    let limit = spare.map_or(4096, |spare| {
        (0..).find(|&limit| free(limit) > spare).unwrap() - 1
    });
    let status = Command::new("prlimit")
        .args([
            format!("--pid={}", process.pid()),
            format!("--nofile={limit}:"),
        ])
        .status()
        .expect("prlimit");
    assert!(status.success());
}

#[test]
#[ignore = "runs in the lab: make test"]
fn what_the_kernel_refuses_a_part_of_is_put_back() {
    tier::in_lab(|| {
        let mut reloadable = Reloadable::start(&lending(true));
        let launcher = Process::start(busy_loop());
        mark_launch(launcher.pid());
        // Three tracepoints to watch, and no room for the last: attaching takes a descriptor more for a moment.
        let asking = "[class.handoff]\nmatch = [{ comm = \"named*\" }, { wakes = \"launch\" }, \
                  { connects_to = \"127.0.0.1:1\" }]\n";
        let policy = format!("{}{asking}", lending(false));
        limit_files(&reloadable.scheduler.process, Some(3));
        reloadable.change(&policy, "refused, generation 1 stays in force");
        let process = &reloadable.scheduler.process;
        let last = process.log.last().unwrap();
        assert!(
            last.contains("attaching to tracepoint") && last.contains("Too many open files"),
            "{last}"
        );
        limit_files(process, None);
        let totals = metrics();
        assert_eq!((totals.policy_generation, totals.policy_refused), (1, 1));
        assert!(
            totals.policy_error.contains("tracepoint"),
            "{}",
            totals.policy_error
        );
        // What comes after the tracepoints has not changed, and what comes before is as it was.
        launcher.signal(Signal::SIGSTOP);
        let tasks = busy_loops(2 * nr_cpus());
        let used = cpus_used(&tasks);
        assert!(used > 0.85 * nr_cpus() as f64, "lent: {used:.2} CPUs");
        assert!(mark_of(launcher.pid()).is_some(), "the mark is lost");
        // The same file once there is room.
        let process = &mut reloadable.scheduler.process;
        process.signal(Signal::SIGHUP);
        process.wait_for_line("generation 2 is in force");
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(named_shell(folder.path(), "named"));
        let named = Process::start({
            command.args(["-c", "while :; do :; done"]);
            command
        });
        let marked = eventually(|| mark_of(named.pid()));
        assert_eq!(marked.expect("a mark")["source"], "rule");
        reloadable.assert_never_unloaded();
        reloadable.scheduler.stop();
    });
}

#[test]
#[ignore = "runs in the lab: make test"]
fn many_reloads_under_heavy_noise_unload_nothing_and_lose_no_mark() {
    tier::in_lab(|| {
        let mut reloadable = Reloadable::start(&Everything::new(1000).policy());
        let folder = tempfile::tempdir().unwrap();
        let pinned = pinned_shell(folder.path());
        let known = Known::start();
        let noise = Noise::heavy("");
        let before_noise = BeforeNoise::start();
        for number in 1..=nr_reloads() {
            if number % 2 == 0 {
                reloadable.scheduler.process.signal(Signal::SIGHUP);
            }
            let slice_us = 1000 + number;
            let line = format!("-> {slice_us}");
            if number % 3 == 2 {
                let key = format!("nonsense_{number}");
                reloadable.change(&format!("{key} = 1\n"), &format!("{key}: unknown key"));
            } else if number % 10 == 0 {
                let policy = Everything {
                    first: ["", "{ comm = \"nobody\" }, "][number as usize / 10 % 2],
                    pinned: number as usize / 20 % nr_cpus(),
                    steer: number / 40 % 2 == 1,
                    slice_us,
                };
                reloadable.change(&policy.policy(), &line);
                if number % 30 == 0 {
                    assert_none_lost(&known, number);
                }
            } else {
                reloadable.change(&Everything::new(slice_us).policy(), &line);
            }
        }
        assert_none_lost(&known, nr_reloads());
        reloadable.change(&Everything::new(5000).policy(), "-> 5000");
        assert!(is_soon_on(&pinned, 0), "{}", cpus_of(&pinned));
        let launcher = Process::start(busy_loop());
        mark_launch(launcher.pid());
        drop(known);
        launcher.signal(Signal::SIGSTOP);
        reloadable.change(&lending(false), "is in force: ");
        noise.end();
        drop(before_noise);
        let tasks = busy_loops(2 * nr_cpus());
        let used = cpus_used(&tasks);
        assert!(
            used < nr_cpus() as f64 - 0.9,
            "the final policy is not in force: {used:.2} CPUs"
        );
        assert!(mark_of(launcher.pid()).is_some(), "the mark is lost");
        reloadable.assert_never_unloaded();
        reloadable.scheduler.stop();
    });
}
