// SPDX-License-Identifier: GPL-2.0-only
//! Child processes that are gone for certain: each in a process group of its own, killed when this
//! process dies, killed as a group when the handle is dropped. It does not know what they do.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpid, getppid};

use crate::interrupt;
use crate::watchdog::{Cleanup, Guarded};

/// What a program has printed into `file`; nothing if it is not there. The names of threads in it may be cut in the
/// middle of a character.
pub fn printed(file: &Path) -> String {
    let bytes = fs::read(file).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs `command` until `wait` returns, and returns what that says and what was printed on stdout by then. Who prints waits
/// for no reader, and nobody waits for what it leaves running.
pub fn capture<T>(
    name: &str,
    command: &mut Command,
    wait: impl FnOnce(&mut Supervised) -> Result<T>,
) -> Result<(T, Vec<u8>)> {
    let cannot = || format!("cannot keep what {name} prints");
    let mut out = tempfile::tempfile().with_context(cannot)?;
    command.stdout(out.try_clone().with_context(cannot)?);
    let mut process = Supervised::spawn(name, command)?;
    let waited = wait(&mut process)?;
    // What it has left running would write at the place that is read.
    drop(process);
    Ok((waited, read_back(&mut out).with_context(cannot)?))
}

/// All that was written into a file that is open.
pub fn read_back(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

const POLL: Duration = Duration::from_millis(5);
/// The bench ends within a second or so of a signal.
const LAST_PATIENCE: Duration = Duration::from_millis(500);
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// A child process that does not outlive its handle, nor this process.
#[derive(Debug)]
pub struct Supervised {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
    /// Whoever it has started: the kernel's signal at this process's death reaches the child alone.
    _group: Guarded,
}

impl Supervised {
    /// Starts `command` in a process group of its own. Call from a thread that lives as long as
    /// the child shall: the kernel's parent-death signal follows the thread, not the process.
    pub fn spawn(name: &str, command: &mut Command) -> Result<Self> {
        let parent = getpid();
        command.process_group(0);
        // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls
        // (prctl, getppid); it neither allocates nor takes a lock.
        unsafe {
            command.pre_exec(move || {
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
                // The parent may have died before the prctl: then nobody would send the signal.
                if getppid() != parent {
                    return Err(io::Error::from_raw_os_error(nix::libc::ESRCH));
                }
                Ok(())
            });
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name} ({program})"))?;
        Ok(Self {
            name: name.to_owned(),
            _group: Guarded::new(Cleanup::Group(child.id().cast_signed())),
            child,
            status: None,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The exit status if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self
                .child
                .try_wait()
                .with_context(|| format!("cannot wait for {}", self.name))?;
        }
        Ok(self.status)
    }

    /// Sends a signal to the leader only; programs tell their own children.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.ended()?.is_none() {
            kill(self.leader(), signal)
                .with_context(|| format!("cannot send {signal} to {}", self.name))?;
        }
        Ok(())
    }

    /// Waits until it has ended, however long; an error is the user's wish to stop.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.wait_until(Instant::now() + FOREVER)
    }

    /// Waits until it has ended; past the deadline its whole group is killed and that is an error, and so is the user's
    /// wish to stop.
    pub fn wait_until(&mut self, deadline: Instant) -> Result<ExitStatus> {
        self.wait_while(|| Instant::now() < deadline)
    }

    /// The same for as long as `goes_on` says.
    pub fn wait_while(&mut self, mut goes_on: impl FnMut() -> bool) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            interrupt::check()?;
            if !goes_on() {
                self.kill_group();
                bail!("{} did not end in time and was killed", self.name);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Asks it to end, and waits for a moment whatever the user wishes: it may have something to put back. Dropped, it is
    /// gone.
    pub fn ask_to_end(&mut self) {
        let deadline = Instant::now() + LAST_PATIENCE;
        let asked = self.signal(Signal::SIGINT);
        while asked.is_ok() && matches!(self.ended(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
    }

    fn leader(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Kills what is left of the group, the leader's orphans included.
    fn kill_group(&mut self) {
        // ESRCH means that the group has ended already, which is fine.
        let _ = killpg(self.leader(), Signal::SIGKILL);
        if self.status.is_none() {
            self.status = self.child.wait().ok();
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.kill_group();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procstat::ProcessStat;

    fn shell(script: &str) -> Supervised {
        Supervised::spawn("shell", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn who_is_asked_to_end_may_put_something_back_and_is_not_waited_for_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let asked = dir.path().join("asked");
        let ready = dir.path().join("ready");
        // It needs longer than anybody has patience.
        let mut slow = shell(&format!(
            "trap 'touch {}; sleep 60' INT; touch {}; while :; do sleep 0.01; done",
            asked.display(),
            ready.display()
        ));
        let comes = |file: &Path| {
            (0..4000).any(|_| {
                std::thread::sleep(POLL);
                file.exists()
            })
        };
        assert!(comes(&ready));
        slow.ask_to_end();
        assert!(slow.ended().unwrap().is_none());
        assert!(comes(&asked), "it was not asked");
    }

    #[test]
    fn kills_the_whole_group_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let child = shell(&format!("sleep 60 & echo $! > {}; wait", file.display()));
        let grandchild = loop {
            if let Ok(pid) = std::fs::read_to_string(&file)
                .unwrap_or_default()
                .trim()
                .parse()
            {
                break Pid::from_raw(pid);
            }
            std::thread::sleep(POLL);
        };
        drop(child);
        let deadline = Instant::now() + Duration::from_secs(5);
        // Killed, though perhaps not yet reaped by whoever inherited it.
        while kill(grandchild, None).is_ok() {
            if ProcessStat::of(grandchild).is_some_and(|stat| stat.state == 'Z') {
                break;
            }
            assert!(Instant::now() < deadline, "still alive: {grandchild}");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn kills_what_ignores_its_signal_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let script = format!(
            "trap '' INT; : > {}; while :; do sleep 0.1; done",
            ready.display()
        );
        let mut child = shell(&script);
        while !ready.exists() {
            assert!(child.ended().unwrap().is_none(), "the shell has ended");
            std::thread::sleep(POLL);
        }
        child.signal(Signal::SIGINT).unwrap();
        let error = child
            .wait_until(Instant::now() + Duration::from_millis(200))
            .unwrap_err();
        assert!(
            error.to_string().contains("shell did not end in time"),
            "{error}"
        );
        assert!(child.ended().unwrap().is_some());
    }

    #[test]
    fn names_the_program_that_cannot_start() {
        let error = Supervised::spawn("iperf3", &mut Command::new("/no/such/iperf3")).unwrap_err();
        assert!(format!("{error:#}").contains("cannot start iperf3 (/no/such/iperf3)"));
    }
}
