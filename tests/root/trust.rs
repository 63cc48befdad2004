// SPDX-License-Identifier: GPL-2.0-only
//! What users that are not trusted do: it gives no class, and nobody else pays for it.

use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use scx_gpuaware::identify::{Class, Identify, Source};
use scx_gpuaware::policy::Policy;
use tempfile::TempDir;

use super::late::{copy_of_libcuda, python};
use super::place::{Place, identify_until, identify_within, marks_of};
use crate::process::{Process, gpu_launch};

const NOBODY: u32 = 65534;

/// A libcuda of their own.
pub fn library_of_nobody() -> (TempDir, PathBuf) {
    let (folder, copy) = copy_of_libcuda();
    give_to_nobody(folder.path());
    give_to_nobody(&copy);
    (folder, copy)
}

fn give_to_nobody(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(path, Some(NOBODY), None).unwrap();
}

pub fn as_nobody(mut command: Command) -> Process {
    command.uid(NOBODY).current_dir("/");
    Process::start(command)
}

pub fn root_only() -> Policy {
    Policy::parse("[guard]\ntrust_uids = [0]\n").unwrap()
}

#[test]
fn an_untrusted_user_with_a_library_of_its_own_is_shown_as_refused() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&root_only(), pins.clone(), &mut object).unwrap();
    let (_folder, copy) = library_of_nobody();
    let process = as_nobody(python("launch(load())\n", &copy));
    let seen = identify_until(&mut identify, |_| {
        !marks_of(&pins, process.pid()).is_empty()
    });
    assert!(seen, "{:?}", identify.sightings());
    let mark = &marks_of(&pins, process.pid())[0];
    assert_eq!(
        (mark.class, mark.source),
        (Class::Background, Source::Refused)
    );
    assert!(mark.evidence.contains("uid 65534 is not in"), "{mark:?}");
    assert!(mark.evidence.contains(copy.to_str().unwrap()), "{mark:?}");
    let sightings = identify.sightings();
    assert!(sightings.refused > 0, "{sightings:?}");
    assert_eq!(sightings.launchers_found, 0, "a refused thread is none");
}

#[test]
fn a_launch_counts_where_the_process_has_the_device_open_that_the_policy_names() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let policy = "[guard]\ntrust_devices = [\"/dev/full\"]\n";
    let mut object = MaybeUninit::uninit();
    let mut identify =
        Identify::start(&Policy::parse(policy).unwrap(), pins.clone(), &mut object).unwrap();
    let (_folder, copy) = library_of_nobody();
    let pretender = as_nobody(python("launch(load())\n", &copy));
    let genuine = as_nobody(python("file = open('/dev/full')\nlaunch(load())\n", &copy));
    let of = |process: &Process| {
        let marks = marks_of(&pins, process.pid());
        marks
            .first()
            .map(|mark| (mark.class, mark.source, mark.evidence.clone()))
    };
    let seen = identify_until(&mut identify, |_| {
        of(&pretender).is_some() && of(&genuine).is_some()
    });
    assert!(seen, "{:?}", identify.sightings());
    let (class, source, evidence) = of(&pretender).unwrap();
    assert_eq!(
        (class, source),
        (Class::Background, Source::Refused),
        "{evidence}"
    );
    assert!(
        evidence.ends_with("no device of guard.trust_devices open"),
        "{evidence}"
    );
    let (class, source, evidence) = of(&genuine).unwrap();
    assert_eq!(
        (class, source),
        (Class::Launch, Source::Uprobe),
        "{evidence}"
    );
    // Who was a launcher before is one no more where it has no such device.
    let other = Policy::parse("[guard]\ntrust_devices = [\"/dev/nonexistent\"]\n").unwrap();
    identify.follow(&other).unwrap();
    assert_ne!(of(&genuine).map(|(class, ..)| class), Some(Class::Launch));
}

