// SPDX-License-Identifier: GPL-2.0-only
//! How figures are written, the same in all tables and sentences.

use gpuaware_stats::Estimate;

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

/// A ratio in percent.
pub fn percent(ratio: Option<Estimate>, decimals: usize, with_interval: bool) -> String {
    let percent = ratio.map(|ratio| ratio.scaled(100.0));
    figure(percent, decimals, with_interval && !of_itself(ratio))
}

/// A ratio.
pub fn times(ratio: Option<Estimate>, with_interval: bool) -> String {
    figure(ratio, 2, with_interval && !of_itself(ratio))
}

/// Of a thing over itself there is no interval.
fn of_itself(ratio: Option<Estimate>) -> bool {
    ratio.is_some_and(|ratio| ratio.interval == Some([1.0, 1.0]))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_carry_their_interval() {
        let estimate = Some(Estimate::new(98.34, Some([97.5, 99.14])));
        assert_eq!(figure(estimate, 1, true), "98.3 [97.5–99.1]");
        assert_eq!(figure(estimate, 0, false), "98");
        assert_eq!(figure(Some(Estimate::new(2.0, None)), 1, true), "2.0");
        assert_eq!(figure(None, 1, true), "–");
    }

    #[test]
    fn nothing_is_gained_from_itself() {
        let ratio = |low, high| Some(Estimate::new(1.0, Some([low, high])));
        assert_eq!(percent(ratio(1.0, 1.0), 1, true), "100.0");
        assert_eq!(percent(ratio(0.99, 1.0), 0, true), "100 [99–100]");
    }
}
