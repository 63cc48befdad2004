// SPDX-License-Identifier: GPL-2.0-only
//! Threads that make a context of a GPU current: they will launch, and have their class before they do.

use std::mem::MaybeUninit;
use std::time::Duration;

use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;

use super::late::{copy_of_libcuda, python};
use super::place::{Place, identify_until, identify_within, marks_of};
use crate::process::Process;

/// Enters a context for every line but `launch`, after which it launches.
const ENTERS_CONTEXTS: &str = "lib = load()
lib.cuInit(0)
say('ready')
for line in sys.stdin:
    if line == 'launch\\n': launch(lib)
    lib.cuCtxSetCurrent(None)
";

#[test]
fn who_enters_a_context_is_a_launcher_once_until_its_time_is_up_or_it_launches() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let policy = Policy::parse("[identify]\nexpire_s = 2\n").unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, pins.clone(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let mut process = Process::start(python(ENTERS_CONTEXTS, &copy));
    process.wait_for_line("ready");
    let pid = process.pid();
    assert!(marks_of(&pins, pid).is_empty(), "{:?}", pins.list());

    // Nobody launches, so the probes rest armed as soon as the library is known.
    let before = identify.sightings();
    assert!(identify_until(&mut identify, |identify| identify
        .sightings()
        .libraries
        > before.libraries));
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
    assert!(identify_until(&mut identify, |identify| identify
        .sightings()
        .launch_hits
        > hits));
    let again = identify_within(&mut identify, Duration::from_millis(300), |_| {
        !marks_of(&pins, pid).is_empty()
    });
    assert!(!again, "{:?}", pins.list());

    process.write_line("launch");
    assert!(identify_until(&mut identify, |_| !marks_of(&pins, pid).is_empty()));
    assert_eq!(marks_of(&pins, pid)[0].symbol, Some("cuLaunchKernel"));
    assert_eq!(
        identify.sightings().launchers_found,
        before.launchers_found + 1
    );
}

#[test]
fn who_launches_after_it_has_entered_a_context_is_found_then() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let mut process = Process::start(python(ENTERS_CONTEXTS, &copy));
    process.wait_for_line("ready");
    let pid = process.pid();
    let before = identify.sightings();
    assert!(identify_until(&mut identify, |identify| identify
        .sightings()
        .libraries
        > before.libraries));
    process.write_line("");
    assert!(identify_until(&mut identify, |_| !marks_of(&pins, pid).is_empty()));
    process.write_line("launch");
    let found = before.launchers_found + 1;
    assert!(identify_until(&mut identify, |identify| identify
        .sightings()
        .launchers_found
        == found));
    let mark = &marks_of(&pins, pid)[0];
    assert_eq!(mark.symbol, Some("cuLaunchKernel"));
}