#[test]
fn an_untrusted_user_does_not_have_others_probed() {
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&root_only(), pins.clone(), &mut object).unwrap();
    let mut command = gpu_launch("--profile eager --duration 20");
    command.stdout(Stdio::null());
    let launcher = Process::start(command);
    let (_folder, copy) = library_of_nobody();
    // Initialises CUDA, starts threads and keeps running, all without a launch.
    let script = "lib = load()
while True:
    lib.cuInit(0)
    threading.Thread(target=time.sleep, args=(0,)).start()
    time.sleep(0.02)
";
    let _noise = as_nobody(python(script, &copy));
    let is_paused = |identify: &Identify<'_>| {
        let sightings = identify.sightings();
        sightings.launchers_found == 1 && sightings.libraries >= 2 && !sightings.armed
    };
    let paused = identify_until(&mut identify, is_paused);
    assert!(paused, "{:?}", identify.sightings());
    let before = identify.sightings();
    identify_within(&mut identify, Duration::from_secs(4), |_| false);
    let after = identify.sightings();
    assert!(marks_of(&pins, launcher.pid()).len() == 1);
    // The launcher's own main thread is a stranger: sweeps, further and further apart.
    let windows = after.windows - before.windows;
    assert!(windows <= 6, "{windows} windows: {after:?}");
    assert!(after.pause > before.pause, "{before:?} {after:?}");
}

/// Maps copies of a libcuda, by their numbers.
fn mapper(copy: &Path, copies: std::ops::Range<usize>) -> Command {
    let script = format!(
        "for number in range({}, {}): ctypes.CDLL(sys.argv[1] + '.' + str(number))
say('all')
sys.stdin.read()
",
        copies.start, copies.end
    );
    python(&script, copy)
}

#[test]
fn one_user_with_many_libraries_leaves_room_for_others_and_has_what_is_passed_over_later() {
    const MOST: usize = 128;
    // Of each of two processes: together more than one user has probed.
    const HALF: usize = 70;
    let Some(place) = Place::new() else { return };
    let pins = place.pins();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), pins.clone(), &mut object).unwrap();
    let before = identify.sightings().libraries;
    let (_folder, copy) = library_of_nobody();
    for number in 0..2 * HALF {
        let another = PathBuf::from(format!("{}.{number}", copy.display()));
        std::fs::copy(&copy, &another).unwrap();
        give_to_nobody(&another);
    }
    let mapped = |copies| {
        let mut process = as_nobody(mapper(&copy, copies));
        process.wait_for_line("all");
        process
    };
    let (first, _second) = (mapped(0..HALF), mapped(HALF..2 * HALF));
    let comes_to = |identify: &mut Identify<'_>, libraries: usize| {
        let reached = identify_until(identify, |identify| {
            identify.sightings().libraries == before + libraries
        });
        assert!(reached, "not {libraries}: {:?}", identify.sightings());
        identify_within(identify, Duration::from_secs(1), |_| false);
        assert_eq!(identify.sightings().libraries, before + libraries);
    };
    comes_to(&mut identify, MOST);
    let (_folder_of_root, copy_of_root) = copy_of_libcuda();
    let script_of_root = "lib = load()
threading.Thread(target=launch, args=(lib,), daemon=True).start()
sys.stdin.read()
";
    let launcher = Process::start(python(script_of_root, &copy_of_root));
    let found = identify_until(&mut identify, |_| {
        marks_of(&pins, launcher.pid()).len() == 1
    });
    assert!(found, "{:?}", identify.sightings());
    comes_to(&mut identify, MOST + 1);
    // What is probed is the same however often, and taking all these probes away takes seconds each time.
    let always = Policy::parse("[identify]\nprobes = \"always\"\n").unwrap();
    identify.follow(&always).unwrap();
    // There is room again for what was passed over.
    drop(first);
    comes_to(&mut identify, HALF + 1);
    let _again = mapped(0..HALF);
    comes_to(&mut identify, MOST + 1);
    // What is passed over is not known: another user has it probed.
    let _root = Process::start(mapper(&copy, 0..2 * HALF));
    comes_to(&mut identify, 2 * HALF + 1);
}
