// SPDX-License-Identifier: GPL-2.0-only
//! What a command that handles signals writes to: a write that nobody takes must not keep it from ending.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};

use crate::shutdown::Shutdown;

/// How long readers may take for what is left once the command is asked to end.
const PATIENCE: Duration = Duration::from_millis(300);

/// Gives a file up that nobody reads once the command is asked to end.
pub struct Unread<F> {
    file: F,
    shutdown: Arc<Shutdown>,
    /// A write to it may wait for a reader.
    may_block: bool,
    /// For how long it has, since the command was asked to end.
    waited: Duration,
}

/// Unbuffered.
pub fn stdout(shutdown: &Arc<Shutdown>) -> Result<Unread<File>> {
    let own = io::stdout().as_fd().try_clone_to_owned();
    let own = own.context("opening standard output")?;
    Ok(Unread::new(File::from(own), shutdown))
}

impl<F: AsFd> Unread<F> {
    pub fn new(file: F, shutdown: &Arc<Shutdown>) -> Self {
        let is_file = |mode| SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == SFlag::S_IFREG;
        Self {
            shutdown: Arc::clone(shutdown),
            may_block: !fstat(&file).is_ok_and(|stat| is_file(stat.st_mode)),
            waited: Duration::ZERO,
            file,
        }
    }

    /// Waits until a piece can be written at once.
    fn wait(&mut self) -> io::Result<()> {
        loop {
            let start = Instant::now();
            if can_be_written(&self.file, Duration::from_millis(50))? {
                return Ok(());
            }
            if self.shutdown.is_asked() {
                self.waited += start.elapsed();
            }
            if self.waited > PATIENCE {
                let problem = "nobody reads what is written";
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
        }
    }
}

/// Does a file take something within `time`, or fail at once?
pub fn can_be_written(file: impl AsFd, time: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
    match poll(&mut fds, timeout) {
        Err(Errno::EINTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

impl<F: AsFd + Write> Write for Unread<F> {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        if self.may_block {
            self.wait()?;
            // A pipe that can be written to takes as much as this whole.
            bytes = &bytes[..bytes.len().min(libc::PIPE_BUF)];
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
