// SPDX-License-Identifier: GPL-2.0-only
//! How long the GPU takes for a batch: points that were measured, straight lines between them. Pure.

use std::time::Duration;

use serde::Serialize;

/// At least one point; sizes rise, times do not fall.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve(Vec<(usize, f64)>);

impl Curve {
    /// Sizes of batches and their times in ms.
    ///
    /// # Errors
    /// What was expected.
    pub fn new(sizes: &[i64], ms: &[f64]) -> Result<Self, String> {
        if sizes.is_empty() || sizes.len() != ms.len() {
            return Err(format!(
                "one time for each of {} sizes, at least one, got {}",
                sizes.len(),
                ms.len()
            ));
        }
        let mut points = Vec::with_capacity(sizes.len());
        for (&size, &ms) in sizes.iter().zip(ms) {
            let size = usize::try_from(size).unwrap_or(0);
            let &(before, least) = points.last().unwrap_or(&(0, 0.0));
            if size <= before || !(least..=600_000.0).contains(&ms) {
                return Err(format!(
                    "sizes that rise from 1 on, times that do not fall, at most 600000 ms; got {size} items in {ms} ms \
                     after {before} in {least} ms"
                ));
            }
            points.push((size, ms));
        }
        Ok(Self(points))
    }

    /// A smaller batch than the first point's takes as long as that; beyond the last, the last line goes on.
    pub fn time(&self, batch: usize) -> Duration {
        Duration::from_secs_f64(self.ms(batch) / 1e3)
    }

    fn ms(&self, batch: usize) -> f64 {
        let Some(&(first, least)) = self.0.first() else {
            return 0.0;
        };
        if batch <= first {
            return least;
        }
        let [.., (mut low, mut low_ms), (mut high, mut high_ms)] = self.0[..] else {
            // One point: so long for each item.
            return least * batch as f64 / first as f64;
        };
        for pair in self.0.windows(2) {
            if batch <= pair[1].0 {
                ((low, low_ms), (high, high_ms)) = (pair[0], pair[1]);
                break;
            }
        }
        low_ms + (high_ms - low_ms) * (batch as f64 - low as f64) / (high - low) as f64
    }

    /// The largest batch, of `max` items at most, that takes no longer than `ms`: one item at least.
    pub fn largest_within(&self, ms: f64, max: usize) -> usize {
        (1..=max)
            .rev()
            .find(|&batch| self.ms(batch) <= ms)
            .unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> Curve {
        Curve::new(&[1, 4, 16], &[10.0, 16.0, 40.0]).unwrap()
    }

    #[test]
    fn times_lie_on_lines_between_points() {
        let ms = |batch| curve().ms(batch);
        assert_eq!([ms(1), ms(2), ms(4), ms(10)], [10.0, 12.0, 16.0, 28.0]);
        assert_eq!(ms(32), 72.0, "the last line goes on");
        let each = Curve::new(&[2], &[6.0]).unwrap();
        assert_eq!([each.ms(1), each.ms(2), each.ms(4)], [6.0, 6.0, 12.0]);
        assert_eq!(curve().time(4), Duration::from_millis(16));
    }

    #[test]
    fn a_batch_is_capped_by_its_time() {
        assert_eq!(curve().largest_within(16.0, 64), 4);
        assert_eq!(curve().largest_within(29.0, 64), 10);
        assert_eq!(curve().largest_within(1e9, 8), 8);
        assert_eq!(curve().largest_within(1.0, 8), 1, "somebody must be served");
    }

    #[test]
    fn points_that_make_no_curve_are_refused() {
        for (sizes, ms) in [
            (&[][..], &[][..]),
            (&[1, 2], &[5.0]),
            (&[2, 2], &[5.0, 6.0]),
            (&[0], &[5.0]),
            (&[1, 2], &[5.0, 4.0]),
            (&[1], &[f64::NAN]),
        ] {
            assert!(Curve::new(sizes, ms).is_err(), "{sizes:?} {ms:?}");
        }
    }
}
