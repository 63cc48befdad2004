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

/// How long a reader may take for a piece once the command is asked to end.
const PATIENCE: Duration = Duration::from_millis(300);

/// Unbuffered.
pub struct Stdout {
    shutdown: Arc<Shutdown>,
    /// A write to it may wait for a reader.
    may_block: bool,
}

impl Stdout {
    pub fn new(shutdown: &Arc<Shutdown>) -> Self {
        let is_file = |mode| SFlag::from_bits_truncate(mode) & SFlag::S_IFMT == SFlag::S_IFREG;
        Self {
            shutdown: Arc::clone(shutdown),
            may_block: !fstat(io::stdout()).is_ok_and(|stat| is_file(stat.st_mode)),
        }
    }

    /// Waits until a piece can be written at once.
    fn wait(&self) -> io::Result<()> {
        let stdout = io::stdout();
        let mut asked_at = None;
        loop {
            let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::POLLOUT)];
            match poll(&mut fds, PollTimeout::from(50u8)) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if self.shutdown.is_asked()
                && asked_at.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            {
                let problem = "nobody reads standard output";
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
        }
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
