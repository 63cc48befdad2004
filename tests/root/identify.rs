// SPDX-License-Identifier: GPL-2.0-only
//! Identification without a scheduler: which threads get which class, and why.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;

use super::place::{Place, identify_until, identify_within, marks_of};
use crate::process::{Process, busy_loop, gpu_launch, lab_folder};

#[test]
fn marks_launching_threads_and_not_their_siblings() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut command = gpu_launch("--profile eager --threads 2 --idle-threads 3 --duration 60");
    command.stdout(Stdio::piped());
    let mut workload = Process::start(command);
    let found = identify_until(&mut identify, |_| {
        marks_of(&pins, workload.pid()).len() == 2
    });
    assert!(found, "{:?}", pins.list());
    let marks = marks_of(&pins, workload.pid());
    workload.signal(Signal::SIGTERM);
    while !workload.has_ended() {
        identify.step().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let result: serde_json::Value = serde_json::from_str(&workload.stdout()).unwrap();
    let launching: BTreeSet<i64> = result["threads_detail"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| thread["tid"].as_i64().unwrap())
        .collect();
    let marked: BTreeSet<i64> = marks.iter().map(|mark| i64::from(mark.tid)).collect();
    assert_eq!(marked, launching);
    for mark in marks {
        assert_eq!((mark.class, mark.source), (Class::Launch, Source::Uprobe));
        assert_eq!(mark.symbol, Some("cuLaunchKernel"));
    }
    assert!(
        marks_of(&pins, workload.pid()).is_empty(),
        "marks end with their threads"
    );
}

#[test]
fn steady_launchers_are_left_alone() {
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let pins = place.pins();
    let mut identify = Identify::start(&Policy::default(), pins, &mut object).unwrap();
    let mut command = gpu_launch("--profile eager --duration 60");
    command.stdout(Stdio::null());
    let _workload = Process::start(command);
    let rests = identify_until(&mut identify, |identify| {
        let sightings = identify.sightings();
        sightings.launchers_found == 1 && !sightings.armed
    });
    assert!(rests, "{:?}", identify.sightings());
    // Its main thread is the one stranger: one sweep may still look for it.
    identify_within(&mut identify, Duration::from_secs(1), |_| false);
    let before = identify.sightings();
    identify_within(&mut identify, Duration::from_secs(1), |_| false);
    let after = identify.sightings();
    assert_eq!(before.launch_hits, after.launch_hits, "a launch was probed");
}

/// A GPU process that never launches.
const STRANGER: &str = "import ctypes
ctypes.CDLL('libcuda.so.1').cuInit(0)
while True: pass
";

#[test]
fn threads_that_run_are_looked_for_until_they_have_a_mark() {
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let pins = place.pins();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    // While nobody launches, the probes rest armed.
    let mut command = gpu_launch("--profile eager --duration 60");
    command.stdout(Stdio::null());
    let _workload = Process::start(command);
    let mut command = Command::new("python3");
    command
        .args(["-c", STRANGER])
        .env("LD_LIBRARY_PATH", lab_folder());
    let stranger = Process::start(command);
    // What its start and that of the workload have announced is looked for.
    identify_within(&mut identify, Duration::from_secs(3), |_| false);
    let before = identify.sightings();
    assert_eq!(before.launchers_found, 1, "{before:?}");
    let sweeps = identify_until(&mut identify, |identify| {
        identify.sightings().windows > before.windows
    });
    assert!(sweeps, "{:?}", identify.sightings());
    pins.mark(stranger.pid(), Some(Class::Background)).unwrap();
    // One sweep may still look for it.
    identify_within(&mut identify, Duration::from_secs(3), |_| false);
    let before = identify.sightings();
    identify_within(&mut identify, Duration::from_secs(5), |_| false);
    let after = identify.sightings();
    assert_eq!(before.windows, after.windows, "{after:?}");
}

