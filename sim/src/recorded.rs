// SPDX-License-Identifier: GPL-2.0-only
//! What the threads of a recorded profile do: runs and sleeps as long as they were, who ends them, whom they wake.

use std::sync::Arc;

use gpuaware_trace::profile::Histogram;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// Times of a bucket, alike around their mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    /// How many times are in it and in those before.
    upto: u64,
    low_ns: u64,
    high_ns: u64,
}

/// Times of a histogram, to be drawn from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draws(Vec<Range>);

impl From<&Histogram> for Draws {
    fn from(histogram: &Histogram) -> Self {
        let mut upto = 0;
        let ranges = histogram.0.iter().map(|bucket| {
            let mean_ns = bucket.2;
            upto += bucket.1;
            let below = mean_ns.saturating_sub(bucket.least_ns());
            let above = bucket.most_ns().map(|most| most.saturating_sub(mean_ns));
            let half = above.map_or(below, |above| above.min(below));
            Range {
                upto,
                low_ns: mean_ns - half.min(mean_ns),
                high_ns: mean_ns + half,
            }
        });
        Self(ranges.collect())
    }
}

impl Draws {
    fn count(&self) -> u64 {
        self.0.last().map_or(0, |range| range.upto)
    }

    /// One of them; 0 where there are none.
    fn draw(&self, rng: &mut Pcg64Mcg) -> u64 {
        if self.count() == 0 {
            return 0;
        }
        let at = rng.random_range(0..self.count());
        let found = self.0.partition_point(|range| range.upto <= at);
        let range = self.0[found];
        rng.random_range(range.low_ns..=range.high_ns)
    }
}

/// Tasks that one wakes at the end of a run: one of those that wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wakes {
    /// By their numbers, without a gap.
    pub first: usize,
    pub count: usize,
    /// How often it happened, in so many runs.
    pub times: u64,
    pub runs: u64,
}

impl Wakes {
    /// After this run.
    fn now(&self, rng: &mut Pcg64Mcg) -> u64 {
        let (whole, rest) = (self.times / self.runs, self.times % self.runs);
        // More than there are cannot wait.
        let whole = whole.min(self.count as u64);
        // What happens nearly always does: else two that wake each other would both sleep, time and again.
        const NEARLY: u64 = 20;
        if rest >= self.runs - self.runs / NEARLY {
            return whole + 1;
        }
        if whole == 1 && rest <= self.runs / NEARLY {
            return 1;
        }
        whole + u64::from(rng.random_range(0..self.runs) < rest)
    }
}

/// What the threads of a group do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    pub run: Draws,
    /// Sleeps that timers and interrupts end.
    pub alone: Draws,
    /// Sleeps that other threads end…
    pub awaited: Draws,
    /// …so many of them threads that are simulated.
    pub known: u64,
    pub wakes: Vec<Wakes>,
    /// Between two lives, where threads came and went, spread over all runs.
    pub gap_ns: u64,
    /// Time on a CPU from one yield to the next; 0: it does not yield.
    pub yield_every_ns: u64,
}

/// What a thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Run(u64),
    Yield,
    /// Wakes one of these tasks, looking from the one of that number on.
    Wake {
        first: usize,
        count: usize,
        from: usize,
    },
    Sleep(u64),
    /// Sleeps until another task wakes it, or for so long.
    Await(u64),
}

/// A thread on its way.
#[derive(Debug)]
pub struct Player {
    recorded: Arc<Recorded>,
    /// Of the run.
    left_ns: u64,
    /// What is still to be done after the run, the last one first.
    then: Vec<Step>,
    yields: bool,
}

/// Whoever nobody wakes goes on after so many times what it slept.
const PATIENCE: u64 = 3;
const LEAST_PATIENCE_NS: u64 = 1_000_000;
/// A yield costs something: not more often than this.
const LEAST_PIECE_NS: u64 = 1_000;

impl Player {
    pub fn new(recorded: Arc<Recorded>) -> Self {
        Self {
            recorded,
            left_ns: 0,
            then: Vec::new(),
            yields: false,
        }
    }

    /// The next step; the runs that are over are counted in `done`.
    pub fn next(&mut self, rng: &mut Pcg64Mcg, done: &mut u64) -> Step {
        if self.left_ns > 0 {
            return self.piece();
        }
        if let Some(step) = self.then.pop() {
            return step;
        }
        self.left_ns = self.recorded.run.draw(rng).max(1);
        self.yields = false;
        *done += 1;
        self.plan(rng);
        self.piece()
    }

    /// All of a run, or what of it lies before the next yield.
    fn piece(&mut self) -> Step {
        let every_ns = match self.recorded.yield_every_ns {
            0 => u64::MAX,
            every_ns => every_ns.max(LEAST_PIECE_NS),
        };
        if std::mem::take(&mut self.yields) {
            return Step::Yield;
        }
        let ns = self.left_ns.min(every_ns);
        self.left_ns -= ns;
        self.yields = self.left_ns > 0;
        Step::Run(ns)
    }

