// SPDX-License-Identifier: GPL-2.0-only
//! Processes that a test starts, watches and ends: by their own PID, and for certain.

use std::io::{BufRead, BufReader, Write};
use std::ops::Deref;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// Who has not answered by then never will. A program takes a guest on a busy machine fifty times as long as this one.
pub const NEVER: Duration = Duration::from_secs(120);

/// Who uses this machine up.
static MACHINE: RwLock<()> = RwLock::new(());

/// One test at a time runs CUDA programs: two would measure, and be identified by, each other.
pub fn alone_with_cuda() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Machines boot beside each other, but take the CPUs from tests that look at the clock.
pub fn beside_labs() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// The repository.
pub fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("tests/").to_owned()
}

/// The emulated driver and the CUDA workload, from `make build`.
pub fn lab_folder() -> PathBuf {
    let folder = repository().join("target/lab");
    assert!(
        folder.join("gpu_launch").exists(),
        "{} is missing: run make build",
        folder.join("gpu_launch").display()
    );
    folder
}

/// The scheduler, as it is shipped: cargo does not build it for these tests.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = repository().join("target/release/scx_gpuaware");
        let built = modified(&program);
        assert!(built.is_some(), "no {}: make build", program.display());
        // What it is made of, as cargo says.
        let parts = std::fs::read_to_string(program.with_extension("d")).expect("cargo's list");
        let mut parts = parts.split_whitespace().skip(1);
        let newer = parts.find(|part| modified(Path::new(part)) > built);
        assert_eq!(newer, None, "is newer than the program: make build");
        program
    })
}

fn modified(file: &Path) -> Option<SystemTime> {
    file.metadata().ok()?.modified().ok()
}

/// Copies a program that is to run, in a process of its own: what a test beside this one starts meanwhile would have the
/// copy open for writing, and who is written to does not run (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status();
    assert!(status.expect("starting cp").success(), "{}", to.display());
}

/// `scx_gpuaware` with arguments.
pub fn scx_gpuaware(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).stdin(Stdio::null());
    command
}

/// `gpu_launch` on the emulated driver, with arguments separated by blanks.
pub fn gpu_launch(args: &str) -> Command {
    let folder = lab_folder();
    let mut command = Command::new(folder.join("gpu_launch"));
    command
        .args(args.split_whitespace())
        .env("LD_LIBRARY_PATH", &folder)
        .stdin(Stdio::null());
    command
}

/// A process that never waits.
pub fn busy_loop() -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "while :; do :; done"])
        .stdin(Stdio::null());
    command
}

/// So many of them, each alone. They begin together: each of the others would have to wait for those before it.
pub fn busy_loops(count: usize) -> BusyLoops {
    let (begin, hold) = std::io::pipe().expect("a pipe");
    let start = |_| {
        let mut command = Command::new("sh");
        command.args(["-c", "read -r line; while :; do :; done"]);
        command.stdin(begin.try_clone().expect("a descriptor"));
        Process::start(command)
    };
    let loops = (0..count).map(start).collect();
    drop(hold);
    BusyLoops(loops)
}

/// They end together, too: who is killed dies when it is its turn to run.
pub struct BusyLoops(Vec<Process>);

impl BusyLoops {
    /// Beside others that they end with.
    pub fn into_vec(mut self) -> Vec<Process> {
        std::mem::take(&mut self.0)
    }
}

impl Deref for BusyLoops {
    type Target = [Process];

    fn deref(&self) -> &[Process] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a BusyLoops {
    type Item = &'a Process;
    type IntoIter = std::slice::Iter<'a, Process>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.child.kill();
        }
    }
}

/// A started process. Killed when dropped.
pub struct Process {
    child: Child,
    stderr: Receiver<String>,
    /// What it has printed on standard error so far.
    pub log: Vec<String>,
}

impl Process {
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("starting {command:?}: {error}"));
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let (sender, stderr) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            stderr,
            log: Vec::new(),
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until it prints a line that contains `text` on standard error.
    pub fn wait_for_line(&mut self, text: &str) {
        let end = Instant::now() + NEVER;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.stderr.recv_timeout(left) else {
                panic!("no line with {text:?}: {:#?}", self.log);
            };
            let found = line.contains(text);
            self.log.push(line);
            if found {
                return;
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("signalling a process of our own");
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("waiting").is_some()
    }

    /// Waits for its end. The log is complete afterwards.
    pub fn wait(&mut self) -> ExitStatus {
        let ended = eventually(|| self.child.try_wait().expect("waiting"));
        let status = ended.unwrap_or_else(|| panic!("it does not end"));
        self.drain();
        status
    }

    /// Takes what it has written into the log.
    pub fn drain(&mut self) {
        while let Ok(line) = self.stderr.recv_timeout(Duration::from_millis(200)) {
            self.log.push(line);
        }
    }

    /// Writes a line to its standard input, where that was piped.
    pub fn write_line(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("piped standard input");
        writeln!(stdin, "{line}").expect("a process that reads");
    }

    /// Ends its standard input, where that was piped.
    pub fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Standard output, where it was piped, after the end.
    pub fn stdout(&mut self) -> String {
        let mut text = String::new();
        let mut pipe = self.child.stdout.take().expect("piped standard output");
        std::io::Read::read_to_string(&mut pipe, &mut text).expect("UTF-8");
        text
    }

    /// CPU time of all its threads so far, to the nanosecond: a window need not be long for the sake of ticks.
    pub fn cpu_time(&self) -> Duration {
        let clock = clock_getcpuclockid(Pid::from_raw(self.pid())).expect("its clock");
        clock_gettime(clock).map(Duration::from).expect("its time")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Exit code, or 128 plus the signal.
pub fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Polls `probe` until it has an answer.
pub fn eventually<T>(probe: impl FnMut() -> Option<T>) -> Option<T> {
    within(NEVER, probe)
}

/// The same, at most for `limit`, where that is what the test judges.
pub fn within<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = probe() {
            return Some(answer);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
