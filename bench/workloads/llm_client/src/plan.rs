// SPDX-License-Identifier: GPL-2.0-only
//! What is sent when, settled before the first request: Poisson arrivals and lengths, all from one
//! seed. Pure.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const LENGTHS: &str = include_str!("../data/lengths.csv");

/// One request to come.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Since the measured part began.
    pub at: Duration,
    pub prompt: String,
    pub output_tokens: u32,
}

/// `count` requests at `rate` a second: an open loop, which waits for no answer. As `vllm bench serve`
/// does, the arrivals are stretched so that they take `count / rate` seconds whatever the seed.
pub fn requests(count: usize, rate: f64, length_scale: f64, seed: u64) -> Vec<Planned> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let lengths = lengths();
    let mut sum = 0.0;
    let gaps: Vec<f64> = (0..count)
        .map(|_| {
            // An exponential gap; 1 - u is never 0.
            sum -= (1.0 - rng.random::<f64>()).ln() / rate;
            sum
        })
        .collect();
    let stretch = if sum > 0.0 {
        count as f64 / rate / sum
    } else {
        1.0
    };
    gaps.into_iter()
        .map(|at| {
            let (prompt, output) = lengths[rng.random_range(0..lengths.len())];
            Planned {
                at: Duration::from_secs_f64(at * stretch),
                prompt: prompt_of(scaled(prompt, length_scale), &mut rng),
                output_tokens: scaled(output, length_scale),
            }
        })
        .collect()
}

fn scaled(tokens: u32, scale: f64) -> u32 {
    ((f64::from(tokens) * scale).round() as u32).max(1)
}

/// A text of about that many tokens: four letters and blanks each.
fn prompt_of(tokens: u32, rng: &mut Pcg64Mcg) -> String {
    (0..tokens)
        .map(|_| {
            let letter = |rng: &mut Pcg64Mcg| char::from(rng.random_range(b'a'..=b'z'));
            format!("{}{}{} ", letter(rng), letter(rng), letter(rng))
        })
        .collect()
}

/// Prompt and answer, in tokens.
fn lengths() -> Vec<(u32, u32)> {
    let row = |line: &str| {
        let (prompt, output) = line.split_once(',')?;
        Some((prompt.parse().ok()?, output.parse().ok()?))
    };
    LENGTHS.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_the_seed_settles_all() {
        let plan = requests(500, 20.0, 1.0, 7);
        assert_eq!(plan.len(), 500);
        let last = plan.last().unwrap().at.as_secs_f64();
        assert!((last - 25.0).abs() < 1e-6, "{last}");
        assert_eq!(plan, requests(500, 20.0, 1.0, 7));
        assert_ne!(plan, requests(500, 20.0, 1.0, 8));
    }

    #[test]
    fn gaps_are_exponential() {
        let plan = requests(4000, 10.0, 1.0, 1);
        let mut before = 0.0;
        let gaps: Vec<f64> = plan
            .iter()
            .map(|planned| {
                let gap = planned.at.as_secs_f64() - before;
                before = planned.at.as_secs_f64();
                gap
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The standard deviation of an exponential distribution is its mean.
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.06,
            "{}",
            variance.sqrt() / mean
        );
    }

    #[test]
    fn lengths_scale_down_to_one_token_at_least() {
        assert_eq!(lengths().len(), 400);
        let longest = |plan: &[Planned]| plan.iter().map(|p| p.output_tokens).max().unwrap();
        let full = requests(200, 1.0, 1.0, 3);
        let quarter = requests(200, 1.0, 0.25, 3);
        assert!(longest(&full) > 3 * longest(&quarter));
        assert!(
            quarter
                .iter()
                .all(|p| p.output_tokens >= 1 && !p.prompt.is_empty())
        );
        assert_eq!(prompt_of(3, &mut Pcg64Mcg::seed_from_u64(1)).len(), 12);
    }
}
