// SPDX-License-Identifier: GPL-2.0-only
//! Threads that make a context of a GPU current: they will launch, and have their class before they do.

use std::mem::MaybeUninit;
use std::path::Path;

use scx_gpuaware::identify::marks::{Mark, Pins};
use scx_gpuaware::identify::window::Phase;
use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;

use super::late::{copy_of_libcuda, python};
use super::place::{Place, identify_until, marks_of};
use super::trust::{as_nobody, library_of_nobody, root_only};
use crate::process::Process;

/// Its main thread makes a context current twice. Another one does so once for every line, leaves it for a line `leave`,
/// launches after a line `launch` and does it a thousand times for a line `often`. No context is real, and the emulated
/// libcuda says so.
const PROGRAM: &str = "lib = load()
lib.cuInit(0)
def serve():
    for number, line in enumerate(sys.stdin):
        if line == 'launch\\n': launch(lib)
        for _ in range(1000 if line == 'often\\n' else 1):
            lib.cuCtxSetCurrent(None if line == 'leave\\n' else ctypes.c_void_p(64))
        say('done', number)
say('ready')
sys.stdin.readline()
for _ in range(2): lib.cuCtxSetCurrent(ctypes.c_void_p(64))
say('entered')
threading.Thread(target=serve).start()
";

/// A process of [`PROGRAM`] whose library is probed.
struct Enters {
    process: Process,
    pins: Pins,
    nr_lines: usize,
}

impl Enters {
    /// Nobody launches, so that the probes rest armed once the library is known.
    fn start(identify: &mut Identify<'_>, pins: &Pins, process: Process) -> Self {
        let before = identify.sightings();
        let mut process = process;
        process.wait_for_line("ready");
        let is_probed = |identify: &Identify<'_>| identify.sightings().libraries > before.libraries;
        assert!(identify_until(identify, is_probed));
        process.write_line("");
        process.wait_for_line("entered");
        Self {
            process,
            pins: pins.clone(),
            nr_lines: 0,
        }
    }

    /// Returns when its thread has done what it says.
    fn tell(&mut self, line: &str) {
        self.process.write_line(line);
        let done = format!("done {}", self.nr_lines);
        self.process.wait_for_line(&done);
        self.nr_lines += 1;
    }

    fn mark(&self) -> Option<Mark> {
        let mut marks = marks_of(&self.pins, self.process.pid());
        assert!(marks.len() <= 1, "{marks:?}");
        marks.pop()
    }

    fn launches(&mut self, identify: &mut Identify<'_>) {
        let before = identify.sightings().launchers_found;
        self.process.write_line("launch");
        let one_more = |identify: &Identify<'_>| identify.sightings().launchers_found == before + 1;
        assert!(
            identify_until(identify, one_more),
            "{:?}",
            identify.sightings()
        );
        assert_eq!(self.mark().unwrap().symbol, Some("cuLaunchKernel"));
    }
}

fn of_root(library: &Path) -> Process {
    Process::start(python(PROGRAM, library))
}

#[test]
fn who_makes_a_context_current_is_a_launcher_before_it_launches() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let before = identify.sightings();
    let mut enters = Enters::start(&mut identify, &pins, of_root(&copy));
    let of_main = identify.sightings();
    assert_eq!(
        of_main.launch_hits,
        before.launch_hits + 2,
        "the main thread was met twice"
    );
    assert_eq!(enters.mark(), None);

    enters.tell("leave");
    assert_eq!(enters.mark(), None);
    let left = identify.sightings();
    enters.tell("enter");
    let mark = enters.mark().unwrap();
    assert_eq!((mark.class, mark.source), (Class::Launch, Source::Uprobe));
    assert_eq!((mark.symbol, mark.hits), (Some("cuCtxSetCurrent"), 1));
    assert!(mark.evidence.contains(copy.to_str().unwrap()), "{mark:?}");
    let entered = identify.sightings();
    assert_eq!(
        entered.launch_hits, left.launch_hits,
        "a first context is no hit"
    );
    assert_eq!(
        entered.launchers_found, before.launchers_found,
        "a context is no find"
    );

    enters.tell("enter");
    assert_eq!(identify.sightings().launch_hits, entered.launch_hits + 1);
    assert_eq!(enters.mark().unwrap().first_seen_ns, mark.first_seen_ns);
    enters.launches(&mut identify);
    let launched = enters.mark().unwrap();
    assert_eq!(
        launched.first_seen_ns, mark.first_seen_ns,
        "its class is as old"
    );
}

#[test]
fn a_context_counts_once_in_the_life_of_a_thread() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let policy = Policy::parse("[identify]\nexpire_s = 2\n").unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&policy, pins.clone(), &mut object).unwrap();
    for by_hand in [false, true] {
        let (_folder, copy) = copy_of_libcuda();
        let mut enters = Enters::start(&mut identify, &pins, of_root(&copy));
        enters.tell("enter");
        let mark = enters.mark().unwrap();
        if by_hand {
            pins.mark(mark.tid, None).unwrap();
        } else {
            assert!(identify_until(&mut identify, |_| enters.mark().is_none()));
        }
        let before = identify.sightings().launch_hits;
        enters.tell("enter");
        assert_eq!(
            identify.sightings().launch_hits,
            before + 1,
            "its probe was met"
        );
        assert_eq!(enters.mark(), None, "by hand: {by_hand}");
        enters.launches(&mut identify);
    }
}

#[test]
fn a_context_of_a_user_who_is_not_trusted_counts_when_he_is() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&root_only(), pins.clone(), &mut object).unwrap();
    let (_folder, copy) = library_of_nobody();
    let process = as_nobody(python(PROGRAM, &copy));
    let mut enters = Enters::start(&mut identify, &pins, process);
    enters.tell("enter");
    let mark = enters.mark().unwrap();
    assert_eq!(
        (mark.class, mark.source),
        (Class::Background, Source::Refused)
    );
    assert!(mark.evidence.starts_with("cuCtxSetCurrent of "), "{mark:?}");
    identify.follow(&Policy::default()).unwrap();
    assert_eq!(enters.mark(), None);
    enters.tell("enter");
    assert_eq!(enters.mark().unwrap().class, Class::Launch);
}

#[test]
fn a_context_is_met_while_launches_of_others_are_not_probed() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let [(_one, copy_of_one), (_other, copy_of_other)] = [copy_of_libcuda(), copy_of_libcuda()];
    let mut launcher = Enters::start(&mut identify, &pins, of_root(&copy_of_one));
    let mut later = Enters::start(&mut identify, &pins, of_root(&copy_of_other));
    launcher.launches(&mut identify);
    let is_paused = |identify: &Identify<'_>| identify.sightings().phase == Phase::Paused;
    assert!(identify_until(&mut identify, is_paused));
    later.tell("enter");
    assert_eq!(later.mark().unwrap().class, Class::Launch);
}

#[test]
fn who_enters_contexts_all_the_time_is_left_alone() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let (_folder, copy) = copy_of_libcuda();
    let mut enters = Enters::start(&mut identify, &pins, of_root(&copy));
    let is_let_go = |identify: &Identify<'_>| {
        let before = identify.sightings().launch_hits;
        enters.tell("often");
        identify.sightings().launch_hits == before
    };
    assert!(identify_until(&mut identify, is_let_go));
    assert!(identify.sightings().armed, "nobody launches");
}
