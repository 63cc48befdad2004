// SPDX-License-Identifier: GPL-2.0-only
//! The statistics: medians, percentiles that refuse thin data, Student's intervals over boots, what of many
//! comparisons is shown. Pure: the same cells give the same figures.

mod discoveries;
mod estimate;
mod meta;
mod percentile;

pub use discoveries::discoveries;
pub use estimate::{
    Difference, Estimate, Scale, over_boots, percentile_over_boots, percentile_ratio_over_boots,
    welch,
};
pub use meta::random_effects;
pub use percentile::percentile;

/// A p99 needs this many samples: with fewer the chance is above 1 % that not one of them lies
/// beyond the true 99th percentile (0.99^459 < 0.01).
pub const P99_MIN_SAMPLES: usize = 459;

/// Tokens/s that are nearer than this are the same to a reader of the report: twice what two cells of one boot differ
/// by, and what a fleet would not notice.
pub const SPEED_MARGIN: f64 = 0.02;
/// The same of a p99: half of what two boots of one kernel may differ by.
pub const TAIL_MARGIN: f64 = 0.1;

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

/// The geometric mean of positive values.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|&value| value <= 0.0) {
        return None;
    }
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    Some((logs / values.len() as f64).exp())
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
    fn geometric_mean_by_hand() {
        let mean = geometric_mean(&[0.5, 2.0, 8.0]).unwrap();
        assert!((mean - 2.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
    }
}