#[test]
fn marks_by_hand_win_and_can_be_taken_away() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let _identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let process = Process::start(busy_loop());
    pins.mark(process.pid(), Some(Class::Background)).unwrap();
    let marks = marks_of(&pins, process.pid());
    assert_eq!(marks.len(), 1);
    assert_eq!(
        (marks[0].class, marks[0].source),
        (Class::Background, Source::Mark)
    );
    pins.mark(process.pid(), None).unwrap();
    assert!(marks_of(&pins, process.pid()).is_empty());
    // One that was never there, and one that has ended and waits for its parent.
    let mut ended = Command::new("true").spawn().unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", ended.id())).unwrap();
    while !state().contains(") Z ") {
        std::thread::sleep(Duration::from_millis(10));
    }
    for tid in [i32::MAX, ended.id() as i32] {
        let error = pins.mark(tid, Some(Class::Launch)).unwrap_err();
        assert!(
            format!("{error:#}").contains("no thread with TID"),
            "{error:#}"
        );
    }
    ended.wait().unwrap();
}

#[test]
fn ends_without_a_trace() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    assert!(pins.marks().exists());
    drop(identify);
    assert!(!pins.dir().exists());
    // What a killed scheduler left is in nobody's way.
    std::fs::create_dir(pins.dir()).unwrap();
    let mut object = MaybeUninit::uninit();
    Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
}

#[test]
fn a_rescan_arms_the_probes_at_once() {
    let Some(place) = Place::new() else { return };
    let mut object = MaybeUninit::uninit();
    let pins = place.pins();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut command = gpu_launch("--profile eager --duration 60");
    command.stdout(Stdio::null());
    let _workload = Process::start(command);
    let rests = identify_until(&mut identify, |identify| {
        let sightings = identify.sightings();
        sightings.launchers_found == 1 && !sightings.armed
    });
    assert!(rests, "{:?}", identify.sightings());
    pins.rescan().unwrap();
    identify.step().unwrap();
    assert!(identify.sightings().armed);
    let rests = identify_until(&mut identify, |identify| !identify.sightings().armed);
    assert!(rests, "{:?}", identify.sightings());
    nix::sys::signal::raise(Signal::SIGUSR1).unwrap();
    identify.step().unwrap();
    assert!(identify.sightings().armed);
}

#[test]
fn a_copied_library_is_probed_while_somebody_maps_it() {
    let Some(place) = Place::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("libcuda.so.1");
    std::fs::copy(lab_folder().join("libcuda.so.1"), &copy).unwrap();
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let before = identify.sightings().libraries;
    let mut command = gpu_launch("--profile eager --duration 60");
    command
        .env("LD_LIBRARY_PATH", folder.path())
        .stdout(Stdio::null());
    let mut workload = Process::start(command);
    let found = identify_until(&mut identify, |_| {
        !marks_of(&pins, workload.pid()).is_empty()
    });
    assert!(found, "{:?}", identify.sightings());
    let evidence = &marks_of(&pins, workload.pid())[0].evidence;
    assert!(evidence.contains(copy.to_str().unwrap()), "{evidence}");
    // Gone but mapped.
    std::fs::remove_file(&copy).unwrap();
    workload.signal(Signal::SIGTERM);
    workload.wait();
    let dropped = identify_until(&mut identify, |identify| {
        identify.sightings().libraries == before
    });
    assert!(dropped, "{:?}", identify.sightings());
}

#[test]
fn a_policy_may_probe_always_or_never() {
    let Some(place) = Place::new() else { return };
    for (probes, expected) in [("always", true), ("off", false)] {
        let policy = format!("[identify]\nprobes = \"{probes}\"\n");
        let policy = Policy::parse(&policy).unwrap();
        let pins = place.pins();
        let mut object = MaybeUninit::uninit();
        let mut identify = Identify::start(&policy, pins.clone(), &mut object).unwrap();
        let mut command = gpu_launch("--profile eager --duration 20");
        command.stdout(Stdio::null());
        let workload = Process::start(command);
        let is_marked = identify_within(&mut identify, Duration::from_millis(2500), |_| {
            !marks_of(&pins, workload.pid()).is_empty()
        });
        assert_eq!(is_marked, expected, "{probes}");
        assert_eq!(identify.sightings().armed, expected, "{probes}");
    }
}
