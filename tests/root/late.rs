// SPDX-License-Identifier: GPL-2.0-only
//! Libraries that are opened late, by children, by daemons, or under no name any more; and every entry
//! point of theirs.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use scx_gpuaware::identify::libcuda::LAUNCH_SYMBOLS;
use scx_gpuaware::identify::{Identify, Source};
use scx_gpuaware::policy::Policy;
use tempfile::TempDir;

use super::place::{Place, identify_until, identify_within, marks_of};
use crate::process::{Process, lab_folder};

/// Opens the libcuda that is its first argument and launches with it, as the emulator never notices:
/// without a context a launch returns at once.
const PROLOGUE: &str = "import ctypes, os, sys, threading, time
def say(*what): os.write(2, (' '.join(map(str, what)) + chr(10)).encode())
def load():
    lib = ctypes.CDLL(sys.argv[1])
    say('opened', time.monotonic_ns())
    return lib
def launch(lib, symbol='cuLaunchKernel'):
    while True:
        lib[symbol](*[None] * 11)
        time.sleep(0.005)
";

/// A program in Python that runs until it is dropped, and its children until they have no standard
/// input any more.
pub fn python(script: &str, library: &Path) -> Command {
    let mut command = Command::new("python3");
    command
        .args(["-c", &format!("{PROLOGUE}{script}")])
        .arg(library)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    command
}

/// A libcuda that nobody has seen.
pub fn copy_of_libcuda() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("libcuda.so.1");
    std::fs::copy(lab_folder().join("libcuda.so.1"), &copy).unwrap();
    (folder, copy)
}

/// The number that follows `word` in what it said.
fn said(process: &Process, word: &str) -> Option<u64> {
    let mut lines = process.log.iter();
    let line = lines.find_map(|line| line.strip_prefix(word))?;
    line.trim().parse().ok()
}

#[test]
fn a_library_is_found_within_a_second_at_whatever_age_it_is_opened() {
    const LOADERS: u64 = 8;
    const OLDEST_MS: u64 = 7000;
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let random = RandomState::new();
    let mut loaders: Vec<_> = (0..LOADERS)
        .map(|number| {
            let age_ms = random.hash_one(number) % OLDEST_MS;
            let (folder, copy) = copy_of_libcuda();
            let script = format!(
                "say('ready')\nsys.stdin.readline()\ntime.sleep({age_ms} / 1000)\nlaunch(load())\n"
            );
            (age_ms, Process::start(python(&script, &copy)), folder)
        })
        .collect();
    // Interpreters that all start at once leave nobody a CPU.
    for (_, process, _) in &mut loaders {
        process.wait_for_line("ready");
    }
    for (_, process, _) in &mut loaders {
        process.write_line("");
    }
    let all = identify_until(&mut identify, |_| {
        let found = |pid| marks_of(&pins, pid).len() == 1;
        loaders.iter().all(|(_, process, _)| found(process.pid()))
    });
    assert!(all, "{:?} {:?}", pins.list(), identify.sightings());
    for (age_ms, process, _) in &mut loaders {
        process.wait_for_line("opened");
        let opened_ns = said(process, "opened").unwrap();
        let seen_ns = marks_of(&pins, process.pid())[0].first_seen_ns.unwrap();
        let delay = Duration::from_nanos(seen_ns.saturating_sub(opened_ns));
        assert!(delay <= Duration::from_secs(1), "{delay:?} at {age_ms} ms");
    }
}

#[test]
fn a_child_that_only_forks_is_found_when_it_opens_a_library() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let script = "child = os.fork()
if child:
    say('child', child)
    sys.stdin.read()
    os.kill(child, 9)
else:
    time.sleep(1)
    launch(load())
";
    let mut server = Process::start(python(script, &copy));
    server.wait_for_line("child");
    let child = said(&server, "child").unwrap() as i32;
    let found = identify_until(&mut identify, |_| !marks_of(&pins, child).is_empty());
    assert!(found, "{:?}", identify.sightings());
    assert!(marks_of(&pins, server.pid()).is_empty());
    end_children_of(server);
}

/// A library that this program has mapped, and that needs no other but C's.
fn unwinder() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut files = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    files.find(|file| file.contains("libgcc_s")).unwrap().into()
}

#[test]
fn a_library_that_was_written_anew_in_place_is_probed_where_its_functions_are_now() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let before = identify.sightings().libraries;
    let (_folder, copy) = copy_of_libcuda();
    // None of these functions is in it, and it stays mapped.
    std::fs::copy(unwinder(), &copy).unwrap();
    let mut early = Process::start(python("load()\nsys.stdin.read()\n", &copy));
    early.wait_for_line("opened");
    let seen = identify_until(&mut identify, |identify| {
        identify.sightings().libraries == before + 1
    });
    assert!(seen, "{:?}", identify.sightings());
    std::fs::copy(lab_folder().join("libcuda.so.1"), &copy).unwrap();
    let late = Process::start(python("launch(load())\n", &copy));
    let found = identify_until(&mut identify, |_| !marks_of(&pins, late.pid()).is_empty());
    assert!(found, "{:?}", identify.sightings());
    assert_eq!(identify.sightings().libraries, before + 1);
}

