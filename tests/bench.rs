// SPDX-License-Identifier: GPL-2.0-only
//! Runs of `gpuaware-bench` on this machine with a workload of the test's own: what the harness does when
//! something goes wrong in the middle of a cell.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::process::{Process, code, eventually, repository};

/// What a good workload reports.
const REPORT: &str = r#"{"workload":"gpu_launch","tokens":1,"seconds":1,"tokens_per_s":1,"launches":9,"failures":0,
    "token_us":[5],"context_switches":{"voluntary":1,"involuntary":0},"threads_detail":[]}"#;
pub const ON_HOST: &[&str] = &["--on", "host"];

/// A workload that is good, unless the file `bad` lies beside it: then it takes that away and does `what`.
pub fn script_that(what: &str) -> String {
    format!(
        "cd \"${{0%/*}}\" || exit\necho 'gpu_launch: measuring' >&2\n\
         if rm bad 2>/dev/null; then\n{what}\nfi\nsleep 0.5\necho 'gpu_launch: measured' >&2\ncat >/dev/null\ncat <<'END'\n{REPORT}\nEND\n"
    )
}

/// Runs the matrix `name` of `folder` on this machine into `output`, changed by `change`, and expects a good end. Its log.
pub fn run_here(
    name: &str,
    folder: &Path,
    output: &Path,
    change: impl FnOnce(&mut Command),
) -> String {
    let mut command = Command::new(repository().join("target/release/gpuaware-bench"));
    command
        .args(["run", name, "--on", "host", "--matrices"])
        .arg(folder)
        .arg("-o")
        .arg(output)
        .current_dir(repository())
        .stdout(Stdio::null());
    change(&mut command);
    let run = command.output().unwrap();
    let log = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(code(run.status), 0, "{log}");
    log
}

/// A matrix, an arm and a workload, each of the test's own.
pub struct Bench {
    folder: TempDir,
}

impl Bench {
    /// `script` is a shell script in the place of gpu_launch; `neighbours` as in a matrix; `arm` what stands in
    /// the arm's file beside the workload.
    pub fn new(script: &str, neighbours: &str, arm: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("making a folder");
            fs::write(file, text).expect("writing a file");
        };
        write("target/lab/gpu_launch", script);
        // Through a shell: a file that was just written may be busy for exec.
        let prefix = "[workload]\nprefix = [\"sh\"]\n";
        write(
            "arms/plain.toml",
            &format!("description = \"plain\"\n{arm}\n{prefix}"),
        );
        write(
            "matrices/broken.toml",
            &format!(
                "description = \"something breaks\"\nrounds = 2\nseconds = 1\nwarmup_seconds = 0\n\
                 neighbours = {neighbours}\narms = [\"plain\"]\nbaseline = \"plain\"\nsubject = \"plain\"\n\
                 [[workload]]\nname = \"w\"\nprofile = \"w\"\n"
            ),
        );
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(words: &[&str]) -> Command {
        let program = repository().join("target/release/gpuaware-bench");
        assert!(
            program.exists(),
            "{} is missing: run make build",
            program.display()
        );
        let mut command = Command::new(program);
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// `run` with its results in `output`.
    pub fn run(&self, output: &Path, words: &[&str]) -> Command {
        let mut command = Self::program(&["run", "broken", "--seed", "1"]);
        command.arg("-o").arg(output).args(words);
        self.folders(command)
    }

    /// `run --resume`.
    pub fn resume(&self, output: &Path) -> Command {
        let mut command = Self::program(&["run", "--resume"]);
        command.arg(output);
        self.folders(command)
    }

    fn folders(&self, mut command: Command) -> Command {
        for (flag, name) in [
            ("--matrices", "matrices"),
            ("--arms-dir", "arms"),
            ("--target-dir", "target"),
        ] {
            command.arg(flag).arg(self.path(name));
        }
        command
    }
}

/// Runs it to its end; returns the exit code and what it said.
pub fn end_of(command: Command) -> (i32, String) {
    let mut process = Process::start(command);
    let status = process.wait();
    (code(status), process.log.join("\n"))
}

/// The bytes of a cell's file.
pub fn cell(output: &Path, name: &str) -> Option<String> {
    fs::read_to_string(output.join("cells").join(format!("{name}.json"))).ok()
}

/// Why a cell failed; empty: it did not.
pub fn failure(output: &Path, name: &str) -> String {
    let cell = cell(output, name).unwrap_or_else(|| panic!("no cell {name}"));
    let cell: serde_json::Value = serde_json::from_str(&cell).expect("JSON");
    assert_eq!(cell["failure"].is_null(), cell["measurement"].is_object());
    cell["failure"].as_str().unwrap_or_default().to_owned()
}

/// Waits until none of the processes is left whose numbers stand in `file`.
pub fn assert_gone(file: &Path) {
    let text = fs::read_to_string(file).unwrap_or_default();
    let pids: Vec<&str> = text.split_whitespace().collect();
    assert!(
        !pids.is_empty(),
        "nobody noted himself in {}",
        file.display()
    );
    for pid in pids {
        let gone = eventually(|| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
                .then_some(())
        });
        assert!(gone.is_some(), "process {pid} is still there");
    }
}

/// A file system of half a MiB; unmounted when dropped.
pub struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    pub fn at(folder: &'a Path) -> Self {
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=512k", "small"])
            .arg(folder);
        assert!(mount.status().expect("mount").success());
        Self(folder)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}
