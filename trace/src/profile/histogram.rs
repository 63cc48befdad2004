// SPDX-License-Identifier: GPL-2.0-only
//! Times by powers of 2, with the mean of each bucket: that is enough to draw them again with the same sum.

use serde::{Deserialize, Serialize};

/// Buckets of a histogram.
pub const NR_BUCKETS: u32 = 32;

/// Its number, how many times are in it, and their mean in ns. Number 0 has zeros, *n* what is from 2^(n-1) to
/// 2^n - 1 ns, the last one everything above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket(pub u32, pub u64, pub u64);

impl Bucket {
    /// The shortest time that belongs in it, ns.
    pub fn least_ns(self) -> u64 {
        match self.0 {
            0 => 0,
            number => 1 << (number - 1),
        }
    }

    /// The longest; `None`: there is none.
    pub fn most_ns(self) -> Option<u64> {
        (self.0 + 1 < NR_BUCKETS).then(|| (1 << self.0) - 1)
    }
}

/// The buckets that are not empty, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(pub Vec<Bucket>);

impl Histogram {
    /// From how many times are in each bucket, and their sums.
    pub fn of(counts: &[u64], sums_ns: &[u64]) -> Self {
        let buckets = (0..).zip(counts.iter().zip(sums_ns));
        let filled = buckets.filter(|(_, (count, _))| **count > 0);
        Self(
            filled
                .map(|(number, (&count, &sum_ns))| Bucket(number, count, sum_ns / count))
                .collect(),
        )
    }

    /// How many times.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.1).sum()
    }

    /// Their sum.
    pub fn sum_ns(&self) -> u64 {
        let sums = self.0.iter();
        sums.fold(0, |sum, bucket| {
            sum.saturating_add(bucket.1.saturating_mul(bucket.2))
        })
    }

    /// `None`: there are none.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns().checked_div(self.count())
    }

    /// The upper end of the bucket in which the time is that `share` of them do not exceed; `None`: it has none, or
    /// there are no times.
    pub fn below_ns(&self, share: f64) -> Option<u64> {
        let wanted = self.count() as f64 * share;
        let mut seen = 0;
        let found = self.0.iter().find(|bucket| {
            seen += bucket.1;
            seen as f64 >= wanted
        });
        found.and_then(|bucket| Some(bucket.most_ns()? + 1))
    }

    /// One more time.
    pub fn add(&mut self, ns: u64) {
        let number = (u64::BITS - ns.leading_zeros()).min(NR_BUCKETS - 1);
        self.merge(&Self(vec![Bucket(number, 1, ns)]));
    }

    /// All those of another.
    pub fn merge(&mut self, other: &Self) {
        for bucket in &other.0 {
            match self.0.binary_search_by_key(&bucket.0, |own| own.0) {
                Ok(at) => {
                    let Bucket(number, count, mean_ns) = self.0[at];
                    let all = count + bucket.1;
                    // Wide enough for any two of them.
                    let sum = u128::from(count) * u128::from(mean_ns)
                        + u128::from(bucket.1) * u128::from(bucket.2);
                    self.0[at] = Bucket(number, all, (sum / u128::from(all.max(1))) as u64);
                }
                Err(at) => self.0.insert(at, *bucket),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_where_the_kernel_side_puts_them() {
        let mut histogram = Histogram::default();
        for ns in [0, 1, 2, 3, 1024, 2047, u64::MAX >> 1] {
            histogram.add(ns);
        }
        let numbers: Vec<(u32, u64)> = histogram.0.iter().map(|it| (it.0, it.1)).collect();
        assert_eq!(numbers, [(0, 1), (1, 1), (2, 2), (11, 2), (31, 1)]);
        assert_eq!(histogram.0[3].2, 1535);
        let bucket = histogram.0[3];
        assert_eq!((bucket.least_ns(), bucket.most_ns()), (1024, Some(2047)));
        assert_eq!(histogram.0[4].most_ns(), None);
        assert_eq!(histogram.below_ns(0.5), Some(4));
        assert_eq!(histogram.below_ns(1.0), None);
    }

    #[test]
    fn a_sum_stays_when_two_are_put_together() {
        let mut both = Histogram::of(&[0, 0, 4], &[0, 0, 10]);
        both.merge(&Histogram::of(&[1, 0, 2], &[0, 0, 6]));
        assert_eq!(both.count(), 7);
        // Means are whole numbers: 2.5 is 2 before it is put together with 3.
        assert_eq!(both.0, [Bucket(0, 1, 0), Bucket(2, 6, 2)]);
        assert_eq!(Histogram::default().mean_ns(), None);
    }
}
