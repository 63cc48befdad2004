// SPDX-License-Identifier: GPL-2.0-only
//! Percentiles of samples.

/// The percentile that is as often too high as too low, whatever the distribution: type 8 of Hyndman and Fan,
/// "Sample Quantiles in Statistical Packages", The American Statistician 50 (1996). The nearest rank is off by up
/// to a rank, which of a few hundred tokens is a tenth of a p99.
pub fn percentile(values: &mut [f64], percent: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let at = (percent / 100.0 * (count + 1.0 / 3.0) - 2.0 / 3.0).clamp(0.0, last as f64);
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    Some(values[below] + (at - below as f64) * (values[above] - values[below]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_hand() {
        let of = |values: &[f64], percent| percentile(&mut values.to_vec(), percent);
        // Rank 0.5 (5 + 1/3) + 1/3 = 3, and 0.9 (9 + 1/3) + 1/3 = 8.7333.
        assert_eq!(of(&[5.0, 1.0, 4.0, 2.0, 3.0], 50.0), Some(3.0));
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        assert!((of(&nine, 90.0).unwrap() - (8.0 + 11.0 / 15.0)).abs() < 1e-12);
        assert_eq!(of(&nine, 99.0), Some(9.0), "no rank beyond the last");
        assert_eq!(of(&[7.0], 99.0), Some(7.0));
        assert_eq!(of(&[], 50.0), None);
    }
}
