// SPDX-License-Identifier: GPL-2.0-only
//! Latencies one by one, so that several runs can be taken together: of every request, or of one in two, four, ... when
//! there are very many. Pure.

use std::time::Duration;

/// More would make the document larger than the rest of a run's.
const MOST: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Samples {
    /// A power of two: of so many requests one is kept.
    every: u64,
    /// Request and latency in us.
    kept: Vec<(u64, u64)>,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            every: 1,
            kept: Vec::new(),
        }
    }
}

impl Samples {
    pub fn add(&mut self, request: u64, latency: Duration) {
        if is_kept(request, self.every) {
            let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            self.kept.push((request, us));
            self.thin();
        }
    }

    pub fn join(&mut self, other: Self) {
        self.every = self.every.max(other.every);
        self.kept.extend(other.kept);
        let every = self.every;
        self.kept.retain(|&(request, _)| is_kept(request, every));
        self.thin();
    }

    fn thin(&mut self) {
        while self.kept.len() > MOST && self.every < 1 << 40 {
            self.every *= 2;
            let every = self.every;
            self.kept.retain(|&(request, _)| is_kept(request, every));
        }
    }

    pub fn every(&self) -> u64 {
        self.every
    }

    /// By request.
    pub fn sorted(mut self) -> Vec<(u64, u64)> {
        self.kept.sort_unstable();
        self.kept
    }
}

/// By a hash: sources, routes and batches take turns, and every second request would be that of one thread.
fn is_kept(request: u64, every: u64) -> bool {
    let hash = request.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    hash.is_multiple_of(every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_every_so_many_are_kept() {
        let mut samples = Samples::default();
        for request in 0..250_000 {
            samples.add(request, Duration::from_micros(request));
        }
        assert_eq!(samples.every(), 32);
        let kept = samples.sorted();
        assert!((7_600..8_000).contains(&kept.len()), "{}", kept.len());
        assert!(kept.iter().all(|(request, us)| request == us));
    }

    #[test]
    fn threads_that_take_turns_keep_their_shares() {
        let mut samples = Samples::default();
        for request in 0..160_000 {
            samples.add(request, Duration::from_micros(request % 4));
        }
        let kept = samples.sorted();
        for thread in 0..4 {
            let its = kept.iter().filter(|(_, us)| *us == thread).count();
            let share = its as f64 / kept.len() as f64;
            assert!((0.23..0.27).contains(&share), "{thread}: {share}");
        }
    }

    #[test]
    fn threads_are_thinned_alike() {
        let (mut many, mut few) = (Samples::default(), Samples::default());
        for request in 0..150_000 {
            many.add(2 * request, Duration::from_micros(5));
        }
        for request in 0..10 {
            few.add(2 * request + 1, Duration::from_micros(5));
        }
        few.join(many);
        assert!(few.every() > 1);
        let every = few.every();
        assert!(
            few.sorted()
                .iter()
                .all(|&(request, _)| is_kept(request, every))
        );
    }
}
