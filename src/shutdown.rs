// SPDX-License-Identifier: GPL-2.0-only
//! SIGINT, SIGTERM and, for whoever reloads nothing, SIGHUP: a flag that a command looks at, and a thread that ends the program where the command does
//! not look: the verifier has it, or it writes to a pipe that nobody reads. Owns no opinion on what ending means.
//!
//! Before it watches, signals end the program as they end any other: it has changed nothing yet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// A command that has not looked at the flag for so long after a signal does not come to it.
const UNTIL_NOTICED: Duration = Duration::from_millis(600);
/// For ending, once it has looked: detaching from a busy machine and restoring affinities take their time.
const UNTIL_ENDED: Duration = Duration::from_secs(15);

/// What signals have asked for.
#[derive(Debug, Default)]
pub struct Shutdown {
    asked: Mutex<bool>,
    came: Condvar,
    noticed: AtomicBool,
}

impl Shutdown {
    /// From now on the first signal raises the flag. `undo` undoes what a killed run would leave; it is called where the
    /// program is ended for its command, and must not wait for anybody. Then the program ends by the signal.
    ///
    /// # Errors
    /// Signals cannot be handled.
    pub fn watch(undo: impl FnOnce() + Send + 'static) -> Result<Arc<Self>> {
        let mut signals = vec![SIGINT, SIGTERM];
        if !is_ignored(SIGHUP) {
            signals.push(SIGHUP);
        }
        Self::watch_for(&signals, undo)
    }

    /// The same where SIGHUP asks for something else.
    ///
    /// # Errors
    /// Signals cannot be handled.
    pub fn watch_but_hangup(undo: impl FnOnce() + Send + 'static) -> Result<Arc<Self>> {
        Self::watch_for(&[SIGINT, SIGTERM], undo)
    }

    fn watch_for(signals: &[i32], undo: impl FnOnce() + Send + 'static) -> Result<Arc<Self>> {
        let mut signals = Signals::new(signals).context("handling signals")?;
        let shutdown = Arc::new(Self::default());
        let watched = Arc::clone(&shutdown);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                let Some(signal) = signals.forever().next() else {
                    return;
                };
                watched.ask();
                watched.wait_for_the_end();
                // The thread that is stuck may hold the logger's lock.
                log::set_max_level(log::LevelFilter::Off);
                undo();
                let _ = emulate_default_handler(signal);
            })
            .context("starting a thread for signals")?;
        Ok(shutdown)
    }

    /// Asks for the end, as a signal does.
    pub fn ask(&self) {
        *self.lock() = true;
        self.came.notify_all();
    }

    /// Is the command asked to end? Whoever asks this ends then, by itself.
    pub fn is_asked(&self) -> bool {
        let asked = *self.lock();
        if asked {
            self.noticed.store(true, Ordering::Relaxed);
        }
        asked
    }

    /// Sleeps for `time`, or until the command is asked to end.
    pub fn sleep(&self, time: Duration) {
        // A wakeup for nothing makes a sleep shorter, which loops take.
        let _ = self
            .came
            .wait_timeout_while(self.lock(), time, |asked| !*asked);
    }

    /// Returns when the program is to be ended for its command.
    fn wait_for_the_end(&self) {
        let asked = Instant::now();
        let limit = || match self.noticed.load(Ordering::Relaxed) {
            true => UNTIL_ENDED,
            false => UNTIL_NOTICED,
        };
        while asked.elapsed() < limit() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, bool> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As `nohup` has it for the program that it starts.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut masks = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigIgn:"));
    let mask = masks
        .next()
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_when_it_is_asked_to_and_not_before() {
        let shutdown = Arc::new(Shutdown::default());
        let start = Instant::now();
        shutdown.sleep(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert!(!shutdown.is_asked());
        let asks = Arc::clone(&shutdown);
        let thread = std::thread::spawn(move || asks.ask());
        shutdown.sleep(Duration::from_secs(3600));
        assert!(shutdown.is_asked());
        thread.join().unwrap();
    }

    #[test]
    fn who_does_not_look_is_ended_and_who_has_looked_is_given_time() {
        let shutdown = Shutdown::default();
        shutdown.ask();
        let start = Instant::now();
        shutdown.wait_for_the_end();
        assert!(start.elapsed() >= UNTIL_NOTICED);
        let shutdown = Arc::new(Shutdown::default());
        shutdown.ask();
        assert!(shutdown.is_asked());
        let waits = Arc::clone(&shutdown);
        let waiting = std::thread::spawn(move || waits.wait_for_the_end());
        std::thread::sleep(2 * UNTIL_NOTICED);
        assert!(!waiting.is_finished());
    }
}
