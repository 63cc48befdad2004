// SPDX-License-Identifier: GPL-2.0-only
//! Programs that launch through a runtime: within them, stripped, or a library of its own.

use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use scx_gpuaware::identify::libcuda::entry_points;
use scx_gpuaware::identify::{Identify, marks::Mark};
use scx_gpuaware::policy::Policy;

use super::place::{Place, identify_until, marks_of};
use crate::process::{Process, lab_folder, repository};

/// Compiles `runtime.c`.
fn compile(folder: &Path, output: &str, args: &[&str]) -> PathBuf {
    let output = folder.join(output);
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Werror", "-o"])
        .arg(&output)
        .arg(repository().join("tests/root/runtime.c"))
        .args(args)
        .status();
    assert!(status.expect("cc").success());
    output
}

/// Runs `program` until it is marked.
fn mark_of(identify: &mut Identify<'_>, place: &Place, program: &Path) -> Mark {
    let folder = program.parent().unwrap();
    let path = std::env::join_paths([folder, &lab_folder()]).unwrap();
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", path).stdin(Stdio::null());
    let process = Process::start(command);
    let mut marks = Vec::new();
    identify_until(identify, |_| {
        marks = marks_of(&place.pins(), process.pid());
        !marks.is_empty()
    });
    assert_eq!(marks.len(), 1, "{:?}", identify.sightings());
    marks.remove(0)
}

#[test]
fn a_static_stripped_runtime_reaches_libcuda() {
    let Some(place) = Place::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let args = ["-DRUNTIME", "-DPROGRAM", "-fvisibility=hidden", "-s"];
    let program = compile(folder.path(), "program", &args);
    let own = entry_points(&program).unwrap();
    assert!(own.launches.is_empty() && own.runtime_launches.is_empty());
    let mut object = MaybeUninit::uninit();
    let policy = Policy::default();
    let mut identify = Identify::start(&policy, place.pins(), &mut object).unwrap();
    let mark = mark_of(&mut identify, &place, &program);
    assert_eq!(mark.symbol, Some("cuLaunchKernel"));
}

#[test]
fn a_shared_runtime_is_probed_where_the_policy_says_so() {
    let Some(place) = Place::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let library = [
        "-DRUNTIME",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcudart.so.12",
    ];
    let library = compile(folder.path(), "libcudart.so.12", &library);
    let args = ["-DPROGRAM", library.to_str().unwrap()];
    let program = compile(folder.path(), "program", &args);
    let mut object = MaybeUninit::uninit();
    let policy = Policy::default();
    let mut identify = Identify::start(&policy, place.pins(), &mut object).unwrap();
    for (points, symbol, file) in [
        ("libcuda", "cuLaunchKernel", "libcuda.so.1"),
        ("libcudart", "__cudaLaunchKernel", "libcudart.so.12"),
        // The call through the runtime comes first.
        ("both", "__cudaLaunchKernel", "libcudart.so.12"),
        ("libcuda", "cuLaunchKernel", "libcuda.so.1"),
    ] {
        let policy = format!("[identify]\nentry_points = \"{points}\"\n");
        identify.follow(&Policy::parse(&policy).unwrap()).unwrap();
        let mark = mark_of(&mut identify, &place, &program);
        assert_eq!(mark.symbol, Some(symbol), "{points}");
        assert!(mark.evidence.contains(file), "{}", mark.evidence);
    }
}
