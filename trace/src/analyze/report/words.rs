// SPDX-License-Identifier: GPL-2.0-only
//! Figures as people read them.

use crate::analyze::Summary;
use crate::analyze::compare::Estimate;

/// A missing figure.
const NONE: &str = "–";

/// Digits in groups of three.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count, or in its place what was estimated, with its mark.
pub fn count_or_estimate(value: u64, estimate: Option<f64>) -> String {
    estimate.map_or_else(|| count(value), |about| format!("~{}", fixed(about, 0)))
}

/// A figure with so many decimals, grouped.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    let zero = !text.bytes().any(|byte| (b'1'..=b'9').contains(&byte));
    let sign = if value < 0.0 && !zero { "-" } else { "" };
    match rest {
        "" => format!("{sign}{whole}"),
        rest => format!("{sign}{whole}.{rest}"),
    }
}

/// A figure with about three digits.
pub fn short(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.001 => 4,
        _ => return format!("{value:.1e}"),
    };
    fixed(value, decimals)
}

/// A duration in its own unit.
pub fn time_us(us: f64) -> String {
    let (value, unit) = match us.abs() {
        size if size >= 1e6 => (us / 1e6, "s"),
        size if size >= 1e3 => (us / 1e3, "ms"),
        _ => (us, "µs"),
    };
    let decimals = if value.abs() >= 100.0 { 0 } else { 1 };
    format!("{} {unit}", fixed(value, decimals))
}

/// Bytes in their own unit.
pub fn bytes(value: u64) -> String {
    let value = value as f64;
    match value {
        size if size >= 1e9 => format!("{:.1} GB", value / 1e9),
        size if size >= 1e6 => format!("{:.1} MB", value / 1e6),
        size if size >= 1e3 => format!("{:.1} kB", value / 1e3),
        _ => format!("{value:.0} B"),
    }
}

/// `show` of a figure that may be missing.
pub fn or_none<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), show)
}

/// A figure with its interval.
pub fn estimate(estimate: &Estimate) -> String {
    let value = short(estimate.value);
    match estimate.interval {
        Some([low, high]) => format!("{value} [{}, {}]", short(low), short(high)),
        None => value,
    }
}

/// A share, whole figures precise enough to tell it from nothing.
pub fn percent(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || size >= 0.095 => format!("{} %", fixed(value, 1)),
        _ => format!("{} %", short(value)),
    }
}

/// A ratio of the studies.
pub fn ratio(value: Option<f64>) -> String {
    or_none(value, |value| fixed(value, 1))
}

/// Milliseconds as a duration in its own unit.
pub fn time_ms(ms: f64) -> String {
    time_us(ms * 1e3)
}

/// A duration of a spread, such as its median.
pub fn of_spread(spread: &Option<Summary>, figure: fn(&Summary) -> f64) -> String {
    or_none(spread.as_ref(), |spread| time_us(figure(spread)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped_and_rounded() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(fixed(132_585.04, 1), "132,585.0");
        assert_eq!(fixed(-0.3, 1), "-0.3");
        assert_eq!(fixed(-0.04, 1), "0.0");
        assert_eq!(short(3.641), "3.64");
        assert_eq!(short(0.02765), "0.0277");
        assert_eq!(time_us(15_298.0), "15.3 ms");
        assert_eq!(time_us(2.0), "2.0 µs");
        assert_eq!(time_us(5e6), "5.0 s");
        assert_eq!(bytes(5_000_000_000), "5.0 GB");
    }
}
