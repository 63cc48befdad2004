// SPDX-License-Identifier: GPL-2.0-only
//! Numbers of threads in a container: taken and told, they are the container's.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use scx_gpuaware::identify::Identify;
use scx_gpuaware::policy::Policy;

use super::place::{Place, identify_until};
use crate::process::{Process, code, copy_program, lab_folder, scx_gpuaware};
use crate::tier;

/// More processes than a container of these tests has.
const FEW: i64 = 50;

/// `script` in a PID namespace of its own.
fn in_container(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(["sh", "-c", script])
        .env("lab", lab_folder())
        .env("scx", scx_gpuaware(&[]).get_program())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// What `trace` sees in a container, as `(comm, tid)`.
fn traced(folder: &Path, target: &str) -> Vec<(String, i64)> {
    let program = folder.join("ns-target");
    copy_program("/bin/sleep".as_ref(), &program);
    let out = folder.join("out.json");
    let script = format!(
        "{program} 30 & pid=$!
         $scx trace --duration 1 --format json -o {out} {target}; rc=$?; kill $pid; exit $rc",
        program = program.display(),
        out = out.display(),
    );
    let output = in_container(&script).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    let summary: serde_json::Value = serde_json::from_slice(&fs::read(out).unwrap()).unwrap();
    let threads = summary["threads"].as_array().unwrap().iter();
    let thread = |thread: &serde_json::Value| {
        let comm = thread["comm"].as_str().unwrap().to_owned();
        (comm, thread["tid"].as_i64().unwrap())
    };
    threads.map(thread).collect()
}

#[test]
fn the_tracer_traces_whom_it_is_told_to() {
    if !tier::root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let command = format!("-- {} 0.5", folder.path().join("ns-target").display());
    for target in ["--pid $pid", &command] {
        let threads = traced(folder.path(), target);
        assert_eq!(threads.len(), 1, "{target}: {threads:?}");
        let (comm, tid) = &threads[0];
        assert_eq!(comm, "ns-target", "{target}");
        assert!((2..FEW).contains(tid), "{target}: {tid}");
    }
}

#[test]
fn marks_are_listed_with_the_numbers_of_who_reads_them() {
    let Some(place) = Place::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut object = MaybeUninit::uninit();
    let mut identify = Identify::start(&Policy::default(), place.pins(), &mut object).unwrap();
    let script = format!(
        "cd {folder}; LD_LIBRARY_PATH=$lab $lab/gpu_launch --profile eager --duration 60 & echo $! >{folder}/pid
         until [ -e {folder}/go ]; do sleep 0.1; done
         cat {marks} >{folder}/part; mv {folder}/part {folder}/records; sleep 60",
        folder = folder.path().display(),
        marks = place.pins().marks().display(),
    );
    let mut container = Process::start(in_container(&script));
    let found = identify_until(&mut identify, |_| !place.pins().list().unwrap().is_empty());
    assert!(found, "{:?}", identify.sightings());
    let here = place.pins().list().unwrap().remove(0);
    assert!(Path::new(&format!("/proc/{}/task/{}", here.tgid, here.tid)).exists());
    fs::write(folder.path().join("go"), "").unwrap();
    let records = folder.path().join("records");
    let read = identify_until(&mut identify, |_| records.exists());
    assert!(read, "the container has read no marks");
    let bytes = fs::read(records).unwrap();
    let number = |at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let pid: i32 = fs::read_to_string(folder.path().join("pid"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    // TID and TGID come first in a record.
    assert_eq!(number(4), pid);
    assert!((2..FEW).contains(&i64::from(number(0))), "{}", number(0));
    assert_ne!(here.tgid, pid);
    container.signal(Signal::SIGKILL);
    container.wait();
}

/// Its processes have other numbers in there than in the tracer's own namespace.
#[test]
fn a_proc_of_another_namespace_is_refused() {
    if !tier::root() {
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child"]);
    command.arg(scx_gpuaware(&[]).get_program());
    command.args(["trace", "--duration", "1", "--pid", "1"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output.status), 1, "{said}");
    assert!(said.contains("/proc is of another PID namespace"), "{said}");
}
