// SPDX-License-Identifier: GPL-2.0-only
//! A sched_ext scheduler around the cells of its arm: started, seen to attach, watched, stopped.
//! What it does inside is its own business: every scheduler is run the same way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::arm::Scheduler;
use crate::interrupt;
use crate::process::{Supervised, printed};
use crate::program;
use crate::record::SchedulerSeen;

const SYSFS: &str = "/sys/kernel/sched_ext";
const ATTACH_TIMEOUT: Duration = Duration::from_secs(60);
const DETACH_TIMEOUT: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(10);

/// A scheduler that has attached. Dropped, it is asked to end, then killed: the kernel takes its own back.
#[derive(Debug)]
pub struct Attached {
    // Before the scheduler that it serves, when dropped.
    companion: Option<Companion>,
    process: Supervised,
    pins: Pins,
    log: PathBuf,
    seen: SchedulerSeen,
}

impl Attached {
    /// Starts the scheduler and waits until it has attached; `log` takes all that it prints.
    pub fn start(scheduler: &Scheduler, log: &Path) -> Result<Self> {
        if let Some(ops) = current_ops() {
            bail!("another scheduler is loaded already: {ops}");
        }
        remove_pins(&scheduler.pins);
        // From here on it is asked to end, whatever fails.
        let mut attached = Self {
            companion: None,
            process: spawn(&scheduler.ops, &scheduler.command, log)?,
            pins: Pins(Vec::new()),
            log: log.to_owned(),
            seen: SchedulerSeen {
                ops: scheduler.ops.clone(),
                version: None,
                enable_seq: 0,
            },
        };
        let deadline = Instant::now() + ATTACH_TIMEOUT;
        while !has_attached(scheduler, log) {
            interrupt::check()?;
            if let Some(status) = attached.process.ended()? {
                bail!(
                    "{} did not attach: it ended ({status}){}",
                    scheduler.ops,
                    last_words(log)
                );
            }
            if Instant::now() >= deadline {
                bail!(
                    "{} did not attach within {} s{}",
                    scheduler.ops,
                    ATTACH_TIMEOUT.as_secs(),
                    last_words(log)
                );
            }
            std::thread::sleep(POLL);
        }
        attached.pins = Pins(scheduler.pins.clone());
        attached.companion = Companion::of(scheduler, log)?;
        attached.seen.version = program::version(&scheduler.command[0]);
        attached.seen.enable_seq = enable_seq()?;
        Ok(attached)
    }

    /// The scheduler's process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// An error unless the same load of the same scheduler is still in charge.
    pub fn check(&mut self) -> Result<&SchedulerSeen> {
        let name = &self.seen.ops;
        if let Some(status) = self.process.ended()? {
            bail!(
                "{name} ended during the cell ({status}){}",
                last_words(&self.log)
            );
        }
        let state = sysfs("state");
        if state != "enabled" {
            bail!(
                "{name} was thrown out during the cell (state {state}){}",
                last_words(&self.log)
            );
        }
        if current_ops().as_deref() != Some(name.as_str()) || enable_seq()? != self.seen.enable_seq
        {
            bail!(
                "{name} was reloaded or replaced during the cell{}",
                last_words(&self.log)
            );
        }
        if let Some(companion) = &mut self.companion {
            companion.must_live()?;
        }
        Ok(&self.seen)
    }

    /// Asks it to leave and waits until the kernel's own scheduler is back.
    pub fn stop(mut self) -> Result<()> {
        let deadline = Instant::now() + DETACH_TIMEOUT;
        if let Some(companion) = &mut self.companion {
            companion.process.signal(Signal::SIGINT)?;
            companion.process.wait_until(deadline)?;
        }
        self.process.signal(Signal::SIGINT)?;
        let status = self.process.wait_until(deadline)?;
        while sysfs("state") != "disabled" {
            if Instant::now() >= deadline {
                bail!(
                    "{} has ended but sched_ext is {}",
                    self.seen.ops,
                    sysfs("state")
                );
            }
            std::thread::sleep(POLL);
        }
        if !status.success() {
            bail!(
                "{} ended with {status}{}",
                self.seen.ops,
                last_words(&self.log)
            );
        }
        Ok(())
    }
}

/// Where it was not stopped: a cell has failed, or the user has no patience. What it has changed outside of BPF it puts
/// back even so.
impl Drop for Attached {
    fn drop(&mut self) {
        let companion = self.companion.iter_mut().map(|one| &mut one.process);
        for process in companion.chain([&mut self.process]) {
            process.ask_to_end();
        }
    }
}

/// The kernel's own scheduler around a cell of an arm that has no other.
#[derive(Debug)]
pub struct KernelsOwn {
    /// Absent in kernels without sched_ext.
    enable_seq: Option<u64>,
}

impl KernelsOwn {
    /// An error if a sched_ext scheduler is loaded.
    pub fn begin() -> Result<Self> {
        Self::none_but_the_kernels()?;
        Ok(Self {
            enable_seq: enable_seq().ok(),
        })
    }

    /// An error if one is or was loaded since.
    pub fn check(&self) -> Result<()> {
        Self::none_but_the_kernels()?;
        if enable_seq().ok() != self.enable_seq {
            bail!("a sched_ext scheduler came and went during the cell");
        }
        Ok(())
    }

