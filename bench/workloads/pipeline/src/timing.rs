// SPDX-License-Identifier: GPL-2.0-only
//! Times as histograms that take the same memory for ten and for ten million, and what is said of them. Pure.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// A percentile needs so many samples that with 99 % certainty one lies beyond it: 459 for p99.
const CERTAINTY: f64 = 0.99;
const PERCENTILES: [f64; 4] = [50.0, 90.0, 95.0, 99.0];
/// Of each value; the error is below a thousandth.
const DIGITS: u8 = 3;

/// Whole numbers, most often nanoseconds.
#[derive(Debug, Clone)]
pub struct Timing {
    /// None: only if there is no histogram of so many digits.
    values: Option<Histogram<u64>>,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            values: Histogram::new(DIGITS).ok(),
        }
    }
}

impl Timing {
    pub fn record(&mut self, time: Duration) {
        self.record_value(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn record_value(&mut self, value: u64) {
        if let Some(values) = &mut self.values {
            // It grows; 2^60 is a year in nanoseconds many times over.
            let _ = values.record(value.min(1 << 60));
        }
    }

    pub fn add(&mut self, other: &Self) {
        if let (Some(values), Some(others)) = (&mut self.values, &other.values) {
            // It grows as the other has grown.
            let _ = values.add(others);
        }
    }

    pub fn count(&self) -> u64 {
        self.values.as_ref().map_or(0, Histogram::len)
    }

    /// Milliseconds; what needs more samples than there are is null.
    pub fn milliseconds(&self) -> Value {
        self.summary(1e6)
    }

    /// Plain numbers.
    pub fn numbers(&self) -> Value {
        self.summary(1.0)
    }

    fn summary(&self, unit: f64) -> Value {
        let count = self.count();
        let figure = |needed: u64, value: &dyn Fn(&Histogram<u64>) -> f64| {
            let values = self.values.as_ref().filter(|_| count >= needed);
            json!(values.map(|values| thousandths(value(values) / unit)))
        };
        let mut summary = json!({
            "count": count,
            "mean": figure(1, &|values| values.mean()),
            "max": figure(1, &|values| values.max() as f64),
        });
        for percent in PERCENTILES {
            let value = |values: &Histogram<u64>| values.value_at_percentile(percent) as f64;
            summary[format!("p{percent}")] = figure(samples_needed(percent), &value);
        }
        summary
    }
}

/// Three decimals: of milliseconds that is what a program's clock knows, and archives keep every digit.
fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The samples below which a percentile is refused.
fn samples_needed(percent: f64) -> u64 {
    ((1.0 - CERTAINTY).ln() / (percent / 100.0).ln()).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_within_a_thousandth() {
        let mut timing = Timing::default();
        for ms in 1..=1000 {
            timing.record(Duration::from_millis(ms));
        }
        let summary = timing.milliseconds();
        for (name, expected) in [
            ("mean", 500.5),
            ("p50", 500.0),
            ("p99", 990.0),
            ("max", 1000.0),
        ] {
            let value = summary[name].as_f64().unwrap();
            assert!((value / expected - 1.0).abs() < 2e-3, "{name}: {value}");
        }
        assert_eq!(summary["count"], 1000);
    }

    #[test]
    fn thin_data_have_no_p99() {
        let mut timing = Timing::default();
        for _ in 0..458 {
            timing.record_value(7);
        }
        let mut more = timing.clone();
        more.record_value(7);
        assert_eq!(timing.numbers()["p99"], Value::Null);
        assert_eq!(more.numbers()["p99"], json!(7.0));
        assert_eq!(Timing::default().numbers()["mean"], Value::Null);
        timing.add(&more);
        assert_eq!(timing.numbers()["count"], 458 + 459);
    }
}
