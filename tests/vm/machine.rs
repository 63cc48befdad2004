// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler under test, and what the machine says of it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use scx_gpuaware::policy::cpuset::CpuSet;
use scx_gpuaware::sched::stats::Metrics;
use scx_stats::prelude::StatsClient;
use tempfile::TempDir;

use crate::process::{Process, code, eventually, scx_gpuaware};

pub const CGROUPS: &str = "/sys/fs/cgroup";

/// Name of the sched_ext scheduler that is loaded.
pub fn loaded() -> Option<String> {
    let state = std::fs::read_to_string("/sys/kernel/sched_ext/state").expect("sched_ext state");
    (state.trim() != "disabled").then(|| {
        let ops = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
        ops.trim().to_owned()
    })
}

/// How often a sched_ext scheduler has been enabled since the boot.
pub fn times_enabled() -> String {
    let path = Path::new("/sys/kernel/sched_ext/enable_seq");
    std::fs::read_to_string(path).expect("enable_seq")
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
    _policy: Option<TempDir>,
}

impl Scheduler {
    pub fn start(args: &[&str]) -> Self {
        let mut process = Process::start(scx_gpuaware(args));
        process.wait_for_line("attached");
        let name = loaded().expect("a scheduler is loaded");
        assert!(name.starts_with("gpuaware"), "{name}");
        Self {
            process,
            _policy: None,
        }
    }

    /// With the policy `text`.
    pub fn with_policy(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let policy = folder.path().join("policy.toml");
        std::fs::write(&policy, text).expect("writing the policy");
        Self {
            _policy: Some(folder),
            ..Self::start(&["--policy", policy.to_str().expect("UTF-8")])
        }
    }

    /// Ends it and expects a clean end.
    pub fn stop(mut self) {
        self.process.signal(Signal::SIGINT);
        let status = self.process.wait();
        assert_eq!(code(status), 0, "{:#?}", self.process.log);
        assert_eq!(loaded(), None);
    }

    /// Fails if the kernel threw it out, with what it says of that when it ends.
    pub fn assert_loaded(&mut self) {
        if self.process.has_ended() || loaded().is_none() {
            eventually(|| self.process.has_ended().then_some(()));
            self.process.drain();
            panic!("{:#?}", self.process.log);
        }
    }

    /// Fails if the kernel threw it out, or if by its own account somebody who could run has waited for longer than a
    /// second.
    pub fn assert_starves_nobody(&mut self) {
        self.assert_nobody_waits_longer(Duration::from_secs(1));
    }

    /// The same for `limit`.
    pub fn assert_nobody_waits_longer(&mut self, limit: Duration) {
        self.assert_loaded();
        for (name, class) in metrics().classes {
            let worst = Duration::from_micros(class.worst_wait_us);
            println!("{name} waited {worst:?} at most");
            assert!(
                worst <= limit,
                "{} of class {name} waited {worst:?}, not {limit:?} at most",
                class.worst_waiter
            );
        }
    }
}

/// What the running scheduler reports. Counters are zero: they are since the last question of the
/// same client.
pub fn metrics() -> Metrics {
    try_metrics().expect("statistics")
}

/// The CPUs preferred now.
pub fn preferred_cpus() -> CpuSet {
    metrics().preferred_cpus.parse().expect("a CPU list")
}

/// The same while it may be starting anew.
pub fn try_metrics() -> anyhow::Result<Metrics> {
    let mut client = StatsClient::new().connect(Some(10_000))?;
    client.request("stats", Vec::new())
}

/// What the scheduler did since then, for the message of a test that fails.
pub struct Since {
    client: StatsClient,
    preferred: String,
}

impl Since {
    pub fn now() -> Self {
        let client = StatsClient::new().connect(Some(10_000));
        let mut since = Self {
            client: client.expect("statistics"),
            preferred: String::new(),
        };
        since.preferred = since.metrics().preferred_cpus;
        since
    }

    fn metrics(&mut self) -> Metrics {
        let metrics = self.client.request("stats", Vec::new());
        metrics.expect("statistics")
    }

    /// Where launchers woke up, and what may have kept them from preferred CPUs.
    pub fn of_launchers(&mut self) -> String {
        let metrics = self.metrics();
        format!(
            "{} wakeups: {} to preferred CPUs, {} preempting, {} elsewhere, {} queued; throttled {} times; preferred {} \
             and then {} ({}), changed {:?}, under interrupts {:?}",
            metrics.launch_wakeups,
            metrics.launch_to_preferred,
            metrics.launch_preempts,
            metrics.launch_to_other,
            metrics.launch_queued,
            metrics.guard_throttles,
            self.preferred,
            metrics.preferred_cpus,
            metrics.preferred_reason,
            metrics.preferred_changes,
            metrics.irq_heavy_cpus
        )
    }
}

