// SPDX-License-Identifier: GPL-2.0-only
//! Runs gpu_launch once: its command line, the moment its measured window begins, its JSON.
//! What happens around it (neighbours, scheduler) is the business of `run::cell`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::arm::WorkloadSettings;
use crate::cgroup::Cgroup;
use crate::interrupt;
use crate::matrix::Workload;
use crate::process::Supervised;
use crate::record::GpuLaunch;

/// What gpu_launch prints on stderr just before its measured window.
const MEASURING: &str = "gpu_launch: measuring";
/// For starting and warming up, however starved.
const WARMUP_TIMEOUT: Duration = Duration::from_secs(60);
/// For the last token and the report after the measured time.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the waiting looks up: seldom, because every look disturbs what is measured.
const POLL: Duration = Duration::from_millis(50);

/// A workload that runs; dropping it kills it.
#[derive(Debug)]
pub struct Running {
    process: Supervised,
    stderr: Receiver<String>,
    stdout: JoinHandle<String>,
    log: Vec<String>,
    /// After the process: it must be empty to be removed.
    _cgroup: Option<Cgroup>,
}

impl Running {
    /// Starts the workload for `seconds` of measured time as the arm wants it.
    pub fn start(
        workload: &Workload,
        settings: &WorkloadSettings,
        seconds: f64,
        target: &Path,
    ) -> Result<Self> {
        let mut command = command(workload, &settings.prefix, seconds, target);
        let cgroup = settings.cgroup.as_deref().map(Cgroup::make).transpose()?;
        if let Some(cgroup) = &cgroup {
            cgroup.take(&mut command)?;
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Supervised::spawn("gpu_launch", &mut command)?;
        let mut stdout = process
            .child_mut()
            .stdout
            .take()
            .context("gpu_launch has no stdout")?;
        let stderr = process
            .child_mut()
            .stderr
            .take()
            .context("gpu_launch has no stderr")?;
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            // A broken stream leaves half a document, which then does not parse.
            let _ = stdout.read_to_string(&mut text);
            text
        });
        Ok(Self {
            process,
            stderr: receiver,
            stdout,
            log: Vec::new(),
            _cgroup: cgroup,
        })
    }

    /// Waits until the measured window begins.
    pub fn wait_until_measuring(&mut self) -> Result<()> {
        let deadline = Instant::now() + WARMUP_TIMEOUT;
        loop {
            interrupt::check()?;
            match self.stderr.recv_timeout(POLL) {
                Ok(line) if line.starts_with(MEASURING) => return Ok(()),
                Ok(line) => self.log.push(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.process.wait_until(Instant::now() + END_TIMEOUT)?;
                    bail!(
                        "gpu_launch ended before it measured ({status}){}",
                        self.last_words()
                    );
                }
            }
            if Instant::now() >= deadline {
                bail!(
                    "gpu_launch was not warm after {} s{}",
                    WARMUP_TIMEOUT.as_secs(),
                    self.last_words()
                );
            }
        }
    }

    /// Waits until it has ended; `while_waiting` is called now and then.
    pub fn wait(
        &mut self,
        seconds: f64,
        mut while_waiting: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs_f64(seconds) + END_TIMEOUT;
        loop {
            interrupt::check()?;
            // The pipe closes as the process ends: no polling of its state, no lost milliseconds.
            match self.stderr.recv_timeout(POLL) {
                Ok(line) => self.log.push(line),
                Err(RecvTimeoutError::Timeout) => while_waiting()?,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= deadline {
                bail!("gpu_launch did not end{}", self.last_words());
            }
        }
        let status = self.process.wait_until(Instant::now() + END_TIMEOUT)?;
        if !status.success() {
            bail!("gpu_launch failed ({status}){}", self.last_words());
        }
        Ok(())
    }

    /// Its report.
    pub fn report(self) -> Result<GpuLaunch> {
        let text = self
            .stdout
            .join()
            .ok()
            .context("the reader of gpu_launch's stdout died")?;
        let report: GpuLaunch = serde_json::from_str(&text)
            .with_context(|| format!("gpu_launch printed no report but {:?}", head(&text)))?;
        if report.failures > 0 {
            bail!("{} of {} launches failed", report.failures, report.launches);
        }
        if report.tokens == 0 {
            bail!("gpu_launch finished no token");
        }
        Ok(report)
    }

    fn last_words(&self) -> String {
        self.log
            .last()
            .map(|line| format!(": {line}"))
            .unwrap_or_default()
    }
}

