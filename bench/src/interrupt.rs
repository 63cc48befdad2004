// SPDX-License-Identifier: GPL-2.0-only
//! SIGINT, SIGTERM and SIGHUP as a flag that the runner asks between steps; the second one ends at once, and so does the
//! first where the runner does not come to ask: it waits for a download, say. The watchdog then cleans up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// Has the runner been told? It ends by itself then.
static NOTICED: AtomicBool = AtomicBool::new(false);
/// For the runner to come to ask.
const UNTIL_NOTICED: Duration = Duration::from_millis(700);

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
        // Order matters: the shutdown looks at the flag before this signal raises it.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .with_context(|| format!("cannot handle signal {signal}"))?;
    }
    let mut signals = Signals::new(signals).context("cannot handle signals")?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            std::thread::sleep(UNTIL_NOTICED);
            if !NOTICED.load(Ordering::Relaxed) {
                signal_hook::low_level::exit(128 + signal);
            }
        }
    });
    Ok(())
}

/// Whoever starts a run with nohup wants it to outlive the terminal.
fn is_ignored(signal: i32) -> bool {
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
