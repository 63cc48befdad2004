// SPDX-License-Identifier: GPL-2.0-only
//! What another scheduler is told: the classes of threads, in a map as scx_layered's.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder};
use nix::libc;
use scx_gpuaware::identify::feed::{Feed, Numbers, take_back};
use scx_gpuaware::identify::{Class, Identify};
use scx_gpuaware::policy::Policy;

use super::place::{Place, identify_until, marks_of};
use crate::process::{Process, busy_loop, gpu_launch};

/// scx_layered's map of task hints, without its headers.
const MAP: &str = r#"
struct hint { unsigned long long hint, reserved[3]; };
struct {
	int (*type)[29]; /* BPF_MAP_TYPE_TASK_STORAGE */
	int (*map_flags)[1]; /* BPF_F_NO_PREALLOC */
	int *key;
	struct hint *value;
} hints __attribute__((section(".maps"), used));
"#;
const NUMBERS: Numbers = Numbers {
    launch: 7,
    handoff: 9,
};

/// Loads the map and pins it at `pin`.
pub fn other_scheduler(pin: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("map.c"), dir.path().join("map.o"));
    fs::write(&source, MAP).unwrap();
    let clang = std::env::var("BPF_CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let compiled = Command::new(clang)
        .args(["-target", "bpf", "-g", "-O2", "-c", "-o"])
        .args([&object, &source])
        .status();
    assert!(compiled.unwrap().success());
    let open = ObjectBuilder::default().open_file(&object).unwrap();
    let mut loaded = open.load().unwrap();
    loaded.maps_mut().next().unwrap().pin(pin).unwrap();
}

/// The number that stands in the map for a thread.
fn number_of(pin: &Path, tid: i32) -> Option<u64> {
    let map = MapHandle::from_pinned_path(pin).unwrap();
    // SAFETY: the system call takes two numbers and touches no memory of this process.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, tid, libc::O_EXCL) };
    assert!(fd >= 0, "no thread {tid}");
    let value = map
        .lookup(&(fd as i32).to_ne_bytes(), MapFlags::ANY)
        .unwrap();
    // SAFETY: nobody else has this file descriptor.
    unsafe { libc::close(fd as i32) };
    value.map(|value| {
        assert_eq!((value.len(), &value[8..]), (32, &[0; 24][..]));
        u64::from_ne_bytes(value[..8].try_into().unwrap())
    })
}

/// Tells what has changed. Had anything?
fn tell_changes(identify: &Identify<'_>, feed: &mut Feed, seen: &mut Option<(u64, u64)>) -> bool {
    let changed = identify.changed_marks(seen).unwrap();
    if let Some(marks) = &changed {
        feed.tell(marks).unwrap();
    }
    changed.is_some()
}

#[test]
fn another_scheduler_learns_who_launches_and_what_is_taken_back() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let pin = pins.dir().join("other");
    other_scheduler(&pin);
    let mut feed = Feed::open(&pin, NUMBERS).unwrap();

    let mut command = gpu_launch("--profile eager --threads 2 --idle-threads 1 --duration 20");
    command.stdout(Stdio::null());
    let workload = Process::start(command);
    let mut seen = None;
    let found = identify_until(&mut identify, |identify| {
        tell_changes(identify, &mut feed, &mut seen);
        marks_of(&pins, workload.pid()).len() == 2
    });
    assert!(found, "{:?}", pins.list());
    tell_changes(&identify, &mut feed, &mut seen);
    let launchers: Vec<i32> = marks_of(&pins, workload.pid())
        .iter()
        .map(|mark| mark.tid)
        .collect();
    for &tid in &launchers {
        assert_eq!(number_of(&pin, tid), Some(NUMBERS.launch));
    }
    assert_eq!(
        number_of(&pin, workload.pid()),
        None,
        "its main thread launches nothing"
    );

    let handoff = Some(Class::Handoff);
    pins.mark(launchers[0], handoff).unwrap();
    assert!(tell_changes(&identify, &mut feed, &mut seen));
    assert_eq!(number_of(&pin, launchers[0]), Some(NUMBERS.handoff));
    assert!(!tell_changes(&identify, &mut feed, &mut seen), "once");

    feed.tell(&[]).unwrap();
    for &tid in &launchers {
        assert_eq!(number_of(&pin, tid), None, "taken back");
    }
    drop(workload);

    // A program that comes after the first has gone, again and again.
    for round in 0..5 {
        let mut command = gpu_launch("--profile eager --threads 1 --duration 20");
        command.stdout(Stdio::null());
        let workload = Process::start(command);
        let told = identify_until(&mut identify, |identify| {
            tell_changes(identify, &mut feed, &mut seen);
            let marks = marks_of(&pins, workload.pid());
            marks
                .first()
                .is_some_and(|mark| number_of(&pin, mark.tid) == Some(NUMBERS.launch))
        });
        assert!(told, "round {round}: {:?}", pins.list());
    }
    fs::remove_file(&pin).unwrap();
}

#[test]
fn what_a_killed_feed_has_told_is_taken_back_and_what_others_have_said_is_not() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let pin = pins.dir().join("other");
    other_scheduler(&pin);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("feed.json");
    let loops: Vec<_> = (0..2).map(|_| Process::start(busy_loop())).collect();
    let mut killed = Feed::open(&pin, NUMBERS).unwrap();
    killed.remember_at(&state);
    for process in &loops {
        pins.mark(process.pid(), Some(Class::Launch)).unwrap();
    }
    assert!(tell_changes(&identify, &mut killed, &mut None));
    drop(killed);
    let numbers = || loops.iter().map(|process| number_of(&pin, process.pid()));
    assert!(numbers().all(|number| number == Some(NUMBERS.launch)));
    // Somebody else says so, of the first.
    let mut other = Feed::open(
        &pin,
        Numbers {
            launch: 3,
            ..NUMBERS
        },
    )
    .unwrap();
    pins.mark(loops[1].pid(), None).unwrap();
    tell_changes(&identify, &mut other, &mut None);

    take_back(&state).unwrap();
    assert_eq!(numbers().collect::<Vec<_>>(), [Some(3), None]);
    assert!(!state.exists());
    take_back(&state).unwrap();
    std::fs::write(&state, "{}").unwrap();
    let error = format!("{:#}", take_back(&state).unwrap_err());
    assert!(error.contains("feed.json: expected"), "{error}");
    fs::remove_file(&pin).unwrap();
}

#[test]
fn a_map_that_is_gone_or_another_one_is_noticed() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let _identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let pin = pins.dir().join("other");
    other_scheduler(&pin);
    let feed = Feed::open(&pin, NUMBERS).unwrap();
    feed.check().unwrap();
    fs::remove_file(&pin).unwrap();
    let error = feed.check().unwrap_err().to_string();
    assert!(error.contains("not there any more"), "{error}");
    other_scheduler(&pin);
    feed.check().unwrap_err();
    Feed::open(&pin, NUMBERS).unwrap().check().unwrap();
    fs::remove_file(&pin).unwrap();
}

#[test]
fn a_map_of_another_kind_is_refused() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let _identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let error = Feed::open(&pins.texts(), NUMBERS).unwrap_err().to_string();
    assert!(error.contains("expected a map of task storage"), "{error}");
    let error = Feed::open(&pins.hints(), NUMBERS).unwrap_err().to_string();
    assert!(error.contains("values of 8 bytes or more"), "{error}");
}
