// SPDX-License-Identifier: GPL-2.0-only
//! What a tuning is for, as it stands on the command line. Pure.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::plan::Where;

/// What may be given up for the other; nobody's preference: nothing may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prefer {
    /// The launcher's speed and p99, for some of the neighbours' work.
    Isolation,
    /// The neighbours' work, for some of the launcher's speed and p99.
    Work,
}

/// Where candidates are tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// In virtual machines.
    #[default]
    Lab,
    /// On this machine, which runs nothing else.
    Host,
    /// In the simulator, for a machine that is not at hand.
    Sim,
}

impl On {
    /// Where the cells of its runs are measured.
    pub fn cells(self) -> Where {
        match self {
            Self::Lab => Where::Lab,
            Self::Host => Where::Host,
            Self::Sim => Where::Sim,
        }
    }

    /// Whether callbacks cost what they cost on a CPU that is not emulated.
    pub fn is_native(self) -> bool {
        self != Self::Lab
    }
}

/// What users of an OpenAI endpoint wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Latency {
    /// The first token of an answer.
    #[default]
    Ttft,
    /// Each later one.
    Tpot,
}

impl Latency {
    /// The key of its median in what clients print, in ms.
    pub fn median(self) -> &'static str {
        match self {
            Self::Ttft => "median_ttft_ms",
            Self::Tpot => "median_tpot_ms",
        }
    }
}

/// "90s", "30m", "2h" or seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        _ => (text, 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit);
    seconds
        .filter(|seconds| (1.0..=7.0 * 86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("expected a time such as 90s, 30m or 2h, up to 168h, got {text:?}"))
}

/// "10%" or "0.1".
pub fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share = number.parse::<f64>().ok().map(|number| number * unit);
    share
        .filter(|share| (0.001..=10.0).contains(share))
        .ok_or_else(|| format!("expected a share such as 10%, 0.1% to 1000%, got {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("90"), duration("90s"));
        for bad in ["", "m", "0s", "-3m", "nan", "3d", "169h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_are_percent_or_numbers() {
        assert_eq!(share("10%"), Ok(0.1));
        assert_eq!(share("0.1"), Ok(0.1));
        assert!(share("0").is_err() && share("ten").is_err());
    }
}
