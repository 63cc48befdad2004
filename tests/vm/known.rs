// SPDX-License-Identifier: GPL-2.0-only
//! A thread for every source that a class may be from.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::{Process, eventually, gpu_launch, repository};

use super::machine::{Cgroup, mark_launch, marks};

const LIMIT: Duration = Duration::from_secs(60);

/// What the policy must say for them, for `class.launch.match` and `class.handoff.match`.
pub const LAUNCH: &str = "{ cuda_launch = true }, { cgroup = \"known/**\" }, { comm = \"woken*\" }, { comm = \"named*\" }";
/// A port that a server listens on.
const PORT: u16 = 8765;

pub fn handoff() -> String {
    format!("{{ wakes = \"launch\" }}, {{ connects_to = \"127.0.0.1:{PORT}\" }}")
}

/// One thread or more by each source. All end with it.
pub struct Known {
    /// What the source is called, and whose thread it is.
    threads: Vec<(&'static str, i32)>,
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
        let known = Self {
            threads,
            _processes: processes,
            _server: server,
            _cgroup: cgroup,
            _folder: folder,
        };
        let all = eventually(LIMIT, || known.missing().is_empty().then_some(()));
        assert!(
            all.is_some(),
            "missing: {:?} in {:?}",
            known.missing(),
            marks()
        );
        known
    }

    /// Sources whose thread has no class by it now.
    pub fn missing(&self) -> Vec<&'static str> {
        let marks = marks();
        let is_known = |(source, tgid): &&(&str, i32)| {
            !(marks.iter()).any(|mark| mark["source"] == *source && mark["tgid"] == *tgid)
        };
        self.threads
            .iter()
            .filter(is_known)
            .map(|(source, _)| *source)
            .collect()
    }
}

/// A process that says of itself what it does.
pub fn hinting(class: &str) -> Command {
    let hints = repository().join("hints");
    let mut command = run(
        "python3",
        &[
            "-c",
            &format!("import gpuaware, time; gpuaware.hint({class:?}); time.sleep(3000)"),
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
