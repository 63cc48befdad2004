// SPDX-License-Identifier: GPL-2.0-only
//! The statistics: medians, percentiles that refuse thin data, bootstrap intervals over rounds.
//! Pure and seeded: the same cells give the same figures.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

const RESAMPLES: usize = 2000;
const SEED: u64 = 0x6770_7561;
/// Below this many rounds an interval would be a pretence.
const MIN_ROUNDS: usize = 3;
/// A p99 needs this many samples: with fewer the chance is above 1 % that not one of them lies
/// beyond the true 99th percentile (0.99^459 < 0.01).
pub const P99_MIN_SAMPLES: usize = 459;

/// A figure and its 95 % bootstrap interval; no interval with fewer than three rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    pub interval: Option<[f64; 2]>,
}

impl Estimate {
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            interval: self
                .interval
                .map(|[low, high]| [low * factor, high * factor]),
        }
    }

    /// Whether the interval lies wholly on one side of `point`.
    pub fn excludes(&self, point: f64) -> bool {
        self.interval
            .is_some_and(|[low, high]| low > point || high < point)
    }
}

/// The middle value, or the mean of the two middle ones.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The nearest-rank percentile: the smallest value that at least `percent` of all do not exceed.
pub fn percentile(values: &mut [f64], percent: f64) -> Option<f64> {
    let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
    let at = rank.max(1) - 1;
    if at >= values.len() {
        return None;
    }
    Some(*values.select_nth_unstable_by(at, f64::total_cmp).1)
}

/// The geometric mean of positive values.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|&value| value <= 0.0) {
        return None;
    }
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    Some((logs / values.len() as f64).exp())
}

/// `statistic` of all rounds, and its percentile bootstrap interval over rounds drawn with
/// replacement. A ratio is paired by drawing rounds, each with both its sides.
pub fn bootstrap<T>(rounds: &[T], statistic: impl Fn(&[&T]) -> Option<f64>) -> Option<Estimate> {
    let all: Vec<&T> = rounds.iter().collect();
    let value = statistic(&all)?;
    if rounds.len() < MIN_ROUNDS {
        return Some(Estimate {
            value,
            interval: None,
        });
    }
    let mut rng = Pcg64Mcg::seed_from_u64(SEED);
    let mut drawn = Vec::with_capacity(RESAMPLES);
    // The order of a draw does not matter, and five rounds make only 126 different draws.
    let mut known: BTreeMap<Vec<usize>, Option<f64>> = BTreeMap::new();
    for _ in 0..RESAMPLES {
        let mut draw: Vec<usize> = (0..rounds.len())
            .map(|_| rng.random_range(0..rounds.len()))
            .collect();
        draw.sort_unstable();
        let value = known.entry(draw).or_insert_with_key(|draw| {
            let sample: Vec<&T> = draw.iter().map(|&at| &rounds[at]).collect();
            statistic(&sample)
        });
        drawn.extend(*value);
    }
    let low = percentile(&mut drawn, 2.5)?;
    let high = percentile(&mut drawn, 97.5)?;
    Some(Estimate {
        value,
        interval: Some([low, high]),
    })
}

/// The median of one figure a round.
pub fn median_of_rounds(values: &[f64]) -> Option<Estimate> {
    bootstrap(values, |drawn| {
        let values: Vec<f64> = drawn.iter().map(|value| **value).collect();
        median(&values)
    })
}

/// A percentile of the samples of all rounds together; rounds are drawn whole, because tokens of
/// one round are alike.
pub fn pooled_percentile(rounds: &[&[f64]], percent: f64) -> Option<Estimate> {
    bootstrap(rounds, |drawn| {
        percentile(&mut pool(drawn.iter().map(|round| **round)), percent)
    })
}

/// The ratio of two pooled percentiles, paired by round.
pub fn pooled_percentile_ratio(rounds: &[(&[f64], &[f64])], percent: f64) -> Option<Estimate> {
    bootstrap(rounds, |drawn| {
        let above = percentile(&mut pool(drawn.iter().map(|round| round.0)), percent)?;
        let below = percentile(&mut pool(drawn.iter().map(|round| round.1)), percent)?;
        (below > 0.0).then(|| above / below)
    })
}

fn pool<'a>(rounds: impl Iterator<Item = &'a [f64]>) -> Vec<f64> {
    rounds.flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_by_hand() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn percentiles_by_nearest_rank() {
        let mut values: Vec<f64> = (1..=500).map(f64::from).collect();
        assert_eq!(percentile(&mut values, 50.0), Some(250.0));
        assert_eq!(percentile(&mut values, 99.0), Some(495.0));
        assert_eq!(percentile(&mut [7.0], 99.0), Some(7.0));
        assert_eq!(percentile(&mut [], 50.0), None);
    }

    #[test]
    fn geometric_mean_by_hand() {
        let mean = geometric_mean(&[0.5, 2.0, 8.0]).unwrap();
        assert!((mean - 2.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
    }

    #[test]
    fn intervals_cover_the_rounds_and_repeat_exactly() {
        let rounds = [10.0, 11.0, 12.0, 13.0, 100.0];
        let estimate = median_of_rounds(&rounds).unwrap();
        assert_eq!(estimate.value, 12.0);
        // The median of five drawn ones is the least with probability
        // P(at least 3 of 5 draws are it) = 0.05792 > 0.025: both ends are reached.
        assert_eq!(estimate.interval, Some([10.0, 100.0]));
        assert_eq!(median_of_rounds(&rounds), Some(estimate));
        assert_eq!(median_of_rounds(&[1.0, 2.0]).unwrap().interval, None);
    }

    #[test]
    fn an_interval_leaves_out_what_is_reached_too_seldom() {
        let rounds = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0];
        // The median of seven drawn ones is the least with probability P(at least 4 of 7 draws are it) = 0.0101,
        // one of the two least with 0.103: 2.5 % lie at the second.
        let estimate = median_of_rounds(&rounds).unwrap();
        assert_eq!(
            (estimate.value, estimate.interval),
            (13.0, Some([11.0, 15.0]))
        );
    }

    #[test]
    fn a_constant_has_an_interval_without_width() {
        let estimate = median_of_rounds(&[5.0; 5]).unwrap();
        assert_eq!(estimate.interval, Some([5.0, 5.0]));
        assert!(estimate.excludes(4.9));
        assert!(!estimate.excludes(5.0));
    }

    #[test]
    fn pools_the_samples_of_all_rounds() {
        let (a, b): (Vec<f64>, Vec<f64>) = (vec![1.0; 90], vec![9.0; 10]);
        let estimate = pooled_percentile(&[&a, &b], 90.0).unwrap();
        assert_eq!(estimate.value, 1.0);
        let pairs = [(&b[..], &a[..]), (&b[..], &a[..]), (&b[..], &a[..])];
        let ratio = pooled_percentile_ratio(&pairs, 99.0).unwrap();
        assert_eq!(
            ratio,
            Estimate {
                value: 9.0,
                interval: Some([9.0, 9.0])
            }
        );
    }
}
