// SPDX-License-Identifier: GPL-2.0-only
//! A thread for every source that a class may be from.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{Process, eventually, gpu_launch, repository};

use super::machine::{Cgroup, mark_launch, marks};

/// What the policy must say for them, for `class.launch.match` and `class.handoff.match`.
pub const LAUNCH: &str = "{ cuda_launch = true }, { cgroup = \"known/**\" }, { comm = \"woken*\" }, { comm = \"named*\" }";
/// Sources that say since when a thread is known, and still do when other rules are in force. Names and
/// hints are taken anew with other rules, and a cgroup has no time.
const REMEMBERED: [&str; 4] = ["mark", "uprobe", "connects", "wakes"];
/// A port that a server listens on.
const PORT: u16 = 8765;

pub fn handoff() -> String {
    format!("{{ wakes = \"launch\" }}, {{ connects_to = \"127.0.0.1:{PORT}\" }}")
}

/// One thread or more by each source. All end with it.
pub struct Known {
    /// What the source is called, and whose thread it is.
    threads: Vec<(&'static str, i32)>,
    /// Their marks, as they were when all were known.
    first: Vec<serde_json::Value>,
    _processes: Vec<Process>,
    _server: std::net::TcpListener,
    _cgroup: Cgroup,
    _folder: tempfile::TempDir,
}

impl Known {
    /// Starts them beside a scheduler that runs with such a policy, and waits until all are known.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let server = std::net::TcpListener::bind(("127.0.0.1", PORT)).expect("a port");
        let cgroup = Cgroup::new("known");
        let in_cgroup = Process::start(sleep());
        cgroup.add(&in_cgroup);
        let by_hand = Process::start(sleep());
        mark_launch(by_hand.pid());
        let mut launcher = gpu_launch("--profile graph --duration 3000");
        launcher.stdout(Stdio::null());
        // Sends once: who is forgotten stays forgotten.
        let send = format!("exec 3<>/dev/tcp/127.0.0.1/{PORT}; echo hello >&3; read -t 3000 <&3");
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        let fifo = fifo.display();
        let wake = format!("exec 3>{fifo} 4<><(:); while :; do echo >&3; read -t 0.02 -u 4; done");
        let read = format!("while read line; do :; done <{fifo}");
        let woken = named_shell(folder.path(), "woken");
        let woken = run(woken.to_str().expect("UTF-8"), &["-c", &read]);
        let named = named_shell(folder.path(), "named");
        // Asleep: launchers that spin would leave the others little to start with.
        let mut named = run(named.to_str().expect("UTF-8"), &["-c", "read line"]);
        named.stdin(Stdio::piped());
        let by_source = [
            ("mark", by_hand),
            ("cgroup", in_cgroup),
            ("rule", Process::start(named)),
            ("hint", Process::start(hinting("handoff"))),
            ("uprobe", Process::start(launcher)),
            ("connects", Process::start(run("bash", &["-c", &send]))),
            ("wakes", Process::start(run("bash", &["-c", &wake]))),
        ];
        let threads = (by_source.iter()).map(|(source, process)| (*source, process.pid()));
        let threads = threads.collect();
        let mut processes: Vec<_> = by_source.into_iter().map(|(_, process)| process).collect();
        processes.push(Process::start(woken));
        let mut known = Self {
            threads,
            first: Vec::new(),
            _processes: processes,
            _server: server,
            _cgroup: cgroup,
            _folder: folder,
        };
        let first = eventually(|| known.all_of(marks()));
        known.first = first.unwrap_or_else(|| panic!("not all are known: {:#?}", marks()));
        known
    }

    /// Their marks among `marks`, if everybody has one.
    fn all_of(&self, mut marks: Vec<serde_json::Value>) -> Option<Vec<serde_json::Value>> {
        let is_of = |mark: &serde_json::Value, thread: &(&str, i32)| {
            mark["source"] == thread.0 && mark["tgid"] == thread.1
        };
        marks.retain(|mark| self.threads.iter().any(|thread| is_of(mark, thread)));
        let is_known = |thread| marks.iter().any(|mark| is_of(mark, thread));
        self.threads.iter().all(is_known).then_some(marks)
    }

    /// The first marks that are gone by now, or were lost and made anew in between.
    pub fn lost(&self) -> Vec<&serde_json::Value> {
        let marks = marks();
        let is_there = |first: &serde_json::Value| marks.iter().any(|mark| is_still(first, mark));
        self.first.iter().filter(|first| !is_there(first)).collect()
    }
}

/// Is `mark` what `first` was?
fn is_still(first: &serde_json::Value, mark: &serde_json::Value) -> bool {
    let is_same = |key: &str| mark[key] == first[key];
    let is_remembered = REMEMBERED.iter().any(|source| first["source"] == *source);
    is_same("source")
        && is_same("tid")
        && (!is_remembered || (mark["first_seen_ns"].is_u64() && is_same("first_seen_ns")))
}

/// A process that says of itself what it does.
pub fn hinting(class: &str) -> Command {
    let hints = repository().join("hints");
    let mut command = run(
        "python3",
        &[
            "-c",
            &format!(
                "import gpuaware, sys, time; print('hinted:', gpuaware.hint({class:?}), file=sys.stderr, flush=True); \
                 time.sleep(3000)"
            ),
        ],
    );
    command
        .env("PYTHONPATH", hints)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A shell whose threads are called `name`.
pub fn named_shell(folder: &Path, name: &str) -> PathBuf {
    let link = folder.join(name);
    std::os::unix::fs::symlink("/bin/sh", &link).expect("a link");
    link
}

fn sleep() -> Command {
    run("sleep", &["3000"])
}

fn run(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}