    /// What comes after the run.
    fn plan(&mut self, rng: &mut Pcg64Mcg) {
        let recorded = Arc::clone(&self.recorded);
        self.then.extend(recorded.sleep(rng));
        if recorded.gap_ns > 0 {
            self.then.push(Step::Sleep(recorded.gap_ns));
        }
        for wakes in &recorded.wakes {
            for _ in 0..wakes.now(rng) {
                self.then.push(Step::Wake {
                    first: wakes.first,
                    count: wakes.count,
                    from: rng.random_range(0..wakes.count),
                });
            }
        }
    }
}

impl Recorded {
    /// `None`: it goes on, as one that never sleeps does.
    fn sleep(&self, rng: &mut Pcg64Mcg) -> Option<Step> {
        let (alone, awaited) = (self.alone.count(), self.awaited.count());
        let sleeps = alone + awaited;
        if sleeps == 0 || rng.random_range(0..self.run.count().max(1)) >= sleeps {
            return None;
        }
        let at = rng.random_range(0..sleeps);
        Some(if at < self.known.min(awaited) {
            let ns = self.awaited.draw(rng).saturating_mul(PATIENCE);
            Step::Await(ns.max(LEAST_PATIENCE_NS))
        } else if at < awaited {
            Step::Sleep(self.awaited.draw(rng).max(1))
        } else {
            Step::Sleep(self.alone.draw(rng).max(1))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rand::SeedableRng;

    use super::*;

    pub(crate) fn histogram(times_ns: &[u64]) -> Histogram {
        let mut all = Histogram::default();
        times_ns.iter().for_each(|&ns| all.add(ns));
        all
    }

    fn steps(recorded: Recorded, count: usize) -> Vec<Step> {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut player = Player::new(Arc::new(recorded));
        let mut done = 0;
        (0..count)
            .map(|_| player.next(&mut rng, &mut done))
            .collect()
    }

    #[test]
    fn what_is_drawn_has_the_mean_of_what_was_recorded() {
        let draws = Draws::from(&histogram(&[100, 2_000_000, 2_000_000, 9_000_000, 3 << 30]));
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let sum: f64 = (0..20_000).map(|_| draws.draw(&mut rng) as f64).sum();
        let mean = (100.0 + 13_000_000.0 + (3_u64 << 30) as f64) / 5.0;
        assert!((sum / 20_000.0 / mean - 1.0).abs() < 0.05, "{sum}");
    }

    #[test]
    fn runs_and_sleeps_take_turns_and_one_without_sleeps_is_a_loop() {
        let periodic = Recorded {
            run: (&histogram(&[2_000_000; 9])).into(),
            alone: (&histogram(&[8_000_000; 9])).into(),
            ..Recorded::default()
        };
        for pair in steps(periodic.clone(), 20).chunks(2) {
            let fit = matches!(
                pair,
                [
                    Step::Run(1_900_000..=2_100_000),
                    Step::Sleep(7_000_000..=9_000_000)
                ]
            );
            assert!(fit, "{pair:?}");
        }
        let busy = Recorded {
            alone: Draws::default(),
            ..periodic.clone()
        };
        assert!(
            steps(busy, 9)
                .iter()
                .all(|step| matches!(step, Step::Run(_)))
        );
        let absent = Recorded {
            gap_ns: 5,
            ..periodic
        };
        assert_eq!(steps(absent, 3)[1], Step::Sleep(5));
    }

    #[test]
    fn a_run_with_yields_is_done_in_pieces() {
        let yielding = Recorded {
            run: (&histogram(&[100_000; 2])).into(),
            alone: (&histogram(&[1000])).into(),
            yield_every_ns: 40_000,
            ..Recorded::default()
        };
        let all = steps(yielding, 40);
        let yields = all.iter().filter(|step| **step == Step::Yield).count();
        assert!((10..=20).contains(&yields), "{all:?}");
    }

    #[test]
    fn whoever_woke_others_wakes_them_after_each_run() {
        let waker = |times| Recorded {
            run: (&histogram(&[1000; 100])).into(),
            awaited: (&histogram(&[1000; 100])).into(),
            known: 100,
            wakes: vec![Wakes {
                first: 4,
                count: 2,
                times,
                runs: 100,
            }],
            ..Recorded::default()
        };
        let wakes = |times| {
            let all = steps(waker(times), 3000);
            let runs = all.iter().filter(|step| matches!(step, Step::Run(_)));
            let woken = all.iter().filter(|step| {
                matches!(
                    step,
                    Step::Wake {
                        first: 4,
                        count: 2,
                        from: 0..=1
                    }
                )
            });
            woken.count() as f64 / runs.count() as f64
        };
        assert_eq!((wakes(97), wakes(104)), (1.0, 1.0));
        assert!((wakes(250) - 2.5).abs() < 0.1);
        assert!((wakes(30) - 0.3).abs() < 0.1);
        let awaits = steps(waker(100), 300);
        assert!(
            awaits.iter().all(|step| !matches!(step, Step::Sleep(_))),
            "{awaits:?}"
        );
    }
}
