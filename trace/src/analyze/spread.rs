// SPDX-License-Identifier: GPL-2.0-only
//! How values are spread: exact while they are few, then a histogram with 0.1 % wide bins, so that
//! memory stays bounded however long the trace is.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Values kept one by one. More become a histogram, which is smaller than they are.
const MAX_EXACT: usize = 65_536;
/// Three significant digits.
const DIGITS: u8 = 3;
/// Bins of a picture for each factor of ten.
pub const BINS_PER_DECADE: f64 = 8.0;

/// Durations in nanoseconds.
#[derive(Debug, Clone)]
pub struct Spread {
    values: Values,
    sum: u128,
    max: u64,
}

#[derive(Debug, Clone)]
enum Values {
    Exact(Vec<u64>),
    Binned(Histogram<u64>),
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            values: Values::Exact(Vec::new()),
            sum: 0,
            max: 0,
        }
    }
}

/// A spread in figures, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Greatest value.
    pub max_us: f64,
    /// Whether percentiles are exact; if not, they are within 0.1 %.
    pub exact: bool,
}

/// An empty histogram. Its range grows by itself.
fn histogram() -> Option<Histogram<u64>> {
    Histogram::new(DIGITS).ok()
}

impl Spread {
    /// Adds a value, nanoseconds.
    pub fn add(&mut self, value_ns: u64) {
        self.sum += u128::from(value_ns);
        self.max = self.max.max(value_ns);
        match &mut self.values {
            Values::Exact(values) => {
                values.push(value_ns);
                if values.len() > MAX_EXACT {
                    self.bin();
                }
            }
            Values::Binned(bins) => {
                // Cannot fail: the range grows.
                let _ = bins.record(value_ns);
            }
        }
    }

    fn bin(&mut self) {
        let Values::Exact(values) = &self.values else {
            return;
        };
        let Some(mut bins) = histogram() else {
            return;
        };
        bins.auto(true);
        for &value in values {
            // Cannot fail: the range grows.
            let _ = bins.record(value);
        }
        self.values = Values::Binned(bins);
    }

    /// All values of `self` and `other`.
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.sum += other.sum;
        all.max = all.max.max(other.max);
        if let (Values::Exact(mine), Values::Exact(theirs)) = (&mut all.values, &other.values) {
            mine.extend(theirs);
            return all;
        }
        all.bin();
        if let Values::Binned(bins) = &mut all.values {
            match &other.values {
                Values::Exact(values) => values.iter().for_each(|&value| {
                    let _ = bins.record(value);
                }),
                Values::Binned(theirs) => {
                    let _ = bins.add(theirs);
                }
            }
        }
        all
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        match &self.values {
            Values::Exact(values) => values.len() as u64,
            Values::Binned(bins) => bins.len(),
        }
    }

    /// A percentile, nanoseconds; between two values it is interpolated, as numpy does.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        self.percentiles([percent]).map(|[value]| value)
    }

    /// Where the tail beyond a percentile begins. Of a histogram the whole bin belongs to it.
    pub fn tail_from(&self, percent: f64) -> Option<f64> {
        let limit = self.percentile(percent)?;
        Some(match &self.values {
            Values::Exact(_) => limit,
            Values::Binned(bins) => bins.lowest_equivalent(limit as u64) as f64,
        })
    }

    fn percentiles<const N: usize>(&self, percents: [f64; N]) -> Option<[f64; N]> {
        match &self.values {
            _ if self.count() == 0 => None,
            Values::Exact(values) => {
                let mut sorted = values.clone();
                sorted.sort_unstable();
                Some(percents.map(|percent| interpolated(&sorted, percent)))
            }
            Values::Binned(bins) => {
                Some(percents.map(|percent| bins.value_at_percentile(percent) as f64))
            }
        }
    }

    /// Number of values that are `limit_ns` or more.
    pub fn at_least(&self, limit_ns: f64) -> u64 {
        match &self.values {
            Values::Exact(values) => values
                .iter()
                .filter(|&&value| value as f64 >= limit_ns)
                .count() as u64,
            Values::Binned(bins) => {
                // A bin is counted whole where the limit lies inside it.
                match bins.lowest_equivalent(limit_ns.max(0.0).ceil() as u64) {
                    0 => bins.len(),
                    first => bins.len() - bins.count_between(0, first - 1),
                }
            }
        }
    }

    /// The spread in figures; none without values.
    pub fn summary(&self) -> Option<Summary> {
        let [p50, p90, p95, p99] = self.percentiles([50.0, 90.0, 95.0, 99.0])?;
        let count = self.count();
        Some(Summary {
            count,
            mean_us: self.sum as f64 / count as f64 / 1e3,
            p50_us: p50 / 1e3,
            p90_us: p90 / 1e3,
            p95_us: p95 / 1e3,
            p99_us: p99 / 1e3,
            max_us: self.max as f64 / 1e3,
            exact: matches!(self.values, Values::Exact(_)),
        })
    }

    /// Counts in bins of equal width on a logarithmic axis: `(bin, count)` where bin `b` begins at
    /// `10^(b / BINS_PER_DECADE)` nanoseconds. Zero counts as one nanosecond.
    pub fn bins(&self) -> Vec<(i32, u64)> {
        let mut counts = std::collections::BTreeMap::new();
        let bin = |value: u64| ((value.max(1) as f64).log10() * BINS_PER_DECADE) as i32;
        match &self.values {
            Values::Exact(values) => {
                for &value in values {
                    *counts.entry(bin(value)).or_insert(0) += 1;
                }
            }
            Values::Binned(bins) => {
                for step in bins.iter_recorded() {
                    *counts.entry(bin(step.value_iterated_to())).or_insert(0) +=
                        step.count_at_value();
                }
            }
        }
        counts.into_iter().collect()
    }
}

