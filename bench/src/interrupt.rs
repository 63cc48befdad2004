// SPDX-License-Identifier: GPL-2.0-only
//! SIGINT and SIGTERM as a flag that the runner asks between steps; the second one ends at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on the first SIGINT or SIGTERM raises the flag instead of ending the process.
pub fn watch() -> Result<()> {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        // Order matters: the shutdown looks at the flag before this signal raises it.
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(flag)))
            .with_context(|| format!("cannot handle signal {signal}"))?;
    }
    Ok(())
}

/// An error once the user has asked to stop.
pub fn check() -> Result<()> {
    if FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}
