// SPDX-License-Identifier: GPL-2.0-only
//! When the items of an open loop are due, all from one seed. Pure.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::graph::{Gaps, Phase};

/// What one of several threads of a source sends: every `threads`-th item, at its share of the rate. Endless.
#[derive(Debug)]
pub struct Arrivals {
    phases: Vec<Phase>,
    gaps: Gaps,
    rng: Pcg64Mcg,
    thread: u64,
    threads: u64,
    sent: u64,
    due: Duration,
}

/// One item to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Of all items of the source.
    pub number: u64,
    /// Since the source began.
    pub due: Duration,
}

impl Arrivals {
    pub fn new(phases: &[Phase], gaps: Gaps, seed: u64, thread: usize, threads: usize) -> Self {
        Self {
            phases: phases.to_vec(),
            gaps,
            rng: Pcg64Mcg::seed_from_u64(seed),
            thread: thread as u64,
            threads: threads as u64,
            sent: 0,
            due: Duration::ZERO,
        }
    }

    /// Items a second, of all threads, when the source's item `number` is due.
    fn rate(&self, number: u64) -> f64 {
        let mut end = 0;
        let phase = self.phases.iter().find(|phase| {
            end += phase.items.unwrap_or(0);
            phase.items.is_none() || number < end
        });
        phase.map_or(1.0, |phase| phase.rate)
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let number = self.sent * self.threads + self.thread;
        let mean = self.threads as f64 / self.rate(number);
        let gap = match self.gaps {
            Gaps::Even => mean,
            // An exponential gap; 1 - u is never 0.
            Gaps::Poisson => -(1.0 - self.rng.random::<f64>()).ln() * mean,
        };
        self.sent += 1;
        self.due += Duration::from_secs_f64(gap);
        Some(Arrival {
            number,
            due: self.due,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: &[Phase] = &[Phase {
        items: None,
        rate: 20.0,
    }];

    fn all(phases: &[Phase], gaps: Gaps, seed: u64) -> Arrivals {
        Arrivals::new(phases, gaps, seed, 0, 1)
    }

    #[test]
    fn the_seed_settles_all_and_the_rate_is_kept() {
        let take = |seed| -> Vec<Arrival> { all(STEADY, Gaps::Poisson, seed).take(4000).collect() };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
        let last = take(7)[3999].due.as_secs_f64();
        assert!((last / 200.0 - 1.0).abs() < 0.06, "{last}");
    }

    #[test]
    fn gaps_are_exponential() {
        let mut before = 0.0;
        let gaps: Vec<f64> = all(STEADY, Gaps::Poisson, 1)
            .take(4000)
            .map(|arrival| {
                let gap = arrival.due.as_secs_f64() - before;
                before = arrival.due.as_secs_f64();
                gap
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The standard deviation of an exponential distribution is its mean.
        let ratio = variance.sqrt() / mean;
        assert!((ratio - 1.0).abs() < 0.08, "{ratio}");
    }

    #[test]
    fn a_surge_begins_with_its_item() {
        let phases = [
            Phase {
                items: Some(10),
                rate: 10.0,
            },
            Phase {
                items: None,
                rate: 100.0,
            },
        ];
        let due: Vec<u128> = all(&phases, Gaps::Even, 1)
            .take(12)
            .map(|arrival| arrival.due.as_millis())
            .collect();
        assert_eq!((due[9], due[10], due[11]), (1000, 1010, 1020));
    }

    #[test]
    fn threads_share_the_items_and_the_rate() {
        let of = |thread| Arrivals::new(STEADY, Gaps::Even, 1, thread, 2);
        let numbers = |thread| -> Vec<u64> { of(thread).take(3).map(|a| a.number).collect() };
        assert_eq!((numbers(0), numbers(1)), (vec![0, 2, 4], vec![1, 3, 5]));
        assert_eq!(of(0).next().unwrap().due, Duration::from_millis(100));
    }
}