fn interpolated(sorted: &[u64], percent: f64) -> f64 {
    let rank = percent / 100.0 * (sorted.len() - 1) as f64;
    let below = sorted[rank.floor() as usize] as f64;
    let above = sorted[rank.ceil() as usize] as f64;
    below + (above - below) * rank.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: impl IntoIterator<Item = u64>) -> Spread {
        let mut spread = Spread::default();
        values.into_iter().for_each(|value| spread.add(value));
        spread
    }

    #[test]
    fn percentiles_are_interpolated() {
        let spread = spread([40, 10, 20, 30]);
        assert_eq!(spread.percentile(50.0), Some(25.0));
        assert_eq!(spread.percentile(90.0), Some(37.0));
        assert_eq!(spread.percentile(100.0), Some(40.0));
        assert_eq!(Spread::default().percentile(50.0), None);
    }

    #[test]
    fn many_values_stay_within_a_thousandth() {
        let many = spread(1..=200_000);
        assert!(matches!(many.values, Values::Binned(_)));
        let summary = many.summary().unwrap();
        assert!(!summary.exact);
        assert_eq!(summary.count, 200_000);
        assert_eq!(summary.max_us, 200.0);
        assert!((summary.p50_us - 100.0).abs() < 0.1, "{summary:?}");
        assert!((summary.p99_us - 198.0).abs() < 0.2, "{summary:?}");
        let tail = many.at_least(190_001.0);
        assert!((9_800..=10_200).contains(&tail), "{tail}");
        assert_eq!(many.at_least(0.0), 200_000);
    }

    #[test]
    fn unions_of_all_kinds_keep_every_value() {
        let (few, many) = (spread([1, 2, 3]), spread(10..=100_000));
        for (a, b) in [(&few, &few), (&few, &many), (&many, &few), (&many, &many)] {
            let union = a.union(b);
            assert_eq!(union.count(), a.count() + b.count());
            assert_eq!(union.sum, a.sum + b.sum);
        }
    }

    #[test]
    fn bins_are_logarithmic() {
        assert_eq!(
            spread([0, 1, 10, 99, 1000]).bins(),
            [(0, 2), (8, 1), (15, 1), (24, 1)]
        );
    }
}