/// A child that a parent has left behind ends when standard input does, or with the parent.
fn end_children_of(mut parent: Process) {
    parent.close_stdin();
    parent.wait();
}

#[test]
fn a_library_stays_probed_for_the_daemon_whose_parent_opened_it() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let before = identify.sightings().libraries;
    let (_folder, copy) = copy_of_libcuda();
    let script = "lib = load()
child = os.fork()
if child:
    say('child', child)
    time.sleep(1)
    os._exit(0)
def work():
    time.sleep(5)
    launch(lib)
threading.Thread(target=work, daemon=True).start()
sys.stdin.read()
";
    let mut parent = Process::start(python(script, &copy));
    parent.wait_for_line("child");
    let child = said(&parent, "child").unwrap() as i32;
    // Longer than a library is kept whose last user is gone.
    identify_within(&mut identify, Duration::from_secs(4), |_| false);
    assert!(parent.has_ended());
    assert_eq!(identify.sightings().libraries, before + 1);
    let found = identify_until(&mut identify, |_| !marks_of(&pins, child).is_empty());
    assert!(found, "{:?}", identify.sightings());
    end_children_of(parent);
    let dropped = identify_until(&mut identify, |identify| {
        identify.sightings().libraries == before
    });
    assert!(dropped, "{:?}", identify.sightings());
}

#[test]
fn a_library_stays_probed_for_threads_that_outlive_the_first_one() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let before = identify.sightings().libraries;
    let (_folder, copy) = copy_of_libcuda();
    let script = "lib = load()
def work():
    time.sleep(4)
    launch(lib)
threading.Thread(target=work).start()
time.sleep(0.5)
ctypes.CDLL(None).pthread_exit(None)
";
    let process = Process::start(python(script, &copy));
    // Longer than a library is kept that nobody maps.
    identify_within(&mut identify, Duration::from_secs(3), |_| false);
    let maps = std::fs::read(format!("/proc/{}/maps", process.pid())).unwrap();
    assert!(maps.is_empty(), "the first thread goes on");
    assert_eq!(identify.sightings().libraries, before + 1);
    let found = identify_until(&mut identify, |_| {
        !marks_of(&pins, process.pid()).is_empty()
    });
    assert!(found, "{:?}", identify.sightings());
}

#[test]
fn a_library_that_is_deleted_but_mapped_is_found() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let (_folder, copy) = copy_of_libcuda();
    let script = "lib = load()\nos.unlink(sys.argv[1])\nsay('deleted')\nlaunch(lib)\n";
    let mut process = Process::start(python(script, &copy));
    process.wait_for_line("deleted");
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let found = identify_until(&mut identify, |_| {
        !marks_of(&pins, process.pid()).is_empty()
    });
    assert!(found, "{:?}", identify.sightings());
    let evidence = &marks_of(&pins, process.pid())[0].evidence;
    assert!(evidence.contains("(deleted)"), "{evidence}");
}

#[test]
fn every_entry_point_is_told_apart() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let symbols = LAUNCH_SYMBOLS
        .map(|symbol| format!("'{symbol}'"))
        .join(", ");
    let script = format!(
        "lib = load()
def work(symbol):
    say(symbol, threading.get_native_id())
    launch(lib, symbol)
for symbol in [{symbols}]:
    threading.Thread(target=work, args=(symbol,), daemon=True).start()
say('all')
sys.stdin.read()
"
    );
    let mut process = Process::start(python(&script, &copy));
    process.wait_for_line("all");
    let nr_symbols = LAUNCH_SYMBOLS.len();
    let found = identify_until(&mut identify, |_| {
        marks_of(&pins, process.pid()).len() == nr_symbols
    });
    assert!(found, "{:?}", marks_of(&pins, process.pid()));
    process.drain();
    let expected: BTreeMap<_, _> = LAUNCH_SYMBOLS
        .iter()
        .map(|symbol| {
            (
                said(&process, &format!("{symbol} ")).unwrap() as i32,
                *symbol,
            )
        })
        .collect();
    let marks = marks_of(&pins, process.pid());
    assert!(marks.iter().all(|mark| mark.source == Source::Uprobe));
    let seen: BTreeMap<_, _> = marks
        .iter()
        .map(|mark| (mark.tid, mark.symbol.unwrap()))
        .collect();
    assert_eq!(seen, expected);
}
