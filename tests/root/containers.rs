// SPDX-License-Identifier: GPL-2.0-only
//! Launchers whose files and numbers are others than ours: mount and PID namespaces.

use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use scx_gpuaware::identify::Identify;
use scx_gpuaware::identify::marks::Mark;
use scx_gpuaware::policy::Policy;

use super::place::{Place, identify_until, identify_within};
use crate::process::{Process, alone_with_cuda, lab_folder, scx_gpuaware};
use crate::tier;

/// `gpu_launch` in mount and PID namespaces of its own, with a libcuda that `mounts` puts into
/// `$folder/lib`; the namespaces alone see what is in `$folder`.
fn container(folder: &Path, mounts: &str) -> Command {
    let script = format!(
        "set -e; mount -t tmpfs none $folder; mkdir $folder/lib; {mounts}
         LD_LIBRARY_PATH=$folder/lib exec $lab/gpu_launch --profile eager --duration 60"
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(["sh", "-c", &script])
        .env("folder", folder)
        .env("lab", lab_folder())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// The mark of the launcher in `command`, with the number of libraries that are probed then.
fn found(place: &Place, identify: &mut Identify<'_>, command: Command) -> (Mark, usize) {
    let mut container = Process::start(command);
    let mut marks = Vec::new();
    identify_until(identify, |_| {
        marks = place.pins().list().unwrap();
        !marks.is_empty()
    });
    let libraries = identify.sightings().libraries;
    assert_eq!(marks.len(), 1, "{:?}", identify.sightings());
    container.signal(nix::sys::signal::Signal::SIGKILL);
    container.wait();
    identify_until(identify, |_| place.pins().list().unwrap().is_empty());
    (marks.remove(0), libraries)
}

#[test]
fn launchers_in_containers_are_found_by_the_file_that_they_map() {
    let Some(place) = Place::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    for (name, mounts) in [
        ("a copy", "cp $lab/libcuda.so.1 $folder/lib;"),
        (
            "an overlay",
            "mkdir $folder/below $folder/above $folder/work; cp $lab/libcuda.so.1 $folder/below;
             options=lowerdir=$folder/below,upperdir=$folder/above,workdir=$folder/work
             mount -t overlay none -o $options $folder/lib;",
        ),
    ] {
        let (mark, _) = found(&place, &mut identify, container(folder.path(), mounts));
        let path = folder.path().join("lib/libcuda.so.1");
        assert!(!path.exists(), "{name}");
        assert!(
            mark.evidence.contains(path.to_str().unwrap()),
            "{name}: {}",
            mark.evidence
        );
    }
}

/// A folder with a libcuda of its own.
fn image() -> tempfile::TempDir {
    let image = tempfile::tempdir().unwrap();
    let library = lab_folder().join("libcuda.so.1");
    std::fs::copy(library, image.path().join("libcuda.so.1")).unwrap();
    image
}

/// A container whose libraries are an overlay of its own over the image.
fn of_image(image: &Path, folder: &Path) -> Process {
    let mounts = "mkdir $folder/above $folder/work
         options=lowerdir=$image,upperdir=$folder/above,workdir=$folder/work
         mount -t overlay none -o $options $folder/lib;";
    let mut command = container(folder, mounts);
    command.env("image", image);
    Process::start(command)
}

#[test]
fn the_tracer_counts_launches_of_containers_of_one_image_once() {
    if !tier::root() {
        return;
    }
    let _alone = alone_with_cuda();
    let (image, folder) = (image(), tempfile::tempdir().unwrap());
    let mut containers = [(); 2].map(|()| of_image(image.path(), folder.path()));
    std::thread::sleep(Duration::from_secs(2));
    let mut tracer = scx_gpuaware(&["trace", "--duration", "1", "--all-launches"]);
    let output = tracer.args(["--format", "json"]).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let threads = summary["threads"].as_array().unwrap();
    let launches = |thread: &serde_json::Value| thread["counters"]["launches"].as_u64();
    let launching = threads.iter().filter(|thread| launches(thread) > Some(0));
    assert_eq!(launching.count(), 2, "{log}");
    let path = folder.path().display().to_string();
    let probed = log
        .lines()
        .filter(|line| line.contains("probing") && line.contains(&path));
    assert_eq!(probed.count(), 1, "{log}");
    for container in &mut containers {
        container.signal(nix::sys::signal::Signal::SIGKILL);
        container.wait();
    }
}

#[test]
fn containers_of_one_image_have_one_file() {
    let Some(place) = Place::new() else { return };
    let (image, folder) = (image(), tempfile::tempdir().unwrap());
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    let before = identify.sightings().libraries;
    let start = || of_image(image.path(), folder.path());
    let mut containers = [start(), start(), start()];
    let all = identify_until(&mut identify, |_| {
        place.pins().list().unwrap().len() == containers.len()
    });
    assert!(all, "{:?}", place.pins().list());
    assert_eq!(identify.sightings().libraries, before + 1);
    // Whoever was found first may go.
    let [first, rest @ ..] = &mut containers;
    first.signal(nix::sys::signal::Signal::SIGKILL);
    first.wait();
    identify_within(&mut identify, Duration::from_millis(2500), |_| false);
    assert_eq!(identify.sightings().libraries, before + 1);
    for container in rest {
        container.signal(nix::sys::signal::Signal::SIGKILL);
        container.wait();
    }
    let dropped = identify_until(&mut identify, |identify| {
        identify.sightings().libraries == before
    });
    assert!(dropped, "{:?}", identify.sightings());
}

#[test]
fn a_file_under_another_path_is_probed_once() {
    let Some(place) = Place::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    let before = identify.sightings().libraries;
    let bind = || container(folder.path(), "mount --bind $lab $folder/lib;");
    let (_, libraries) = found(&place, &mut identify, bind());
    assert_eq!(libraries, before + 1);
    let mut outside = crate::process::gpu_launch("--profile eager --duration 60");
    outside.stdout(Stdio::null());
    let outside = Process::start(outside);
    let is_marked = |_: &Identify<'_>| !place.pins().list().unwrap().is_empty();
    assert!(identify_until(&mut identify, is_marked));
    let mut container = Process::start(bind());
    let both = |_: &Identify<'_>| place.pins().list().unwrap().len() == 2;
    assert!(identify_until(&mut identify, both));
    assert_eq!(identify.sightings().libraries, before + 1);
    container.signal(nix::sys::signal::Signal::SIGKILL);
    container.wait();
    // What was in it ends a little later, and is not to be seen by another test.
    drop(outside);
    let gone = |_: &Identify<'_>| place.pins().list().unwrap().is_empty();
    assert!(identify_until(&mut identify, gone));
}
