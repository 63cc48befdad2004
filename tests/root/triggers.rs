// SPDX-License-Identifier: GPL-2.0-only
//! Threads that are started where somebody may launch soon: the agent is told of them.

use std::mem::MaybeUninit;
use std::time::Duration;

use scx_gpuaware::identify::{Class, Identify};
use scx_gpuaware::policy::Policy;

use super::late::{copy_of_libcuda, python};
use super::place::{Place, identify_within};
use crate::process::Process;

/// Starts a thread for every line that it is given.
const STARTS_THREADS: &str = "say('ready')
for line in sys.stdin: threading.Thread(target=time.sleep, args=(0,)).start()
";

/// A process that has done `before` and then starts threads when it is told to.
fn thread_starter(before: &str, library: &std::path::Path) -> Process {
    let mut process = Process::start(python(&format!("{before}{STARTS_THREADS}"), library));
    process.wait_for_line("ready");
    process
}

/// Has `process` start a thread. Does that trigger anything?
fn triggers(identify: &mut Identify<'_>, process: &mut Process) -> bool {
    // What was going on before is over.
    identify_within(identify, Duration::from_millis(300), |_| false);
    let before = identify.sightings().triggers;
    process.write_line("");
    identify_within(identify, Duration::from_secs(1), |identify| {
        identify.sightings().triggers > before
    })
}

#[test]
fn a_thread_of_a_process_that_called_cuinit_before_the_start_triggers() {
    let Some(place) = Place::new() else { return };
    let (_folder, copy) = copy_of_libcuda();
    let mut process = thread_starter("load().cuInit(0)\n", &copy);
    let mut plain = thread_starter("", &copy);
    let mut object = MaybeUninit::uninit();
    let policy = Policy::default();
    let mut identify = Identify::start(&policy, place.pins(), &mut object).unwrap();
    assert!(triggers(&mut identify, &mut process));
    assert!(!triggers(&mut identify, &mut plain), "it maps no libcuda");
}

#[test]
fn a_thread_that_a_launcher_by_hand_starts_triggers() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let (_folder, copy) = copy_of_libcuda();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut process = thread_starter("", &copy);
    assert!(!triggers(&mut identify, &mut process));
    pins.mark(process.pid(), Some(Class::Handoff)).unwrap();
    assert!(
        !triggers(&mut identify, &mut process),
        "it launches nothing"
    );
    pins.mark(process.pid(), Some(Class::Launch)).unwrap();
    assert!(triggers(&mut identify, &mut process));
}

/// Has another thread start one for every line.
const ANOTHER_STARTS_THREADS: &str = "def serve():
    say('ready')
    for line in sys.stdin: threading.Thread(target=time.sleep, args=(0,)).start()
threading.Thread(target=serve).start()
";

#[test]
fn a_thread_that_another_one_of_its_process_starts_triggers() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let (_folder, copy) = copy_of_libcuda();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let mut process = Process::start(python(ANOTHER_STARTS_THREADS, &copy));
    process.wait_for_line("ready");
    assert!(!triggers(&mut identify, &mut process));
    pins.mark(process.pid(), Some(Class::Launch)).unwrap();
    assert!(triggers(&mut identify, &mut process));
}
