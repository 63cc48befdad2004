// SPDX-License-Identifier: GPL-2.0-only
//! A program of a workload: its stderr line by line while it runs, its stdout when it has ended.

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::interrupt;
use crate::process::Supervised;

/// A command as one types it.
#[cfg(test)]
pub fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// For starting and warming up, however starved.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// For the last token and the report after the measured time.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the waiting looks up: seldom, because every look disturbs what is measured.
const POLL: Duration = Duration::from_millis(50);

/// A child that talks; dropping it kills it.
#[derive(Debug)]
pub struct Child {
    name: &'static str,
    process: Supervised,
    stdin: Option<ChildStdin>,
    stderr: Receiver<String>,
    stdout: JoinHandle<String>,
    log: Vec<String>,
}

impl Child {
    pub fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Supervised::spawn(name, command)?;
        let child = process.child_mut();
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().context("a child without stdout")?;
        let stderr = child.stderr.take().context("a child without stderr")?;
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            // A name that a program prints need not be UTF-8.
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                if sender.send(line.trim_end_matches('\r').to_owned()).is_err() {
                    return;
                }
            }
        });
        let stdout = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // A broken stream leaves half a document, which then does not parse.
            let _ = stdout.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Self {
            name,
            process,
            stdin,
            stderr: receiver,
            stdout,
            log: Vec::new(),
        })
    }

    /// Waits until it has started: for a line that begins with `prefix`. Returns the rest of it.
    pub fn wait_for_start(&mut self, prefix: &str) -> Result<String> {
        self.wait_for_line(prefix, START_TIMEOUT)
    }

    /// Waits until it has measured, `seconds` and some: for a line that begins with `prefix`.
    pub fn wait_for_result(&mut self, prefix: &str, seconds: f64) -> Result<String> {
        self.wait_for_line(prefix, Duration::from_secs_f64(seconds) + END_TIMEOUT)
    }

    fn wait_for_line(&mut self, prefix: &str, limit: Duration) -> Result<String> {
        let rest = |line: &str| Some(line.strip_prefix(prefix)?.trim().to_owned());
        self.wait_for(rest, prefix, limit)
    }

    /// Waits for a line with these words somewhere in it.
    pub fn wait_for_words(&mut self, words: &str, limit: Duration) -> Result<()> {
        self.wait_for(|line| line.contains(words).then_some(()), words, limit)
    }

    fn wait_for<T>(
        &mut self,
        sign: impl Fn(&str) -> Option<T>,
        words: &str,
        limit: Duration,
    ) -> Result<T> {
        let name = self.name;
        let deadline = Instant::now() + limit;
        loop {
            interrupt::check()?;
            match self.stderr.recv_timeout(POLL) {
                Ok(line) => match sign(&line) {
                    Some(found) => return Ok(found),
                    None => self.log.push(line),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.process.wait_until(Instant::now() + END_TIMEOUT)?;
                    bail!(
                        "{name} ended before it had measured ({status}){}",
                        self.last_words()
                    );
                }
            }
            if Instant::now() >= deadline {
                bail!(
                    "{name} did not say {words:?} within {} s{}",
                    limit.as_secs(),
                    self.last_words()
                );
            }
        }
    }

    /// Waits until it has ended well, `seconds` and some; `while_waiting` is called now and then.
    pub fn wait_for_end(
        &mut self,
        seconds: f64,
        mut while_waiting: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let name = self.name;
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
                bail!("{name} did not end{}", self.last_words());
            }
        }
        let status = self.process.wait_until(Instant::now() + END_TIMEOUT)?;
        if !status.success() {
            bail!("{name} failed ({status}){}", self.last_words());
        }
        Ok(())
    }

    /// An error once it has ended.
    pub fn must_live(&mut self) -> Result<()> {
        let Some(status) = self.process.ended()? else {
            return Ok(());
        };
        self.log.extend(self.stderr.try_iter());
        bail!(
            "{} died during the cell ({status}){}",
            self.name,
            self.last_words()
        )
    }

    /// Lets it end, which waited for the end of its stdin, and waits for that.
    pub fn release(&mut self) -> Result<()> {
        self.stdin = None;
        self.wait_for_end(0.0, || Ok(()))
    }

    /// Asks it to end and waits for that.
    pub fn stop(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGINT)?;
        self.wait_for_end(0.0, || Ok(()))
    }

    /// Asks it to end and does not mind how it does: dropping it kills what is left.
    pub fn dismiss(&mut self) {
        let _ = self.process.signal(Signal::SIGINT);
        let _ = self.process.wait_until(Instant::now() + END_TIMEOUT);
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The JSON document that it printed.
    pub fn document<T: serde::de::DeserializeOwned>(self) -> Result<T> {
        let name = self.name;
        let text = self
            .stdout
            .join()
            .ok()
            .with_context(|| format!("the reader of {name}'s stdout died"))?;
        let head: String = text.chars().take(80).collect();
        serde_json::from_str(&text)
            .with_context(|| format!("{name} printed no report but {head:?}"))
    }

    fn last_words(&self) -> String {
        let spoken = self.log.iter().rfind(|line| !line.trim().is_empty());
        spoken.map(|line| format!(": {line}")).unwrap_or_default()
    }
}
