// SPDX-License-Identifier: GPL-2.0-only
//! Standard output of a command that handles signals: a write that nobody takes must not keep it from ending.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};

use crate::shutdown::Shutdown;

/// How long readers may take for what is left once the command is asked to end.
const PATIENCE: Duration = Duration::from_millis(300);

/// Unbuffered.
pub struct Stdout {
    shutdown: Arc<Shutdown>,
    /// A write to it may wait for a reader.
    may_block: bool,
    /// For how long it has, since the command was asked to end.
    waited: Duration,
}

impl Stdout {
    pub fn new(shutdown: &Arc<Shutdown>) -> Self {
        let is_file = |mode| SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == SFlag::S_IFREG;
        Self {
            shutdown: Arc::clone(shutdown),
            may_block: !fstat(io::stdout()).is_ok_and(|stat| is_file(stat.st_mode)),
            waited: Duration::ZERO,
        }
    }

    /// Waits until a piece can be written at once.
    fn wait(&mut self) -> io::Result<()> {
        loop {
            let start = Instant::now();
            if can_be_written(Duration::from_millis(50))? {
                return Ok(());
            }
            if self.shutdown.is_asked() {
                self.waited += start.elapsed();
            }
            if self.waited > PATIENCE {
                let problem = "nobody reads standard output";
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
        }
    }
}

/// Does standard output take something within `time`, or fail at once?
pub fn can_be_written(time: Duration) -> io::Result<bool> {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::POLLOUT)];
    let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
    match poll(&mut fds, timeout) {
        Err(Errno::EINTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

impl Write for Stdout {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<usize> {
        if self.may_block {
            self.wait()?;
            // A pipe that can be written to takes as much as this whole.
            bytes = &bytes[..bytes.len().min(libc::PIPE_BUF)];
        }
        Ok(nix::unistd::write(io::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
