// SPDX-License-Identifier: GPL-2.0-only
//! How figures are written, the same in all tables and sentences.

use crate::stats::Estimate;

/// How wide the forms are: a terminal gets intervals only where they decide something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    Terminal,
    Full,
}

/// So many cells are named one by one.
pub const SHOWN: usize = 3;

/// "98.3 [97.5–99.1]"; a dash where there is nothing.
pub fn figure(estimate: Option<Estimate>, decimals: usize, with_interval: bool) -> String {
    let Some(Estimate {
        value, interval, ..
    }) = estimate
    else {
        return "–".to_owned();
    };
    match interval {
        Some([low, high]) if with_interval => {
            format!("{value:.decimals$} [{low:.decimals$}–{high:.decimals$}]")
        }
        _ => format!("{value:.decimals$}"),
    }
}

/// A ratio in percent. Of a thing over itself there is no interval.
pub fn percent(ratio: Option<Estimate>, decimals: usize, with_interval: bool) -> String {
    let itself = ratio.is_some_and(|ratio| ratio.interval == Some([1.0, 1.0]));
    let percent = ratio.map(|ratio| ratio.scaled(100.0));
    figure(percent, decimals, with_interval && !itself)
}

/// Milliseconds with three digits that say something.
pub fn latency(estimate: Option<Estimate>, with_interval: bool) -> String {
    let decimals = if estimate.is_some_and(|ms| ms.value >= 10.0) {
        1
    } else {
        2
    };
    figure(estimate, decimals, with_interval)
}
