// SPDX-License-Identifier: GPL-2.0-only
//! Threads that make a context of a GPU current: they will launch, and have their class before they do.

use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;

use super::late::{copy_of_libcuda, python};
use super::place::{Place, identify_until, identify_within, marks_of};
use crate::process::Process;

/// Its main thread enters a context. Then another one does so for every line but `launch`, after which it launches.
const ENTERS_CONTEXTS: &str = "lib = load()
lib.cuInit(0)
def serve():
    for line in sys.stdin:
        if line == 'launch\\n': launch(lib)
        lib.cuCtxSetCurrent(None)
say('ready')
sys.stdin.readline()
lib.cuCtxSetCurrent(None)
say('entered')
threading.Thread(target=serve).start()
";

/// A process of it whose library is probed and whose main thread is in a context.
fn started(identify: &mut Identify<'_>, library: &Path) -> Process {
    let before = identify.sightings();
    let mut process = Process::start(python(ENTERS_CONTEXTS, library));
    process.wait_for_line("ready");
    // Nobody launches, so the probes rest armed as soon as the library is known.
    let is_probed = |identify: &Identify<'_>| identify.sightings().libraries > before.libraries;
    assert!(identify_until(identify, is_probed));
    process.write_line("");
    process.wait_for_line("entered");
    process
}

#[test]
fn who_enters_a_context_is_a_launcher_once_until_its_time_is_up_or_it_launches() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let policy = Policy::parse("[identify]\nexpire_s = 2\n").unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, pins.clone(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let mut process = started(&mut identify, &copy);
    let pid = process.pid();
    assert!(marks_of(&pins, pid).is_empty(), "{:?}", pins.list());

    let before = identify.sightings();
    process.write_line("");
    assert!(identify_until(&mut identify, |_| !marks_of(&pins, pid).is_empty()));
    let mark = &marks_of(&pins, pid)[0];
    assert_eq!((mark.class, mark.source), (Class::Launch, Source::Uprobe));
    assert_eq!((mark.symbol, mark.hits), (Some("cuCtxSetCurrent"), 1));
    assert_eq!(
        identify.sightings().launchers_found,
        before.launchers_found,
        "it has launched nothing"
    );

    assert!(identify_until(&mut identify, |_| marks_of(&pins, pid).is_empty()));
    let hits = identify.sightings().launch_hits;
    process.write_line("");
    let is_hit = |identify: &Identify<'_>| identify.sightings().launch_hits > hits;
    assert!(identify_until(&mut identify, is_hit));
    let again = identify_within(&mut identify, Duration::from_millis(300), |_| {
        !marks_of(&pins, pid).is_empty()
    });
    assert!(!again, "{:?}", pins.list());

    process.write_line("launch");
    let found = |identify: &Identify<'_>| identify.sightings().launchers_found;
    let one_more = before.launchers_found + 1;
    assert!(identify_until(&mut identify, |identify| found(identify) == one_more));
    assert_eq!(marks_of(&pins, pid)[0].symbol, Some("cuLaunchKernel"));
}

#[test]
fn who_launches_after_it_has_entered_a_context_is_found_then() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let mut process = started(&mut identify, &copy);
    let pid = process.pid();
    let before = identify.sightings();
    process.write_line("");
    assert!(identify_until(&mut identify, |_| !marks_of(&pins, pid).is_empty()));
    process.write_line("launch");
    let found = |identify: &Identify<'_>| identify.sightings().launchers_found;
    let one_more = before.launchers_found + 1;
    assert!(identify_until(&mut identify, |identify| found(identify) == one_more));
    assert_eq!(marks_of(&pins, pid)[0].symbol, Some("cuLaunchKernel"));
}
