// SPDX-License-Identifier: GPL-2.0-only
//! Targets that end, in all ways that a process has.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::alone;
use crate::process::{Process, code, eventually, scx_gpuaware};
use crate::root::cgroups::{Folder, hierarchy};

/// Who is not waited for until it is dropped: what ends is a zombie.
struct Neglected(Child);

impl Neglected {
    fn shell(script: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()));
        stat.unwrap().contains(") Z ")
    }
}

impl Drop for Neglected {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Why a trace of these targets ended by itself.
fn end_of(targets: &[&str], file: &Path, meanwhile: impl FnOnce()) -> serde_json::Value {
    let mut command = scx_gpuaware(&["trace", "--format", "json", "-o"]);
    command.arg(file).args(targets);
    let mut tracer = Process::start(command);
    meanwhile();
    let status = tracer.wait();
    assert_eq!(code(status), 0, "{:#?}", tracer.log);
    let summary: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    summary["end"]["ended_by"].clone()
}

#[test]
fn a_trace_ends_with_its_processes_whoever_waits_for_them_and_whatever_they_leave() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("summary.json");
    // It starts another program in its own place, and leaves a child behind.
    let left = folder.path().join("left");
    let script = format!("sleep 60 & echo $! >{}; exec sleep 2", left.display());
    let (first, second) = (Neglected::shell(&script), Neglected::shell("sleep 3; :"));
    let pids = [first.pid(), second.pid()];
    let targets = ["--pid", &pids[0], "--pid", &pids[1]];
    assert_eq!(end_of(&targets, &file, || {}), "target");
    assert!(
        first.has_ended() && second.has_ended(),
        "not before both had"
    );
    let left = std::fs::read_to_string(left).unwrap();
    let left = nix::unistd::Pid::from_raw(left.trim().parse().unwrap());
    nix::sys::signal::kill(left, Signal::SIGKILL).expect("the child lives on");
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let Some(_alone) = alone() else { return };
    let ended = Neglected::shell(":");
    while !ended.has_ended() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (tell, told) = std::sync::mpsc::channel();
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        tell.send(nix::unistd::gettid()).unwrap();
        let _ = wait.recv();
    });
    let tid = told.recv().unwrap().to_string();
    for (pid, expected) in [(ended.pid(), "has ended"), (tid, "is a thread")] {
        let output = scx_gpuaware(&["trace", "--pid", &pid]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(code(output.status), 2, "{error}");
        assert!(
            error.contains("--pid") && error.contains(expected),
            "{error}"
        );
    }
    drop(stop);
    thread.join().unwrap();
}

#[test]
fn a_trace_of_a_cgroup_ends_when_that_is_removed() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let name = format!("gpuaware-trace-{}", std::process::id());
    let cgroup = Folder::new(hierarchy().join(name));
    let path = cgroup.0.clone();
    let targets = ["--cgroup", path.to_str().unwrap()];
    let file = folder.path().join("summary.json");
    let ended_by = end_of(&targets, &file, || {
        std::thread::sleep(Duration::from_secs(2));
        drop(cgroup);
    });
    assert_eq!(ended_by, "target");
}

/// Its processes are elsewhere: `cgroup.procs` cannot be read.
#[test]
fn the_threads_of_a_threaded_cgroup_are_traced() {
    let Some(_alone) = alone() else { return };
    let name = format!("gpuaware-threaded-{}", std::process::id());
    let domain = Folder::new(hierarchy().join(name));
    let threaded = Folder::new(domain.0.join("threaded"));
    std::fs::write(threaded.0.join("cgroup.type"), "threaded").unwrap();
    let busy = Process::start(crate::process::busy_loop());
    domain.add(&busy);
    std::fs::write(threaded.0.join("cgroup.threads"), busy.pid().to_string()).unwrap();
    let folder = threaded.0.to_str().unwrap();
    let args = [
        "trace",
        "--duration",
        "1",
        "--format",
        "json",
        "--cgroup",
        folder,
    ];
    let output = scx_gpuaware(&args).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output.status), 0, "{log}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let threads = summary["threads"].as_array().unwrap();
    assert!(
        threads.iter().any(|thread| thread["tid"] == busy.pid()),
        "{summary:#}"
    );
    drop(busy);
    drop((threaded, domain));
}

#[test]
fn nobody_who_reads_keeps_a_trace_from_ending() {
    let Some(_alone) = alone() else { return };
    let busy = Process::start(crate::process::busy_loop());
    let pid = busy.pid().to_string();
    let mut command = scx_gpuaware(&["trace", "--format", "ndjson", "--pid", &pid]);
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer);
    ends_unread(command, &reader);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fifo = path.to_str().unwrap();
    for args in [
        &["trace", "--format", "ndjson", "--pid", &pid, "-o", fifo][..],
        &["trace", "--pid", &pid, "-o", fifo],
        &["trace", "--record-profile", fifo],
    ] {
        let mut reader = std::fs::File::options();
        let reader = reader.read(true).custom_flags(nix::libc::O_NONBLOCK);
        ends_unread(scx_gpuaware(args), &reader.open(&path).unwrap());
    }
}

/// Starts a tracer that writes to what `reader` does not read, and ends it by SIGTERM.
fn ends_unread(tracer: Command, reader: &impl AsRawFd) {
    let mut tracer = Process::start(tracer);
    let fds = format!("/proc/{}/fd", tracer.pid());
    let traces = eventually(|| {
        let links = std::fs::read_dir(&fds).ok()?.flatten();
        let mut links = links.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        links.find(|link| link.to_string_lossy().contains("bpf_link"))
    });
    assert!(traces.is_some(), "{:#?}", tracer.log);
    // There are several to attach.
    std::thread::sleep(Duration::from_secs(1));
    // Full, so that not even the end fits.
    fill(reader);
    tracer.signal(Signal::SIGTERM);
    let status = tracer.wait();
    // By itself, not by the signal.
    assert_eq!(code(status), 1, "{:#?}", tracer.log);
}

/// Fills the pipe that `reader` reads from.
fn fill(reader: &impl AsRawFd) {
    let end = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let mut end = std::fs::File::options()
        .write(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(end)
        .unwrap();
    while end.write(&[b'x'; 4096]).is_ok() {}
    while end.write(b"x").is_ok() {}
}

#[test]
fn a_trace_that_cannot_begin_ends_by_its_signal() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nobody-reads");
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut command = scx_gpuaware(&["trace", "-o"]);
    command.arg(&file);
    let mut tracer = Process::start(command);
    std::thread::sleep(Duration::from_millis(500));
    assert!(!tracer.has_ended());
    tracer.signal(Signal::SIGTERM);
    assert_eq!(code(tracer.wait()), 128 + 15);
}
