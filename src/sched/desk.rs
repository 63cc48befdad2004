// SPDX-License-Identifier: GPL-2.0-only
//! Where clients ask the scheduler's thread for statistics, and how that thread waits for them.
//!
//! It sleeps in poll(): a channel with a timeout yields the CPU a dozen times before it sleeps, which is
//! more work than all that this thread does while nothing happens.

use std::os::fd::AsFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::stats::Metrics;

/// How long an answer may take: the scheduler may be starting anew.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 5000 });

/// Questions that wait for an answer.
pub struct Desk {
    waiting: Mutex<Vec<Sender<Metrics>>>,
    /// Readable while somebody waits.
    bell: EventFd,
}

impl Desk {
    /// A desk that nobody stands at.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            waiting: Mutex::default(),
            bell: EventFd::from_flags(flags).context("eventfd")?,
        })
    }

    /// Asks, and waits for the answer. Called by the threads of clients.
    ///
    /// # Errors
    /// No answer: the scheduler has ended, or takes long to start anew.
    pub fn ask(&self) -> Result<Metrics> {
        let (sender, answer) = channel();
        {
            // Under the lock, as `answer`'s: a ring after its question was answered would wake for nothing.
            let mut questions = self.questions();
            self.bell.write(1).context("asking the scheduler")?;
            questions.push(sender);
        }
        answer
            .recv_timeout(PATIENCE)
            .context("no statistics from the scheduler")
    }

    /// Waits until somebody asks, a signal arrives or `limit` is over. True: somebody asks.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, limit: Duration) -> Result<bool> {
        // Rounded up: what is due in half a millisecond is not due yet.
        let limit_ms = limit.as_micros().div_ceil(1000);
        let limit = PollTimeout::try_from(limit_ms).unwrap_or(PollTimeout::MAX);
        let mut bell = [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
        match poll(&mut bell, limit) {
            Ok(nr_ready) => Ok(nr_ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error).context("waiting for statistics clients"),
        }
    }

    /// Answers all who ask.
    pub fn answer(&self, metrics: &Metrics) {
        let questions = {
            let mut questions = self.questions();
            let _ = self.bell.read();
            std::mem::take(&mut *questions)
        };
        for question in questions {
            // A client may have gone.
            let _ = question.send(metrics.clone());
        }
    }

    fn questions(&self) -> std::sync::MutexGuard<'_, Vec<Sender<Metrics>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn everybody_who_asks_is_answered_once() {
        let desk = Arc::new(Desk::new().unwrap());
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let desk = Arc::clone(&desk);
                std::thread::spawn(move || (0..50).map(|_| desk.ask().unwrap().libraries).sum())
            })
            .collect();
        let metrics = Metrics {
            libraries: 1,
            ..Metrics::default()
        };
        while !clients
            .iter()
            .all(|client: &std::thread::JoinHandle<u64>| client.is_finished())
        {
            if desk.wait(Duration::from_millis(100)).unwrap() {
                desk.answer(&metrics);
            }
        }
        for client in clients {
            assert_eq!(client.join().unwrap(), 50);
        }
        assert!(!desk.wait(Duration::ZERO).unwrap());
    }

    #[test]
    fn waits_no_shorter_than_it_was_told_to() {
        let desk = Desk::new().unwrap();
        let start = Instant::now();
        assert!(!desk.wait(Duration::from_micros(1_500)).unwrap());
        assert!(start.elapsed() >= Duration::from_micros(1_500));
    }
}
