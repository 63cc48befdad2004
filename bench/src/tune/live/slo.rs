// SPDX-License-Identifier: GPL-2.0-only
//! The guard rail of a tuning beside production: a number that must not grow too much for too long. The number comes
//! from a command of the user's; when the rail is broken is pure.

use std::io::{self, Read};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;

/// A command that does not answer is no measurement.
const LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// What the command prints: the last word on its standard output, a number of which less is better.
///
/// `stop` is asked while it runs: true ends it, and there is no number.
pub fn ask(command: &str, stop: &dyn Fn() -> bool) -> Result<Option<f64>> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .context("--slo-command: cannot start sh")?;
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let began = Instant::now();
    let late = loop {
        if child
            .try_wait()
            .context("--slo-command: cannot wait for it")?
            .is_some()
        {
            break false;
        }
        if stop() || began.elapsed() > LIMIT {
            break true;
        }
        std::thread::sleep(POLL);
    };
    if late {
        let _ = killpg(group, Signal::SIGKILL);
        let _ = child.wait();
        if stop() {
            return Ok(None);
        }
        bail!(
            "--slo-command: expected a number within {} s, got none",
            LIMIT.as_secs()
        );
    }
    let status = child.wait().context("--slo-command: cannot wait for it")?;
    let output = child.stdout.take().map(written).transpose();
    let output = output.context("--slo-command: cannot read its output")?;
    let output = output.unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let number = text
        .split_whitespace()
        .last()
        .and_then(|word| word.parse::<f64>().ok());
    match number.filter(|number| status.success() && number.is_finite() && *number > 0.0) {
        Some(number) => Ok(Some(number)),
        None => bail!(
            "--slo-command: expected a number above 0 as its last word, got {text:?} ({})",
            status
        ),
    }
}

/// What is in `pipe` now: what the command has left running may keep it open.
fn written(mut pipe: ChildStdout) -> io::Result<Vec<u8>> {
    fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let mut bytes = Vec::new();
    match pipe.read_to_end(&mut bytes) {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(bytes),
    }
}

/// Watches one candidate.
#[derive(Debug)]
pub struct Rail {
    /// Above this it is worse than it may be.
    limit: f64,
    patience: Duration,
    worse_since: Option<Duration>,
}

impl Rail {
    /// `usual` is what the old policy has; `worse` the share that it may grow by, for `patience`.
    pub fn new(usual: f64, worse: f64, patience: Duration) -> Self {
        Self {
            limit: usual * (1.0 + worse),
            patience,
            worse_since: None,
        }
    }

    /// Whether it is broken by a value at a time since any start.
    pub fn is_broken(&mut self, value: f64, at: Duration) -> bool {
        if value <= self.limit {
            self.worse_since = None;
            return false;
        }
        let since = *self.worse_since.get_or_insert(at);
        at.saturating_sub(since) >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_ended_whatever_it_has_left_running() {
        let left = ask("sleep 60 & echo $!", &|| false).unwrap().unwrap();
        let left = Pid::from_raw(left as i32);
        nix::sys::signal::kill(left, Signal::SIGKILL).expect("it still runs");
    }

    #[test]
    fn a_rail_breaks_when_it_is_worse_for_so_long_without_a_break() {
        let seconds = Duration::from_secs;
        let mut rail = Rail::new(100.0, 0.1, seconds(5));
        assert!(!rail.is_broken(111.0, seconds(0)));
        assert!(!rail.is_broken(200.0, seconds(4)));
        assert!(!rail.is_broken(109.0, seconds(5)), "it recovered");
        assert!(!rail.is_broken(111.0, seconds(6)));
        assert!(!rail.is_broken(111.0, seconds(10)));
        assert!(rail.is_broken(111.0, seconds(11)));
        assert!(Rail::new(1.0, 0.1, Duration::ZERO).is_broken(1.2, seconds(0)));
    }

    #[test]
    fn a_command_prints_its_number_last() {
        let never = || false;
        assert_eq!(ask("echo ttft 12.5", &never).unwrap(), Some(12.5));
        for bad in ["true", "echo x", "echo -1", "echo 3; exit 1"] {
            let error = ask(bad, &never).unwrap_err().to_string();
            assert!(
                error.starts_with("--slo-command: expected a number above 0"),
                "{bad}: {error}"
            );
        }
        assert_eq!(ask("sleep 60; echo 1", &|| true).unwrap(), None);
    }
}
