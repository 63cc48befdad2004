// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler that runs, from outside: its policy file, which it reads again when it changes, and its statistics,
//! which say what is in force.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::claim::{Claim, claim};
use crate::datafile::{self, DataError};
use crate::interrupt;
use crate::replace::replace;
use crate::watchdog::{Cleanup, Guarded};

/// For the scheduler to take a changed file.
const LIMIT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(50);
const ANSWER: Duration = Duration::from_secs(2);
/// Two at once would take each other's trial for the old policy.
const TAKEN: &str =
    "expected a folder for --policy that no other tuning works in: wait for its end";

#[derive(Debug, Clone, Copy, Deserialize)]
struct Policies {
    policy_generation: u64,
    policy_refused: u64,
}

#[derive(Deserialize)]
struct Response {
    args: Resp,
}

#[derive(Deserialize)]
struct Resp {
    resp: Policies,
}

/// The scheduler with the policy that it had.
#[derive(Debug)]
pub struct Scheduler {
    socket: PathBuf,
    file: PathBuf,
    old: String,
    /// However this process ends, the old policy is put back: the watchdog outlives it.
    _guard: Guarded,
    /// Of the file's folder.
    _claim: Claim,
}

impl Scheduler {
    /// # Errors
    /// No scheduler runs, the policy file cannot be read or written, or another tuning tries policies in it.
    pub fn attach(file: &Path, socket: &Path) -> Result<Self> {
        let usage = |why: String| DataError::Usage(format!("--policy: {}: {why}", file.display()));
        let file = file
            .canonicalize()
            .map_err(|error| usage(error.to_string()))?;
        let folder = file.parent().context("a file without a folder")?;
        let claim = claim(folder, TAKEN)?;
        let old = datafile::text(&file)?;
        fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .map_err(|error| usage(format!("expected a file that can be written: {error}")))?;
        policies(socket)?;
        let cleanup = Cleanup::Replace {
            path: file.clone(),
            text: old.clone(),
        };
        Ok(Self {
            socket: socket.to_owned(),
            file,
            old,
            _guard: Guarded::new(cleanup),
            _claim: claim,
        })
    }

    /// What was in force before.
    pub fn old(&self) -> &str {
        &self.old
    }

    /// Puts a policy into force, through the scheduler's own reload. False: the scheduler refuses it.
    pub fn put(&self, policy: &str) -> Result<bool> {
        if fs::read_to_string(&self.file).is_ok_and(|now| now == policy) {
            return Ok(true);
        }
        let before = policies(&self.socket)?;
        replace(&self.file, policy)?;
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            interrupt::check()?;
            let now = policies(&self.socket)?;
            if now.policy_refused > before.policy_refused {
                return Ok(false);
            }
            if now.policy_generation > before.policy_generation {
                return Ok(true);
            }
            std::thread::sleep(POLL);
        }
        bail!(
            "the scheduler did not take {} within {} s: does it run with --policy and this file?",
            self.file.display(),
            LIMIT.as_secs()
        )
    }

    /// The old policy, without waiting for anybody.
    pub fn restore(&self) -> Result<()> {
        replace(&self.file, &self.old)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            eprintln!("gpuaware-bench: error: the old policy is not back: {error:#}");
        }
    }
}

/// By the protocol of scx_stats: a line of JSON each way.
fn policies(socket: &Path) -> Result<Policies> {
    let shown = socket.display();
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("no scx_gpuaware answers at {shown}: start it with --policy"))?;
    stream
        .set_read_timeout(Some(ANSWER))
        .context("cannot limit the wait for statistics")?;
    stream
        .write_all(b"{\"req\":\"stats\",\"args\":{\"target\":\"totals\"}}\n")
        .with_context(|| format!("cannot ask {shown}"))?;
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .with_context(|| format!("no answer at {shown}"))?;
    let response: Response = serde_json::from_str(&line).with_context(|| {
        format!("{shown} is not scx_gpuaware's: no policy_generation in its statistics")
    })?;
    Ok(response.args.resp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_refused_before_it_reads_the_policy() {
        let folder = tempfile::tempdir().unwrap();
        let policy = folder.path().join("policy.toml");
        fs::write(&policy, "").unwrap();
        let attach = || {
            let nobody = folder.path().join("socket");
            let error = Scheduler::attach(&policy, &nobody).unwrap_err();
            (error.is::<DataError>(), format!("{error:#}"))
        };
        assert!(attach().1.contains("no scx_gpuaware answers"));
        let first = claim(folder.path(), TAKEN).unwrap();
        let (is_usage, error) = attach();
        assert!(is_usage && error.contains("no other tuning"), "{error}");
        drop(first);
        assert!(attach().1.contains("no scx_gpuaware answers"));
    }
}