fn head(text: &str) -> String {
    text.chars().take(80).collect()
}

fn command(workload: &Workload, prefix: &[String], seconds: f64, target: &Path) -> Command {
    let lab = target.join("lab");
    let mut line: Vec<OsString> = prefix.iter().map(OsString::from).collect();
    line.push(lab.join("gpu_launch").into());
    line.extend(["--profile", &workload.profile, "--profiles"].map(OsString::from));
    line.push(lab.join("profiles").into());
    line.extend(["--duration".to_owned(), seconds.to_string()].map(OsString::from));
    line.extend(
        [
            "--warmup-tokens".to_owned(),
            workload.warmup_tokens.to_string(),
        ]
        .map(OsString::from),
    );
    if let Some(sync) = workload.sync {
        line.extend(["--sync", sync.name()].map(OsString::from));
    }
    line.extend(workload.args.iter().map(OsString::from));
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]);
    // Without the emulator there, the loader takes the machine's own driver.
    if lab.join("libcuda.so.1").exists() {
        command.env("LD_LIBRARY_PATH", &lab);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn workload() -> Workload {
        toml::from_str("name = \"q\"\nprofile = \"qwen3\"\nsync = \"spin\"\nargs = [\"--idle-threads\", \"1\"]").unwrap()
    }

    fn fake(dir: &Path, script: &str) -> Running {
        let lab = dir.join("lab");
        fs::create_dir_all(&lab).unwrap();
        let program = lab.join("gpu_launch");
        // Through a shell, because a file that was just written may still be busy for exec.
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = WorkloadSettings {
            prefix: vec!["sh".to_owned()],
            cgroup: None,
        };
        Running::start(&workload(), &settings, 0.1, dir).unwrap()
    }

    #[test]
    fn builds_the_command_line() {
        let prefix = ["taskset".to_owned(), "-c".to_owned(), "1".to_owned()];
        let command = command(&workload(), &prefix, 2.5, Path::new("/t"));
        let line: Vec<_> = command
            .get_args()
            .map(|arg| arg.to_string_lossy())
            .collect();
        assert_eq!(command.get_program(), "taskset");
        assert_eq!(
            line.join(" "),
            "-c 1 /t/lab/gpu_launch --profile qwen3 --profiles /t/lab/profiles --duration 2.5 --warmup-tokens 5 --sync spin --idle-threads 1"
        );
    }

    #[test]
    fn reads_the_report_of_a_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = fake(
            dir.path(),
            r#"echo "gpu_launch: hello" >&2; echo "gpu_launch: measuring" >&2
            echo '{"tokens":1,"seconds":1,"tokens_per_s":1,"launches":9,"failures":0,"token_us":[5],
            "context_switches":{"voluntary":1,"involuntary":0},"threads_detail":[]}'"#,
        );
        running.wait_until_measuring().unwrap();
        running.wait(0.1, || Ok(())).unwrap();
        assert_eq!(running.report().unwrap().launches, 9);
    }

    #[test]
    fn gives_the_last_words_of_one_that_fails() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = fake(
            dir.path(),
            "echo 'gpu_launch: CUDA_ERROR_NO_DEVICE' >&2; exit 1",
        );
        let error = running.wait_until_measuring().unwrap_err().to_string();
        assert_eq!(
            error,
            "gpu_launch ended before it measured (exit status: 1): gpu_launch: CUDA_ERROR_NO_DEVICE"
        );
    }

    #[test]
    fn failed_launches_fail_the_cell() {
        let dir = tempfile::tempdir().unwrap();
        let mut running = fake(
            dir.path(),
            r#"echo "gpu_launch: measuring" >&2
            echo '{"tokens":1,"seconds":1,"tokens_per_s":1,"launches":9,"failures":2,"token_us":[5],
            "context_switches":{"voluntary":1,"involuntary":0},"threads_detail":[]}'"#,
        );
        running.wait_until_measuring().unwrap();
        running.wait(0.1, || Ok(())).unwrap();
        assert_eq!(
            running.report().unwrap_err().to_string(),
            "2 of 9 launches failed"
        );
    }
}