    fn none_but_the_kernels() -> Result<()> {
        match current_ops() {
            Some(ops) => bail!(
                "the sched_ext scheduler {ops} is loaded: this arm is for the kernel's own, stop it first"
            ),
            None => Ok(()),
        }
    }
}

/// The program that runs beside a scheduler, if its arm has one.
#[derive(Debug)]
struct Companion {
    process: Supervised,
    log: PathBuf,
}

impl Companion {
    /// Starts it and waits until it is ready; it prints into a file beside the scheduler's `log`.
    fn of(scheduler: &Scheduler, log: &Path) -> Result<Option<Self>> {
        let Some(command) = &scheduler.companion else {
            return Ok(None);
        };
        let log = log.with_extension("companion.log");
        let mut companion = Self {
            process: spawn("the scheduler's companion", command, &log)?,
            log,
        };
        let deadline = Instant::now() + ATTACH_TIMEOUT;
        while !contains(&companion.log, scheduler.companion_line.as_ref()) {
            interrupt::check()?;
            companion.must_live()?;
            if Instant::now() >= deadline {
                let words = last_words(&companion.log);
                bail!("the scheduler's companion is not ready in time{words}");
            }
            std::thread::sleep(POLL);
        }
        Ok(Some(companion))
    }

    fn must_live(&mut self) -> Result<()> {
        if let Some(status) = self.process.ended()? {
            let words = last_words(&self.log);
            bail!("the scheduler's companion ended ({status}){words}");
        }
        Ok(())
    }
}

/// What a scheduler pins stays when it ends, and would be taken for that of the next one.
fn remove_pins(pins: &[String]) {
    for pin in pins {
        // Mostly it is not there, which is what is wanted.
        let _ = fs::remove_file(pin);
    }
}

/// Those of the scheduler that has attached, and nobody else's: one that did not may have met another's.
#[derive(Debug)]
struct Pins(Vec<String>);

impl Drop for Pins {
    fn drop(&mut self) {
        remove_pins(&self.0);
    }
}

/// Starts a command; `log` takes all that it prints.
fn spawn(name: &str, words: &[String], log: &Path) -> Result<Supervised> {
    let out = fs::File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    let shared = out.try_clone().context("cannot share a scheduler's log")?;
    let (program, args) = words.split_first().context("an empty command")?;
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(shared)
        .stderr(out);
    Supervised::spawn(name, &mut command)
}

/// Has somebody said `line` in the log, if anything is waited for?
fn contains(log: &Path, line: Option<&String>) -> bool {
    line.is_none_or(|line| printed(log).contains(line.as_str()))
}

fn has_attached(scheduler: &Scheduler, log: &Path) -> bool {
    contains(log, scheduler.attached_line.as_ref())
        && sysfs("state") == "enabled"
        && current_ops().is_some_and(|ops| ops == scheduler.ops)
}

fn sysfs(file: &str) -> String {
    fs::read_to_string(Path::new(SYSFS).join(file))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The scheduler that is loaded, without the version that some put behind their name.
pub fn current_ops() -> Option<String> {
    let ops = sysfs("root/ops");
    (!ops.is_empty()).then(|| base_name(&ops).to_owned())
}

/// scx's Rust schedulers report names such as `lavd_1.1.4_x86_64_unknown_linux_gnu`.
fn base_name(ops: &str) -> &str {
    let version = ops
        .match_indices('_')
        .find(|(at, _)| ops[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
    version.map_or(ops, |(at, _)| &ops[..at])
}

fn enable_seq() -> Result<u64> {
    sysfs("enable_seq")
        .parse()
        .context("cannot read sched_ext's enable_seq")
}

/// The line of its log that best says why, for an error message.
fn last_words(log: &Path) -> String {
    let text = printed(log);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling = |line: &&str| line.contains("rror") || line.contains("EXIT:");
    let line = lines().find(telling).or_else(|| lines().next_back());
    line.map(|line| format!(": {}", line.chars().take(300).collect::<String>()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_no_part_of_the_name() {
        assert_eq!(base_name("gpuaware"), "gpuaware");
        assert_eq!(base_name("lavd_1.1.4_x86_64_unknown_linux_gnu"), "lavd");
        assert_eq!(base_name("my_sched"), "my_sched");
    }

    #[test]
    fn last_words_prefer_the_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "hello\nEXIT: runnable task stall\nbye\n").unwrap();
        assert_eq!(last_words(file.path()), ": EXIT: runnable task stall");
        fs::write(file.path(), b"t\xc3[7] waits\nEXIT: stall\n").unwrap();
        assert_eq!(last_words(file.path()), ": EXIT: stall");
        fs::write(file.path(), "hello\nbye\n\n").unwrap();
        assert_eq!(last_words(file.path()), ": bye");
        fs::write(file.path(), "").unwrap();
        assert_eq!(last_words(file.path()), "");
    }

    #[test]
    fn says_why_a_scheduler_did_not_attach() {
        let dir = tempfile::tempdir().unwrap();
        let scheduler: Scheduler = toml::from_str(
            "command = [\"sh\", \"-c\", \"echo 'x: error: no sched_ext' >&2; exit 1\"]\nops = \"x\"",
        )
        .unwrap();
        let error = Attached::start(&scheduler, &dir.path().join("log"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "x did not attach: it ended (exit status: 1): x: error: no sched_ext"
        );
    }
}
