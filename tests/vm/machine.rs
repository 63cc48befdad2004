// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler under test, and what the machine says of it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::process::{Process, code, eventually, scx_gpuaware};

/// Verifying the programs takes seconds under emulation.
pub const LOAD_LIMIT: Duration = Duration::from_secs(60);

pub const CGROUPS: &str = "/sys/fs/cgroup";

/// Name of the sched_ext scheduler that is loaded.
pub fn loaded() -> Option<String> {
    let state = std::fs::read_to_string("/sys/kernel/sched_ext/state").expect("sched_ext state");
    (state.trim() != "disabled").then(|| {
        let ops = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
        ops.trim().to_owned()
    })
}

pub fn nr_cpus() -> usize {
    std::thread::available_parallelism().expect("CPUs").get()
}

/// A CPU that is preferred by default: the last one.
pub fn preferred_cpu() -> usize {
    nr_cpus() - 1
}

/// scx_gpuaware, attached.
pub struct Scheduler {
    pub process: Process,
}

impl Scheduler {
    pub fn start(args: &[&str]) -> Self {
        let mut process = Process::start(scx_gpuaware(args));
        process.wait_for_line("attached", LOAD_LIMIT);
        let name = loaded().expect("a scheduler is loaded");
        assert!(name.starts_with("gpuaware"), "{name}");
        Self { process }
    }

    /// Ends it and expects a clean end.
    pub fn stop(mut self) {
        self.process.signal(Signal::SIGINT);
        let status = self.process.wait(Duration::from_secs(20));
        assert_eq!(code(status), 0, "{:#?}", self.process.log);
        assert_eq!(loaded(), None);
    }

    /// Fails if the kernel threw it out.
    pub fn assert_loaded(&mut self) {
        assert!(
            !self.process.has_ended() && loaded().is_some(),
            "{:#?}",
            self.process.log
        );
    }
}

/// `scx_gpuaware marks --json`.
pub fn marks() -> Vec<serde_json::Value> {
    let output = scx_gpuaware(&["marks", "--json"]).output().expect("marks");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The mark of thread `tid`, once it has one.
pub fn mark_of(tid: i32) -> Option<serde_json::Value> {
    marks().into_iter().find(|mark| mark["tid"] == tid)
}

/// Marks a process by hand.
pub fn mark_launch(pid: i32) {
    let status = scx_gpuaware(&["mark", "--class", "launch", "--pid", &pid.to_string()])
        .stdout(Stdio::null())
        .status()
        .expect("mark");
    assert!(status.success());
}

/// Keeps `process` on `cpu`.
pub fn pin(process: &Process, cpu: usize) {
    let mut cpus = nix::sched::CpuSet::new();
    cpus.set(cpu).expect("a CPU number");
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(process.pid()), &cpus)
        .expect("affinity");
}

/// A cgroup that is removed when dropped, once its tasks are gone.
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    pub fn new(relative: &str) -> Self {
        let path = Path::new(CGROUPS).join(relative);
        std::fs::create_dir(&path).expect("making a cgroup");
        Self { path }
    }

    /// Writes one of its files.
    pub fn set(&self, file: &str, value: &str) {
        std::fs::write(self.path.join(file), value)
            .unwrap_or_else(|error| panic!("{value:?} to {file}: {error}"));
    }

    pub fn add(&self, process: &Process) {
        add_to_cgroup(&self.path, process);
    }
}

pub fn add_to_cgroup(path: &Path, process: &Process) {
    std::fs::write(path.join("cgroup.procs"), process.pid().to_string()).expect("moving a process");
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let removed = eventually(Duration::from_secs(5), || {
            std::fs::remove_dir(&self.path).ok()
        });
        if removed.is_none() {
            eprintln!("{} is still in use", self.path.display());
        }
    }
}
