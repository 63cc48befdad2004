// SPDX-License-Identifier: GPL-2.0-only
//! SIGINT, SIGTERM and SIGHUP as a flag that the runner asks between steps; the second one ends at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on the first of these signals raises the flag instead of ending the process.
pub fn watch() -> Result<()> {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if is_ignored(signal) {
            continue;
        }
        // Order matters: the shutdown looks at the flag before this signal raises it.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(flag)))
            .with_context(|| format!("cannot handle signal {signal}"))?;
    }
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
        bail!("interrupted");
    }
    Ok(())
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
