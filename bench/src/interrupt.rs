// SPDX-License-Identifier: GPL-2.0-only
//! SIGINT, SIGTERM and SIGHUP as a flag that the runner asks between steps; the second one ends at once, and so does the
//! first where the runner does not come to ask: it waits for a download, say. The watchdog then cleans up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// Has the runner been told? It ends by itself then.
static NOTICED: AtomicBool = AtomicBool::new(false);
/// For the runner to come to ask.
const UNTIL_NOTICED: Duration = Duration::from_millis(700);
/// What comes within this time counts as one signal: timeout(1) sends it to its child and to its group.
const ONE: Duration = Duration::from_millis(300);

/// From now on the first of these signals raises the flag instead of ending the process.
pub fn watch() -> Result<()> {
    let flag = Arc::default();
    // Twice, the first signal would pass for the second.
    if FLAG.set(Arc::clone(&flag)).is_err() {
        return Ok(());
    }
    let mut signals = [SIGINT, SIGTERM, SIGHUP].to_vec();
    signals.retain(|&signal| !is_ignored(signal));
    for &signal in &signals {
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .with_context(|| format!("cannot handle signal {signal}"))?;
    }
    let signals = Signals::new(signals).context("cannot handle signals")?;
    std::thread::spawn(move || end_where_it_does_not_end(signals));
    Ok(())
}

fn end_where_it_does_not_end(mut signals: Signals) {
    let Some(signal) = signals.forever().next() else {
        return;
    };
    let first = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let came_again = signals.pending().next().is_some() && first.elapsed() > ONE;
        let is_stuck = !NOTICED.load(Ordering::Relaxed) && first.elapsed() > UNTIL_NOTICED;
        if came_again || is_stuck {
            signal_hook::low_level::exit(128 + signal);
        }
    }
}

/// Whoever starts a run with nohup wants it to outlive the terminal.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| (mask >> (signal - 1)) & 1 == 1)
}

/// An error once the user has asked to stop.
pub fn check() -> Result<()> {
    if FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        noticed();
        bail!("interrupted");
    }
    Ok(())
}

/// The runner knows, and ends.
pub fn noticed() {
    NOTICED.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_ignored_stays_ignored() {
        // Rust's runtime ignores it; nobody ignores the other here.
        assert!(is_ignored(signal_hook::consts::SIGPIPE));
        assert!(!is_ignored(signal_hook::consts::SIGUSR2));
    }
}
