// SPDX-License-Identifier: GPL-2.0-only
//! Requests for statistics: clients' threads queue them, the scheduler's thread waits for them and answers.
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

/// A queue of requests that wait for an answer.
pub struct Requests {
    waiting: Mutex<Vec<Sender<Metrics>>>,
    /// Readable while a request waits.
    event: EventFd,
}

impl Requests {
    /// An empty queue.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            waiting: Mutex::default(),
            event: EventFd::from_flags(flags).context("eventfd")?,
        })
    }

    /// Asks, and waits for the answer. Called by the threads of clients.
    ///
    /// # Errors
    /// No answer: the scheduler has ended, or takes long to start anew.
    pub fn ask(&self) -> Result<Metrics> {
        let (sender, answer) = channel();
        {
            // Under the lock, as in `answer`: an event after its request was answered would wake for nothing.
            let mut waiting = self.lock();
            self.event.write(1).context("asking the scheduler")?;
            waiting.push(sender);
        }
        answer
            .recv_timeout(PATIENCE)
            .context("no statistics from the scheduler")
    }

    /// Waits until a request comes, a signal arrives or `limit` is over. True: a request has come.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, limit: Duration) -> Result<bool> {
        // Rounded up: what is due in half a millisecond is not due yet.
        let limit_ms = limit.as_micros().div_ceil(1000);
        let limit = PollTimeout::try_from(limit_ms).unwrap_or(PollTimeout::MAX);
        let mut event = [PollFd::new(self.event.as_fd(), PollFlags::POLLIN)];
        match poll(&mut event, limit) {
            Ok(nr_ready) => Ok(nr_ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error).context("waiting for statistics clients"),
        }
    }

    /// Answers all requests.
    pub fn answer(&self, metrics: &Metrics) {
        let requests = {
            let mut waiting = self.lock();
            let _ = self.event.read();
            std::mem::take(&mut *waiting)
        };
        for request in requests {
            // A client may have gone.
            let _ = request.send(metrics.clone());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Sender<Metrics>>> {
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
        let requests = Arc::new(Requests::new().unwrap());
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let requests = Arc::clone(&requests);
                std::thread::spawn(move || (0..50).map(|_| requests.ask().unwrap().libraries).sum())
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
            if requests.wait(Duration::from_millis(100)).unwrap() {
                requests.answer(&metrics);
            }
        }
        for client in clients {
            assert_eq!(client.join().unwrap(), 50);
        }
        assert!(!requests.wait(Duration::ZERO).unwrap());
    }

    #[test]
    fn waits_no_shorter_than_it_was_told_to() {
        let requests = Requests::new().unwrap();
        let start = Instant::now();
        assert!(!requests.wait(Duration::from_micros(1_500)).unwrap());
        assert!(start.elapsed() >= Duration::from_micros(1_500));
    }
}