fn bpftool(args: &[&str]) -> serde_json::Value {
    let output = Command::new("bpftool").arg("--json").args(args).output();
    let output = output.expect("bpftool");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The entries of the BPF map `name`, as bpftool prints them.
pub fn dump_map(name: &str) -> Vec<(u64, serde_json::Value)> {
    let entries = bpftool(&["map", "dump", "name", name]);
    let entry = |entry: &serde_json::Value| {
        let formatted = &entry["formatted"];
        (
            formatted["key"].as_u64().expect("a key"),
            formatted["value"].clone(),
        )
    };
    let entries = entries.as_array().expect("entries");
    entries.iter().map(entry).collect()
}

/// Writes a number into the BPF map `name`, of numbers of 32 bits.
pub fn set_in_map(name: &str, key: u32, value: u32) {
    let number = |number: u32| number.to_ne_bytes().map(|byte| byte.to_string());
    let output = Command::new("bpftool")
        .args(["map", "update", "name", name, "key"])
        .args(number(key))
        .arg("value")
        .args(number(value))
        .output()
        .expect("bpftool");
    assert!(output.status.success(), "{output:?}");
}

/// The numbers of the BPF maps `name`.
pub fn map_ids(name: &str) -> Vec<u32> {
    let maps = bpftool(&["map", "show", "name", name]);
    let maps = maps.as_array().cloned().unwrap_or_else(|| vec![maps]);
    let id = |map: &serde_json::Value| map["id"].as_u64().and_then(|id| id.try_into().ok());
    let ids = maps
        .iter()
        .map(|map| id(map).unwrap_or_else(|| panic!("no number: {map}")));
    ids.collect()
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
    mark(pid, "launch");
}

/// Marks a process by hand.
pub fn mark(pid: i32, class: &str) {
    mark_by("--pid", pid.into(), class);
}

/// Marks a thread by hand.
pub fn mark_thread(tid: i64, class: &str) {
    mark_by("--tid", tid, class);
}

fn mark_by(flag: &str, id: i64, class: &str) {
    let status = scx_gpuaware(&["mark", "--class", class, flag, &id.to_string()])
        .stdout(Stdio::null())
        .status()
        .expect("mark");
    assert!(status.success());
}

/// The `count` threads of process `pid` that were seen launching.
pub fn launching_threads(pid: i32, count: usize) -> Vec<i64> {
    let seen = eventually(|| {
        let marks = marks().into_iter().filter(|mark| mark["tgid"] == pid);
        let tids: Vec<_> = marks.filter_map(|mark| mark["tid"].as_i64()).collect();
        (tids.len() == count).then_some(tids)
    });
    seen.unwrap_or_else(|| panic!("not {count} threads of {pid}: {:?}", marks()))
}

/// The CPU that thread `tid` of process `pid` runs on or ran on last; `None` once it is gone.
pub fn cpu_of(pid: i32, tid: i64) -> Option<usize> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(36)?.parse().ok()
}

/// bash with `script`, which sleeps by `read -t SECONDS -u 4`: nothing ever comes there, and no process is started.
pub fn sleeper(script: &str) -> Process {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("exec 4<> <(:); {script}")]);
    // EPOCHREALTIME has the point of the language.
    command.env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Process::start(command)
}

/// Wakes up some hundred times a second, without starting anything.
pub fn waker() -> Process {
    sleeper("while :; do read -t 0.002 -u 4; done")
}

/// Times that the first thread of process `pid` lost its CPU against its will.
pub fn involuntary(pid: i32) -> u64 {
    switches(pid, "nonvoluntary_ctxt_switches:")
}

/// Times that the first thread of process `pid` went to sleep.
pub fn voluntary(pid: i32) -> u64 {
    switches(pid, "voluntary_ctxt_switches:")
}

fn switches(pid: i32, of: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let count = status.lines().find_map(|line| line.strip_prefix(of));
    count.expect("a count").trim().parse().expect("a number")
}

/// Keeps `process` on `cpu`.
pub fn pin(process: &Process, cpu: usize) {
    pin_to(process, &[cpu]);
}

/// Keeps the first thread of `process` on `cpus`.
pub fn pin_to(process: &Process, cpus: &[usize]) {
    set_affinity(process.pid().into(), cpus);
}

/// Keeps thread `tid` on `cpus`.
pub fn set_affinity(tid: i64, cpus: &[usize]) {
    let mut set = nix::sched::CpuSet::new();
    for &cpu in cpus {
        set.set(cpu).expect("a CPU number");
    }
    let tid = nix::unistd::Pid::from_raw(tid as i32);
    nix::sched::sched_setaffinity(tid, &set).expect("affinity");
}

/// CPUs that are gone, and back when dropped: the tests that follow need them.
pub struct Offline(Range<usize>);

/// Does the kernel free task storage? A CPU that goes offline then may wait for ever: see the scheduler's `retired`.
fn frees_task_storage() -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc");
    processes.flatten().any(|process| {
        let stack = std::fs::read_to_string(process.path().join("stack"));
        stack.is_ok_and(|stack| stack.contains("bpf_local_storage_map_free"))
    })
}

impl Offline {
    pub fn new(cpus: Range<usize>) -> Self {
        let is_freed = eventually(|| (0..5).all(|_| !frees_task_storage()).then_some(()));
        is_freed.expect("task storage is freed");
        let offline = Self(cpus);
        offline.set("0").expect("CPU hotplug");
        offline
    }

    fn set(&self, online: &str) -> std::io::Result<()> {
        let mut cpus = self.0.clone();
        cpus.try_for_each(|cpu| {
            std::fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), online)
        })
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        let back = self.set("1");
        if !std::thread::panicking() {
            back.expect("CPU hotplug");
        }
    }
}

/// A cgroup that is removed when dropped; tasks that are in it still are killed.
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    pub fn new(relative: &str) -> Self {
        let path = Path::new(CGROUPS).join(relative);
        std::fs::create_dir(&path).expect("making a cgroup");
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
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
        // What a test that failed has left.
        let _ = std::fs::write(self.path.join("cgroup.kill"), "1");
        let removed = eventually(|| std::fs::remove_dir(&self.path).ok());
        if removed.is_none() {
            eprintln!("{} is still in use", self.path.display());
        }
    }
}
