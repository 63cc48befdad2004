// SPDX-License-Identifier: GPL-2.0-only
//! A recorded profile beside threads that do what is known. Each kind has a nice level of its own, by which it is found:
//! a profile has no names.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use gpuaware_trace::profile::{Class, Group, Profile};
use nix::libc;

use super::alone;
use crate::disturbed::unless_disturbed;
use crate::process::{Process, code, gpu_launch, repository, scx_gpuaware};

const NAME: &str = "zebra-q7x";
const PERIODIC: i32 = 7;
const PAIR: i32 = 13;
const LOOP: i32 = 17;
const RUN: Duration = Duration::from_millis(2);
const SLEEP: Duration = Duration::from_millis(8);
const TURN: Duration = Duration::from_micros(300);

/// CPU time of this thread.
fn burn(time: Duration) {
    let clock = nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID;
    let now = || Duration::from(nix::time::clock_gettime(clock).unwrap());
    let end = now() + time;
    while now() < end {
        std::hint::spin_loop();
    }
}

fn set_nice(nice: i32) {
    // SAFETY: changes this thread's priority, and touches no memory.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Threads that go on until they are dropped.
struct Workload {
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Workload {
    fn start() -> Self {
        let mut workload = Self {
            done: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
        };
        workload.add(PERIODIC, || {
            burn(RUN);
            sleep(SLEEP);
            true
        });
        workload.add(LOOP, || {
            burn(RUN);
            true
        });
        let (first, second) = (sync_channel(1), sync_channel(1));
        first.0.send(()).unwrap();
        workload.add_half(second.0, first.1);
        workload.add_half(first.0, second.1);
        workload
    }

    fn add_half(&mut self, to: SyncSender<()>, from: Receiver<()>) {
        self.add(PAIR, move || {
            let more = from.recv().is_ok();
            burn(TURN);
            more && to.send(()).is_ok()
        });
    }

    fn add(&mut self, nice: i32, mut round: impl FnMut() -> bool + Send + 'static) {
        let done = Arc::clone(&self.done);
        let body = move || {
            set_nice(nice);
            while !done.load(Ordering::Relaxed) && round() {}
        };
        let thread = Builder::new().name(NAME.to_owned()).spawn(body);
        self.threads.push(thread.unwrap());
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Groups with this nice level, and their places in the file.
fn of_nice(profile: &Profile, nice: i32) -> Vec<(usize, &Group)> {
    let groups = profile.groups.iter().enumerate();
    groups.filter(|(_, group)| group.nice == nice).collect()
}

fn sum(groups: &[(usize, &Group)], of: impl Fn(&Group) -> u64) -> u64 {
    groups.iter().map(|(_, group)| of(group)).sum()
}

fn record(file: &std::path::Path) -> Profile {
    let output = scx_gpuaware(&["trace", "--duration", "2", "--window-ms", "50"])
        .args(["--every-ms", "250", "--record-profile"])
        .arg(file)
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output.status), 0, "{log}");
    Profile::parse(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn threads_of_known_patterns_are_in_a_profile_by_their_patterns_alone() {
    let Some(_alone) = alone() else { return };
    unless_disturbed(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("profile.json");
        let workload = Workload::start();
        let profile = record(&file);
        drop(workload);
        assert_known_patterns(&profile);
    });
}

fn assert_known_patterns(profile: &Profile) {
    let (length_ns, cpus) = (profile.length_ns, profile.machine.cpus.len());
    assert!(
        (1_500_000_000..6_000_000_000).contains(&length_ns),
        "{length_ns}"
    );
    assert_eq!(profile.interrupts.len(), cpus);

    let periodic = of_nice(profile, PERIODIC);
    assert_eq!(sum(&periodic, |group| group.threads), 1, "{periodic:#?}");
    let runs = sum(&periodic, |group| group.run.count());
    let run_us = sum(&periodic, |group| group.run.sum_ns()) / runs / 1000;
    let sleep_us = sum(&periodic, |group| group.sleep_alone.sum_ns()) / runs / 1000;
    assert!(runs >= 20, "{periodic:#?}");
    assert!((1700..2600).contains(&run_us), "{run_us} us");
    assert!((7000..12_000).contains(&sleep_us), "{sleep_us} us");
    let by_timer = sum(&periodic, |group| group.woken_by.timer);
    assert!(by_timer * 10 > runs * 8, "{periodic:#?}");

    let pair = of_nice(profile, PAIR);
    assert_eq!(sum(&pair, |group| group.threads), 2, "{pair:#?}");
    let sleeps = sum(&pair, |group| {
        group.sleep_alone.count() + group.sleep_awaited.count()
    });
    let by_each_other = sum(&pair, |group| {
        let wakers = group.woken_by.groups.iter();
        let theirs = wakers.filter(|(waker, _)| pair.iter().any(|(at, _)| at == waker));
        theirs.map(|(_, count)| count).sum()
    });
    assert!(sleeps >= 40 && by_each_other * 10 > sleeps * 8, "{pair:#?}");

    let busy = of_nice(profile, LOOP);
    let slept = sum(&busy, |group| {
        group.sleep_alone.sum_ns() + group.sleep_awaited.sum_ns()
    });
    assert!(
        sum(&busy, |group| group.cpu_ns) > 0 && slept * 10 < length_ns,
        "{busy:#?}"
    );
}

#[test]
fn a_profile_says_who_launches_and_names_nobody_and_can_be_simulated() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let workload = Workload::start();
    let mut launcher = Process::start(gpu_launch("--profile eager --duration 20"));
    // Until it launches.
    sleep(Duration::from_millis(500));
    let profile = record(&file);
    assert!(!launcher.has_ended());
    drop((workload, launcher));
    let launching = profile
        .groups
        .iter()
        .filter(|group| group.class == Class::Launch);
    let launching: u64 = launching.map(|group| group.threads).sum();
    assert_eq!(launching, 1, "{profile:#?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let own = std::env::current_exe().unwrap();
    let own = own.file_name().unwrap().to_string_lossy().into_owned();
    let path = repository().display().to_string();
    for name in [
        NAME,
        &NAME[..5],
        &own[..11],
        "gpu_launch",
        "scx",
        "kworker",
        "root",
        &path,
    ] {
        assert!(!text.contains(name), "{name} is in the file");
    }
    let output = Command::new(repository().join("target/release/gpuaware-sim"))
        .args(["run", "--seconds", "0.5", "--profile"])
        .arg(&file)
        .output()
        .unwrap();
    let (said, log) = [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text))
        .into();
    assert_eq!(code(output.status), 0, "{said}{log}");
    assert!(
        said.lines()
            .any(|line| line.starts_with("launcher        1")),
        "{said}"
    );
}
